/// Atomics. All of them are executed by the CPU of the process whose memory it is, so that they are coherent
/// with its own and with each other, whichever way they came.
#pragma once

#include <cstring>

#include "velo/base/check.h"
#include "velo/base/intrusive_queue.h"
#include "velo/device/device.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/rail_dispatch.h"
#include "velo/rendezvous/transfer_ops.h"
#include "velo/velo.h"
#include "velo/wire/engine_wire.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class Atomics {
  public:
    using State = TransferState<velo_peer>;
    using Op = PendingOp<velo_peer>;

    Atomics(Core& core, CookieTable<Op>& pending, EngineMessages<Core>& messages, RailDispatch<Core>& rails)
        : core_(core), pending_(pending), messages_(messages), rails_(rails) {}
    [[gnu::cold]] void reports_to(TransferOps& transfers) { transfers_ = &transfers; }

    void enqueue(State& state) { queue_.push_back(&state); }
    /// Queues an atomic that the device did not begin, before those that were posted after it.
    void requeue(State& state) { returned_.push_back(&state); }
    [[nodiscard]] bool empty() const { return queue_.empty() && returned_.empty(); }
    /// Posts what waits, as far as the device's queue takes it. Returns how many.
    uint32_t drive();
    bool post(State& state);
    void done(State& state, Status status, uint64_t old_value);
    /// Calls visit(state) for each that waits.
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        for (const auto* queue : {&returned_, &queue_}) {
            for (const Transfer* at = queue->front(); at != nullptr; at = at->next)
                visit(static_cast<const State&>(*at));
        }
    }

  private:
    Status post_to_device(State& state);

    Core& core_;
    CookieTable<Op>& pending_;
    EngineMessages<Core>& messages_;
    RailDispatch<Core>& rails_;
    TransferOps* transfers_ = nullptr;
    base::IntrusiveQueue<Transfer> returned_;  ///< by the device, to be posted again before all others
    base::IntrusiveQueue<Transfer> queue_;     ///< waiting for a cookie, or for the device
};

}  // namespace velo::rma
