/// Bodies of velo/rendezvous/reserving.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/rendezvous/reserving.h"

namespace velo::rma {

template <class Core>
bool Reserving<Core>::post(State& state) {
    Peer& peer = *state.peer;
    const velo_rma_t& op = *state.op;
    if (peer.path != VELO_PATH_DEVICE || !peer.direct || peer.ended() || op.remote.device_key == 0)
        return false;
    const uint64_t now_ns = core_.clock.read();
    if (now_ns < rails_.sources_of(peer).rails.reserve_after_ns) {
        machine_->passed_by();
        return false;
    }
    machine_->post(state, peer.index, direction_of(op.kind == VELO_RMA_GET ? RmaKind::kGet : RmaKind::kPut),
                   now_ns);
    return true;
}

/// `status`: of a NACK; kUnsupported: this process reserves no such rail.
template <class Core>
void Reserving<Core>::send(Peer& peer, RailDirection direction, uint32_t rail, const RailMessage& message,
                          Status status) {
    if (peer.ended()) return;
    messages_.send_control(peer, RailHeader{.kind = message.kind,
                                            .rail = static_cast<uint8_t>(rail),
                                            .status = status,
                                            .sends = direction == RailDirection::kSending,
                                            .number = message.number});
}

template <class Core>
void Reserving<Core>::answer(Peer& peer, RailDirection direction, uint32_t rail, const RailMessage& message,
                            Status status) {
    if (peer.serving.answers < kAnswersMax) return send(peer, direction, rail, message, status);
    ++core_.counters.engine_malformed;
}

/// A message of a peer costs one answer at most, and leaves no transfer waiting for longer than its limit.
template <class Core>
void Reserving<Core>::receive(Peer& peer, const RailHeader& header) {
    const RailMessageKind kind = header.kind;
    const uint32_t rail = header.rail;
    if (peer.ended()) return;
    const RailDirection direction = header.sends != 0 ? RailDirection::kSending : RailDirection::kReceiving;
    RailMessage message = {.kind = kind, .peer = peer.index, .number = header.number};
    if (machine_ == nullptr || peer.path != VELO_PATH_DEVICE || rail >= rails_.rails().count()) {
        message.kind = RailMessageKind::kNack;
        if (kind == RailMessageKind::kRts) answer(peer, direction, rail, message, Status::kUnsupported);
        return;
    }
    revive();
    machine_->received(direction, rail, message, core_.clock.now(), Host{*this});
    if (peer.sources == nullptr) return;  // never asked
    uint64_t& reserve_after_ns = peer.sources->rails.reserve_after_ns;
    if (kind == RailMessageKind::kNack && header.status == Status::kUnsupported) {
        reserve_after_ns = PeerRails::kNever;
        machine_->give_up_peer(peer.index, Host{*this});
    } else if (reserve_after_ns != PeerRails::kNever) {
        reserve_after_ns = 0;  // it is in MPI
    }
}

template <class Core>
void Reserving<Core>::rail_failed(Peer& peer, uint32_t rail) {
    if (machine_ == nullptr) return;
    const Rails& rails = rails_.rails();
    if ((rails.out() & rail_bit(rail)) != 0) {
        machine_->rail_died(rail, core_.clock.now(), Host{*this});
    } else if ((rails.out(rails_.sources_of(peer).rails) & rail_bit(rail)) != 0) {
        machine_->path_lost(peer.index, rail, Host{*this});
    }
}

/// Rails that work again, or that are due for a trial.
template <class Core>
void Reserving<Core>::revive() {
    for (RailMask dead = machine_->dead(); dead != 0; dead &= dead - 1) {
        const auto rail = static_cast<uint32_t>(std::countr_zero(dead));
        if (core_.clock.now() >= rails_.rails().retry_ns(rail)) machine_->rail_revived(rail);
    }
}

}  // namespace velo::rma
