/// Engine: transfers, atomics and the messages between engines. Part of engine.h.
///
/// A transfer is cut into chunks (rma/chunk_scheduler.h). Each goes the fastest way that works with that
/// peer: a direct copy on the node, an RMA operation of the device, or in messages (wire.h) where neither
/// is possible or one of them was just refused. The choice is made again for every chunk.
#pragma once

#include <new>
#include <utility>

#include "velo/base/cma.h"
#include "velo/base/text.h"
#include "velo/engine.h"
#include "velo/handle.h"

namespace velo {

template <class D>
void Engine<D>::post(velo_peer& peer, velo_rma_t& op) {
    const std::lock_guard guard(lock_);
    auto* state = new (op.engine) RmaState;
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
        ++counters_.atomics;
        atomics_.push_back(state);
        drive_transfers();
        return;
    }
    const bool direct = peer.direct && (peer.path == VELO_PATH_ON_NODE || op.remote.device_key != 0);
    state->scheduler = direct ? &scheduler_ : &copies_of(peer);
    state->bytes = op.bytes;
    state->chunk_bytes = static_cast<uint64_t>(options_.params.chunk);
    if (peer.path == VELO_PATH_ON_NODE) {
        if (op.kind == VELO_RMA_GET) {
            state->chunk_bytes = kJointBytesMax;
        } else if (peer.direct) {
            state->chunk_bytes = kDirectChunkBytes;
        }
    }
    state->scheduler->post(*state);
    drive_transfers();
}

/// Names the memory of an operation by the registration that holds its address now; for a handle that does
/// not fit the address, or was revoked. False: there is none, or each one was revoked in its turn.
template <class D>
bool Engine<D>::find_remote(RmaState& state) {
    if (state.finds == kFindsMax) return false;
    ++state.finds;
    ++counters_.rma_finds;
    velo_rma_t& op = *state.op;
    const velo_peer& peer = *state.peer;
    op.remote = {.base = op.remote_address,
                 .bytes = remote_bytes(op),
                 .nla = {op.remote_address, 0},
                 .device_key = 0,
                 .on_node_key = kKeyOfAddress,
                 .reserved = 0,
                 .check = 0};
    // Elsewhere the owner looks, when the request arrives.
    if (peer.path != VELO_PATH_ON_NODE || peer.gone) return true;
    return on_node_.atu_of(peer.index)
               .find(op.remote_address, op.remote.bytes, access_for(op), op.remote.nla[0],
                     op.remote.on_node_key) == Status::kOk;
}

/// The owner's table refused a chunk, of which nothing that counts was moved.
template <class D>
void Engine<D>::chunk_refused(RmaState& state, uint64_t offset, uint32_t bytes) {
    if (state.status == Status::kOk && find_remote(state)) {
        // Not by the device, whose queue may be full: it has no name for this memory any more.
        const Issued issued = issue({.transfer = &state, .offset = offset, .bytes = bytes});
        VELO_CHECK(issued != Issued::kHeld, "a chunk for rank %u is held", state.peer->rank);
    } else {
        chunk_done(state, Status::kAtuFault);
    }
}

/// The scheduler of transfers with a peer that go in messages.
template <class D>
rma::ChunkScheduler& Engine<D>::copies_of(velo_peer& peer) {
    if (!peer.copies) {
        peer.copies =
            std::make_unique<rma::ChunkScheduler>(static_cast<uint32_t>(options_.params.outstanding));
    }
    if (!peer.in_copying) {
        peer.in_copying = true;
        copying_peers_.push_back(&peer);
    }
    return *peer.copies;
}

