/// Bodies of velo/rendezvous/coop_owner.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/base/copy.h"
#include "velo/rendezvous/coop_owner.h"

namespace velo::rma {

template <class Core>
void CoopOwner<Core>::on_call(Peer& peer, const CoopCallHeader& header) {
    Assist assist = {.shared = {header.bytes, header.generation}, .peer = &peer, .cookie = header.cookie};
    assist.key = header.key;
    assist.nla = header.nla;
    assist.destination = header.destination;
    assist.slot = header.slot;
    assist.method = header.method;
    take_up(assist, header.bytes);
}

template <class Core>
void CoopOwner<Core>::on_part(Peer& peer, const CoopPartHeader& header) {
    Assist assist = {.shared = {}, .peer = &peer, .cookie = header.cookie, .key = header.key, .nla = header.nla};
    assist.base_offset = header.offset;
    assist.moving.bytes = header.bytes;
    assist.method = header.method;
    assist.claims = false;
    take_up(assist, header.bytes);
}

/// Takes a part in a peer's block, or says that it is not taken.
template <class Core>
void CoopOwner<Core>::take_up(Assist assist, uint32_t bytes) {
    Peer& peer = *assist.peer;
    if (peer.path != VELO_PATH_ON_NODE || assist.slot >= Core::kCoopBlocks || bytes == 0 ||
        bytes > kBlockBytesMax ||
        core_.on_node.atu().view().translate(assist.nla, bytes, assist.key, kAccessRead, assist.source) !=
            Status::kOk) {
        ++core_.counters.atu_faults;
        return send_done(assist, Status::kAtuFault);
    }
    if (peer.coop.blocks != 0) peer.coop.both_blocks = kBothBlocks;
    if (!add_assist(assist)) {
        ++core_.counters.engine_malformed;
        send_done(assist, Status::kProtocol);
    }
}

/// False: more than a peer can have. Its slot serves one block at a time, so an earlier one, of which nothing
/// is under way here, was moved without us.
template <class Core>
bool CoopOwner<Core>::add_assist(const Assist& assist) {
    uint32_t parts = 0;
    for (Assist& other : assists_) {
        if (other.peer != assist.peer || other.claims != assist.claims) continue;
        if (!assist.claims) {
            ++parts;
        } else if (other.slot == assist.slot) {
            if (other.moving.bytes != 0) return false;
            other = assist;
            return true;
        }
    }
    if (parts >= kNamedPartsMax) return false;
    assists_.push_back(assist);
    return true;
}

template <class Core>
uint32_t CoopOwner<Core>::drive() {
    if (assisting_) return 0;
    assisting_ = true;
    uint32_t moved = 0;
    for (size_t i = 0; i < assists_.size(); ++i) {
        if (advance_assist(i, moved)) continue;
        assists_.erase(assists_.begin() + static_cast<ptrdiff_t>(i));
        --i;
    }
    assisting_ = false;
    return moved;
}

/// False: this process's part in the block is over. Only drive() takes parts away, so their places stay while
/// the lock is given up.
template <class Core>
bool CoopOwner<Core>::advance_assist(size_t index, uint32_t& moved) {
    VELO_DCHECK(assisting_ && index < assists_.size(), "part %zu of %zu", index, assists_.size());
    Assist& assist = assists_[index];
    Peer& peer = *assist.peer;
    uint32_t turn = 0;
    while (turn < kBytesPerTurn) {
        if (peer.ended()) return false;
        if (assist.moving.bytes == 0 && assist.claims) {
            if (reads_first(assist)) return true;
            assist.moving = assist.shared.claim_front(core_.on_node.coop_claims_of(peer.node_index(), assist.slot));
        }
        if (assist.moving.bytes == 0) return false;
        if (!core_.on_node.atu().view().valid(assist.nla, assist.key)) {
            ++core_.counters.atu_faults;
            send_done(assist, Status::kAtuFault);
            return false;
        }
        if (assist.method == CoopMethod::kDirect && peer.direct) {
            // A message that waits already goes first.
            return !peer.sending.pending.empty() || copy_part(index, moved);
        }
        const uint32_t before = assist.moving.bytes;
        const bool room = push_pieces(assist, moved);
        turn += before - assist.moving.bytes;
        if (!room) return true;
    }
    return true;
}

/// Copies what was claimed into the reader. False: this process's part in the block is over.
template <class Core>
bool CoopOwner<Core>::copy_part(size_t index, uint32_t& moved) {
    const Assist& assist = assists_[index];
    Peer& peer = *assist.peer;
    const base::BlockPart part = assist.moving;
    Status status = Status::kOk;
    uint64_t ns = 0;
    {
        const int32_t pid = core_.on_node.pid(peer.node_index());
        const auto* source = reinterpret_cast<const std::byte*>(assist.source + part.offset);
        const uint64_t destination = assist.destination + part.offset;
        base::Unlocked unlocked(core_.lock);
        const uint64_t begin = core_.clock.read();
        status = core_.system.copy_to(pid, source, destination, part.bytes);
        ns = core_.clock.read() - begin;
    }
    if (status == Status::kUnsupported) {
        denied_.give_up_direct(peer);
        return true;
    }
    Assist& same = assists_[index];  // the list may have grown meanwhile
    if (status != Status::kOk) {
        send_done(same, status);
        return false;
    }
    core_.counters.rma_put_bytes += part.bytes;
    messages_.send_control(
        peer,
        CoopWrittenHeader{.cookie = same.cookie, .offset = part.offset, .bytes = part.bytes, .ns = header_ns(ns)});
    same.moving = {};
    ++moved;
    return true;
}

/// True: the peer reads this block itself meanwhile, as this process reads its blocks. Two that copy for each other do
/// so twice as often out of the other's cache, and wait for the same locks of the kernel.
template <class Core>
bool CoopOwner<Core>::reads_first(const Assist& assist) const {
    return assist.method == CoopMethod::kDirect && assist.peer->direct && assist.peer->coop.blocks != 0;
}

/// Sends what was claimed through the ring. False: the ring is full, or the peer gone.
template <class Core>
bool CoopOwner<Core>::push_pieces(Assist& assist, uint32_t& moved) {
    Peer& peer = *assist.peer;
    const uint32_t piece_max = std::min(
        kPieceBytes, core_.on_node.message_bytes_max() - static_cast<uint32_t>(sizeof(CoopDataHeader)));
    base::BlockPart& moving = assist.moving;
    while (moving.bytes != 0) {
        // A message that waits already goes first.
        if (!peer.sending.pending.empty()) return false;
        const uint32_t bytes = std::min(moving.bytes, piece_max);
        const auto total = static_cast<uint32_t>(sizeof(CoopDataHeader) + bytes);
        Status status = Status::kOk;
        const auto room = core_.on_node.reserve(peer.node_index(), total, status);
        if (room.first == nullptr) return false;
        CoopDataHeader header = {.cookie = assist.cookie, .offset = assist.base_offset + uint64_t{moving.offset}};
        static_assert(sizeof header == Core::kInlineBytesMax);
        const auto* source = reinterpret_cast<const std::byte*>(assist.source + moving.offset);
        const bool timed = pieces_++ % kPiecesPerMeasure == 0;
        const uint64_t begin = timed ? core_.clock.read() : 0;
        if (assist.method == CoopMethod::kRingNontemporal) {
            base::copy_nontemporal(room.rest, source, bytes);
        } else {
            base::copy_long(room.rest, source, bytes);
        }
        if (timed) header.ns = header_ns(core_.clock.read() - begin);
        write_header(room.first, header);
        core_.on_node.commit(peer.node_index(), MessageClass::kEngine, 0, total);
        moving.offset += bytes;
        moving.bytes -= bytes;
        ++moved;
    }
    return true;
}

/// The claimed part will not come.
template <class Core>
void CoopOwner<Core>::send_done(const Assist& assist, Status status) {
    messages_.send_control(*assist.peer,
                           DoneHeader{.status = status, .cookie = assist.cookie, .value = assist.moving.bytes});
}

}  // namespace velo::rma
