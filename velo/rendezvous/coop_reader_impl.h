/// Bodies of velo/rendezvous/coop_reader.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/base/copy.h"
#include "velo/rendezvous/coop_reader.h"

namespace velo::rma {

/// False: all blocks are in use.
template <class Core>
bool CoopReader<Core>::begin(State& state, const Chunk& chunk) {
    VELO_DCHECK(chunk.bytes <= kBlockBytesMax && !pending_.full(), "a block of %u bytes", chunk.bytes);
    if (free_.empty()) return false;
    const velo_rma_t& op = *state.op;
    Peer& peer = *state.peer;
    const uint64_t remote = op.remote_address + chunk.offset;
    uint64_t nla = 0, address = 0;
    for (;;) {
        nla = op.remote.nla[0] + (remote - op.remote.base);
        const Status status = core_.on_node.atu_of(peer.node_index())
                                  .translate(nla, chunk.bytes, op.remote.on_node_key, kAccessRead, address);
        if (status == Status::kOk && address == remote) break;
        if (!transfers_->find_remote(state)) {
            transfers_->chunk_done(state, chunk.bytes, Status::kAtuFault);
            return true;
        }
    }
    if (blocks_.empty()) blocks_.resize(Core::kCoopBlocks);
    const uint8_t slot = free_.back();
    Block& block = blocks_[slot];
    block = {.shared = block.shared,
             .peer = &peer,
             .state = &state,
             .local = static_cast<std::byte*>(op.local) + chunk.offset,
             .remote = remote,
             .nla = nla,
             .key = op.remote.on_node_key,
             .offset = chunk.offset,
             .both = peer.coop.both_blocks != 0 || owner_.assists(peer),
             .far = core_.on_node.far(peer.node_index())};
    if (peer.coop.both_blocks != 0) --peer.coop.both_blocks;
    free_.pop_back();
    active_.push_back(slot);
    if (peer.coop.blocks++ == 0) peer.coop.heard_poll = core_.clock.polls();
    Op& waiting = *pending_.take();
    waiting.kind = Op::Kind::kCoopBlock;
    waiting.state = &state;
    waiting.offset = chunk.offset;
    waiting.bytes = chunk.bytes;
    waiting.block = slot;
    block.waiting = &waiting;
    block.shared.open(core_.on_node.coop_claims(slot), chunk.bytes);
    block.method = method_for(block);
    CoopCallHeader call = {.method = block.method, .slot = slot, .cookie = waiting.cookie, .nla = nla};
    call.destination = reinterpret_cast<uint64_t>(block.local);
    call.key = block.key;
    call.bytes = chunk.bytes;
    call.generation = block.shared.generation();
    messages_.send_control(peer, call);
    return true;
}

template <class Core>
CoopMethod CoopReader<Core>::method_for(Block& block) {
    Peer& peer = *block.peer;
    const uint32_t bytes = block.shared.bytes();
    if (((peer.coop.fetched_bytes ^ (peer.coop.fetched_bytes + bytes)) >> kMeasureShift) != 0)
        core_.on_node.measure_next(peer.node_index());
    peer.coop.fetched_bytes += bytes;
    if (!peer.direct) return ring_to(peer);
    if (core_.options.node_copies.way) [[unlikely]]
        return *core_.options.node_copies.way;
    return choice(block).choose(bytes, core_.on_node.pays_for_pages(peer.coop.fetched_bytes));
}

/// Without anything measured.
template <class Core>
CoopMethod CoopReader<Core>::ring_to(const Peer& peer) const {
    return core_.on_node.far(peer.node_index()) ? CoopMethod::kRingNontemporal : CoopMethod::kRing;
}

template <class Core>
CopyChoice& CoopReader<Core>::choice(const Block& block) {
    std::unique_ptr<CopyChoices>& choices = block.peer->coop.choices;
    if (choices == nullptr) choices = std::make_unique<CopyChoices>();
    return choices->of(block.shared.bytes(), block.both, block.far);
}

/// A copy of a part of the block took this process so long, and the owner before it.
template <class Core>
void CoopReader<Core>::measured(const Block& block, CoopMethod method, uint64_t bytes, uint64_t reader_ns,
                             uint64_t owner_ns) {
    CopyChoice& choice = CoopReader::choice(block);
    const uint32_t before = choice.switches();
    choice.measured(method, bytes, reader_ns, owner_ns);
    core_.counters.copy_switches += choice.switches() - before;
}

/// Takes over what the owners leave. At most one chunk of each block, so that what arrives is unpacked.
template <class Core>
uint32_t CoopReader<Core>::drive() {
    uint32_t moved = 0;
    // An upcall may change the list, so nothing of it is held across one.
    for (size_t i = 0; i < active_.size(); ++i) {
        const uint8_t slot = active_[i];
        Block& block = blocks_[slot];
        Peer& peer = *block.peer;
        if (block.shared.closed()) continue;
        if (!block.shared.intact(core_.on_node.coop_claims(slot))) [[unlikely]] {
            close(block, Status::kProtocol);
            end_if_done(slot);
            continue;
        }
        if (!peer.direct) continue;
        if (block.method != CoopMethod::kDirect) {
            const uint32_t silent = core_.clock.polls() - peer.coop.heard_poll;
            if (silent < (peer.coop.assists ? kPatiencePolls : kPatiencePolls / 16)) continue;
            peer.coop.assists = false;
        }
        if (take_own_chunk(slot)) ++moved;
    }
    return moved;
}

/// False: there was nothing left to take.
template <class Core>
bool CoopReader<Core>::take_own_chunk(uint32_t slot) {
    Block& block = blocks_[slot];
    const base::BlockPart part =
        block.shared.claim_back(core_.on_node.coop_claims(slot), block.both ? Owner::kBytesPerTurn : 0);
    if (part.bytes == 0) {
        close(block, Status::kOk);
        end_if_done(slot);
        return false;
    }
    const int32_t pid = core_.on_node.pid(block.peer->node_index());
    ++block.copying;
    Status status = Status::kOk;
    uint64_t ns = 0;
    {
        // The block cannot end meanwhile: what is copied here is not accounted for yet.
        base::Unlocked unlocked(core_.lock);
        const uint64_t begin = core_.clock.read();
        status =
            core_.system.copy_from(pid, block.local + part.offset, block.remote + part.offset, part.bytes);
        ns = core_.clock.read() - begin;
    }
    --block.copying;
    if (status == Status::kOk) measured(block, CoopMethod::kDirect, part.bytes, ns);
    if (status == Status::kUnsupported) {
        denied_.give_up_direct(*block.peer);
        CoopPartHeader named = {.method = ring_to(*block.peer), .cookie = block.waiting->cookie};
        named.nla = block.nla + part.offset;
        named.key = block.key;
        named.bytes = part.bytes;
        named.offset = part.offset;
        messages_.send_control(*block.peer, named);
        return true;
    }
    status = core_.on_node.atu_of(block.peer->node_index()).after_copy(status, block.nla, block.key);
    block.shared.end(part.bytes);
    core_.counters.rma_get_bytes += part.bytes;
    if (status != Status::kOk) close(block, status);
    end_if_done(slot);
    return true;
}

/// Nothing of the block can be claimed any more. It ends when all that was claimed is accounted for.
template <class Core>
void CoopReader<Core>::close(Block& block, Status status) {
    if (block.status == Status::kOk) block.status = status;
    if (block.shared.closed()) return;
    const auto slot = static_cast<uint32_t>(&block - blocks_.data());
    if (!block.shared.close(core_.on_node.coop_claims(slot), block.status == Status::kOk)) {
        // Which bytes the owner still brings is not known.
        ++core_.counters.engine_malformed;
        if (block.status == Status::kOk) block.status = Status::kProtocol;
        block.shared.write_off();
    }
    // Nothing more comes from the dead.
    if (block.peer->ended()) block.shared.write_off();
}

/// True: the block is done with, and its slot free.
template <class Core>
bool CoopReader<Core>::end_if_done(uint32_t slot) {
    Block& block = blocks_[slot];
    if (block.copying != 0 || block.shared.due_bytes() != 0) return false;
    close(block, Status::kOk);
    State& state = *block.state;
    const Status status = block.status;
    const uint64_t offset = block.offset;
    const uint32_t bytes = block.shared.bytes();
    pending_.release(*block.waiting);
    VELO_DCHECK(block.peer->coop.blocks != 0, "a block of rank %u ends, of none", block.peer->rank);
    --block.peer->coop.blocks;
    free_.push_back(static_cast<uint8_t>(slot));
    active_.erase(std::find(active_.begin(), active_.end(), slot));
    if (status == Status::kAtuFault) {
        transfers_->chunk_refused(state, offset, bytes);
    } else if (status == Status::kBadMemory) {
        transfers_->memory_refused(state, offset, bytes);
    } else {
        transfers_->chunk_done(state, bytes, status);
    }
    return true;
}

/// Accounts for a piece that the owner has moved. Returns its block; nullptr: the message fits none.
template <class Core>
typename CoopReader<Core>::Block* CoopReader<Core>::piece_moved(Peer& peer, Cookie cookie, uint64_t offset,
                                                                uint32_t bytes) {
    const Op* op = pending_.find(cookie);
    if (op == nullptr || op->kind != Op::Kind::kCoopBlock || blocks_[op->block].peer != &peer ||
        !blocks_[op->block].shared.end_part(offset, bytes)) {
        // Of a peer that has ended, what it brought before is late: its block has ended with it.
        if (!peer.ended()) ++core_.counters.engine_malformed;
        return nullptr;
    }
    peer.coop.heard_poll = core_.clock.polls();
    peer.coop.assists = true;
    return &blocks_[op->block];
}

template <class Core>
void CoopReader<Core>::on_data(Peer& peer, const CoopDataHeader& header, const std::byte* data, uint32_t bytes) {
    Block* const block = piece_moved(peer, header.cookie, header.offset, bytes);
    if (block == nullptr) return;
    const uint64_t begin = header.ns != 0 ? core_.clock.read() : 0;
    base::copy_long(block->local + header.offset, data, bytes);
    if (header.ns != 0 && block->method != CoopMethod::kDirect)
        measured(*block, block->method, bytes, core_.clock.read() - begin, header.ns);
    (peer.direct ? core_.counters.rma_ring_bytes : core_.counters.rma_copied_bytes) += bytes;
    end_if_done(block->waiting->block);
}

template <class Core>
void CoopReader<Core>::on_written(Peer& peer, const CoopWrittenHeader& header) {
    Block* const block = piece_moved(peer, header.cookie, header.offset, header.bytes);
    if (block == nullptr) return;
    if (header.ns != 0) measured(*block, CoopMethod::kDirect, header.bytes, 0, header.ns);
    core_.counters.rma_get_bytes += header.bytes;
    end_if_done(block->waiting->block);
}

/// A block's operation ends when everything that was claimed of it is accounted for.
template <class Core>
void CoopReader<Core>::owner_done(const Op& op, Status status, uint64_t missing) {
    blocks_[op.block].shared.end(missing);
    close(blocks_[op.block], status);
    end_if_done(op.block);
}

template <class Core>
void CoopReader<Core>::peer_failed(Peer& peer) {
    for (uint32_t slot = 0; slot < blocks_.size(); ++slot) {
        Block& block = blocks_[slot];
        const bool active = std::find(active_.begin(), active_.end(), slot) != active_.end();
        if (!active || block.peer != &peer) continue;
        close(block, Status::kPeerDead);
        block.shared.write_off();
        end_if_done(slot);
    }
}

}  // namespace velo::rma
