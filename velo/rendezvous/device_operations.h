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

}  // namespace velo::rma