template <class D>
uint32_t Engine<D>::drive_transfers() {
    // One loop at a time. An upcall of it may post more, which a nested loop takes, up to a depth; beyond
    // that it is left to the outer one, because a chain of completions has no bound.
    if (driving_ || upcall_depth_ > kUpcallDepthMax) return 0;
    driving_ = true;
    uint32_t started = 0;
    while (!atomics_.empty() && slots_.taken() < kSlots) {
        auto* state = static_cast<RmaState*>(atomics_.pop_front());
        if (!post_atomic(*state)) {
            atomics_.push_front(state);
            break;
        }
        ++started;
    }
    started += drive(scheduler_);
    for (size_t i = 0; i < copying_peers_.size(); ++i) {
        velo_peer& peer = *copying_peers_[i];
        started += drive(*peer.copies);
        if (i < copying_peers_.size() && copying_peers_[i] == &peer && peer.copies->idle()) {
            peer.in_copying = false;
            copying_peers_[i] = copying_peers_.back();
            copying_peers_.pop_back();
            --i;
        }
    }
    driving_ = false;
    return started;
}

template <class D>
uint32_t Engine<D>::drive(rma::ChunkScheduler& scheduler) {
    rma::Chunk chunk;
    uint64_t copied = 0;
    uint32_t started = 0;
    while (copied < kDirectBytesPerTurn && slots_.taken() < kSlots && scheduler.next(chunk)) {
        const Issued issued = issue(chunk);
        if (issued == Issued::kHeld) {
            scheduler.put_back(chunk);
            break;
        }
        if (issued == Issued::kCopied) copied += chunk.bytes;
        ++started;
    }
    return started;
}

template <class D>
typename Engine<D>::Issued Engine<D>::issue(const rma::Chunk& chunk) {
    auto& state = static_cast<RmaState&>(*chunk.transfer);
    const bool joint = state.peer->path == VELO_PATH_ON_NODE && state.op->kind == VELO_RMA_GET &&
                       chunk.bytes >= kJointBytesMin && !state.peer->gone;
    if (joint && issue_joint(state, chunk)) {
        ++counters_.rma_chunks;
        return Issued::kBegun;
    }
    // Before the lock is given up for a direct copy: other threads may take all slots meanwhile.
    const uint32_t cookie = slots_.take({.state = &state, .offset = chunk.offset, .bytes = chunk.bytes});
    if (state.peer->direct && state.peer->path == VELO_PATH_DEVICE) {
        const Status status = issue_on_device(state, chunk, cookie);
        if (status == Status::kAgain) {
            ++counters_.rma_held;
            slots_.release(cookie);
            return Issued::kHeld;
        }
        ++counters_.rma_chunks;
        if (status == Status::kOk) return Issued::kBegun;
    } else {
        ++counters_.rma_chunks;
        if (state.peer->direct && issue_direct_on_node(state, chunk, cookie)) return Issued::kCopied;
    }
    issue_copied(state, chunk.offset, chunk.bytes, cookie);
    return Issued::kBegun;
}

/// False: a direct copy is not possible; nothing that counts was moved, and the slot is still taken.
template <class D>
bool Engine<D>::issue_direct_on_node(RmaState& state, const rma::Chunk& chunk, uint32_t cookie) {
    const velo_rma_t& op = *state.op;
    const bool get = op.kind == VELO_RMA_GET;
    Status status = Status::kOk;
    do {
        status = copy_on_node(state, chunk);
        if (status == Status::kUnsupported) {
            give_up_direct(*state.peer);
            return false;
        }
    } while (status == Status::kAtuFault && find_remote(state));
    if (status == Status::kOk) (get ? counters_.rma_get_bytes : counters_.rma_put_bytes) += chunk.bytes;
    slots_.release(cookie);
    chunk_done(state, status);
    return true;
}

