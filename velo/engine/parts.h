/// The parts of an engine, in the order in which they know each other: each has references to earlier ones.
/// The few calls the other way go through interfaces that the earlier part declares: PeerEndSink, SendOwner,
/// CookieOwner, TransferOps, OperationSink.
#pragma once

#include "velo/core/core.h"
#include "velo/core/peers.h"
#include "velo/core/send_queue.h"
#include "velo/engine/connector.h"
#include "velo/engine/failures.h"
#include "velo/engine/serve.h"
#include "velo/matching/matching.h"
#include "velo/rendezvous/atomics.h"
#include "velo/rendezvous/cookie_table.h"
#include "velo/rendezvous/coop_owner.h"
#include "velo/rendezvous/coop_reader.h"
#include "velo/rendezvous/copied_chunks.h"
#include "velo/rendezvous/denied_copies.h"
#include "velo/rendezvous/device_operations.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/rail_dispatch.h"
#include "velo/rendezvous/registrations.h"
#include "velo/rendezvous/reserving.h"
#include "velo/rendezvous/transfers.h"
#include "velo/report/credit_tracer.h"
#include "velo/report/stall_reporter.h"

namespace velo {

/// Ended operations of the rendezvous, for the parts behind it.
template <class Core>
class EndedOperations final : public rma::OperationSink {
  public:
    using Transfers = rma::Transfers<Core>;

    [[gnu::cold]] EndedOperations(Core& core, Transfers& transfers, Matching<Core>& matching,
                                  Failures<Core>& failures)
        : core_(core), matching_(matching), failures_(failures) {
        transfers.reports_to(*this);
    }
    void fetched(velo_rma_t& op, Status status) override { matching_.receiving.fetched(op, status); }
    [[gnu::cold]] void peer_gone(velo_peer& peer, const velo_rma_t& op) override {
        failures_.report_unreachable(peer, Owed::kSource,
                                     op.owner != 0 ? matching_.host() : core_.host_state);
    }

  private:
    Core& core_;
    Matching<Core>& matching_;
    Failures<Core>& failures_;
};

/// Throws base::SetupError.
template <class S>
struct Parts {
    using Core = velo::Core<S>;
    using Transfers = rma::Transfers<Core>;

    [[gnu::cold]] Parts(const EngineOptions& options, const S& system) : core(options, system) {}

    Core core;
    Peers peers{};
    SendQueue<Core> queue{core, peers};
    rma::CookieTable<rma::PendingOp<velo_peer>> pending{rma::kPendingOpsMax};
    EngineMessages<Core> messages{core, queue, pending};
    rma::RailDispatch<Core> rails{core};
    rma::Reserving<Core> reserving{core, peers, messages, rails};
    rma::Atomics<Core> atomics{core, pending, messages, rails};
    rma::DeniedCopies<Core> denied{core, peers};
    rma::CoopOwner<Core> coop_owner{core, messages, denied};
    rma::CoopReader<Core> coop_reader{core, pending, messages, denied, coop_owner};
    rma::CopiedChunks<Core> copied{core, messages};
    rma::DeviceOperations<Core> on_device{core, pending, rails, reserving, atomics, denied, copied};
    Transfers transfers{core, pending, messages, rails, reserving, atomics, denied, coop_reader, copied, on_device};
    rma::Registrations<Core> registrations{core};
    Matching<Core> matching{core, queue, registrations, transfers};
    StallReporter<Core> stalls{core,      peers,   queue,      pending,     rails,
                               reserving, atomics, coop_owner, coop_reader, transfers};
    Failures<Core> failures{core,       peers,       queue,     pending,  reserving, atomics,
                            coop_owner, coop_reader, transfers, matching, stalls};
    Connector<Core> connector{core, peers, denied, failures};
    EndedOperations<Core> ended{core, transfers, matching, failures};
    Serve<Core> serve{core, pending, messages, transfers, coop_owner, coop_reader, reserving};
    CreditTracer<Core> tracer{core, peers};
};

}  // namespace velo
