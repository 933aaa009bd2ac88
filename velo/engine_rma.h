/// Engine: transfers, atomics and the messages between engines. Part of engine.h.
///
/// A transfer is cut into chunks (rma/chunk_scheduler.h). Each goes the fastest way that works with that
/// peer: a direct copy on the node, an RMA operation of the device, or in messages (wire.h) where neither
/// is possible or one of them was just refused. The choice is made again for every chunk.
#pragma once

#include <new>
#include <utility>

#include "velo/atomics.h"
#include "velo/base/cma.h"
#include "velo/engine.h"

namespace velo {

template <class D>
void Engine<D>::post(velo_peer& peer, velo_rma_t& op) {
    const std::lock_guard guard(lock_);
    auto* state = new (op.engine) RmaState;
    state->op = &op;
    state->peer = &peer;
    const uint64_t bytes = op.kind == VELO_RMA_ATOMIC ? op.width : op.bytes;
    const uint64_t offset = op.remote_address - op.remote.base;
    // The handle came from a peer: an offset outside its range would name somebody else's.
    if (op.remote_address < op.remote.base || bytes > op.remote.bytes || offset > op.remote.bytes - bytes) {
        finished(op, Status::kAtuFault);
        return;
    }
    if (op.kind == VELO_RMA_ATOMIC) {
        ++counters_.atomics;
        atomics_.push_back(state);
        drive_transfers();
        return;
    }
    if (op.bytes == 0) {
        finished(op, Status::kOk);
        return;
    }
    const bool direct = peer.direct && (peer.path == VELO_PATH_ON_NODE || op.remote.key[1] != 0);
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
        post_atomic(*state);
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
        copied += issue(chunk);
        ++started;
    }
    return started;
}

/// Returns the bytes that were copied here and now.
template <class D>
uint64_t Engine<D>::issue(const rma::Chunk& chunk) {
    auto& state = static_cast<RmaState&>(*chunk.transfer);
    ++counters_.rma_chunks;
    const bool joint = state.peer->path == VELO_PATH_ON_NODE && state.op->kind == VELO_RMA_GET &&
                       chunk.bytes >= kJointBytesMin && !state.peer->gone;
    if (joint && issue_joint(state, chunk)) return 0;
    // Before the lock is given up for a direct copy: other threads may take all slots meanwhile.
    const uint32_t cookie = slots_.take({.state = &state, .offset = chunk.offset, .bytes = chunk.bytes});
    if (state.peer->direct) {
        if (state.peer->path == VELO_PATH_ON_NODE) {
            if (issue_direct_on_node(state, chunk, cookie)) return chunk.bytes;
        } else if (issue_on_device(state, chunk, cookie)) {
            return 0;
        }
    }
    issue_copied(state, chunk.offset, chunk.bytes, cookie);
    return 0;
}

/// False: a direct copy is not possible; nothing that counts was moved, and the slot is still taken.
template <class D>
bool Engine<D>::issue_direct_on_node(RmaState& state, const rma::Chunk& chunk, uint32_t cookie) {
    const velo_rma_t& op = *state.op;
    const base::AtuView& atu = on_node_.atu_of(state.peer->index);
    const int32_t pid = on_node_.pid(state.peer->index);
    const bool get = op.kind == VELO_RMA_GET;
    const uint64_t nla = op.remote.nla[0] + (op.remote_address - op.remote.base) + chunk.offset;
    auto* local = static_cast<std::byte*>(op.local) + chunk.offset;
    uint64_t address = 0;
    Status status =
        atu.translate(nla, chunk.bytes, op.remote.key[0], get ? kAccessRead : kAccessWrite, address);
    if (status == Status::kOk) {
        {
            // The state is ours until chunk_done; other threads need not wait for the copy.
            const Apart apart(*this);
            status = get ? base::cma_read(pid, local, address, chunk.bytes)
                         : base::cma_write(pid, local, address, chunk.bytes);
        }
        if (status == Status::kUnsupported) {
            give_up_direct(*state.peer);
            return false;
        }
        if (status == Status::kOk && !atu.valid(nla, op.remote.key[0])) status = Status::kAtuFault;
    }
    if (status == Status::kOk) (get ? counters_.rma_get_bytes : counters_.rma_put_bytes) += chunk.bytes;
    slots_.release(cookie);
    chunk_done(state, status);
    return true;
}