/// kAtuFault: the memory is not, or no longer, registered as the operation names it; what was moved does not
/// count.
template <class D>
Status Engine<D>::copy_on_node(const RmaState& state, const rma::Chunk& chunk) {
    const velo_rma_t& op = *state.op;
    const base::AtuView& atu = on_node_.atu_of(state.peer->index);
    const int32_t pid = on_node_.pid(state.peer->index);
    const uint64_t remote = op.remote_address + chunk.offset;
    const uint64_t nla = op.remote.nla[0] + (remote - op.remote.base);
    const uint32_t key = op.remote.on_node_key;  // another thread may find the memory elsewhere meanwhile
    auto* local = static_cast<std::byte*>(op.local) + chunk.offset;
    uint64_t address = 0;
    Status status = atu.translate(nla, chunk.bytes, key, access_for(op), address);
    if (status != Status::kOk || address != remote) return Status::kAtuFault;
    {
        // The state is ours until chunk_done; other threads need not wait for the copy.
        const Apart apart(*this);
        status = op.kind == VELO_RMA_GET ? base::cma_read(pid, local, address, chunk.bytes)
                                         : base::cma_write(pid, local, address, chunk.bytes);
    }
    const bool moved = status == Status::kOk || status == Status::kBadMemory;
    return moved && !atu.valid(nla, key) ? Status::kAtuFault : status;
}

/// kAgain: the device's queue is full; any other status but kOk: it does not take this. The slot is still
/// taken.
template <class D>
Status Engine<D>::issue_on_device(RmaState& state, const rma::Chunk& chunk, uint32_t cookie) {
    const velo_rma_t& op = *state.op;
    if (op.remote.device_key == 0 || port_down_) return Status::kUnsupported;
    slots_.find(cookie)->wait = Wait::kDeviceChunk;
    const RmaOperation operation = {
        .kind = op.kind == VELO_RMA_GET ? RmaKind::kGet : RmaKind::kPut,
        .cookie = static_cast<uint16_t>(cookie),
        .peer = state.peer->index,
        .local = static_cast<std::byte*>(op.local) + chunk.offset,
        .nla = op.remote.nla[1] + (op.remote_address - op.remote.base) + chunk.offset,
        .key = op.remote.device_key,
        .bytes = chunk.bytes};
    return device_->post(operation);
}

template <class D>
void Engine<D>::issue_copied(RmaState& state, uint64_t offset, uint32_t bytes, uint32_t cookie) {
    const velo_rma_t& op = *state.op;
    Waiting& waiting = *slots_.find(cookie);
    waiting.wait = op.kind == VELO_RMA_GET ? Wait::kPullChunk : Wait::kPutChunk;
    waiting.received = 0;
    waiting.pushing = waiting.wait == Wait::kPutChunk;
    counters_.rma_copied_bytes += bytes;
    const uint64_t nla = op.remote.nla[0] + (op.remote_address - op.remote.base) + offset;
    if (op.kind == VELO_RMA_GET) {
        send_control(
            *state.peer,
            {.opcode = Opcode::kPull, .cookie = cookie, .nla = nla, .key = op.remote.on_node_key, .value = bytes});
        return;
    }
    start_push(*state.peer,
               {.opcode = Opcode::kPutData, .cookie = cookie, .nla = nla, .key = op.remote.on_node_key},
               reinterpret_cast<uint64_t>(op.local) + offset, bytes);
}

template <class D>
void Engine<D>::give_up_direct(velo_peer& peer) {
    if (!peer.direct) return;
    peer.direct = false;
    tell_of_denied_copies(peer);
}

/// The node's processes agree by the segment of the one with the lowest name, as far as they know each other;
/// while they still connect, in an order that is not the same for all, more than one may tell.
template <class D>
bool Engine<D>::first_on_node_to_tell_of_denial() {
    uint64_t lowest = options_.identity.name;
    const shm::PeerIndex* owner = nullptr;
    for (const velo_peer* peer : by_on_node_) {
        if (peer == nullptr || !peer->connected || peer->name >= lowest) continue;
        lowest = peer->name;
        owner = &peer->index;
    }
    return on_node_.first_to_tell_of_denial(owner);
}

/// Counts each peer. The user is told once a node, and once a process in any case at most.
template <class D>
void Engine<D>::tell_of_denied_copies(const velo_peer& peer) {
    ++counters_.rma_fallbacks;
    if (std::exchange(told_of_denied_copies_, true) || !first_on_node_to_tell_of_denial()) return;
    const base::Failure refused = base::refused_copy();
    log(0, "velo: rank " + std::to_string(options_.identity.rank) +
               ": the kernel does not permit direct copies between it and rank " + std::to_string(peer.rank) +
               " (" + (refused ? to_text(refused) : "the device refused one") +
               "); large messages are copied in chunks instead, which is slower. The other "
               "ranks of this node do not repeat this line. "
               "Containers: allow ptrace (CAP_SYS_PTRACE or a seccomp profile that permits it); or set "
               "btl_velo_single_copy=none to silence this.");
}

