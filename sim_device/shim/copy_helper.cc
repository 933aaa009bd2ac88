#include "sim_device/shim/copy_helper.h"

#include <algorithm>
#include <span>

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
    if (helps_.empty()) return 0;
    // Odd from before the first claim until after the last report; pairs with BlockMover::settled()'s acquire.
    copying_.store(++copies_, std::memory_order_release);
    Batch batch;
    uint32_t at = 0;
    for (; at < helps_.size() && batch.bytes < kBytesPerProgress && batch.count < batch.parts.size(); ++at) {
        Help& help = helps_[at];
        if (batch.count != 0 && (help.from != batch.from || help.terms.kind != batch.kind)) break;
        help.over = !add_part(at, batch);
    }
    move(batch);
    copying_.store(++copies_, std::memory_order_release);
    std::erase_if(helps_, [](const Help& help) { return help.over; });
    return batch.count;
}

/// Claims a part. False: there is nothing left to do for this offer.
bool CopyHelper::add_part(uint32_t index, Batch& batch) {
    Help& help = helps_[index];
    const Peer& peer = peers_[help.from];
    // Looked at again each time: this process may have computed for longer than generations differ.
    if (peer.dead || !stands(help, peer)) return false;
    OfferSlot& slot = peer.view.offers()[help.terms.slot];
    if (help.chunks_done == 0) slot.seen.store(help.terms.generation, std::memory_order_relaxed);
    const bool more_behind = index + 1 < helps_.size();
    const base::BlockPart part =
        help.block().claim_front(slot.claims, more_behind ? kBytesPerProgress - batch.bytes : 0);
    if (part.bytes == 0) return false;
    const bool get = help.terms.kind == RmaKind::kGet;
    uint64_t own = 0;
    const Status status =
        atu_.translate(help.nla, help.terms.bytes, help.key, get ? kAccessRead : kAccessWrite, own);
    if (status != Status::kOk) {
        report(help, status);
        return false;
    }
    batch.from = help.from;
    batch.kind = help.terms.kind;
    batch.helps[batch.count] = index;
    batch.parts[batch.count++] = {reinterpret_cast<std::byte*>(own + part.offset), help.address + part.offset,
                                  part.bytes};
    batch.bytes += part.bytes;
    return true;
}

/// Copies what was claimed, and reports it.
void CopyHelper::move(Batch& batch) {
    if (batch.count == 0) return;
    const int32_t pid = peers_[batch.from].segment.address().pid;
    const std::span parts = std::span(batch.parts).first(batch.count);
    batch.kind == RmaKind::kGet ? base::cma_write(pid, parts) : base::cma_read(pid, parts);
    for (uint32_t i = 0; i < batch.count; ++i) {
        Help& help = helps_[batch.helps[i]];
        if (parts[i].status == Status::kOk) {
            help.chunks_done += help.block().chunks(parts[i].bytes);
            moved_bytes_ += parts[i].bytes;
        } else {
            help.over = true;
        }
        report(help, parts[i].status);
    }
}

void CopyHelper::report(const Help& help, Status status) {
    const OfferReport report = {help.terms.generation, status, help.chunks_done};
    peers_[help.from].view.offers()[help.terms.slot].report.store(report.pack(), std::memory_order_release);
}

}  // namespace velo::shim
