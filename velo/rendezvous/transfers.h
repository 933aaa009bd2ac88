/// Transfers: gets and puts, cut into chunks (rma/chunk_scheduler.h).
///
/// Each chunk goes the fastest way that works with that peer: a cooperative or a direct copy on the node, an
/// RMA operation of the device, or in messages (velo/wire/engine_wire.h) where none is possible or one of them was just
/// refused. The choice is made again for every chunk.
#pragma once

#include <cstring>
#include <new>
#include <string>

#include "rma/chunk_scheduler.h"
#include "rma/stream_lead.h"
#include "velo/base/text.h"
#include "velo/rendezvous/atomics.h"
#include "velo/rendezvous/coop_reader.h"
#include "velo/rendezvous/copied_chunks.h"
#include "velo/rendezvous/denied_copies.h"
#include "velo/rendezvous/device_operations.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/operation_sink.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/rail_dispatch.h"
#include "velo/rendezvous/remedy.h"
#include "velo/rendezvous/reserving.h"
#include "velo/rendezvous/transfer_ops.h"
#include "velo/velo.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/handle.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock, which is given up during direct copies.
template <class Core>
class Transfers final : public CookieOwner, public TransferOps {
  public:
    using Peer = velo_peer;
    using State = TransferState<Peer>;
    using Op = PendingOp<Peer>;
    static_assert(sizeof(State) <= sizeof(velo_rma_t::engine));

    Transfers(Core& core, CookieTable<Op>& pending, EngineMessages<Core>& messages, RailDispatch<Core>& rails,
              Reserving<Core>& reserving, Atomics<Core>& atomics, DeniedCopies<Core>& denied, CoopReader<Core>& coop,
              CopiedChunks<Core>& copied, DeviceOperations<Core>& on_device)
        : core_(core),
          pending_(pending),
          rails_(rails),
          reserving_(reserving),
          atomics_(atomics),
          denied_(denied),
          coop_(coop),
          copied_(copied),
          on_device_(on_device),
          scheduler_(core.options.window.chunks, core.options.window.bytes) {
        messages.reports_to(*this);
        reserving.reports_to(*this);
        atomics.reports_to(*this);
        coop.reports_to(*this);
        on_device.reports_to(*this);
    }

    void post(Peer& peer, velo_rma_t& op);
    [[nodiscard]] bool idle() const { return scheduler_.idle(); }
    /// Issues what may be issued, atomics first. Returns how many chunks and atomics were started.
    uint32_t drive();
    void end(Cookie cookie, Status status, uint64_t value) override;
    [[gnu::cold]] void reports_to(OperationSink& sink) { sink_ = &sink; }

    // TransferOps.

    bool find_remote(State& state) override;
    void chunk_refused(State& state, uint64_t offset, uint32_t bytes) override;
    [[gnu::cold]] void memory_refused(State& state, uint64_t offset, uint32_t bytes) override;
    void chunk_done(State& state, uint32_t bytes, Status status) override;
    void finished(velo_rma_t& op, Status status) override;
    void admit(State& state) override;
    void open(State& state) override { scheduler_.open(state); }

    [[nodiscard]] const ChunkScheduler& scheduler() const { return scheduler_; }
    /// Calls visit(state) for each transfer of which something has not been issued.
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        scheduler_.for_each_waiting([&](const Transfer& transfer) {
            const auto& state = static_cast<const State&>(transfer);
            if (!state.unadmitted()) visit(state);
        });
        reserving_.for_each_waiting(visit);
    }

  private:
    /// The fate of a chunk: it was copied here and now, it ends later, or it was not begun, because the
    /// device's queue is full.
    enum class Issued : uint8_t { kCopied, kBegun, kHeld };

    /// Each time an operation's memory is looked for by address, another registration of it was revoked.
    static constexpr uint8_t kFindsMax = 64;
    /// An on-node direct copy is made in pieces of this size, and the other is the limit of what is copied in
    /// one go before others get their turn.
    static constexpr uint32_t kDirectChunkBytes = 1u << 20;
    /// Shorter transfers gain less by it than an operation more takes.
    static constexpr uint64_t kLeadBytesMin = 32u << 10;
    static constexpr uint64_t kDirectBytesPerTurn = 4u << 20;

    uint32_t drive_scheduler();
    Issued issue(const Chunk& chunk);
    [[nodiscard]] bool may_be_cooperative(const State& state, const Chunk& chunk) const;
    bool issue_direct_on_node(Op& chunk);
    Status copy_on_node(const Op& chunk);
    [[gnu::cold]] void report_failed(const velo_rma_t& op, Status status);

    Core& core_;
    CookieTable<Op>& pending_;
    RailDispatch<Core>& rails_;
    Reserving<Core>& reserving_;
    Atomics<Core>& atomics_;
    DeniedCopies<Core>& denied_;
    CoopReader<Core>& coop_;
    CopiedChunks<Core>& copied_;
    DeviceOperations<Core>& on_device_;
    ChunkScheduler scheduler_;
    OperationSink* sink_ = nullptr;
};

}  // namespace velo::rma
