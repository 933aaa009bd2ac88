/// Credit flow control of one process, as sender and as receiver, under the mode that its plan names.
///
/// A pure state machine: an event goes in, the next state and the control packets that are due come out. No
/// I/O, clock, lock or log; no allocation after construction but know(); O(1) an event. The engine and the
/// simulator drive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include "flowctl/dynamic_credits.h"
#include "flowctl/message_end.h"
#include "flowctl/mode.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "flowctl/quota_fixed.h"
#include "flowctl/quota_growing.h"
#include "flowctl/threshold_credits.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// Bytes that FlowControl keeps for a peer that it knows: all that are planned for, or with contact slots,
/// those that were talked to.
[[nodiscard]] constexpr uint32_t state_bytes_per_peer(const Plan& plan) noexcept {
    switch (plan.mode) {
        case Mode::kNone:
        case Mode::kHardware: return 0;
        case Mode::kStatic:
        case Mode::kGrowing: return sizeof(QuotaAccount) + Outbox::bytes_per_peer();
        case Mode::kDynamic:
            return static_cast<uint32_t>(sizeof(DynamicPeer) + (plan.credit_slots + 1) * sizeof(uint16_t)) +
                   Outbox::bytes_per_peer();
    }
    return 0;
}

/// Owner: one engine. Thread: the engine's.
///
/// Every driver must keep these rules, for the proofs to hold (tests/exhaustive shows what breaks otherwise):
/// - A packet's slot is free again, as far as the device is concerned, before the event is reported that the
///   packet gives rise to (packets_retrieved, credits_arrived, control_arrived).
/// - Credits are taken for a piggyback only when the packet that carries them goes at once, and never while
///   the outbox has something due to the peer. Credits inside a packet that itself waits for a credit can
///   make two processes wait for each other without end; credits that overtake a return overflow the credit
///   region.
/// - After an event, send_control() is called; resend_control() is called again and again as long as
///   control_refused(). Packets between two processes stay in order. Before data, send_control_to() is called
///   where response_due().
///
/// A Status other than kOk means that a peer broke the protocol, and that nothing changed.
class FlowControl {
  public:
    explicit FlowControl(const Plan& plan) : mode_(plan.mode), return_max_(plan.return_max) {
        switch (plan.mode) {
            case Mode::kNone:
            case Mode::kHardware: return;
            case Mode::kStatic: credits_.emplace<ThresholdCredits<FixedQuota>>(plan); break;
            case Mode::kGrowing: credits_.emplace<ThresholdCredits<GrowingQuota>>(plan); break;
            case Mode::kDynamic:
                switch (plan.stealing) {
                    case Stealing::kPaper: credits_.emplace<PaperCredits>(plan); break;
                    case Stealing::kTurns: credits_.emplace<BurstCredits>(plan); break;
                }
                break;
        }
        VELO_CHECK(credits_.index() != 0, "a plan with mode %u", static_cast<unsigned>(plan.mode));
        if (known() != 0) outbox_.know(known() - 1);
    }

    [[nodiscard]] Mode mode() const noexcept { return mode_; }
    /// Peers that can be asked about: those planned for, or those that know() was called for.
    [[nodiscard]] uint32_t known() const noexcept {
        return on(0u, [](const auto& credits) { return credits.known(); });
    }
    /// nullptr under other modes.
    [[nodiscard]] const DynamicAccounts* dynamic() const noexcept {
        return on_dynamic(static_cast<const DynamicAccounts*>(nullptr),
                          [](const auto& credits) { return &credits.accounts(); });
    }

    /// To be called before any other event of a peer; the only one that allocates.
    void know(PeerIndex peer) {
        on_dynamic(0, [&](auto& credits) {
            credits.know(peer);
            outbox_.know(peer);
            return 0;
        });
    }

    // Sender role.

    /// How many of `packets` packets may go to the peer now; the rest waits until credits arrive.
    [[nodiscard]] uint32_t sendable(PeerIndex to, uint32_t packets) const noexcept {
        return on(packets, [&](const auto& credits) { return credits.sendable(to, packets); });
    }

