/// The parts of an engine, and how they find each other.
///
/// Each part has state of its own and a header that can be read alone. Parts are generic over `Env`, which
/// names the types of what they share (Core), of each other (Parts) and of a peer.
#pragma once

#include "velo/core/core.h"
#include "velo/core/peers.h"
#include "velo/core/send_queue.h"
#include "velo/engine/connector.h"
#include "velo/engine/failures.h"
#include "velo/matching/matching.h"
#include "velo/rendezvous/atomics.h"
#include "velo/rendezvous/cookie_table.h"
#include "velo/rendezvous/coop_copy.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/rail_dispatch.h"
#include "velo/rendezvous/registrations.h"
#include "velo/rendezvous/reserving.h"
#include "velo/rendezvous/transfers.h"
#include "velo/report/credit_tracer.h"
#include "velo/report/stall_reporter.h"

namespace velo {

template <class S>
struct Parts;

template <class S>
struct EngineEnv {
    using Core = velo::Core<S>;
    using Parts = velo::Parts<S>;
    using Peer = velo_peer;
};

/// Throws base::SetupError.
template <class S>
struct Parts {
    using Env = EngineEnv<S>;

    [[gnu::cold]] Parts(const EngineOptions& options, const S& system)
        : core(options, system),
          queue(core, *this),
          messages(core, *this),
          matching(core, *this),
          rails(core),
          reserving(core, *this),
          transfers(core, *this),
          atomics(core, *this),
          coop(core, *this),
          registrations(core),
          connector(core, *this),
          failures(core, *this),
          stalls(core, *this),
          tracer(core, *this) {}

    velo::Core<S> core;
    Peers peers;
    SendQueue<Env> queue;
    EngineMessages<Env> messages;
    Matching<Env> matching;
    rma::CookieTable<rma::PendingOp<velo_peer>> pending{rma::kPendingOpsMax};
    rma::RailDispatch<Env> rails;
    rma::Reserving<Env> reserving;
    rma::Transfers<Env> transfers;
    rma::Atomics<Env> atomics;
    rma::CoopCopy<Env> coop;
    rma::Registrations<Env> registrations;
    Connector<Env> connector;
    Failures<Env> failures;
    StallReporter<Env> stalls;
    CreditTracer<Env> tracer;
};

}  // namespace velo