/// False: the device does not take it now; the slot is still taken.
template <class D>
bool Engine<D>::issue_on_device(RmaState& state, const rma::Chunk& chunk, uint32_t cookie) {
    const velo_rma_t& op = *state.op;
    if (op.remote.key[1] == 0) return false;
    slots_.find(cookie)->wait = Wait::kDeviceChunk;
    const RmaOperation operation = {
        .kind = op.kind == VELO_RMA_GET ? RmaKind::kGet : RmaKind::kPut,
        .cookie = static_cast<uint16_t>(cookie),
        .peer = state.peer->index,
        .local = static_cast<std::byte*>(op.local) + chunk.offset,
        .nla = op.remote.nla[1] + (op.remote_address - op.remote.base) + chunk.offset,
        .key = op.remote.key[1],
        .bytes = chunk.bytes};
    return device_->post(operation) == Status::kOk;
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
            {.opcode = Opcode::kPull, .cookie = cookie, .nla = nla, .key = op.remote.key[0], .value = bytes});
        return;
    }
    start_push(*state.peer,
               {.opcode = Opcode::kPutData, .cookie = cookie, .nla = nla, .key = op.remote.key[0]},
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
    log(0, "velo: rank " + std::to_string(options_.identity.rank) +
               ": the kernel does not permit direct copies from rank " + std::to_string(peer.rank) +
               " (process_vm_readv); large messages are copied in chunks instead, which is slower. The other "
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
    if (status != Status::kOk) ++counters_.rma_failed;
    if (status == Status::kPeerDead) [[unlikely]]
        tell_of_end(*reinterpret_cast<RmaState*>(op.engine)->peer);
    ++upcall_depth_;
    {
        // Whoever waits in the upcall for another transfer finds it driven.
        const Apart apart(*this);
        options_.host.rma_done(options_.host.context, &op, static_cast<int>(status));
    }
    --upcall_depth_;
}

// Atomics. All of them are executed by the CPU of the process whose memory it is, so that they are
// coherent with its own and with each other, whichever way they came.

template <class D>
void Engine<D>::post_atomic(RmaState& state) {
    if (state.peer->path == VELO_PATH_DEVICE && post_device_atomic(state)) return;
    const velo_rma_t& op = *state.op;
    const uint32_t cookie = slots_.take({.wait = Wait::kAtomic, .state = &state});
    send_control(*state.peer, {.opcode = Opcode::kAtomic,
                               .atomic = static_cast<uint8_t>(op.atomic),
                               .width = static_cast<uint8_t>(op.width),
                               .cookie = cookie,
                               .nla = op.remote.nla[0] + (op.remote_address - op.remote.base),
                               .key = op.remote.key[0],
                               .value = op.operand,
                               .compare = op.compare});
}

/// False: not an operation that the device has.
template <class D>
bool Engine<D>::post_device_atomic(RmaState& state) {
    const velo_rma_t& op = *state.op;
    const bool add = op.atomic == VELO_ATOMIC_ADD;
    if (op.width != 8 || op.remote.key[1] == 0 || (!add && op.atomic != VELO_ATOMIC_COMPARE_SWAP))
        return false;
    const uint32_t cookie = slots_.take({.wait = Wait::kDeviceAtomic, .state = &state});
    const RmaOperation operation = {.kind = add ? RmaKind::kFetchAdd : RmaKind::kCompareSwap,
                                    .cookie = static_cast<uint16_t>(cookie),
                                    .peer = state.peer->index,
                                    .nla = op.remote.nla[1] + (op.remote_address - op.remote.base),
                                    .key = op.remote.key[1],
                                    .bytes = 8,
                                    .operand = op.operand,
                                    .compare = op.compare};
    if (device_->post(operation) == Status::kOk) return true;
    slots_.release(cookie);
    return false;
}

template <class D>
void Engine<D>::atomic_done(RmaState& state, Status status, uint64_t old_value) {
    velo_rma_t& op = *state.op;
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
        if (waiting.wait == Wait::kDeviceChunk && notification.status == Status::kUnsupported) {
            give_up_direct(*waiting.state->peer);
            issue_copied(*waiting.state, waiting.offset, waiting.bytes, cookie);
            continue;
        }
        slots_.release(cookie);
        if (waiting.wait == Wait::kDeviceAtomic) {
            atomic_done(*waiting.state, notification.status, notification.value);
            continue;
        }
        if (notification.status == Status::kOk) {
            const bool get = waiting.state->op->kind == VELO_RMA_GET;
            (get ? counters_.rma_get_bytes : counters_.rma_put_bytes) += waiting.bytes;
        }
        chunk_done(*waiting.state, notification.status);
    }
    return taken;
}

// Messages between engines.

