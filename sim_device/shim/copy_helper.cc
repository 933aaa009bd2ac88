#include "sim_device/shim/copy_helper.h"

#include "velo/base/cma.h"

namespace velo::shim {

bool CopyHelper::take(const Request& request, DeviceAddr from) {
    const OfferTerms terms = OfferTerms::unpack(request.compare);
    if (terms.pack() != request.compare || terms.bytes == 0 || terms.slot >= kOfferSlots ||
        static_cast<uint8_t>(terms.kind) != request.kind ||
        (terms.kind != RmaKind::kGet && terms.kind != RmaKind::kPut)) {
        return false;
    }
    const Help help = {
        .from = from, .terms = terms, .address = request.operand, .nla = request.nla, .key = request.key};
    const Peer& peer = peers_[from];
    if (peer.dead || helps_.size() == kHelpsMax || !stands(help, peer)) return true;
    helps_.push_back(help);
    return true;
}

/// Whether the slot still serves the operation that the offer was about.
bool CopyHelper::stands(const Help& help, const Peer& peer) {
    const OfferSlot& slot = peer.view.offers()[help.terms.slot];
    return slot.terms.load(std::memory_order_relaxed) == help.terms.pack() &&
           slot.address.load(std::memory_order_relaxed) == help.address &&
           slot.nla.load(std::memory_order_relaxed) == help.nla &&
           slot.key.load(std::memory_order_relaxed) == help.key;
}

uint32_t CopyHelper::progress() {
    size_t over = 0;
    uint32_t moved = 0;
    while (moved == 0 && over < helps_.size()) {
        const Outcome outcome = advance(helps_[over], over + 1 < helps_.size());
        if (outcome == Outcome::kMoved) {
            moved = 1;
        } else {
            ++over;
        }
    }
    helps_.erase(helps_.begin(), helps_.begin() + static_cast<ptrdiff_t>(over));
    return moved;
}

CopyHelper::Outcome CopyHelper::advance(Help& help, bool more_behind) {
    Peer& peer = peers_[help.from];
    // Looked at again each time: this process may have computed for longer than generations differ.
    if (peer.dead || !stands(help, peer)) return Outcome::kStopped;
    OfferSlot& slot = peer.view.offers()[help.terms.slot];
    const uint32_t bytes = help.terms.bytes;
    if (help.chunks_done == 0) slot.seen.store(help.terms.generation, std::memory_order_relaxed);
    // Odd from before the claim until after the report; pairs with the acquire in RmaUnit::settled().
    copying_.store(++copies_, std::memory_order_release);
    Outcome outcome = Outcome::kNothingLeft;
    uint32_t first = 0;
    const uint32_t count = base::JointClaims::claim_front(
        slot.joint, help.terms.generation, offer_chunks(bytes), first, offer_share(bytes, more_behind));
    if (count != 0) {
        const OfferPart part = offer_part(bytes, first, count);
        const Status status = copy(help, peer, part);
        if (status == Status::kOk) {
            help.chunks_done += count;
            moved_bytes_ += part.bytes;
        }
        const OfferReport report = {help.terms.generation, status, help.chunks_done};
        slot.report.store(report.pack(), std::memory_order_release);
        outcome = status == Status::kOk ? Outcome::kMoved : Outcome::kStopped;
    }
    copying_.store(++copies_, std::memory_order_release);
    return outcome;
}

Status CopyHelper::copy(const Help& help, const Peer& peer, OfferPart part) const {
    const bool get = help.terms.kind == RmaKind::kGet;
    uint64_t own = 0;
    const Status status =
        atu_.translate(help.nla, help.terms.bytes, help.key, get ? kAccessRead : kAccessWrite, own);
    if (status != Status::kOk) return status;
    auto* here = reinterpret_cast<std::byte*>(own + part.offset);
    const uint64_t there = help.address + part.offset;
    const int32_t pid = peer.segment.address().pid;
    return get ? base::cma_write(pid, here, there, part.bytes) : base::cma_read(pid, here, there, part.bytes);
}

}  // namespace velo::shim
