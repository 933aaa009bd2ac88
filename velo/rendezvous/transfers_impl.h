/// Bodies of velo/rendezvous/transfers.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/rendezvous/transfers.h"

namespace velo::rma {

template <class Core>
void Transfers<Core>::post(Peer& peer, velo_rma_t& op) {
    auto* state = new (op.engine) State;
    state->op = &op;
    state->peer = &peer;
    if (remote_bytes(op) == 0) {
        finished(op, Status::kOk);
        return;
    }
    if (!names(op.remote, op.remote_address, remote_bytes(op)) && !find_remote(*state)) {
        finished(op, Status::kAtuFault);
        return;
    }
    if (op.kind == VELO_RMA_ATOMIC) {
        ++core_.counters.atomics;
        atomics_.enqueue(*state);
        drive();
        return;
    }
    state->bytes = op.bytes;
    state->chunk_bytes = core_.options.window.chunk_bytes;
    if (peer.path == VELO_PATH_ON_NODE) {
        if (op.kind == VELO_RMA_GET) {
            state->chunk_bytes = CoopReader<Core>::kBlockBytesMax;
        } else if (peer.direct) {
            state->chunk_bytes = kDirectChunkBytes;
        }
    } else if (peer.direct && op.bytes >= kLeadBytesMin) {
        const DeviceTraits& traits = core_.device->traits();
        const bool get = op.kind == VELO_RMA_GET;
        state->lead_bytes = stream_lead(get ? op.remote_address : reinterpret_cast<uintptr_t>(op.local),
                                        get ? traits.get_header_bytes : traits.put_header_bytes);
    }
    if (!reserving_.takes(*state)) admit(*state);
    drive();
}

template <class Core>
void Transfers<Core>::admit(State& state) {
    const Peer& peer = *state.peer;
    const bool direct = peer.direct && (peer.path == VELO_PATH_ON_NODE || state.op->remote.device_key != 0);
    PeerSources& sources = rails_.sources_of(*state.peer);
    scheduler_.post(state, direct ? sources.direct : sources.copied);
}

template <class Core>
bool Transfers<Core>::find_remote(State& state) {
    if (state.finds == kFindsMax) return false;
    ++state.finds;
    ++core_.counters.rma_finds;
    velo_rma_t& op = *state.op;
    const Peer& peer = *state.peer;
    op.remote = {.base = op.remote_address,
                 .bytes = remote_bytes(op),
                 .nla = {op.remote_address, 0},
                 .device_key = 0,
                 .on_node_key = kKeyOfAddress,
                 .reserved = 0,
                 .check = 0};
    // Elsewhere the owner looks, when the request arrives.
    if (peer.path != VELO_PATH_ON_NODE || peer.reclaimed) return true;
    return core_.on_node.atu_of(peer.node_index())
               .find(op.remote_address, op.remote.bytes, access_for(op), op.remote.nla[0],
                     op.remote.on_node_key) == Status::kOk;
}

template <class Core>
void Transfers<Core>::chunk_refused(State& state, uint64_t offset, uint32_t bytes) {
    if (state.status == Status::kOk && find_remote(state)) {
        // Not by the device, whose queue may be full: it has no name for this memory any more.
        const Issued issued = issue({.transfer = &state, .offset = offset, .bytes = bytes});
        VELO_CHECK(issued != Issued::kHeld, "a chunk for rank %u is held", state.peer->rank);
    } else {
        chunk_done(state, bytes, Status::kAtuFault);
    }
}

template <class Core>
void Transfers<Core>::memory_refused(State& state, uint64_t offset, uint32_t bytes) {
    if (state.status != Status::kOk) return chunk_done(state, bytes, state.status);
    Op& waiting = *pending_.take();
    waiting.state = &state;
    waiting.offset = offset;
    waiting.bytes = bytes;
    copied_.issue_guarded(waiting);
}

template <class Core>
uint32_t Transfers<Core>::drive() {
    // One loop at a time: what is posted while a direct copy is made, without the lock, it takes itself.
    if (core_.driving) return 0;
    core_.driving = true;
    uint32_t started = atomics_.drive();
    started += drive_scheduler();
    core_.driving = false;
    return started;
}

template <class Core>
uint32_t Transfers<Core>::drive_scheduler() {
    on_device_.drive_repeats();
    reserving_.drive();
    scheduler_.resume();
    Chunk chunk;
    uint64_t copied = 0;
    uint32_t started = 0;
    while (copied < kDirectBytesPerTurn && !pending_.full() && scheduler_.next(chunk)) {
        const Issued issued = issue(chunk);
        if (issued == Issued::kHeld) {
            scheduler_.put_back(chunk);
            continue;
        }
        if (issued == Issued::kCopied) copied += chunk.bytes;
        ++started;
    }
    return started;
}

/// An owner that has to be given a CPU first is no help.
template <class Core>
bool Transfers<Core>::may_be_cooperative(const State& state, const Chunk& chunk) const {
    const bool alone = core_.options.shares_cpus && state.peer->direct;
    return state.op->kind == VELO_RMA_GET && !alone && chunk.bytes >= CoopReader<Core>::kBytesMin &&
           !state.peer->reclaimed;
}

template <class Core>
typename Transfers<Core>::Issued Transfers<Core>::issue(const Chunk& chunk) {
    auto& state = static_cast<State&>(*chunk.transfer);
    const Peer& peer = *state.peer;
    const bool on_node = peer.path == VELO_PATH_ON_NODE;
    if (on_node && may_be_cooperative(state, chunk) && coop_.begin(state, chunk)) {
        ++core_.counters.rma_chunks;
        return Issued::kBegun;
    }
    VELO_DCHECK(!pending_.full(), "a chunk for rank %u has no cookie", peer.rank);
    // Before the lock is given up for a direct copy: other threads may take all entries meanwhile.
    Op& waiting = *pending_.take();
    waiting.state = &state;
    waiting.offset = chunk.offset;
    waiting.bytes = chunk.bytes;
    if (peer.direct && peer.path == VELO_PATH_DEVICE) {
        const Status status = on_device_.issue(waiting);
        if (status == Status::kAgain) {
            ++core_.counters.rma_held;
            pending_.release(waiting);
            return Issued::kHeld;
        }
        ++core_.counters.rma_chunks;
        if (status == Status::kOk) return Issued::kBegun;
        if (state.guarded) copied_.guard(waiting);
    } else {
        ++core_.counters.rma_chunks;
        if (peer.direct && issue_direct_on_node(waiting)) return Issued::kCopied;
    }
    copied_.issue(waiting);
    return Issued::kBegun;
}

/// False: a direct copy is not possible; nothing that counts was moved, and the entry is still taken.
template <class Core>
bool Transfers<Core>::issue_direct_on_node(Op& chunk) {
    State& state = *chunk.state;
    const uint32_t bytes = chunk.bytes;
    const bool get = state.op->kind == VELO_RMA_GET;
    Status status = Status::kOk;
    do {
        status = copy_on_node(chunk);
        if (status == Status::kUnsupported) denied_.give_up_direct(*state.peer);
        if (status == Status::kBadMemory) copied_.guard(chunk);
        if (status == Status::kUnsupported || status == Status::kBadMemory) return false;
    } while (status == Status::kAtuFault && find_remote(state));
    if (status == Status::kOk) (get ? core_.counters.rma_get_bytes : core_.counters.rma_put_bytes) += bytes;
    pending_.release(chunk);
    chunk_done(state, bytes, status);
    return true;
}

/// kAtuFault: the memory is not, or no longer, registered as the operation names it; what was moved does not
/// count.
template <class Core>
Status Transfers<Core>::copy_on_node(const Op& chunk) {
    const State& state = *chunk.state;
    const velo_rma_t& op = *state.op;
    const base::AtuView& atu = core_.on_node.atu_of(state.peer->node_index());
    const int32_t pid = core_.on_node.pid(state.peer->node_index());
    const uint64_t remote = op.remote_address + chunk.offset;
    const uint64_t nla = op.remote.nla[0] + (remote - op.remote.base);
    const uint32_t key = op.remote.on_node_key;  // another thread may find the memory elsewhere meanwhile
    auto* local = static_cast<std::byte*>(op.local) + chunk.offset;
    uint64_t address = 0;
    Status status = atu.translate(nla, chunk.bytes, key, access_for(op), address);
    if (status != Status::kOk || address != remote) return Status::kAtuFault;
    {
        // The state is ours until chunk_done; other threads need not wait for the copy.
        const typename Core::Release released(core_);
        status = op.kind == VELO_RMA_GET ? core_.system.copy_from(pid, local, address, chunk.bytes)
                                         : core_.system.copy_to(pid, local, address, chunk.bytes);
    }
    return atu.after_copy(status, nla, key);
}

template <class Core>
void Transfers<Core>::chunk_done(State& state, uint32_t bytes, Status status) {
    if (!scheduler_.chunk_done(state, bytes, status)) return;
    reserving_.transfer_ended(state);
    finished(*state.op, state.status);
}

template <class Core>
void Transfers<Core>::finished(velo_rma_t& op, Status status) {
    if (status != Status::kOk) [[unlikely]]
        report_failed(op, status);
    if (op.owner != 0) return sink_->fetched(op, status);
    core_.events.rma_done(op, status);
}

/// Open MPI does not look at the status of a one-sided operation, and a failed get leaves ob1's sender waiting, so
/// the job ends here. The end of a peer is reported as such.
template <class Core>
void Transfers<Core>::report_failed(const velo_rma_t& op, Status status) {
    ++core_.counters.rma_failed;
    Peer& peer = *reinterpret_cast<const State*>(op.engine)->peer;
    if (status == Status::kPeerDead) return sink_->peer_gone(peer, op);
    const char* kind = op.kind == VELO_RMA_GET ? "a get" : op.kind == VELO_RMA_PUT ? "a put" : "an atomic";
    const bool here = status == Status::kBadLocalMemory;
    std::string text = kind;
    const char* way = op.kind == VELO_RMA_GET ? "from" : "to";
    const uint64_t address = here ? reinterpret_cast<uint64_t>(op.local) : op.remote_address;
    base::append(text, " of %llu bytes %s rank %u, at address 0x%llx %s, failed: %s. %s",
                 base::number(remote_bytes(op)), way, peer.rank, base::number(address),
                 here ? "of this process" : "there", to_string(status), remedy(status));
    core_.end_job(peer.path, peer.name, text);
}

/// The operation that waits under a cookie ends; a cookie that nothing waits under is no error.
template <class Core>
void Transfers<Core>::end(Cookie cookie, Status status, uint64_t value) {
    Op* found = pending_.find(cookie);
    if (found == nullptr) return;
    if (found->pushing) {
        found->refused = status;
        return;
    }
    if (found->kind == Op::Kind::kCoopBlock) {
        // `value`: bytes that the owner had claimed and will not bring.
        coop_.owner_done(*found, status, value);
        return;
    }
    const Op waiting = *found;
    pending_.release(*found);
    if (waiting.kind == Op::Kind::kAtomic) {
        atomics_.done(*waiting.state, status, value);
    } else if (status == Status::kAtuFault) {
        chunk_refused(*waiting.state, waiting.offset, waiting.bytes);
    } else {
        chunk_done(*waiting.state, waiting.bytes, status);
    }
}

}  // namespace velo::rma
