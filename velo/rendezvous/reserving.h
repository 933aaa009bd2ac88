/// Reservations of rails between engines (btl_velo_rails=dynamic): messages to and from peers, and the way of
/// a transfer from its post to its chunks (rma/rail_reservations.h decides).
///
/// Their messages go in packets, under credits, so that they wait behind no data of the device's. A process
/// with another rule reserves nothing, and says so to those that ask.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>

#include "rma/rail_reservations.h"
#include "velo/core/peers.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/rail_dispatch.h"
#include "velo/rendezvous/transfer_ops.h"
#include "velo/velo.h"
#include "velo/wire/engine_wire.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class Reserving {
  public:
    using Peer = velo_peer;
    using State = TransferState<Peer>;
    using Op = PendingOp<Peer>;

    Reserving(Core& core, Peers& peers, EngineMessages<Core>& messages, RailDispatch<Core>& rails)
        : core_(core), peers_(peers), messages_(messages), rails_(rails) {
        const RailsSettings& settings = core.options.rails;
        if (!core.device || settings.reserve_ns == 0 || settings.rails == 1) return;
        machine_ = std::make_unique<RailReservations>(RailReservations::Settings{
            .rails = settings.rails, .wait_ns = settings.reserve_ns, .seed = core.options.identity.name});
    }

    [[gnu::cold]] void reports_to(TransferOps& transfers) { transfers_ = &transfers; }

    /// True: the transfer waits for a rail, and is admitted to the scheduler later.
    bool takes(State& state) {
        if (machine_ == nullptr) [[likely]]
            return false;
        return post(state);
    }
    [[nodiscard]] bool waits() const { return machine_ != nullptr && machine_->waits(); }
    /// A CTS or a NACK has come, or the time to ask again.
    void drive() {
        if (!waits()) return;
        revive();
        machine_->drive(core_.clock.now(), Host{*this});
    }
    void receive(Peer& peer, const RailHeader& header);

    // Chunks of transfers that reserve begin and end here; others are left alone.
    void chunk_began(State& state, Op& chunk) {
        if (state.stage != State::Stage::kAdmitted) return;
        chunk.reserved = machine_->chunk_began(state, chunk.rail);
        machine_->settle(state, Host{*this});
    }
    void chunk_ended(State& state, Op& chunk) {
        if (state.stage != State::Stage::kAdmitted) return;
        VELO_DCHECK(machine_ != nullptr, "a transfer with rank %u is admitted without a reservation",
                    state.peer->rank);
        if (chunk.reserved) machine_->chunk_ended(state, chunk.rail);
        chunk.reserved = false;
        machine_->settle(state, Host{*this});
    }
    void transfer_ended(State& state) {
        if (state.stage == State::Stage::kNone) [[likely]]
            return;
        machine_->ended(state, Host{*this});
    }
    /// A rail has failed an operation on this peer.
    [[gnu::cold]] void rail_failed(Peer& peer, uint32_t rail);
    [[gnu::cold]] void peer_failed(const Peer& peer) {
        if (machine_ != nullptr && peer.path == VELO_PATH_DEVICE)
            machine_->peer_died(peer.index, core_.clock.now(), Host{*this});
    }

    /// nullptr: this process reserves no rails.
    [[nodiscard]] const RailReservations* machine() const { return machine_.get(); }
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        if (machine_ == nullptr) return;
        machine_->for_each_waiting(
            [&](const ReservingTransfer& transfer) { visit(static_cast<const State&>(transfer)); });
    }

  private:
    /// Messages about rails that wait to leave to one peer. At the first bound nothing is asked of it any
    /// more: its transfers go without. At the second, which one that takes its packets cannot reach, it is
    /// not answered.
    static constexpr uint32_t kQueuedMax = 64;
    static constexpr uint32_t kAnswersMax = 1024;
    /// Waits for which a peer that was late is not asked again. It may compute for long, and not all
    /// transfers with it need to wait as long as they may.
    static constexpr uint64_t kLateWaits = 16;

    /// Carries out the decisions of RailReservations.
    struct Host {
        Reserving& self;
        [[nodiscard]] RailMask usable(const ReservingTransfer& transfer) const {
            Peer& peer = *static_cast<const State&>(transfer).peer;
            if (peer.ended() || !peer.direct || peer.serving.answers > kQueuedMax) return 0;
            const PeerRails& rails = self.rails_.sources_of(peer).rails;
            const uint64_t now_ns = self.core_.clock.now();
            return now_ns < rails.reserve_after_ns ? 0 : self.rails_.rails().usable(rails, now_ns);
        }
        [[nodiscard]] RailMask share(RailMask free, uint64_t bytes) const {
            return self.rails_.share(free, bytes);
        }
        void send(RailDirection direction, uint32_t rail, const RailMessage& message) const {
            self.send(self.peers_.of(VELO_PATH_DEVICE, message.peer), direction, rail, message);
        }
        void answer(RailDirection direction, uint32_t rail, const RailMessage& message) const {
            self.answer(self.peers_.of(VELO_PATH_DEVICE, message.peer), direction, rail, message);
        }
        void late(const ReservingTransfer& transfer) const {
            self.rails_.sources_of(*static_cast<const State&>(transfer).peer).rails.reserve_after_ns =
                self.core_.clock.now() + kLateWaits * self.core_.options.rails.reserve_ns;
        }
        void begin(ReservingTransfer& transfer) const {
            transfer.first_only = true;
            self.transfers_->admit(static_cast<State&>(transfer));
        }
        void admit(ReservingTransfer& transfer) const {
            if (transfer.begun) return self.transfers_->open(static_cast<State&>(transfer));
            self.transfers_->admit(static_cast<State&>(transfer));
        }
    };

    bool post(State& state);
    void send(Peer& peer, RailDirection direction, uint32_t rail, const RailMessage& message,
              Status status = Status::kOk);
    void answer(Peer& peer, RailDirection direction, uint32_t rail, const RailMessage& message,
                Status status = Status::kOk);
    void revive();

    Core& core_;
    Peers& peers_;
    EngineMessages<Core>& messages_;
    RailDispatch<Core>& rails_;
    TransferOps* transfers_ = nullptr;
    std::unique_ptr<RailReservations> machine_;
};

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
