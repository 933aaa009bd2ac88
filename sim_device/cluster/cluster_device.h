/// The device of one simulated process: a Device (velo/device/device.h) whose packets go through a Cluster.
///
/// RmaUnit does its RMA. A guarded send that finds the mailbox full holds all of its node, whoever sends to whom,
/// until there are slots, because EXTOLL's back-pressure ends at the sender's NIC (FC 2); send() then answers
/// kAgain.
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
#include "sim_device/cluster/rma_unit.h"
#include "velo/device/device.h"
#include "velo/device/faults.h"

namespace velo::cluster {

class Cluster;

/// Owner: its Cluster. It keeps a few words until it meets a peer.
class ClusterDevice {
  public:
    ClusterDevice(Cluster& cluster, uint32_t process, uint32_t at_node, const DeviceConfig& config);

    /// Meets a process of the cluster, which then knows this one too: connections have both ends.
    DeviceAddr meet(uint32_t process);
    /// kNoAddr: they have not met.
    [[nodiscard]] DeviceAddr find(uint32_t process) const { return used_ ? used_->peers.find(process) : kNoAddr; }
    /// Which process a device address means.
    [[nodiscard]] uint32_t process_of(DeviceAddr peer) const { return used_->peers[peer].process; }
    [[nodiscard]] uint32_t peers() const { return used_ ? used_->peers.size() : 0; }

    [[nodiscard]] uint32_t process() const { return process_; }
    [[nodiscard]] uint32_t at_node() const { return at_node_; }
    [[nodiscard]] uint16_t node() const { return node_; }
    [[nodiscard]] uint8_t vpid() const { return vpid_; }
    /// The process was killed, or has announced its end.
    [[nodiscard]] bool ended() const { return dead_ || ending() != base::Ending::kNone; }
    [[nodiscard]] base::Ending ending() const { return static_cast<base::Ending>(ending_); }
    RmaUnit& rma();
    /// nullptr before the first use of RMA.
    [[nodiscard]] const RmaUnit* rma_if_used() const { return used_ ? used_->rma.get() : nullptr; }

    // Virtual time.

    [[nodiscard]] uint64_t clock_ns() const { return clock_ns_; }
    void spend(uint64_t ns) { clock_ns_ += ns; }
    /// Spends time of the CPU, which has a jitter.
    void work(uint64_t ns);
    void advance_clock(uint64_t now_ns) { clock_ns_ = now_ns > clock_ns_ ? now_ns : clock_ns_; }
    /// Whether the process waits for an arrival or for its node; the Cluster wakes only those that do.
    [[nodiscard]] bool asleep() const { return asleep_; }
    void sleep();
    /// If it is asleep, it is due at `at_ns`, or at its clock if that is later.
    void wake(uint64_t at_ns);
    /// How often a contact slot that this process had found taken became free.
    [[nodiscard]] uint64_t contact_wakes() const { return used_ ? used_->contact_wakes : 0; }

    // The Device.

    size_t address(std::span<std::byte> out) const;
    [[nodiscard]] const DeviceTraits& traits() const { return kTraits; }
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure = nullptr);
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const;
    [[nodiscard]] bool alive(DeviceAddr peer) const;
    /// A process that was killed announces nothing.
    void announce_ending(base::Ending ending) {
        if (!dead_) ending_ = static_cast<uint8_t>(ending);
    }
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const;
    bool claim_report(DeviceAddr peer);
    template <class Fill>
    Status send(DeviceAddr to, uint32_t packets, Admission admission, Fill&& fill);
    const Packet* peek(DeviceAddr& from);
    void advance();
    /// If payloads are not carried whole, only the head of a run's first packet is written to `out`.
    uint32_t take_run(std::byte* out, uint32_t packets);
    Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out) {
        return rma().registrations().add(base, bytes, access, out);
    }
    Status deregister(const Registration& registration) { return rma().registrations().remove(registration); }
    Status post(const RmaOperation& operation) { return rma().post(operation); }
    bool poll_notification(Notification& notification) {
        return used_ && used_->rma && used_->rma->poll_notification(clock_ns_, notification);
    }
    uint32_t progress(uint64_t now_ns) {
        advance_clock(now_ns);
        return 0;
    }
    [[nodiscard]] DeviceReport report(DeviceAddr peer) const;
    [[nodiscard]] DeviceLimits limits() const;
    [[nodiscard]] DeviceCounters counters() const;

    static constexpr DeviceTraits kTraits = {};

    /// The device's name, for the user.
    [[nodiscard]] static const char* name() { return "the simulated cluster"; }
    [[nodiscard]] static uint32_t peer_bytes() { return sizeof(ClusterPeer); }


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
        std::unique_ptr<base::Faults> faults;  ///< of DeviceConfig::faults; nullptr: none
        uint64_t stalled_until_ns = 0;         ///< by a fault
        uint64_t stall_drawn_at = UINT64_MAX;  ///< position in the mailbox
        std::unique_ptr<RmaUnit> rma;
    };
    Used& used();
    void die(uint64_t at_ns);
    void wake_contact_waiters();
    bool dies_by_fault(uint32_t packets);
    bool stalled(Used& receiver) const;
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
    uint64_t job_token_;
    uint32_t process_;
    uint32_t at_node_;
    uint32_t slots_;
    uint32_t contact_slots_;
    uint16_t node_;
    uint8_t vpid_;
    uint8_t ports_;
    bool asleep_ = false;
    bool dead_ = false;  ///< killed: Cluster::kill
    uint8_t ending_ = 0;  ///< ending()
    std::unique_ptr<Used> used_;
};
static_assert(sizeof(ClusterDevice) <= 72, "a process that never communicates");

static_assert(Device<ClusterDevice>);

}  // namespace velo::cluster