    /// A message to the peer cannot go on for want of credits. take_ready() says when it can.
    void wait_to_send(PeerIndex to) {
        VELO_DCHECK(sendable(to, 1) == 0, "a message to peer %u waits for credits that are there", to);
        outbox_.wait_to_send(to);
    }
    [[nodiscard]] bool waits_to_send(PeerIndex to) const noexcept { return outbox_.waits_to_send(to); }
    /// A peer whose message waited, and may go on. False: none.
    [[nodiscard]] bool take_ready(PeerIndex& to) { return outbox_.take_ready(to); }

    /// The packets have been handed to the device. Never more than sendable() said.
    void packets_sent(PeerIndex to, uint32_t packets) {
        on(0, [&](auto& credits) {
            credits.packets_sent(to, packets);
            return 0;
        });
    }

    /// The peer returned credits, in a packet of their own or piggybacked. kProtocol for 0, for more than the
    /// peer can owe, and under a mode without credits.
    [[nodiscard]] Status credits_arrived(PeerIndex from, uint32_t returned) {
        settle_run();
        return on(Status::kProtocol,
                  [&](auto& credits) { return credits.credits_arrived(from, returned, outbox_); });
    }

    /// Whether messages to the peer fill contact slots now, without credits.
    [[nodiscard]] bool by_contact(PeerIndex to) const noexcept {
        return on_dynamic(false, [&](const auto& credits) { return credits.by_contact(to); });
    }
    /// A packet to the peer is about to go by a contact slot. Our opening may ride in it. `begins`: the first
    /// of a message, for the first time.
    void contact_sent(PeerIndex to, bool begins) {
        VELO_DCHECK(by_contact(to), "a packet to peer %u fills a contact slot, and has credits", to);
        outbox_.mark();
        on_dynamic(0, [&](auto& credits) {
            credits.contact_sent(to, begins, outbox_);
            return 0;
        });
    }

    // Receiver role.

