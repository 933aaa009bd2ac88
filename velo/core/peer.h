/// The engine's facts about one remote process, and those that it publishes of itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "rma/copy_choice.h"
#include "rma/peer_sources.h"
#include "velo/base/chunked_memory.h"
#include "velo/base/endings.h"
#include "velo/base/intrusive_queue.h"
#include "velo/device/device.h"
#include "velo/shm/on_node.h"
#include "velo/velo.h"
#include "velo/wire/shared_settings.h"

struct velo_match_peer;

/// A part of the engine has a struct of its own here, which it alone writes. The fields that a short message needs come
/// first, in one cache line.
///
/// Owner: the engine; a pointer to it stays good until the host has disconnected and the process has ended.
/// Thread: the engine's.
struct alignas(64) velo_peer {
    /// Of SendQueue.
    struct Sending {
        velo::base::IntrusiveQueue<velo_send_t> pending;
        bool listed = false;         ///< among the peers with waiting messages
        bool parked = false;         ///< of those, one whose first message waits for credits
        uint32_t poll = UINT32_MAX;  ///< in which the last message went through the device at once
        /// Short messages that may still be copied behind the host's last queued one, of those that it allowed.
        struct Copies {
            uint32_t left = 0;
            uint32_t granted = 0;
        } copies;
        velo::base::ChunkedMemory::Filling memory = nullptr;
    };
    /// Of EngineMessages.
    struct Serving {
        uint32_t pulls = 0;    ///< of the process that are being answered
        uint32_t answers = 0;  ///< to it that wait to be sent, and messages about rails
    };
    /// Of CoopReader and CoopOwner.
    struct Coop {
        uint32_t blocks = 0;         ///< that are fetched from the process
        uint32_t both_blocks = 0;    ///< next ones that count as fetched while it fetches from here, too
        uint64_t fetched_bytes = 0;  ///< of it in such blocks
        std::unique_ptr<velo::rma::CopyChoices> choices;  ///< the way that they take; none before the first
        uint32_t heard_poll = 0;     ///< in which data of such a block came last
        bool assists = true;         ///< it took its part when a block was last fetched from it
    };
    /// Of Failures: the host has been notified of these.
    struct Reported {
        bool end = false;
        bool loss = false;  ///< something was lost with the process
    };

    velo_path_t path = VELO_PATH_NONE;
    uint32_t index = 0;  ///< by path one of the next two
    [[nodiscard]] velo::shm::PeerIndex node_index() const { return velo::shm::PeerIndex(index); }
    [[nodiscard]] velo::DeviceAddr device_addr() const { return velo::DeviceAddr(index); }
    /// The ring to the peer, while short messages may leave there without a look at anything else: no other
    /// waits before them, the process is not known to have ended, and one thread uses the engine. The last one
    /// that left there sets it.
    velo::shm::RingProducer* ready_ring = nullptr;
    velo_match_peer* match = nullptr;  ///< matching's; none before the first message
    void* context = nullptr;           ///< the host's
    velo::PeerState state = velo::PeerState::kPresent;
    [[nodiscard]] bool ended() const { return velo::has_ended(state); }
    bool reclaimed = false;  ///< it has ended, and what it held here has been given back; `index` is another's
    bool connected = false;  ///< by us; a peer that only wrote to us is not yet
    bool direct = false;     ///< CMA or the device's RMA works with it, as far as is known
    Sending sending;

    // Facts about the process, of Connector.
    uint64_t name = 0;
    uint64_t job = 0;
    uint32_t rank = 0;
    uint32_t node = 0;  ///< of its job
    int32_t pid = 0;
    /// Vicinity::kAttachable: its memory could be shared, and its PID means something here.
    bool attachable = true;

    Reported reported;
    Serving serving;
    Coop coop;
    std::unique_ptr<velo::rma::PeerSources> sources;  ///< of RailDispatch; none before the first transfer
};
static_assert(offsetof(velo_peer, sending) + offsetof(velo_peer::Sending, pending) +
                      sizeof(velo_peer::Sending::pending) <=
                  64,
              "a short message looks at one cache line");

namespace velo {

/// The place of a process, seen from another one.
enum class Vicinity : uint8_t {
    kAttachable,      ///< on this host, in the same namespaces
    kOtherContainer,  ///< on this host, in others: no shared memory joins the two
    kOtherHost,
};

/// A process's address, published as bytes. Flat; both ends run the same velo, which `version` checks.
struct EngineAddress {
    static constexpr uint32_t kMagic = 0x6f6c6576;  // "velo"
    static constexpr uint16_t kVersion = 23;

    /// The process, as its launcher numbers it.
    struct Process {
        uint64_t name = 0;
        uint64_t job = 0;
        uint32_t rank = 0;
        uint32_t node = 0;
    };
    /// Its mailbox, as it was planned.
    struct Mailbox {
        uint32_t slots = 0;
        uint8_t flow_control = 0;  ///< flowctl::Mode
        uint8_t piggyback = 0;
        uint16_t credit_slots = 0;
        uint32_t quota = 0;
    };
    /// Eight bytes of private memory: a peer that can read them can copy from here directly.
    struct Probe {
        uint64_t address = 0;
        uint64_t value = 0;
    };

    uint32_t magic = kMagic;
    uint16_t version = kVersion;
    uint8_t network = 0;  ///< 1: `device` is that of a network
    uint8_t reserved = 0;
    Process process;
    Mailbox mailbox;
    Probe probe;
    shm::OnNodeAddress on_node;
    /// base::host_identity(): Open MPI does not know where the processes of another mpirun are.
    uint64_t host = 0;
    uint32_t message_bytes_max = 0;  ///< through the device
    uint32_t contact_slots = 0;
    SharedSettings settings;
    uint32_t device_bytes = 0;  ///< of `device` in use; 0: no device
    std::byte device[kDeviceAddressBytesMax] = {};

    /// Bytes of what is published: `device` as far as it is used.
    [[nodiscard]] size_t bytes() const { return offsetof(EngineAddress, device) + device_bytes; }
    /// False, with anything in this address: these bytes are none.
    [[nodiscard]] bool parse(const void* data, size_t length) {
        if (length < offsetof(EngineAddress, device) || length > sizeof *this) return false;
        std::memcpy(static_cast<void*>(this), data, length);
        return device_bytes <= sizeof device && length == bytes();
    }
};
static_assert(sizeof(EngineAddress) <= VELO_ADDRESS_BYTES_MAX);
static_assert(offsetof(EngineAddress, process) == 8 && offsetof(EngineAddress, mailbox) == 32 &&
              offsetof(EngineAddress, probe) == 48 && offsetof(EngineAddress, on_node) == 64);

/// Follows from what both publish, so both sides of a pair find the same, and agree on the path. `same_host`:
/// the launcher says so, to both.
[[nodiscard]] inline Vicinity vicinity(const EngineAddress& ours, const EngineAddress& theirs,
                                       bool same_host) {
    if (!same_host && (ours.host != theirs.host || ours.host == 0)) return Vicinity::kOtherHost;
    return ours.on_node.segment.namespaces == theirs.on_node.segment.namespaces ? Vicinity::kAttachable
                                                                                : Vicinity::kOtherContainer;
}

}  // namespace velo
