/// Bodies of velo/rendezvous/device_operations.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/rendezvous/device_operations.h"

namespace velo::rma {

template <class Core>
Status DeviceOperations<Core>::issue(Op& chunk, RailMask refused) {
    State& state = *chunk.state;
    const velo_rma_t& op = *state.op;
    if (op.remote.device_key == 0) return Status::kUnsupported;
    chunk.kind = Op::Kind::kDeviceChunk;
    RmaOperation operation = {.kind = op.kind == VELO_RMA_GET ? RmaKind::kGet : RmaKind::kPut,
                              .cookie = chunk.index(),
                              .peer = state.peer->device_addr(),
                              .local = static_cast<std::byte*>(op.local) + chunk.offset,
                              .nla = op.remote.nla[1] + (op.remote_address - op.remote.base) + chunk.offset,
                              .key = op.remote.device_key,
                              .bytes = chunk.bytes};
    const Status status = rails_.post_chunk(state, chunk, operation, refused);
    if (status == Status::kOk) reserving_.chunk_began(state, chunk);
    return status;
}

/// A chunk that a rail has failed, and has ended, goes by another one; in messages, where none is left. To move
/// it twice does no harm.
template <class Core>
void DeviceOperations<Core>::repeat(Op& chunk) {
    if (chunk.failures < kChunkFailuresMax) {
        const Status status = issue(chunk, rail_bit(chunk.rail));
        if (status == Status::kAgain) repeats_.push_back(&chunk);
        if (status == Status::kOk || status == Status::kAgain) return;
    }
    copied_.issue_guarded(chunk);
}

template <class Core>
void DeviceOperations<Core>::repeat_all() {
    for (Op* chunk : std::exchange(repeats_, {})) repeat(*chunk);
}

template <class Core>
uint32_t DeviceOperations<Core>::take_notifications() {
    uint32_t taken = 0;
    Notification notification;
    while (core_.device->poll_notification(notification)) {
        ++taken;
        Op* found = pending_.find_index(notification.cookie);
        if (notification.kind != kNotifyRequester || found == nullptr || !found->with_device()) [[unlikely]] {
            ++core_.counters.engine_malformed;
            continue;
        }
        if (found->kind == Op::Kind::kDeviceChunk) [[likely]] {
            chunk_ended(*found, notification.status);
            continue;
        }
        const Op waiting = *found;
        pending_.release(*found);
        atomic_ended(waiting, notification.status, notification.value);
    }
    return taken;
}

template <class Core>
void DeviceOperations<Core>::atomic_ended(const Op& waiting, Status status, uint64_t old_value) {
    State& state = *waiting.state;
    if (rails_.atomic_ended(waiting, status)) [[unlikely]]
        reserving_.rail_failed(*state.peer, waiting.rail);
    if (status == Status::kNotBegun) return atomics_.requeue(state);
    if (status == Status::kUnsupported) {
        state.op->remote.device_key = 0;  // in a message
        const bool posted = atomics_.post(state);
        VELO_CHECK(posted, "an atomic for rank %u is held", state.peer->rank);
        return;
    }
    // One that failed may have been carried out, so it is not repeated.
    atomics_.done(state, status, old_value);
}

template <class Core>
void DeviceOperations<Core>::chunk_ended(Op& chunk, Status status) {
    VELO_DCHECK(chunk.kind == Op::Kind::kDeviceChunk && chunk.state != nullptr,
                "entry %u is no chunk of the device", chunk.index());
    State& state = *chunk.state;
    const bool get = state.op->kind == VELO_RMA_GET;
    const uint32_t bytes = chunk.bytes;
    const bool failed = rails_.chunk_ended(chunk, direction_of(get ? RmaKind::kGet : RmaKind::kPut), status);
    reserving_.chunk_ended(state, chunk);
    if (status != Status::kOk || failed) [[unlikely]]
        return chunk_failed(chunk, status, failed);
    (get ? core_.counters.rma_get_bytes : core_.counters.rma_put_bytes) += bytes;
    pending_.release(chunk);
    transfers_->chunk_done(state, bytes, Status::kOk);
}

/// `rail_failed`: its rail has failed it, and another one may not.
template <class Core>
void DeviceOperations<Core>::chunk_failed(Op& chunk, Status status, bool rail_failed) {
    State& state = *chunk.state;
    if (rail_failed) {
        reserving_.rail_failed(*state.peer, chunk.rail);
        ++core_.counters.rma_repeated;
        ++chunk.failures;
        if (state.status == Status::kOk) return repeat(chunk);
        status = state.status;
    }
    if (status == Status::kUnsupported) {
        denied_.give_up_direct(*state.peer);
        return copied_.issue(chunk);
    }
    if (status == Status::kBadMemory) return copied_.issue_guarded(chunk);
    const uint64_t offset = chunk.offset;
    const uint32_t bytes = chunk.bytes;
    pending_.release(chunk);
    if (status == Status::kAtuFault) {
        transfers_->chunk_refused(state, offset, bytes);
    } else {
        transfers_->chunk_done(state, bytes, status);
    }
}

}  // namespace velo::rma
