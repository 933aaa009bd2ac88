/// Operations with the device: chunks are posted at its rails, and its notifications end them and its atomics.
///
/// A chunk that a rail fails goes by another one, and in messages where none is left.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "velo/base/check.h"
#include "velo/device/device.h"
#include "velo/rendezvous/atomics.h"
#include "velo/rendezvous/copied_chunks.h"
#include "velo/rendezvous/denied_copies.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/rail_dispatch.h"
#include "velo/rendezvous/reserving.h"
#include "velo/rendezvous/transfer_ops.h"
#include "velo/velo.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class DeviceOperations {
  public:
    using Peer = velo_peer;
    using State = TransferState<Peer>;
    using Op = PendingOp<Peer>;

    DeviceOperations(Core& core, CookieTable<Op>& pending, RailDispatch<Core>& rails, Reserving<Core>& reserving,
                     Atomics<Core>& atomics, DeniedCopies<Core>& denied, CopiedChunks<Core>& copied)
        : core_(core),
          pending_(pending),
          rails_(rails),
          reserving_(reserving),
          atomics_(atomics),
          denied_(denied),
          copied_(copied) {}

    [[gnu::cold]] void reports_to(TransferOps& transfers) { transfers_ = &transfers; }

    /// kAgain: the queues of the device's ports are full; any other status but kOk: it does not take this. The entry
    /// is still taken. `refused`: rails that it must not take.
    Status issue(Op& chunk, RailMask refused = 0);
    /// Posts failed chunks again for which the other rails' queues were full.
    void drive_repeats() {
        if (!repeats_.empty()) repeat_all();
    }
    uint32_t take_notifications();

  private:
    /// Rails that a chunk is tried on, until it goes in messages; some of them may be one.
    static constexpr uint32_t kChunkFailuresMax = 16;

    [[gnu::cold]] void repeat(Op& chunk);
    [[gnu::cold]] void repeat_all();
    void chunk_ended(Op& chunk, Status status);
    [[gnu::cold]] void chunk_failed(Op& chunk, Status status, bool rail_failed);
    void atomic_ended(const Op& waiting, Status status, uint64_t old_value);

    Core& core_;
    CookieTable<Op>& pending_;
    RailDispatch<Core>& rails_;
    Reserving<Core>& reserving_;
    Atomics<Core>& atomics_;
    DeniedCopies<Core>& denied_;
    CopiedChunks<Core>& copied_;
    TransferOps* transfers_ = nullptr;
    std::vector<Op*> repeats_;  ///< chunks that a rail failed, and for which the others' queues are full
};

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
