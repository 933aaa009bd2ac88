/// Bodies of velo/rendezvous/rail_dispatch.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/rendezvous/rail_dispatch.h"

namespace velo::rma {

template <class Core>
PeerSources& RailDispatch<Core>::make_sources(Peer& peer) {
    peer.sources = std::make_unique<PeerSources>();
    // On the node nothing but time is taken.
    if (peer.path == VELO_PATH_ON_NODE) peer.sources->direct.bytes_mask = peer.sources->copied.bytes_mask = 0;
    // The nodes of another job have numbers of their own.
    if (peer.job == core_.options.identity.job)
        peer.sources->rails.column = core_.options.static_column(peer.node);
    return *peer.sources;
}

template <class Core>
Status RailDispatch<Core>::post_chunk(State& state, Op& waiting, RmaOperation& operation, RailMask refused) {
    PeerRails& peer = sources_of(*state.peer).rails;
    if (rails_.sole(peer) && refused == 0) [[likely]] {
        const Status status = core_.device->post(operation);
        if (status == Status::kOk) rails_.began_on_sole();
        return status;
    }
    return post_by_choice(state, peer, waiting, operation, refused);
}

template <class Core>
Status RailDispatch<Core>::post_by_choice(State& state, PeerRails& peer, Op& waiting, RmaOperation& operation,
                                         RailMask refused) {
    const RailDirection direction = direction_of(operation.kind);
    // A chunk that has failed may have to go by a rail that is not reserved.
    const bool strict = state.stage == State::Stage::kAdmitted && refused == 0;
    RailMask asked = state.asked;
    RailMask& assigned = state.unadmitted() ? asked : state.rails;
    for (bool full = false;;) {
        const uint32_t rail =
            rails_.pick(assigned, peer, direction, state.op->bytes, refused, core_.clock.now(), strict);
        if (rail >= Rails::kFull) [[unlikely]] {
            if (full) return Status::kAgain;
            report_none(*state.peer);
            return Status::kUnsupported;
        }
        operation.port = static_cast<uint8_t>(rail);
        const Status status = core_.device->post(operation);
        if (status == Status::kOk) {
            waiting.rail = operation.port;
            rails_.began(rail, peer, direction, operation.bytes);
        }
        if (status != Status::kAgain) return status;
        refused |= rail_bit(rail);
        full = true;
    }
}

template <class Core>
Status RailDispatch<Core>::post_atomic(State& state, Op& waiting, RmaOperation& operation) {
    PeerRails& peer = sources_of(*state.peer).rails;
    const uint32_t rail = rails_.pick_for_atomic(peer, state.peer->index, core_.clock.now());
    if (rail == Rails::kFull) return Status::kAgain;
    if (rail == Rails::kNone) return Status::kUnsupported;
    operation.port = static_cast<uint8_t>(rail);
    const Status status = core_.device->post(operation);
    if (status != Status::kOk) return status;
    waiting.rail = operation.port;
    rails_.began(rail, peer, RailDirection::kSending, kAtomicBytes);
    ++peer.atomics;
    peer.atomics_rail = rail;
    return status;
}

template <class Core>
inline bool RailDispatch<Core>::account(const Op& waiting, uint64_t bytes, Status status) {
    if (status == Status::kFailed || status == Status::kNotBegun) [[unlikely]] {
        account_failure(waiting);
        return true;
    }
    Peer& peer = *waiting.state->peer;
    const Rails::Change change = rails_.succeeded(waiting.rail, sources_of(peer).rails, bytes);
    if (change != Rails::Change::kNone) [[unlikely]] {
        ++core_.counters.rail_returns;
        report(peer, waiting.rail, change, true);
    }
    return false;
}

template <class Core>
void RailDispatch<Core>::account_failure(const Op& waiting) {
    Peer& peer = *waiting.state->peer;
    const Rails::Change change = rails_.failed(waiting.rail, sources_of(peer).rails, core_.clock.read());
    if (change == Rails::Change::kNone) return;
    ++core_.counters.rail_outages;
    report(peer, waiting.rail, change, false);
}

template <class Core>
void RailDispatch<Core>::report(const Peer& peer, uint32_t rail, Rails::Change change, bool works) {
    // Of a single one all is said by report_none().
    if (!rails_.several() || lines_ == kLinesMax) return;
    ++lines_;
    std::string text;
    base::append(text, "rail %u ", rail);
    if (change == Rails::Change::kPath) base::append(text, "to rank %u ", peer.rank);
    if (works) {
        text += "works again";
    } else {
        base::append(
            text,
            "fails, and is tried again in %g s; until then transfers go by the others, which repeat what it failed.",
            static_cast<double>(core_.options.rails.retry_ns) / 1e9);
        if (core_.options.rails.own_column != 0) {
            text += " btl_velo_rails=static has no way around it: local_dynamic is used from now on.";
        }
    }
    if (lines_ == kLinesMax) text += " (There are no more lines about rails; counters go on.)";
    core_.say(0, text);
}

template <class Core>
void RailDispatch<Core>::report_none(const Peer& peer) {
    if (std::exchange(none_reported_, true)) return;
    core_.say(0,
              "the device failed a transfer with rank " + std::to_string(peer.rank) +
                  (rails_.several() ? ", by all of its rails" : "") +
                  "; what it fails is repeated in messages, which is slower. Look at the device, for memory that was "
                  "unmapped while MPI used it, or at btl_velo_faults.");
}

}  // namespace velo::rma