template <class D>
void Engine<D>::chunk_done(RmaState& state, Status status) {
    if (state.scheduler->chunk_done(state, status)) finished(*state.op, state.status);
}

template <class D>
void Engine<D>::finished(velo_rma_t& op, Status status) {
    if (status != Status::kOk) [[unlikely]]
        report_failed(op, status);
    ++upcall_depth_;
    {
        // An upcall that waits for another transfer finds it driven.
        const Apart apart(*this);
        options_.host.rma_done(options_.host.context, &op, static_cast<int>(status));
    }
    --upcall_depth_;
}

/// The remedy for an operation that failed.
[[nodiscard]] constexpr const char* remedy(Status status) {
    switch (status) {
        case Status::kAtuFault: return "Look for accesses outside a window, and to memory that was detached.";
        case Status::kBadMemory:
            return "Look for munmap or mprotect of memory that a window or a message is in.";
        case Status::kBadParam: return "The address of an atomic is a multiple of its width.";
        case Status::kFailed: return "An operation that may have been carried out is not repeated.";
        case Status::kProtocol:
            return "Look for a process that writes where it should not; all ranks need the same velo.";
        default: return "";
    }
}

/// Open MPI does not look at the status of a one-sided operation, and a failed get leaves ob1's sender
/// waiting, so the job ends here. The end of a peer is told as such.
template <class D>
void Engine<D>::report_failed(const velo_rma_t& op, Status status) {
    ++counters_.rma_failed;
    velo_peer& peer = *reinterpret_cast<const RmaState*>(op.engine)->peer;
    if (status == Status::kPeerDead) return tell_of_end(peer);
    const char* kind = op.kind == VELO_RMA_GET ? "a get" : op.kind == VELO_RMA_PUT ? "a put" : "an atomic";
    std::string text = kind;
    base::append(text, " of %llu bytes %s rank %u, at address 0x%llx there, failed: %s. %s",
                 base::number(remote_bytes(op)), op.kind == VELO_RMA_GET ? "from" : "to", peer.rank,
                 base::number(op.remote_address), to_string(status), remedy(status));
    end_job(peer.path, peer.name, text);
}

// Atomics. All of them are executed by the CPU of the process whose memory it is, so that they are
// coherent with its own and with each other, whichever way they came.

/// False: it has to wait for room in the device's queue.
template <class D>
bool Engine<D>::post_atomic(RmaState& state) {
    if (state.peer->path == VELO_PATH_DEVICE) {
        const Status status = post_device_atomic(state);
        if (status == Status::kOk) return true;
        if (status == Status::kAgain) {
            ++counters_.rma_held;
            return false;
        }
    }
    const velo_rma_t& op = *state.op;
    const uint32_t cookie = slots_.take({.wait = Wait::kAtomic, .state = &state});
    send_control(*state.peer, {.opcode = Opcode::kAtomic,
                               .atomic = static_cast<uint8_t>(op.atomic),
                               .width = static_cast<uint8_t>(op.width),
                               .cookie = cookie,
                               .nla = op.remote.nla[0] + (op.remote_address - op.remote.base),
                               .key = op.remote.on_node_key,
                               .value = op.operand,
                               .compare = op.compare});
    return true;
}