/// An answer that is one too many for a peer that takes none is dropped.
template <class D>
void Engine<D>::send_control(velo_peer& peer, const EngineHeader& header) {
    const bool answer = header.opcode == Opcode::kDone;
    if (answer && peer.answers == kAnswersMax) [[unlikely]] {
        ++counters_.engine_malformed;
        return;
    }
    auto* control = static_cast<Control*>(free_controls_.pop_front());
    if (control == nullptr) control = &controls_.emplace_back();
    control->header = header;
    control->peer = &peer;
    control->data[0] = &control->header;
    control->bytes[0] = sizeof control->header;
    control->bytes[1] = 0;
    control->tag = 0;
    if (submit(peer, *control, MessageClass::kEngine, Origin::kControl)) {
        free_controls_.push_back(control);
    } else if (answer) {
        ++peer.answers;
    }
}

template <class D>
void Engine<D>::start_push(velo_peer& peer, const EngineHeader& header, uint64_t address, uint64_t bytes) {
    auto* push = static_cast<Push*>(free_pushes_.pop_front());
    if (push == nullptr) push = &pushes_.emplace_back();
    push->header = header;
    push->peer = &peer;
    push->address = address;
    push->left = bytes;
    push->source_nla = header.opcode == Opcode::kPullData ? header.nla : 0;
    push->source_key = header.opcode == Opcode::kPullData ? header.key : 0;
    push->bytes[1] = 0;
    advance_push(*push);
}

/// Sends the next pieces of a push, until one has to wait or all have left.
template <class D>
void Engine<D>::advance_push(Push& push) {
    const uint32_t message_bytes_max = push.peer->path == VELO_PATH_ON_NODE
                                           ? on_node_.message_bytes_max()
                                           : options_.params.device_message_bytes_max;
    const uint32_t piece_max = std::min(static_cast<uint32_t>(options_.params.copy_chunk),
                                        message_bytes_max - static_cast<uint32_t>(sizeof(EngineHeader)));
    do {
        const uint32_t sent = push.bytes[1];  // by the message that has just left
        push.address += sent;
        if (push.header.opcode == Opcode::kPutData) {
            push.header.nla += sent;
        } else {
            push.header.value += sent;
        }
        if (push.left == 0) {
            push_ended(push, Status::kOk);
            return;
        }
        if (push.source_key != 0 && !on_node_.atu().view().valid(push.source_nla, push.source_key)) {
            push_ended(push, Status::kAtuFault);
            return;
        }
        const auto piece = static_cast<uint32_t>(std::min<uint64_t>(push.left, piece_max));
        push.left -= piece;
        push.header.last = push.left == 0;
        push.data[0] = &push.header;
        push.bytes[0] = sizeof push.header;
        push.data[1] = reinterpret_cast<const void*>(push.address);
        push.bytes[1] = piece;
        push.tag = 0;
    } while (submit(*push.peer, push, MessageClass::kEngine, Origin::kPush));
}

/// All of a push has left, or nothing more of it will. A copied put that was refused meanwhile ends only now:
/// until here its memory was in use.
template <class D>
void Engine<D>::push_ended(Push& push, Status status) {
    const bool put = push.header.opcode == Opcode::kPutData;
    const uint32_t cookie = push.header.cookie;
    velo_peer& peer = *push.peer;
    free_pushes_.push_back(&push);
    if (!put) {
        --peer.pulls;
        if (status == Status::kOk || status == Status::kPeerDead) return;
        ++counters_.atu_faults;
        send_control(peer,
                     {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = cookie});
        return;
    }
    Waiting* waiting = slots_.find(cookie);
    if (waiting == nullptr) return;
    waiting->pushing = false;
    if (waiting->refused == Status::kOk) waiting->refused = status;
    if (waiting->refused != Status::kOk) wait_ended(cookie, waiting->refused, 0);
}

/// What waits under a cookie ends; a cookie that nothing waits under is no error.
template <class D>
void Engine<D>::wait_ended(uint32_t cookie, Status status, uint64_t value) {
    Waiting* found = slots_.find(cookie);
    if (found == nullptr) return;
    if (found->pushing) {
        found->refused = status;
        return;
    }
    if (found->wait == Wait::kJoint) {
        const uint8_t slot = found->joint;
        Joint& joint = joints_[slot];
        // `value`: bytes that the owner had claimed and will not bring.
        joint.ended_bytes +=
            static_cast<uint32_t>(std::min<uint64_t>(value, joint.bytes - joint.ended_bytes));
        close_joint(joint, status);
        end_joint_if_done(slot);
        return;
    }
    const Waiting waiting = *found;
    slots_.release(cookie);
    if (waiting.wait == Wait::kAtomic) {
        atomic_done(*waiting.state, status, value);
    } else {
        chunk_done(*waiting.state, status);
    }
}

