/// Shared by the parts of an engine: the system, options, lock, the two channels, the clock, counters, and the host's
/// log.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "flowctl/plan.h"
#include "velo/base/copy.h"
#include "velo/base/endings.h"
#include "velo/base/lock.h"
#include "velo/channels/packet_channel.h"
#include "velo/channels/ring_channel.h"
#include "velo/core/events.h"
#include "velo/core/peer.h"
#include "velo/core/peer_end_sink.h"
#include "velo/core/poll_clock.h"
#include "velo/options/engine_options.h"
#include "velo/velo.h"

namespace velo {

/// `S`: see velo/core/system.h. Throws base::SetupError. Owner: the engine. Thread: the engine's, under its lock.
template <class S>
struct Core {
    using Packets = PacketChannel<typename S::Device, S>;

    static constexpr uint32_t kCoopBlocks = shm::kCoopBlocks;
    static constexpr uint32_t kInlineBytesMax = shm::kInlineBytesMax;

    [[gnu::cold]] Core(const EngineOptions& with, const S& on)
        : system(on),
          options(with),
          lock(with.params.threads),
          events(options.host, lock),
          on_node(system.open_node(with.on_node)),
          ring(on_node),
          clock(system) {
        if (options.node_copies.single) system.permit_copies();
        if (!options.device_used) return;
        try {
            DeviceConfig config = options.device;
            if (options.network_used) config.network = &options.network;
            system.open_device(device, config);
            if (options.network_used) take_rails();
        } catch (const base::SetupError& error) {
            if (options.device.faults.empty()) throw;
            throw base::SetupError("btl_velo_faults=" + options.device.faults + ": " + error.what());
        }
        packets.emplace(*device, options.plan, options.params.device_message_bytes_max, system);
        if (options.plan.mode == flowctl::Mode::kHardware && !device->traits().sees_room) {
            throw base::SetupError(
                "btl_velo_flow_control=hardware has senders wait for room in a mailbox, which they "
                "do not see over " +
                std::string(device->name()) + "; use dynamic or static");
        }
    }

    /// Bytes of state of a process reached through the device, once it was talked to; without the device's own.
    [[nodiscard]] static uint32_t device_peer_bytes(const flowctl::Plan& plan) {
        return Packets::peer_bytes(plan) + static_cast<uint32_t>(sizeof(velo_peer) + sizeof(velo_peer*));
    }

    /// The network's device may have fewer rails than were asked for.
    [[gnu::cold]] void take_rails() {
        const uint32_t count = device->limits().rails;
        const bool still_static = options.have_rails(count);
        if (count == static_cast<uint32_t>(options.params.ports)) return;
        const std::string text = "btl_velo_ports=" + std::to_string(options.params.ports) + ", and " + device->name() +
                                 " has " + std::to_string(count) + (count == 1 ? " rail" : " rails");
        say(still_static ? 1 : 0,
            text + (still_static ? "" : ", too few for btl_velo_rails=static: local_dynamic is used"));
    }

    void log(int level, const std::string& line) const {
        if (options.host.log != nullptr) options.host.log(options.host.context, level, line.c_str());
    }
    /// Logs a line that begins with this process's rank.
    void say(int level, const std::string& text) const { log(level, with_rank(text)); }
    [[nodiscard]] std::string with_rank(const std::string& text) const {
        return "velo: rank " + std::to_string(options.identity.rank) + ": " + text;
    }
    [[gnu::cold]] void end_job(velo_path_t path, uint64_t name, const std::string& what);

    /// Guarded copies between memory of the host, which may be unmapped or protected, and memory of the engine. The
    /// kernel makes them, and says kBadMemory where a load or a store of this process would be its end. It reaches the
    /// host's memory as this process itself does; so it moves what it lets no other process touch, too.
    Status copy_out(const std::byte* from, std::byte* to, size_t bytes) {
        return guarded(system.copy_to(system.pid(), from, reinterpret_cast<uint64_t>(to), bytes), from, to, bytes);
    }
    Status copy_in(const std::byte* from, std::byte* to, size_t bytes) {
        return guarded(system.copy_from(system.pid(), to, reinterpret_cast<uint64_t>(from), bytes), from, to, bytes);
    }

    /// Gives the lock up in the middle of driving transfers. `driving` is true only while the thread that
    /// drives has the lock; else another one, which ends a transfer meanwhile, would take it for its own and
    /// set it again afterwards, when no thread drives any more.
    class Release {
      public:
        explicit Release(Core& core)
            : restored_{core.driving, std::exchange(core.driving, false)}, unlocked_(core.lock) {}

      private:
        struct Restored {
            bool& driving;
            bool before;
            ~Restored() { driving = before; }
        };
        const Restored restored_;
        const base::Unlocked unlocked_;  // ends first
    };

    /// Calls action(channel) with the channel that leads to this peer. Messages and reports ask nowhere else which one
    /// that is.
    template <class Action>
    [[gnu::always_inline]] auto on_channel(const velo_peer& peer, Action&& action) {
        return peer.path == VELO_PATH_DEVICE ? action(*packets) : action(ring);
    }

    [[no_unique_address]] S system;
    EngineOptions options;
    mutable base::OptionalLock lock;
    Events events;
    typename S::OnNode on_node;
    RingChannel<typename S::OnNode> ring;  ///< over the node's memory
    typename S::DeviceHolder device{};
    std::optional<Packets> packets;  ///< over the device
    PollClock<S> clock;
    uint64_t device_event_ns = 0;  ///< when the device last had something to do
    bool driving = false;          ///< transfers
    PeerEndSink* peer_ends = nullptr;
    HostState host_state = HostState::kPresent;  ///< of the part of the host that takes messages
    velo_counters_t counters{};    ///< those that no part counts itself

  private:
    /// A process that may not ask the kernel copies as ever.
    static Status guarded(Status copied, const std::byte* from, std::byte* to, size_t bytes) {
        if (copied == Status::kBadMemory) return copied;
        if (copied != Status::kOk) base::copy_long(to, from, bytes);
        return Status::kOk;
    }
};

/// Has the host show "velo: rank R: WHAT" and end the job. `what` names the peer, the cause and a remedy. To
/// be called where an accepted message or operation can never be carried out; the caller goes on where it
/// returns.
template <class S>
void Core<S>::end_job(velo_path_t path, uint64_t name, const std::string& what) {
    const std::string line = with_rank(what);
    if (!events.job_failed(path, name, line)) log(0, line);
}

}  // namespace velo
