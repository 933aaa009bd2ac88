/// The parts of an engine, and how they find each other.
///
/// Each part has state of its own and a header that can be read alone. Parts are generic over `Env`, which
/// names the types of what they share (Core), of each other (Parts) and of a peer.
#pragma once

#include "rma/atomics.h"
#include "rma/cookie_table.h"
#include "rma/coop_copy.h"
#include "rma/pending_op.h"
#include "rma/rail_dispatch.h"
#include "rma/registrations.h"
#include "rma/reserving.h"
#include "rma/transfers.h"
#include "velo/connector.h"
#include "velo/core.h"
#include "velo/credit_tracer.h"
#include "velo/engine_messages.h"
#include "velo/failures.h"
#include "velo/matching.h"
#include "velo/peers.h"
#include "velo/send_queue.h"
#include "velo/stall_reporter.h"

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
