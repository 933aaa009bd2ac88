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

}  // namespace velo::rma
