/// The device of one simulated process: a Device (velo/device.h) whose packets go through a Cluster.
///
/// The VELO part is complete. RMA is not simulated: register_memory() and post() answer kUnsupported, which a
/// device may. A guarded send that finds the mailbox full holds all of its node, whoever sends to whom, until
/// there is room, because EXTOLL's back-pressure ends at the sender's NIC (FC 2); send() then answers kAgain.
/// A credited one that does throws SimulationError: credits that allow it are wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "sim_device/cluster/mailbox.h"
#include "sim_device/cluster/peer_table.h"
#include "velo/device.h"

namespace velo::cluster {

class Cluster;

/// Owner: its Cluster. It keeps a few words until it meets a peer.
class ClusterDevice {
  public:
    ClusterDevice(Cluster& cluster, uint32_t process, uint32_t at_node, const DeviceConfig& config);

    /// Meets a process of the cluster, which then knows this one too: connections have both ends.
    DeviceAddr meet(uint32_t process);
    /// Which process a device address means.
    [[nodiscard]] uint32_t process_of(DeviceAddr peer) const { return used_->peers[peer].process; }
    [[nodiscard]] uint32_t peers() const { return used_ ? used_->peers.size() : 0; }

    [[nodiscard]] uint32_t process() const { return process_; }
    [[nodiscard]] uint32_t at_node() const { return at_node_; }

    // Virtual time.

    [[nodiscard]] uint64_t clock_ns() const { return clock_ns_; }
    void spend(uint64_t ns) { clock_ns_ += ns; }
    /// The same for work of the CPU, which has a jitter.
    void work(uint64_t ns);
    void advance_clock(uint64_t now_ns) { clock_ns_ = now_ns > clock_ns_ ? now_ns : clock_ns_; }
    /// Whether the process waits for an arrival or for its node; the Cluster wakes only those that do.
    [[nodiscard]] bool asleep() const { return asleep_; }
    void sleep();
    /// How often a contact slot that this process had found taken became free.
    [[nodiscard]] uint64_t contact_wakes() const { return used_ ? used_->contact_wakes : 0; }

    // The Device.

    size_t address(std::span<std::byte> out) const;
    [[nodiscard]] const DeviceTraits& traits() const { return kTraits; }
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure = nullptr);
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const;
    [[nodiscard]] bool alive(DeviceAddr peer) const;
    void announce_ending(base::Ending ending) { ending_ = ending; }
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const;
    bool claim_report(DeviceAddr peer);
    template <class Fill>
    Status send(DeviceAddr to, uint32_t packets, Admission admission, Fill&& fill);
    const Packet* peek(DeviceAddr& from);
    void advance();
    /// If payloads are not carried whole, only the head of a run's first packet is written to `out`.
    uint32_t take_run(std::byte* out, uint32_t packets);
    Status register_memory(void*, size_t, Access, Registration&) { return Status::kUnsupported; }
    Status deregister(const Registration&) { return Status::kBadParam; }
    Status post(const RmaOperation&) { return Status::kUnsupported; }
    bool poll_notification(Notification&) { return false; }
    uint32_t progress(uint64_t now_ns) {
        advance_clock(now_ns);
        return 0;
    }
    [[nodiscard]] DeviceReport report(DeviceAddr peer) const;
    [[nodiscard]] DeviceLimits limits() const { return {.ports = ports_, .mailbox_slots = slots_}; }
    [[nodiscard]] DeviceCounters counters() const { return used_ ? used_->counters : DeviceCounters{}; }

    static constexpr DeviceTraits kTraits = {.atomics = false, .notifies_targets = false};

    // For the driver's statistics.

    [[nodiscard]] uint64_t mailbox_fill_max() const { return used_ ? used_->mailbox.fill_max() : 0; }
    /// Packets sent that are not the host's: flow control's and the engine's.
    [[nodiscard]] uint64_t other_packets_sent() const { return used_ ? used_->other_packets_sent : 0; }

  private:
    friend class Cluster;

    struct Used {
        PeerTable peers;
        Mailbox mailbox;
        Packet packet;  ///< what peek() shows
        DeviceCounters counters;
        uint64_t other_packets_sent = 0;
        std::vector<bool> told;
        uint32_t contacts = 0;                  ///< contact slots that are taken
        std::vector<uint32_t> contact_waiters;  ///< processes that found none free
        uint64_t contact_wakes = 0;
    };
    Used& used();
    template <class Fill>
    void pack(uint32_t packets, Fill& fill, std::vector<Entry>& entries);
    Status launch(Used& sender, DeviceAddr to, uint32_t packets, std::vector<Entry>& entries);
    Status refuse_full(ClusterDevice& target, uint32_t packets, Admission admission);
    [[nodiscard]] bool has_room(uint64_t packets) const {
        return !used_ || used_->mailbox.fill() + packets <= slots_;
    }
    [[nodiscard]] ClusterDevice& target(DeviceAddr peer) const;
    void pay_for_taking(uint64_t status);
    bool take_contact_slot(ClusterDevice& target);
    void free_contacts(uint32_t count);

    Cluster& cluster_;
    uint64_t clock_ns_ = 0;
    uint64_t due_ns_ = UINT64_MAX;  ///< Cluster::schedule's
    uint64_t host_name_;
    uint32_t process_;
    uint32_t at_node_;
    uint32_t slots_;
    uint32_t contact_slots_;
    uint32_t ports_;
    uint16_t node_;
    uint8_t vpid_;
    bool asleep_ = false;
    base::Ending ending_ = base::Ending::kNone;
    std::unique_ptr<Used> used_;
};
static_assert(sizeof(ClusterDevice) <= 72, "a process that never communicates");

static_assert(Device<ClusterDevice>);

}  // namespace velo::cluster
