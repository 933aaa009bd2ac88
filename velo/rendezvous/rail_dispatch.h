/// Posts the operations of transfers and atomics at the device's ports, and keeps account of what the ports
/// do (rma/rails.h).
#pragma once

#include <string>
#include <utility>

#include "rma/rails.h"
#include "velo/base/text.h"
#include "velo/core/peer.h"
#include "velo/device/device.h"
#include "velo/rendezvous/pending_op.h"

namespace velo::rma {

/// Direction of the data.
[[nodiscard]] constexpr RailDirection direction_of(RmaKind kind) {
    return kind == RmaKind::kGet ? RailDirection::kReceiving : RailDirection::kSending;
}

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class RailDispatch {
  public:
    using Peer = velo_peer;
    using State = TransferState<Peer>;
    using Op = PendingOp<Peer>;

    explicit RailDispatch(Core& core) : core_(core), rails_(core.options.rails) {}

    /// kAgain: the queues of all ports that may be taken are full. kUnsupported: the device does not take
    /// this, or no rail works. `refused`: rails that it must not take.
    Status post_chunk(State& state, Op& waiting, RmaOperation& operation, RailMask refused);
    /// Posts an atomic. kAgain: the ports' queues are full, or others are under way by a rail that is out.
    /// kUnsupported: the device does not take this, or no rail works.
    Status post_atomic(State& state, Op& waiting, RmaOperation& operation);
    /// An operation that was posted has ended. True: the rail has failed it.
    bool chunk_ended(const Op& waiting, RailDirection direction, Status status) {
        rails_.ended(waiting.rail, direction, waiting.bytes);
        return account(waiting, status == Status::kOk ? waiting.bytes : 0, status);
    }
    bool atomic_ended(const Op& waiting, Status status) {
        VELO_DCHECK(sources_of(*waiting.state->peer).rails.atomics != 0, "an atomic ends on rail %u, of none",
                    waiting.rail);
        rails_.ended(waiting.rail, RailDirection::kSending, kAtomicBytes);
        --sources_of(*waiting.state->peer).rails.atomics;
        return account(waiting, status == Status::kOk ? kAtomicBytes : 0, status);
    }

    PeerSources& sources_of(Peer& peer) { return peer.sources ? *peer.sources : make_sources(peer); }
    [[nodiscard]] const Rails& rails() const { return rails_; }
    /// Rails::share().
    [[nodiscard]] RailMask share(RailMask free, uint64_t bytes) { return rails_.share(free, bytes); }

  private:
    Status post_by_choice(State& state, PeerRails& peer, Op& waiting, RmaOperation& operation, RailMask refused);
    static constexpr uint64_t kAtomicBytes = sizeof(uint64_t);
    /// Lines about rails that fail and come back, which one could do every second.
    static constexpr uint32_t kLinesMax = 8;

    [[gnu::cold]] PeerSources& make_sources(Peer& peer);
    bool account(const Op& waiting, uint64_t bytes, Status status);
    [[gnu::cold]] void account_failure(const Op& waiting);
    [[gnu::cold]] void report(const Peer& peer, uint32_t rail, Rails::Change change, bool works);
    [[gnu::cold]] void report_none(const Peer& peer);

    Core& core_;
    Rails rails_;
    uint32_t lines_ = 0;
    bool none_reported_ = false;
};

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