/// Likewise; kUnsupported: the device does not have this operation.
template <class D>
Status Engine<D>::post_device_atomic(RmaState& state) {
    const velo_rma_t& op = *state.op;
    const bool add = op.atomic == VELO_ATOMIC_ADD;
    if (op.width != 8 || op.remote.device_key == 0 || port_down_ || !device_->traits().atomics ||
        (!add && op.atomic != VELO_ATOMIC_COMPARE_SWAP)) {
        return Status::kUnsupported;
    }
    const uint32_t cookie = slots_.take({.wait = Wait::kDeviceAtomic, .state = &state});
    const RmaOperation operation = {.kind = add ? RmaKind::kFetchAdd : RmaKind::kCompareSwap,
                                    .cookie = static_cast<uint16_t>(cookie),
                                    .peer = state.peer->index,
                                    .nla = op.remote.nla[1] + (op.remote_address - op.remote.base),
                                    .key = op.remote.device_key,
                                    .bytes = 8,
                                    .operand = op.operand,
                                    .compare = op.compare};
    const Status status = device_->post(operation);
    if (status != Status::kOk) slots_.release(cookie);
    return status;
}

template <class D>
void Engine<D>::atomic_done(RmaState& state, Status status, uint64_t old_value) {
    velo_rma_t& op = *state.op;
    if (status == Status::kAtuFault && find_remote(state)) {
        const bool posted = post_atomic(state);
        VELO_CHECK(posted, "an atomic for rank %u is held", state.peer->rank);
        return;
    }
    if (status == Status::kOk && op.local != nullptr) std::memcpy(op.local, &old_value, op.width);
    finished(op, status);
}

template <class D>
uint32_t Engine<D>::take_notifications() {
    uint32_t taken = 0;
    Notification notification;
    while (device_->poll_notification(notification)) {
        ++taken;
        const Waiting* found = slots_.find_index(notification.cookie);
        if (notification.kind != kNotifyRequester || found == nullptr ||
            (found->wait != Wait::kDeviceChunk && found->wait != Wait::kDeviceAtomic)) {
            ++counters_.engine_malformed;
            continue;
        }
        const Waiting waiting = *found;
        const uint32_t cookie = slots_.cookie_of(notification.cookie);
        if (waiting.wait == Wait::kDeviceChunk) {
            device_chunk_ended(waiting, cookie, notification.status);
            continue;
        }
        slots_.release(cookie);
        if (notification.status == Status::kUnsupported) {
            waiting.state->op->remote.device_key = 0;  // in a message
            const bool posted = post_atomic(*waiting.state);
            VELO_CHECK(posted, "an atomic for rank %u is held", waiting.state->peer->rank);
        } else {
            // One that failed may have been carried out, so it is not repeated.
            atomic_done(*waiting.state, notification.status, notification.value);
        }
    }
    return taken;
}

/// A chunk that the device could not move goes in messages: to move it twice does no harm.
template <class D>
void Engine<D>::device_chunk_ended(const Waiting& waiting, uint32_t cookie, Status status) {
    RmaState& state = *waiting.state;
    switch (status) {
        case Status::kUnsupported:
            give_up_direct(*state.peer);
            issue_copied(state, waiting.offset, waiting.bytes, cookie);
            return;
        case Status::kFailed:
            port_failed(*state.peer);
            issue_copied(state, waiting.offset, waiting.bytes, cookie);
            return;
        case Status::kOk: {
            const bool get = state.op->kind == VELO_RMA_GET;
            (get ? counters_.rma_get_bytes : counters_.rma_put_bytes) += waiting.bytes;
            port_failures_ = 0;
            break;
        }
        default: break;
    }
    slots_.release(cookie);
    if (status == Status::kAtuFault) {
        chunk_refused(state, waiting.offset, waiting.bytes);
    } else {
        chunk_done(state, status);
    }
}

/// One failure may be a transfer's own; after some in a row the port counts as down, and is not tried again.
template <class D>
void Engine<D>::port_failed(const velo_peer& peer) {
    ++counters_.rma_repeated;
    if (++port_failures_ == kPortFailuresMax) port_down_ = true;
    if (std::exchange(told_of_port_, true)) return;
    log(0, "velo: rank " + std::to_string(options_.identity.rank) +
               ": the device failed a transfer with rank " + std::to_string(peer.rank) +
               "; what it fails goes in messages instead, which is slower. Nothing is lost. Look at the "
               "device, or at btl_velo_faults.");
}

}  // namespace velo
