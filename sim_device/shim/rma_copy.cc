// RmaUnit: how puts and gets are moved.
#include <algorithm>
#include <span>

#include "sim_device/shim/abandoned_claims.h"
#include "sim_device/shim/rma_unit.h"
#include "velo/os/cma.h"

namespace velo::shim {

/// Whether nothing speaks against moving two operations at the same time, or the second one first.
bool RmaUnit::apart(const RmaOperation& a, const RmaOperation& b) {
    if (a.kind != b.kind) return false;
    // By gets our memory is written, by puts the target's.
    const bool get = a.kind == RmaKind::kGet;
    const uint64_t first = get ? reinterpret_cast<uint64_t>(a.local) : a.nla;
    const uint64_t second = get ? reinterpret_cast<uint64_t>(b.local) : b.nla;
    return first < second ? second - first >= a.bytes : first - second >= b.bytes;
}

/// Whether an operation may be moved together with all before it in its flow.
bool RmaUnit::may_move(const Flow& flow, const Operation& operation) {
    const Operation* head = flow.operations.front();
    if (&operation == head || operation.offer != kNoOffer) return true;
    if (!moves_block(operation.what.kind) || operation.status != Status::kOk || operation.not_before_ns != 0)
        return false;
    for (const Operation* before = head; before != &operation; before = before->next) {
        if (!apart(before->what, operation.what)) return false;
    }
    return true;
}

/// Offers the first operations of a flow to their target.
void RmaUnit::offer_ahead(Flow& flow, Peer& peer) {
    if (flow.denied) return;
    const bool patient = flow.ignored >= kPatience;
    if (patient && flow.ignored % kPatience != 0) return;
    uint32_t ahead = 0;
    for (Operation* at = flow.operations.front(); at != nullptr && ahead < (patient ? 1 : kAhead);
         at = at->next, ++ahead) {
        if (at->stage != Stage::kQueued || at->offer != kNoOffer || at->what.bytes < kOfferBytesMin) continue;
        if (at->moved != 0 || !may_move(flow, *at) || !offer(*at, peer)) return;
    }
}

/// False: it cannot be now.
bool RmaUnit::offer(Operation& operation, Peer& peer) {
    if (free_offers_.empty() || peers_.announce(peer) != Status::kOk) return false;
    const RmaOperation& what = operation.what;
    const Identity& own = peers_.identity();
    const uint8_t index = free_offers_.back();
    OfferSlot& slot = offers_[index];
    offered_[index].open(slot.claims, what.bytes);
    const uint16_t generation = offered_[index].generation();
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
    free_offers_.pop_back();
    operation.offer = index;
    return true;
}

/// Moves the next parts of the first operations of a flow, together.
RmaUnit::Step RmaUnit::copy(Flow& flow, Peer& peer, uint32_t& bytes_left) {
    const uint32_t bytes_max = flow.ignored == 0 && !flow.denied ? kSharedBatchBytes : kBatchBytes;
    std::array<Operation*, base::kCmaPartsMax> of;
    std::array<base::CmaPart, base::kCmaPartsMax> parts;
    uint32_t count = 0;
    uint32_t bytes = 0;
    uint32_t ahead = 0;
    bool changed = false;
    const base::AtuView atu = peer.view.atu();
    const bool get = flow.operations.front()->what.kind == RmaKind::kGet;
    for (Operation* at = flow.operations.front();
         at != nullptr && ahead < kAhead && count < parts.size() && bytes < bytes_max;
         at = at->next, ++ahead) {
        if (at->stage == Stage::kMoved) continue;
        if (!may_move(flow, *at)) break;
        changed = true;
        const base::BlockPart part = next_part(flow, *at, bytes_max - bytes);
        if (part.bytes == 0) {
            close_offer(*at, peer);
            continue;
        }
        const RmaOperation& what = at->what;
        uint64_t address = 0;
        const Status status =
            atu.translate(what.nla, what.bytes, what.key, get ? kAccessRead : kAccessWrite, address);
        if (status != Status::kOk) {
            own_part_ended(*at, peer, part, status);
            continue;
        }
        of[count] = at;
        parts[count++] = {what.local + part.offset, address + part.offset, part.bytes};
        bytes += part.bytes;
        // A piece that is not taken as a whole goes on with its next part.
        if (at->offer == kNoOffer && part.offset + part.bytes != what.bytes) break;
    }
    if (!changed) return Step::kBlocked;
    const int32_t pid = peer.segment.address().pid;
    const std::span batch = std::span(parts).first(count);
    if (count != 0) get ? base::cma_read(pid, batch) : base::cma_write(pid, batch);
    for (uint32_t i = 0; i < count; ++i) {
        const RmaOperation& what = of[i]->what;
        const Status status = atu.after_copy(parts[i].status, what.nla, what.key);
        const auto offset = static_cast<uint32_t>(parts[i].local - what.local);
        own_part_ended(*of[i], peer, {offset, parts[i].bytes}, status);
    }
    bytes_left -= std::min(bytes_left, bytes);
    return Step::kMoved;
}

/// The next bytes of an operation to be moved, from the back where it is on offer: no bytes when nothing is left to
/// take.
base::BlockPart RmaUnit::next_part(const Flow& flow, Operation& operation, uint32_t bytes_max) {
    const uint32_t bytes = operation.what.bytes;
    if (operation.offer == kNoOffer) return {operation.moved, std::min(bytes - operation.moved, bytes_max)};
    const bool more_behind = operation.next != nullptr && operation.next->offer != kNoOffer;
    const uint32_t most = more_behind || flow.ignored != 0 ? bytes_max : 0;
    return offered_[operation.offer].claim_back(offers_[operation.offer].claims, most);
}

/// A part that we took has been moved, or cannot be.
void RmaUnit::own_part_ended(Operation& operation, const Peer& peer, base::BlockPart part, Status status) {
    if (status != Status::kOk && operation.copied == Status::kOk) operation.copied = status;
    if (operation.offer == kNoOffer) {
        operation.moved += part.bytes;
        if (status != Status::kOk || operation.moved == operation.what.bytes) operation.stage = Stage::kMoved;
        return;
    }
    base::ReaderBlock& block = offered_[operation.offer];
    block.end(part.bytes);
    if (status != Status::kOk || block.left_bytes() == 0) close_offer(operation, peer);
}

/// Nothing of the operation can be taken any more. It goes on when all that the target took is accounted for.
void RmaUnit::close_offer(Operation& operation, const Peer& peer) {
    if (!offered_[operation.offer].close(offers_[operation.offer].claims, operation.copied == Status::kOk)) {
        ++malformed_;
        operation.astray = true;
    }
    operation.helper_copying = peer.view.header().copying.load(std::memory_order_acquire);
    operation.stage = Stage::kMoved;
}

/// Whether the target does nothing more for this operation. Sets what came of its part.
bool RmaUnit::settled(Operation& operation, const Peer& peer) {
    if (operation.offer == kNoOffer) return true;
    const base::ReaderBlock& block = offered_[operation.offer];
    if (block.due_bytes() == 0 && !operation.astray) return true;
    const auto last_word = [&] {
        const OfferReport report =
            OfferReport::unpack(offers_[operation.offer].report.load(std::memory_order_acquire));
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

/// Both sides' parts have moved, or failed.
RmaUnit::Step RmaUnit::settle(Flow& flow, Operation& operation, Peer& peer) {
    if (operation.what.bytes >= kOfferBytesMin) {
        ++flow.ignored;
        if (operation.offer != kNoOffer) {
            const base::ReaderBlock& block = offered_[operation.offer];
            const uint32_t seen = offers_[operation.offer].seen.load(std::memory_order_relaxed);
            if (block.due_bytes() != 0 || seen == block.generation()) flow.ignored = 0;
        }
    }
    withdraw(operation);
    if (operation.copied != Status::kOk) {
        flow.operations.pop_front();
        end(operation, operation.copied, 0);
        return Step::kLeft;
    }
    if (operation.astray) {
        // It is unknown who took what, or it was not done: all of it again, and alone from now on.
        flow.denied = true;
        operation.astray = false;
        operation.stage = Stage::kQueued;
        return Step::kMoved;
    }
    counters_.rma_bytes += operation.what.bytes;
    operation.stage = Stage::kNotifyingPeer;
    const Step step = notify_peer(flow, operation, peer);
    return step == Step::kBlocked ? Step::kMoved : step;
}

/// The operation is not on offer any more; its slot is free for another one.
void RmaUnit::withdraw(Operation& operation) {
    if (operation.offer == kNoOffer) return;
    offered_[operation.offer].close(offers_[operation.offer].claims, false);
    free_offers_.push_back(operation.offer);
    operation.offer = kNoOffer;
}

}  // namespace velo::shim
