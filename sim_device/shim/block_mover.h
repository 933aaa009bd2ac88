/// The bytes of puts and gets: copied by their requester, and offered to their target meanwhile.
///
/// A flow's first operations that follow one another, all puts or all gets and to different memory, are moved at
/// the same time. Long ones are on offer in slots of this process's segment (offer.h): their target takes chunks
/// from the front (copy_helper.h), and the requester from the back. The requester does alone what a target does not do
/// in time, or does wrongly.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim_device/shim/peer_table.h"
#include "sim_device/shim/rma_operation.h"

namespace velo::shim {

/// Owner: RmaUnit. Thread: the owner's. Invariant: a slot is free, or of one operation.
class BlockMover {
  public:
    /// After this number of operations that a target did not come for, it computes, or has its own to move. One in
    /// as many is offered then, because an offer costs both sides some line transfers.
    static constexpr uint32_t kPatience = 8;
    static constexpr uint32_t kAhead = 8;  ///< operations of a flow that are moved at a time
    /// Copied by one system call; less where the target does a part, so that it finds one.
    static constexpr uint32_t kBatchBytes = 256u << 10;
    static constexpr uint32_t kSharedBatchBytes = 128u << 10;

    /// `offers`: nothing is offered without them.
    BlockMover(PeerTable& peers, SegmentView own, bool offers);

    /// Moves the next parts of the first operations of a flow, together, after the flow's offers to its target.
    /// False: nothing can be moved now. Takes what it copied from `bytes_left`. An operation of which nothing is left
    /// to be taken is kMoved.
    bool move(Flow& flow, Peer& peer, uint32_t& bytes_left);

    /// Whether the target does nothing more for an operation that is kMoved. Sets what came of its part.
    bool settled(Operation& operation, const Peer& peer);
    /// Ends the move of an operation that is settled, whose `copied` says how. False: it is queued again, to be moved
    /// without the target.
    bool finish(Flow& flow, Operation& operation);
    /// The operation on offer ends as kFailed once the target does nothing more for it.
    void fail(Operation& operation, const Peer& peer);
    /// The operation is not on offer any more; its slot is free for another one.
    void withdraw(Operation& operation);

    /// Words in shared memory that made no sense.
    [[nodiscard]] uint64_t malformed() const { return malformed_; }

  private:
    struct Batch;

    static bool disjoint(const RmaOperation& a, const RmaOperation& b);
    static bool may_move(const Flow& flow, const Operation& operation);
    void offer_ahead(Flow& flow, Peer& peer);
    bool offer(Operation& operation, Peer& peer);
    bool collect(Flow& flow, const Peer& peer, Batch& batch);
    base::BlockPart next_part(const Flow& flow, Operation& operation, uint32_t bytes_max);
    void own_part_ended(Operation& operation, const Peer& peer, base::BlockPart part, Status status);
    void close_offer(Operation& operation, const Peer& peer);

    PeerTable& peers_;
    OfferSlot* slots_;
    std::vector<uint8_t> free_slots_;
    std::array<base::ReaderBlock, kOfferSlots> blocks_;  ///< by slot
    uint64_t malformed_ = 0;
};

}  // namespace velo::shim