template <class D>
void Engine<D>::receive_engine_message(velo_peer& peer, const std::byte* data, uint32_t bytes) {
    EngineHeader header;
    if (bytes < sizeof header) {
        ++counters_.engine_malformed;
        return;
    }
    std::memcpy(&header, data, sizeof header);
    const std::byte* body = data + sizeof header;
    const uint32_t body_bytes = bytes - static_cast<uint32_t>(sizeof header);
    switch (header.opcode) {
        case Opcode::kPull: on_pull(peer, header); return;
        case Opcode::kPullData: on_pull_data(header, body, body_bytes); return;
        case Opcode::kPutData: on_put_data(peer, header, body, body_bytes); return;
        case Opcode::kAtomic: on_atomic(peer, header); return;
        case Opcode::kDone: on_done(header); return;
        case Opcode::kJoint: on_joint(peer, header); return;
        case Opcode::kJointData: on_joint_data(peer, header, data, bytes); return;
    }
    ++counters_.engine_malformed;
}

template <class D>
void Engine<D>::on_pull(velo_peer& peer, const EngineHeader& header) {
    const auto refuse = [&](uint64_t& counter, Status status) {
        ++counter;
        send_control(
            peer, {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = header.cookie});
    };
    uint64_t address = 0;
    if (header.value == 0 || on_node_.atu().view().translate(header.nla, header.value, header.key,
                                                             kAccessRead, address) != Status::kOk) {
        return refuse(counters_.atu_faults, Status::kAtuFault);
    }
    if (peer.pulls == kPullsMax) return refuse(counters_.engine_malformed, Status::kProtocol);
    ++peer.pulls;
    start_push(peer,
               {.opcode = Opcode::kPullData, .cookie = header.cookie, .nla = header.nla, .key = header.key},
               address, header.value);
}

template <class D>
void Engine<D>::on_pull_data(const EngineHeader& header, const std::byte* data, uint32_t bytes) {
    Waiting* waiting = slots_.find(header.cookie);
    if (waiting == nullptr || waiting->wait != Wait::kPullChunk || header.value != waiting->received ||
        bytes > waiting->bytes - waiting->received) {
        ++counters_.engine_malformed;
        return;
    }
    std::memcpy(static_cast<std::byte*>(waiting->state->op->local) + waiting->offset + waiting->received,
                data, bytes);
    waiting->received += bytes;
    if (waiting->received != waiting->bytes) return;
    RmaState& state = *waiting->state;
    slots_.release(header.cookie);
    chunk_done(state, Status::kOk);
}

template <class D>
void Engine<D>::on_put_data(velo_peer& peer, const EngineHeader& header, const std::byte* data,
                            uint32_t bytes) {
    uint64_t address = 0;
    const Status status =
        on_node_.atu().view().translate(header.nla, bytes, header.key, kAccessWrite, address);
    if (status == Status::kOk) {
        std::memcpy(reinterpret_cast<void*>(address), data, bytes);
    } else {
        ++counters_.atu_faults;
    }
    // A piece that fails ends the whole; what is answered after that finds no one waiting.
    if (status != Status::kOk || header.last != 0) {
        send_control(
            peer, {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = header.cookie});
    }
}

template <class D>
void Engine<D>::on_atomic(velo_peer& peer, const EngineHeader& header) {
    EngineHeader answer = {.opcode = Opcode::kDone, .cookie = header.cookie};
    uint64_t address = 0;
    Status status = Status::kProtocol;
    if ((header.width == 4 || header.width == 8) && header.atomic < VELO_ATOMIC_COUNT) {
        status =
            on_node_.atu().view().translate(header.nla, header.width, header.key, kAccessAtomic, address);
        if (status == Status::kOk && address % header.width != 0) status = Status::kBadParam;
    }
    if (status == Status::kOk) {
        answer.value = apply_atomic(static_cast<velo_atomic_t>(header.atomic), header.width, address,
                                    header.value, header.compare);
        ++counters_.atomics_served;
    } else {
        ++counters_.atu_faults;
    }
    answer.status = static_cast<uint8_t>(status);
    send_control(peer, answer);
}

template <class D>
void Engine<D>::on_done(const EngineHeader& header) {
    const Waiting* found = slots_.find(header.cookie);
    const auto status = static_cast<Status>(header.status);
    // A pull that went well ends with its last data, so only its failure is announced.
    const bool expected =
        found != nullptr && header.status <= static_cast<uint8_t>(Status::kProtocol) &&
        (found->wait == Wait::kPutChunk || found->wait == Wait::kAtomic ||
         ((found->wait == Wait::kPullChunk || found->wait == Wait::kJoint) && status != Status::kOk));
    if (!expected) {
        ++counters_.engine_malformed;
        return;
    }
    wait_ended(header.cookie, status, header.value);
}

}  // namespace velo