    /// Packets from the peer have left the mailbox: one, or several of at most one message. kProtocol for
    /// more than the peer can have sent. Explicit credit packets are not counted (FC 5.2).
    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, MessageEnd end) {
        if (run_packets_ != 0) [[unlikely]] {
            if (run_from_ != from || end.control) settle_run();
            packets += std::exchange(run_packets_, 0);
        }
        return book_retrieved(from, packets, end);
    }

    /// Body packets of a message have left the mailbox ahead of its end. They are accounted for with the end,
    /// if that is the next event and they make no return due by themselves; and before any other event.
    [[nodiscard]] Status run_retrieved(PeerIndex from, uint32_t packets) {
        settle_run();
        return on(Status::kOk, [&](const auto& credits) {
            if (packets > credits.granted(from)) return Status::kProtocol;
            VELO_DCHECK(run_packets_ == 0, "a run of peer %u before that of peer %u ended", from, run_from_);
            run_from_ = from;
            run_packets_ = packets;
            if (credits.is_return_due(from, packets)) settle_run();
            return Status::kOk;
        });
    }
    /// Accounts for a run of body packets that no end has followed.
    void settle_run() {
        if (run_packets_ == 0) [[likely]]
            return;
        const Status status = book_retrieved(run_from_, std::exchange(run_packets_, 0), {});
        VELO_CHECK(status == Status::kOk, "a run of peer %u that was accepted cannot be booked", run_from_);
    }
    /// Packets of the peer's that are retrieved, and not accounted for yet.
    [[nodiscard]] uint32_t run_packets(PeerIndex from) const noexcept {
        return run_from_ == from ? run_packets_ : 0;
    }

    /// Credits to ride in the last packet of a message to the peer: `max` at most, 0 if there are none to
    /// return or piggybacking is off. They are the packet's from here on.
    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max) {
        outbox_.mark();
        return on(0u, [&](auto& credits) { return credits.take_piggyback(to, max, outbox_); });
    }

    /// Packets of one message that filled contact slots have been retrieved; `ended`: its last one, too.
    [[nodiscard]] Status contact_retrieved(PeerIndex from, uint32_t packets, bool ended) {
        settle_run();
        outbox_.mark();
        return on_dynamic(Status::kProtocol, [&](auto& credits) {
            return credits.contact_retrieved(from, packets, ended, outbox_);
        });
    }

    /// A control packet arrived, with this value. Its own slot is accounted for before (packets_retrieved)
    /// where it cost a credit. kProtocol under modes that have no such packet.
    [[nodiscard]] Status control_arrived(PeerIndex from, ControlKind kind, uint32_t value) {
        if (kind == ControlKind::kCredits) return credits_arrived(from, value);
        settle_run();
        outbox_.mark();
        return on_dynamic(Status::kProtocol, [&](auto& credits) -> Status {
            switch (kind) {
                case ControlKind::kReturnRequest: return credits.return_requested(from, outbox_);
                case ControlKind::kReturnResponse: return credits.credits_given_up(from, value, outbox_);
                case ControlKind::kOpen: return credits.open_arrived(from, value, outbox_);
                case ControlKind::kClose: return credits.close_arrived(from, outbox_);
                case ControlKind::kClosed: return credits.closed_arrived(from, outbox_);
                case ControlKind::kCredits: break;
            }
            return Status::kProtocol;
        });
    }

    /// Takes the slots back from a peer that has some. Flow control does so by itself where others need them.
    void close(PeerIndex from) {
        settle_run();
        on_dynamic(0, [&](auto& credits) {
            credits.close(from, outbox_);
            return 0;
        });
    }

    /// The peer's process has ended and none of its packets is left in the mailbox: its slots are free, we
    /// owe it nothing and it owes us nothing. Under `static` and `growing` a process that takes the index
    /// over starts afresh; under `dynamic` the index stays unused.
    void reset_peer(PeerIndex peer) {
        settle_run();
        on(0, [&](auto& credits) {
            outbox_.remove(peer, kAllControl);
            outbox_.can_send(peer);
            credits.reset_peer(peer);
            VELO_CHECK(!outbox_.due(peer) && !outbox_.waits_to_send(peer), "packets to peer %u after its end",
                       peer);
            return 0;
        });
    }

    // Control packets. `Send` is Status(PeerIndex to, ControlKind kind, uint32_t value): kOk, kPeerDead
    // (given up), or kAgain, which changes nothing; it calls no event of this object.

    /// Sends what became due since the last call. Packets that the device refuses stay for resend_control().
    template <class Send>
    void send_control(Send&& send) {
        if (outbox_.fresh_empty()) [[likely]]
            return;
        outbox_.visit_fresh([&](PeerIndex peer) { return send_control_to(peer, send); });
    }
    template <class Send>
    void resend_control(Send&& send) {
        outbox_.visit_refused([&](PeerIndex peer) { return send_control_to(peer, send); });
    }
    [[nodiscard]] bool control_refused() const noexcept { return !outbox_.refused_empty(); }
    /// False when the device has refused something of the peer's.
    template <class Send>
    bool send_control_to(PeerIndex to, Send&& send) {
        for (Control control; next_control(to, control);) {
            const Status status = send(to, control.kind, control.value);
            if (status == Status::kAgain) return false;
            control_left(to, control);
        }
        return true;
    }
    struct Control {
        ControlKind kind = ControlKind::kCredits;
        uint32_t value = 0;
    };
    /// The control packet that goes to the peer next. False: none can go now.
    [[nodiscard]] bool next_control(PeerIndex to, Control& control) const {
        if (!outbox_.due(to)) return false;
        const ControlSet ready = outbox_.ready(to, credits(to) != 0);
        if (ready.empty()) return false;
        control = {.kind = ready.first(), .value = control_value(to, ready.first())};
        return true;
    }
    /// The packet that next_control() named has been handed to the device, or is given up with a dead peer.
    void control_left(PeerIndex to, const Control& control) {
        outbox_.left(to, control.kind, control.value);
        if (costs_a_credit(control.kind)) {
            packets_sent(to, 1 + (control.kind == ControlKind::kReturnResponse ? control.value : 0));
        }
    }

    /// First credits of an opening that is next to leave to the peer. It may ride in a message's packet that
    /// fills a contact slot. 0: none is due, or it has more than `max`, or something goes before it.
    [[nodiscard]] uint32_t opening_due(PeerIndex to, uint32_t max) const {
        Control next;
        if (!next_control(to, next) || next.kind != ControlKind::kOpen || next.value > max) return 0;
        return next.value;
    }
    /// The opening rides in a packet that the device has accepted.
    void opening_left(PeerIndex to) { outbox_.left(to, ControlKind::kOpen, 0); }

    /// Whether data to the peer must wait for a response to it: that says how many credits are given up.
    [[nodiscard]] bool response_due(PeerIndex to) const noexcept {
        return outbox_.has(to, ControlKind::kReturnResponse);
    }
    /// Whether anything of this kind has not left.
    [[nodiscard]] bool control_due(PeerIndex to, ControlKind kind) const noexcept {
        return outbox_.has(to, kind);
    }
    [[nodiscard]] bool any_control_due(PeerIndex to) const noexcept { return outbox_.due(to); }
    /// Credits to return explicitly that have not left.
    [[nodiscard]] uint32_t deferred_credits(PeerIndex to) const noexcept { return outbox_.credits(to); }
    [[nodiscard]] uint32_t deferred_first_credits(PeerIndex to) const noexcept {
        return outbox_.first_credits(to);
    }

    // For counters and tests. All are 0 under a mode without credits.

    [[nodiscard]] uint32_t credits(PeerIndex peer) const noexcept {
        return on(0u, [&](const auto& credits) { return credits.credits(peer); });
    }
    [[nodiscard]] uint32_t retrieved(PeerIndex peer) const noexcept {
        return on(0u, [&](const auto& credits) { return credits.retrieved(peer); });
    }
    /// Slots of our mailbox that the peer owns; under `dynamic`, that it should own soon.
    [[nodiscard]] uint32_t quota(PeerIndex peer) const noexcept {
        return on(0u, [&](const auto& credits) { return credits.quota(peer); });
    }
    [[nodiscard]] uint32_t threshold(PeerIndex peer) const noexcept {
        return on(0u, [&](const auto& credits) { return credits.threshold(peer); });
    }
    /// Credits out of our hands: held by the peer, under way to it, or in packets we have not retrieved.
    [[nodiscard]] uint32_t granted(PeerIndex peer) const noexcept {
        return on(0u, [&](const auto& credits) { return credits.granted(peer); });
    }
    /// Peers that own slots of our mailbox.
    [[nodiscard]] uint32_t slot_owners() const noexcept {
        const DynamicAccounts* const accounts = dynamic();
        return accounts != nullptr ? accounts->owners : known();
    }
    /// Slots of the data region that no peer owns: dynamic, not granted; growing, not promised.
    [[nodiscard]] uint32_t available_slots() const noexcept {
        if (const DynamicAccounts* const accounts = dynamic(); accounts != nullptr)
            return accounts->ledger.available_slots();
        const auto* growing = std::get_if<ThresholdCredits<GrowingQuota>>(&credits_);
        return growing != nullptr ? growing->free_slots() : 0;
    }
    /// Slots that peers own as credit slots out of the data region.
    [[nodiscard]] uint32_t lent_slots() const noexcept {
        const DynamicAccounts* const accounts = dynamic();
        return accounts != nullptr ? accounts->ledger.lent_slots() : 0;
    }
    /// kOpen under modes whose peers all own slots from the start.
    [[nodiscard]] LinkState link(PeerIndex peer) const noexcept {
        const DynamicAccounts* const accounts = dynamic();
        return accounts != nullptr ? accounts->at(peer).link : LinkState::kOpen;
    }
    /// Credits that the peer has opened its mailbox with, where we have not opened ours.
    [[nodiscard]] uint32_t offered_credits(PeerIndex peer) const noexcept {
        const DynamicAccounts* const accounts = dynamic();
        return accounts != nullptr ? accounts->ledger.offered(peer) : 0;
    }
    /// Whether the peer has a compulsory request to answer.
    [[nodiscard]] bool blocked(PeerIndex peer) const noexcept {
        const DynamicAccounts* const accounts = dynamic();
        return accounts != nullptr && accounts->at(peer).blocked;
    }

    /// Whether what must always hold of one peer's state holds. O(credit_slots).
    [[nodiscard]] bool check_invariants(PeerIndex peer) const noexcept {
        return on(true, [&](const auto& credits) { return credits.check_invariants(peer); });
    }

    /// Hands every word that events can change to `visit`, in a fixed order, for trace hashes and explorers.
    template <typename Visit>
    void visit_state(Visit&& visit) const {
        on(0, [&](const auto& credits) {
            credits.visit_state(visit);
            outbox_.visit_state(visit);
            visit(run_packets_);
            visit(run_packets_ == 0 ? 0 : run_from_);
            return 0;
        });
    }

  private:
    using Credits = std::variant<std::monostate, ThresholdCredits<FixedQuota>, ThresholdCredits<GrowingQuota>,
                                 PaperCredits, BurstCredits>;
    static constexpr ControlSet kAllControl{ControlKind::kClosed,         ControlKind::kOpen,
                                            ControlKind::kCredits,        ControlKind::kReturnRequest,
                                            ControlKind::kReturnResponse, ControlKind::kClose};

    [[nodiscard]] Status book_retrieved(PeerIndex from, uint32_t packets, MessageEnd end) {
        outbox_.mark();
        return on(Status::kOk,
                  [&](auto& credits) { return credits.packets_retrieved(from, packets, end, outbox_); });
    }

    [[nodiscard]] uint32_t control_value(PeerIndex to, ControlKind kind) const {
        switch (kind) {
            case ControlKind::kOpen: return outbox_.first_credits(to);
            case ControlKind::kCredits: return std::min(outbox_.credits(to), return_max_);
            case ControlKind::kReturnResponse:
                return on_dynamic(0u, [&](const auto& credits) { return credits.excess_credits(to); });
            case ControlKind::kClosed:
            case ControlKind::kReturnRequest:
            case ControlKind::kClose: return 0;
        }
        return 0;
    }

    template <class Self, class Result, class Event>
    static Result dispatch(Self& self, Result without_credits, Event&& event) {
        return std::visit(
            [&](auto& credits) -> Result {
                if constexpr (std::is_same_v<std::decay_t<decltype(credits)>, std::monostate>) {
                    return without_credits;
                } else {
                    return event(credits);
                }
            },
            self.credits_);
    }
    template <class Result, class Event>
    Result on(Result without_credits, Event&& event) {
        return dispatch(*this, without_credits, event);
    }
    template <class Result, class Event>
    Result on(Result without_credits, Event&& event) const {
        return dispatch(*this, without_credits, event);
    }
    template <class Self, class Result, class Event>
    static Result dispatch_dynamic(Self& self, Result otherwise, Event&& event) {
        return std::visit(
            [&](auto& credits) -> Result {
                if constexpr (requires { credits.accounts(); }) {
                    return event(credits);
                } else {
                    return otherwise;
                }
            },
            self.credits_);
    }
    template <class Result, class Event>
    Result on_dynamic(Result otherwise, Event&& event) {
        return dispatch_dynamic(*this, otherwise, event);
    }
    template <class Result, class Event>
    Result on_dynamic(Result otherwise, Event&& event) const {
        return dispatch_dynamic(*this, otherwise, event);
    }

    Mode mode_;
    uint32_t return_max_;
    Credits credits_;
    Outbox outbox_;
    /// Body packets that are not accounted for yet; 0: none.
    uint32_t run_packets_ = 0;
    PeerIndex run_from_ = 0;
};

}  // namespace velo::flowctl
