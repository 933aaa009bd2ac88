/// The requester's half of the RMA unit: ports, their queues, and the operations in them (FC 2; librma2).
///
/// Puts and gets are done here, by cross-memory attach, after a look at the target's translation table. Long
/// ones are offered to the target, which moves a part when it is in progress() (block_mover.h).
/// An operation that needs the target's CPU goes to its request ring and comes back as an answer (request_server.h).
///
/// Order: a port's operations to one target begin in the order posted, and wait for one another; those to
/// different targets, or at different ports, do not. Puts and gets end in that order, and so do the others
/// among themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim_device/shim/block_mover.h"
#include "sim_device/shim/peer_table.h"
#include "sim_device/shim/rma_operation.h"
#include "velo/base/intrusive_queue.h"
#include "velo/device/faults.h"

namespace velo::shim {

/// Thread: the owner's.
class RmaUnit {
  public:
    /// Operations of a port that may lack their requester's notification, or its reading.
    static constexpr uint32_t kPortOperationsMax = 256;
    static constexpr uint32_t kBytesMax = 8u << 20;  ///< FC 2
    /// Copied by one call of progress(), so that it returns within about 0.1 ms.
    static constexpr uint32_t kBytesPerProgress = 256u << 10;
    static constexpr uint32_t kOperationsPerProgress = 64;

    /// Uses its ports, link and shares_cpus. `faults` may be nullptr.
    [[gnu::cold]] RmaUnit(PeerTable& peers, SegmentView own, const DeviceConfig& config,
                          base::Faults* faults);

    Status post(const RmaOperation& operation, uint64_t now_ns);
    bool poll_notification(Notification& notification);
    uint32_t progress(uint64_t now_ns);
    /// Ends what waits for an answer of `peer`; what is still queued ends when its turn comes.
    void peer_died(DeviceAddr peer);

    /// Operations on a peer that have not ended; O(all).
    [[nodiscard]] uint32_t operations(DeviceAddr peer) const;

    [[nodiscard]] AnswerRing& answer_ring() { return answers_; }
    [[nodiscard]] NotificationRing& notification_ring() { return notifications_; }
    /// Fills in the rma_ and atu_ counters.
    void add_counters(DeviceCounters& out) const;
    /// Answers and notifications that peers sent and that made no sense.
    [[nodiscard]] uint64_t malformed() const { return malformed_ + mover_.malformed(); }

  private:
    struct Port {
        base::IntrusiveQueue<Flow> active;  ///< flows that have operations
        uint32_t active_count = 0;
        uint32_t outstanding = 0;
    };
    /// Outcome for the head of a flow.
    enum class Step : uint8_t {
        kBlocked,  ///< it has to wait
        kMoved,    ///< it goes on
        kLeft,     ///< it is no longer in the flow
    };

    [[nodiscard]] bool acceptable(const RmaOperation& operation) const;
    [[gnu::cold]] uint64_t link_arrival(const RmaOperation& what) const;
    [[gnu::cold]] void fail_port(uint8_t port);
    [[gnu::cold]] static void hold_back_atomics(Flow& flow);
    static bool path_down(const RmaOperation& what, const Peer& peer);
    Flow& flow_of(const RmaOperation& operation);
    bool advance_port(Port& port, uint64_t now_ns, uint32_t& bytes_left);
    Step advance(Flow& flow, uint64_t now_ns, uint32_t& bytes_left);
    Step settle(Flow& flow, Operation& operation, Peer& peer);
    Step notify_peer(Flow& flow, Operation& operation, Peer& peer);
    Step request(Flow& flow, Operation& operation, Peer& peer);
    void end(Operation& operation, Status status, uint64_t value);
    void release(Operation& operation);
    uint32_t take_answers();

    PeerTable& peers_;
    base::Faults* faults_;
    AnswerRing answers_;
    NotificationRing notifications_;
    SegmentView own_;
    LinkOptions link_;
    BlockMover mover_;
    std::vector<Operation> operations_;
    base::IntrusiveQueue<Operation> free_;
    base::IntrusiveQueue<Operation> done_;  ///< to be notified to the requester, that is, to us
    std::vector<Port> ports_;
    std::vector<std::unique_ptr<Flow[]>> flows_;  ///< by peer, then port; made when first needed
    uint32_t next_port_ = 0;
    uint32_t awaiting_ = 0;
    bool own_notifications_next_ = true;
    RmaCounters counters_;
    uint64_t malformed_ = 0;
};

}  // namespace velo::shim
