#include "sim_device/shim/block_mover.h"

#include <algorithm>
#include <span>

#include "sim_device/shim/abandoned_claims.h"
#include "velo/os/cma.h"

namespace velo::shim {

/// Parts that are copied together.
struct BlockMover::Batch {
    std::array<Operation*, base::kCmaPartsMax> of;
    std::array<base::CmaPart, base::kCmaPartsMax> parts;
    uint32_t count = 0;
    uint32_t bytes = 0;
};

BlockMover::BlockMover(PeerTable& peers, SegmentView own, bool offers) : peers_(peers), slots_(own.offers()) {
    if (!offers) return;
    for (uint32_t slot = kOfferSlots; slot-- > 0;) free_slots_.push_back(static_cast<uint8_t>(slot));
}

/// Whether nothing speaks against moving two operations at the same time, or the second one first.
bool BlockMover::disjoint(const RmaOperation& a, const RmaOperation& b) {
    if (a.kind != b.kind) return false;
    // By gets our memory is written, by puts the target's.
    const bool get = a.kind == RmaKind::kGet;
    const uint64_t first = get ? reinterpret_cast<uint64_t>(a.local) : a.nla;
    const uint64_t second = get ? reinterpret_cast<uint64_t>(b.local) : b.nla;
    return first < second ? second - first >= a.bytes : first - second >= b.bytes;
}

/// Whether an operation may be moved together with all before it in its flow.
bool BlockMover::may_move(const Flow& flow, const Operation& operation) {
    const Operation* head = flow.operations.front();
    if (&operation == head || operation.offered()) return true;
    if (!moves_block(operation.what.kind) || operation.status != Status::kOk || operation.not_before_ns != 0)
        return false;
    for (const Operation* before = head; before != &operation; before = before->next) {
        if (!disjoint(before->what, operation.what)) return false;
    }
    return true;
}

/// Offers the first operations of a flow to their target.
void BlockMover::offer_ahead(Flow& flow, Peer& peer) {
    if (flow.denied) return;
    const bool patient = flow.ignored >= kPatience;
    if (patient && flow.ignored % kPatience != 0) return;
    uint32_t ahead = 0;
    for (Operation* at = flow.operations.front(); at != nullptr && ahead < (patient ? 1 : kAhead);
         at = at->next, ++ahead) {
        if (at->stage != Stage::kQueued || at->offered() || at->what.bytes < kOfferBytesMin) continue;
        if (at->moved != 0 || !may_move(flow, *at) || !offer(*at, peer)) return;
    }
}

/// False: it cannot be now.
bool BlockMover::offer(Operation& operation, Peer& peer) {
    if (free_slots_.empty() || peers_.announce(peer) != Status::kOk) return false;
    const RmaOperation& what = operation.what;
    const Identity& own = peers_.identity();
    const uint8_t index = free_slots_.back();
    OfferSlot& slot = slots_[index];
    blocks_[index].open(slot.claims, what.bytes);
    const uint16_t generation = blocks_[index].generation();
    const OfferTerms terms = {
        .bytes = what.bytes, .generation = generation, .slot = index, .kind = what.kind};
    const Request request = {.nla = what.nla,
                             .operand = reinterpret_cast<uint64_t>(what.local),
                             .compare = terms.pack(),
                             .key = short_key(what.key),
                             .node = own.node,
                             .vpid = own.vpid,
                             .kind = static_cast<uint8_t>(what.kind)};
    slot.terms.store(request.compare, std::memory_order_relaxed);
    slot.address.store(request.operand, std::memory_order_relaxed);
    slot.nla.store(request.nla, std::memory_order_relaxed);
    slot.key.store(request.key, std::memory_order_relaxed);
    slot.report.store(OfferReport{.generation = generation}.pack(), std::memory_order_relaxed);
    {
        const OpenClaim claim(peers_.claims());
        if (peer.view.requests(what.port % peer.ports).push(request) != Status::kOk) return false;
    }
    free_slots_.pop_back();
    operation.offer = index;
    return true;
}

bool BlockMover::move(Flow& flow, Peer& peer, uint32_t& bytes_left) {
    offer_ahead(flow, peer);
    Batch batch;
    if (!collect(flow, peer, batch)) return false;
    const base::AtuView atu = peer.view.atu();
    const int32_t pid = peer.segment.address().pid;
    const std::span parts = std::span(batch.parts).first(batch.count);
    const bool get = flow.operations.front()->what.kind == RmaKind::kGet;
    if (!parts.empty()) get ? base::cma_read(pid, parts) : base::cma_write(pid, parts);
    for (uint32_t i = 0; i < batch.count; ++i) {
        const RmaOperation& what = batch.of[i]->what;
        const Status status = atu.after_copy(parts[i].status, what.nla, what.key);
        const auto offset = static_cast<uint32_t>(parts[i].local - what.local);
        own_part_ended(*batch.of[i], peer, {offset, parts[i].bytes}, status);
    }
    bytes_left -= std::min(bytes_left, batch.bytes);
    return true;
}

/// Takes parts for one system call. False: none of the flow's operations changed.
bool BlockMover::collect(Flow& flow, const Peer& peer, Batch& batch) {
    const uint32_t bytes_max = flow.ignored == 0 && !flow.denied ? kSharedBatchBytes : kBatchBytes;
    const base::AtuView atu = peer.view.atu();
    const uint32_t access = flow.operations.front()->what.kind == RmaKind::kGet ? kAccessRead : kAccessWrite;
    uint32_t ahead = 0;
    bool changed = false;
    for (Operation* at = flow.operations.front();
         at != nullptr && ahead < kAhead && batch.count < batch.parts.size() && batch.bytes < bytes_max;
         at = at->next, ++ahead) {
        if (at->stage == Stage::kMoved) continue;
        if (!may_move(flow, *at)) break;
        changed = true;
        const base::BlockPart part = next_part(flow, *at, bytes_max - batch.bytes);
        if (part.bytes == 0) {
            close_offer(*at, peer);
            continue;
        }
        const RmaOperation& what = at->what;
        uint64_t address = 0;
        const Status status = atu.translate(what.nla, what.bytes, what.key, access, address);
        if (status != Status::kOk) {
            own_part_ended(*at, peer, part, status);
            continue;
        }
        batch.of[batch.count] = at;
        batch.parts[batch.count++] = {what.local + part.offset, address + part.offset, part.bytes};
        batch.bytes += part.bytes;
        // A piece that is not taken as a whole goes on with its next part.
        if (!at->offered() && part.offset + part.bytes != what.bytes) break;
    }
    return changed;
}

/// The next bytes of an operation to be moved, from the back where it is on offer: no bytes when nothing is left to
/// take.
base::BlockPart BlockMover::next_part(const Flow& flow, Operation& operation, uint32_t bytes_max) {
    const uint32_t bytes = operation.what.bytes;
    if (!operation.offered()) return {operation.moved, std::min(bytes - operation.moved, bytes_max)};
    const bool more_behind = operation.next != nullptr && operation.next->offered();
    const uint32_t most = more_behind || flow.ignored != 0 ? bytes_max : 0;
    return blocks_[operation.offer].claim_back(slots_[operation.offer].claims, most);
}

/// A part that we took has been moved, or cannot be.
void BlockMover::own_part_ended(Operation& operation, const Peer& peer, base::BlockPart part, Status status) {
    if (status != Status::kOk && operation.copied == Status::kOk) operation.copied = status;
    if (!operation.offered()) {
        operation.moved += part.bytes;
        if (status != Status::kOk || operation.moved == operation.what.bytes) operation.stage = Stage::kMoved;
        return;
    }
    base::ReaderBlock& block = blocks_[operation.offer];
    block.end(part.bytes);
    if (status != Status::kOk || block.left_bytes() == 0) close_offer(operation, peer);
}

/// Nothing of the operation can be taken any more. It goes on when all that the target took is accounted for.
void BlockMover::close_offer(Operation& operation, const Peer& peer) {
    if (!blocks_[operation.offer].close(slots_[operation.offer].claims, operation.copied == Status::kOk)) {
        ++malformed_;
        operation.astray = true;
    }
    operation.helper_copying = peer.view.header().copying.load(std::memory_order_acquire);
    operation.stage = Stage::kMoved;
}

bool BlockMover::settled(Operation& operation, const Peer& peer) {
    if (!operation.offered()) return true;
    const base::ReaderBlock& block = blocks_[operation.offer];
    if (block.due_bytes() == 0 && !operation.astray) return true;
    const auto last_word = [&] {
        const OfferReport report =
            OfferReport::unpack(slots_[operation.offer].report.load(std::memory_order_acquire));
        if (report.generation != block.generation()) return false;
        if (report.status == Status::kOk)
            return !operation.astray && report.chunks == block.chunks(block.due_bytes());
        // This process perhaps can copy what the target may not or cannot.
        if (report.status != Status::kAtuFault) {
            operation.astray = true;
        } else if (operation.copied == Status::kOk) {
            operation.copied = Status::kAtuFault;
        }
        return true;
    };
    if (last_word()) return true;
    // A target that has left the copy of that time has reported it.
    const uint64_t copying = peer.view.header().copying.load(std::memory_order_acquire);
    if (operation.helper_copying % 2 == 1 && copying == operation.helper_copying) return false;
    if (last_word()) return true;
    ++malformed_;
    operation.astray = true;
    return true;
}

bool BlockMover::finish(Flow& flow, Operation& operation) {
    if (operation.what.bytes >= kOfferBytesMin) {
        ++flow.ignored;
        if (operation.offered()) {
            const base::ReaderBlock& block = blocks_[operation.offer];
            const uint32_t seen = slots_[operation.offer].seen.load(std::memory_order_relaxed);
            if (block.due_bytes() != 0 || seen == block.generation()) flow.ignored = 0;
        }
    }
    withdraw(operation);
    if (operation.copied != Status::kOk || !operation.astray) return true;
    // It is unknown who took what, or it was not done: all of it again, and alone from now on.
    flow.denied = true;
    operation.astray = false;
    operation.stage = Stage::kQueued;
    return false;
}

void BlockMover::fail(Operation& operation, const Peer& peer) {
    if (operation.copied == Status::kOk) operation.copied = Status::kFailed;
    if (operation.stage == Stage::kQueued) close_offer(operation, peer);
}

void BlockMover::withdraw(Operation& operation) {
    if (!operation.offered()) return;
    blocks_[operation.offer].close(slots_[operation.offer].claims, false);
    free_slots_.push_back(operation.offer);
    operation.offer = Operation::kNoOffer;
}

}  // namespace velo::shim
