/// Bodies of velo/rendezvous/atomics.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/rendezvous/atomics.h"

namespace velo::rma {

template <class Core>
uint32_t Atomics<Core>::drive() {
    uint32_t started = 0;
    while (!empty() && !pending_.full()) {
        base::IntrusiveQueue<Transfer>& queue = returned_.empty() ? queue_ : returned_;
        auto* state = static_cast<State*>(queue.pop_front());
        if (!post(*state)) {
            queue.push_front(state);
            break;
        }
        ++started;
    }
    return started;
}

/// Posts an atomic to the device or to its owner. False: the device's queue is full, and the atomic waits.
template <class Core>
bool Atomics<Core>::post(State& state) {
    VELO_DCHECK(!pending_.full(), "an atomic for rank %u has no cookie", state.peer->rank);
    if (state.peer->path == VELO_PATH_DEVICE) {
        const Status status = post_to_device(state);
        if (status == Status::kOk) return true;
        if (status == Status::kAgain) {
            ++core_.counters.rma_held;
            return false;
        }
    }
    const velo_rma_t& op = *state.op;
    Op& waiting = *pending_.take();
    waiting.kind = Op::Kind::kAtomic;
    waiting.state = &state;
    messages_.send_control(*state.peer,
                           AtomicHeader{.operation = static_cast<uint8_t>(op.atomic),
                                        .width = static_cast<uint8_t>(op.width),
                                        .cookie = waiting.cookie,
                                        .nla = op.remote.nla[0] + (op.remote_address - op.remote.base),
                                        .operand = op.operand,
                                        .compare = op.compare,
                                        .key = op.remote.on_node_key});
    return true;
}

/// Posts an atomic to the device. kAgain: its queue is full; kUnsupported: the device does not have this operation.
template <class Core>
Status Atomics<Core>::post_to_device(State& state) {
    const velo_rma_t& op = *state.op;
    const bool add = op.atomic == VELO_ATOMIC_ADD;
    if (op.width != 8 || op.remote.device_key == 0 || !core_.device->traits().atomics ||
        (!add && op.atomic != VELO_ATOMIC_COMPARE_SWAP)) {
        return Status::kUnsupported;
    }
    Op& waiting = *pending_.take();
    waiting.kind = Op::Kind::kDeviceAtomic;
    waiting.state = &state;
    RmaOperation operation = {.kind = add ? RmaKind::kFetchAdd : RmaKind::kCompareSwap,
                              .cookie = waiting.index(),
                              .peer = state.peer->device_addr(),
                              .nla = op.remote.nla[1] + (op.remote_address - op.remote.base),
                              .key = op.remote.device_key,
                              .bytes = 8,
                              .operand = op.operand,
                              .compare = op.compare};
    const Status status = rails_.post_atomic(state, waiting, operation);
    if (status != Status::kOk) pending_.release(waiting);
    return status;
}

template <class Core>
void Atomics<Core>::done(State& state, Status status, uint64_t old_value) {
    velo_rma_t& op = *state.op;
    if (status == Status::kAtuFault && transfers_->find_remote(state)) {
        const bool posted = post(state);
        VELO_CHECK(posted, "an atomic for rank %u is held", state.peer->rank);
        return;
    }
    if (status == Status::kOk && op.local != nullptr) std::memcpy(op.local, &old_value, op.width);
    transfers_->finished(op, status);
}

}  // namespace velo::rma
