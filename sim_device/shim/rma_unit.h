/// The requester's half of the RMA unit: ports, their queues, and the operations in them (FC 2; librma2).
///
/// Puts and gets are done here, by cross-memory attach, after a look at the target's translation table. Long
/// ones are offered to the target, which moves a part when it is in progress() (offer.h, copy_helper.h).
/// An operation that needs the target's CPU goes to its request ring and comes back as an answer (request_server.h).
///
/// Order: a port's operations to one target begin in the order posted, and wait for one another; those to
/// different targets, or at different ports, do not. Puts and gets end in that order, and so do the others
/// among themselves. Offered operations that follow one another, all puts or all gets and to different
/// memory, are moved at the same time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim_device/shim/peer_table.h"
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
    /// After this number of operations that a target did not come for, it computes, or has its own to move. One in
    /// as many is offered then, because an offer costs both sides some line transfers.
    static constexpr uint32_t kPatience = 8;
    static constexpr uint32_t kAhead = 8;  ///< operations of a flow that are moved at a time
    /// Copied by one system call; less where the target does a part, so that it finds one.
    static constexpr uint32_t kBatchBytes = 256u << 10;
    static constexpr uint32_t kSharedBatchBytes = 128u << 10;
    static constexpr uint32_t kOperationsPerProgress = 64;

    /// Uses its ports, link and shares_cpus. `faults` may be nullptr.
    [[gnu::cold]] RmaUnit(PeerTable& peers, SegmentView own, const DeviceConfig& config, base::Faults* faults);

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
    [[nodiscard]] uint64_t malformed() const { return malformed_; }

  private:
    enum class Stage : uint8_t { kFree, kQueued, kMoved, kNotifyingPeer, kAwaitingAnswer, kDone };
    static constexpr uint8_t kNoOffer = UINT8_MAX;
    struct Operation {
        Operation* next = nullptr;
        RmaOperation what;
        uint64_t not_before_ns = 0;
        uint64_t value = 0;
        uint32_t moved = 0;
        uint16_t generation = 0;
        Stage stage = Stage::kFree;
        Status status = Status::kOk;  ///< result; before that, a fault to come
        uint8_t offer = kNoOffer;     ///< slot
        Status copied = Status::kOk;  ///< of a put or get: the first failure
        // Of an offered operation.
        bool astray = false;  ///< the target's part did not come, or does not add up
        uint64_t helper_copying = 0;  ///< the target's DeviceHeader::copying when nothing was left to take
    };
    /// A port's operations to one target.
    struct Flow {
        Flow* next = nullptr;
        DeviceAddr peer = kNoAddr;
        base::IntrusiveQueue<Operation> operations;
        uint32_t ignored = 0;  ///< operations since the target came in time for an offer
        bool denied = false;   ///< the target cannot copy, or its word cannot be relied on
    };
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

    static bool moves_block(RmaKind kind) { return kind == RmaKind::kPut || kind == RmaKind::kGet; }
    static bool apart(const RmaOperation& a, const RmaOperation& b);
    static bool may_move(const Flow& flow, const Operation& operation);
    [[nodiscard]] bool acceptable(const RmaOperation& operation) const;
    [[gnu::cold]] uint64_t link_arrival(const RmaOperation& what) const;
    [[gnu::cold]] void fail_port(uint8_t port);
    static bool path_down(const RmaOperation& what, const Peer& peer);
    Flow& flow_of(const RmaOperation& operation);
    bool advance_port(Port& port, uint64_t now_ns, uint32_t& bytes_left);
    Step advance(Flow& flow, uint64_t now_ns, uint32_t& bytes_left);
    void offer_ahead(Flow& flow, Peer& peer);
    bool offer(Operation& operation, Peer& peer);
    base::BlockPart next_part(const Flow& flow, Operation& operation, uint32_t bytes_max);
    void own_part_ended(Operation& operation, const Peer& peer, base::BlockPart part, Status status);
    void close_offer(Operation& operation, const Peer& peer);
    bool settled(Operation& operation, const Peer& peer);
    Step settle(Flow& flow, Operation& operation, Peer& peer);
    void withdraw(Operation& operation);
    Step copy(Flow& flow, Peer& peer, uint32_t& bytes_left);
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
    OfferSlot* offers_;
    std::vector<uint8_t> free_offers_;
    std::array<base::ReaderBlock, kOfferSlots> offered_;
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
