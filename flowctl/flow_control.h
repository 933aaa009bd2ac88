/// Credit flow control of one process, as sender and as receiver, under the mode that its plan names.
///
/// A pure state machine: an event goes in, the next state and what to do (Actions) come out. No I/O, clock,
/// lock or log; no allocation after construction; O(1) an event. The engine and the simulator drive it.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "flowctl/actions.h"
#include "flowctl/dynamic_credits.h"
#include "flowctl/growing_credits.h"
#include "flowctl/mode.h"
#include "flowctl/plan.h"
#include "flowctl/static_credits.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// Control packets with which a receiver takes credits back (FC 6.1). Only dynamic flow control has them.
/// Each costs a credit, and is reported by packets_retrieved() before control_arrived().
enum class ControlKind : uint8_t {
    kReturnRequest,
    kReturnResponse,
};

/// Bytes that FlowControl keeps for a peer that it knows: all that are planned for, or with contact slots, those
/// that were talked to.
[[nodiscard]] constexpr uint32_t state_bytes_per_peer(const Plan& plan) noexcept {
    switch (plan.mode) {
        case Mode::kNone:
        case Mode::kHardware: return 0;
        case Mode::kStatic:
        case Mode::kGrowing: return sizeof(StaticPeer);
        case Mode::kDynamic:
            return static_cast<uint32_t>(sizeof(DynamicPeer) + (plan.credit_slots + 1) * sizeof(uint16_t));
    }
    return 0;
}

/// Owner: one engine. Thread: the engine's.
///
/// What every driver must keep, for the proofs to hold (tests/exhaustive shows what breaks otherwise):
/// - A packet's slot is free again, as far as the device is concerned, before the event is reported that
///   the packet gives rise to (packets_retrieved, credits_arrived, control_arrived).
/// - Credits are taken for a piggyback only when the packet that carries them goes at once. Credits inside
///   a packet that itself waits for a credit can make two processes wait for each other for ever.
/// - Every action is carried out, in any finite time. Packets between two processes stay in order. No data
///   go to a peer while a response to it waits: it says how many credits are given up, and not more are used.
///
/// A Status other than kOk means that a peer broke the protocol, and that nothing changed. (kReading: see
/// DynamicReading; anything but the default is for the explorer.)
template <DynamicReading kReading = DynamicReading{}>
class BasicFlowControl {
  public:
    using Dynamic = DynamicCredits<kReading>;

    explicit BasicFlowControl(const Plan& plan) : mode_(plan.mode) {
        switch (plan.mode) {
            case Mode::kNone:
            case Mode::kHardware: return;
            case Mode::kStatic: credits_.template emplace<StaticCredits>(plan); return;
            case Mode::kGrowing: credits_.template emplace<GrowingCredits>(plan); return;
            case Mode::kDynamic: credits_.template emplace<Dynamic>(plan); return;
        }
        VELO_CHECK(false, "a plan with mode %u", static_cast<unsigned>(plan.mode));
    }

    [[nodiscard]] Mode mode() const noexcept { return mode_; }
    /// Peers that can be asked about: those planned for, or those that know() has been told of.
    [[nodiscard]] uint32_t known() const noexcept {
        return on(0u, [](const auto& credits) { return credits.known(); });
    }
    /// nullptr under another mode.
    [[nodiscard]] const Dynamic* dynamic() const noexcept { return std::get_if<Dynamic>(&credits_); }

    /// Peers that own slots of our mailbox.
    [[nodiscard]] uint32_t slot_owners() const noexcept {
        const auto* dynamic = std::get_if<Dynamic>(&credits_);
        return dynamic != nullptr ? dynamic->met() : known();
    }

    // Sender role.

    /// How many of `packets` packets may go to the peer now; the rest waits until credits arrive.
    [[nodiscard]] uint32_t sendable(PeerIndex to, uint32_t packets) const noexcept {
        return on(packets, [&](const auto& credits) { return credits.sendable(to, packets); });
    }

    /// The packets have been handed to the device. Never more than sendable() said.
    void packets_sent(PeerIndex to, uint32_t packets) {
        on(0, [&](auto& credits) {
            credits.packets_sent(to, packets);
            return 0;
        });
    }

    /// The peer returned credits, in a packet of their own or piggybacked. kProtocol for 0, for more than
    /// the peer can owe, and under a mode without credits.
    [[nodiscard]] Status credits_arrived(PeerIndex from, uint32_t returned, Actions& actions) {
        return on(Status::kProtocol,
                  [&](auto& credits) { return credits.credits_arrived(from, returned, actions); });
    }

    // Receiver role.

    /// Packets from the peer have left the mailbox: one, or a batch, of at most one message. kProtocol for
    /// more than the peer can have sent. Explicit credit packets are not counted (FC 5.2).
    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, MessageEnd end,
                                           Actions& actions) {
        return on(Status::kOk,
                  [&](auto& credits) { return credits.packets_retrieved(from, packets, end, actions); });
    }

    /// Whether a return is due once `packets` more of the peer's are reported.
    [[nodiscard]] bool return_due(PeerIndex from, uint32_t packets) const noexcept {
        return on(false, [&](const auto& credits) { return credits.return_due(from, packets); });
    }

    /// Credits to ride in the last packet of a message to the peer: `max` at most, 0 if there are none to
    /// return or piggybacking is off. They are the packet's from here on.
    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max, Actions& actions) {
        return on(0u, [&](auto& credits) { return credits.take_piggyback(to, max, actions); });
    }

    /// A control packet other than a credit packet arrived; `credits`: those of a response. kProtocol under
    /// the modes that have none.
    [[nodiscard]] Status control_arrived(PeerIndex from, ControlKind kind, uint32_t credits,
                                         Actions& actions) {
        auto* dynamic = std::get_if<Dynamic>(&credits_);
        if (dynamic == nullptr) return Status::kProtocol;
        return kind == ControlKind::kReturnRequest ? dynamic->return_requested(from, actions)
                                                   : dynamic->credits_given_up(from, credits, actions);
    }

    // First contact and farewell, under `dynamic` with contact slots; under other plans nothing happens, and
    // what a peer sends of this is kProtocol. The device bounds the packets that fill contact slots.

    /// To be called before any other event of a peer; the only one that allocates.
    void know(PeerIndex peer) {
        if (auto* dynamic = std::get_if<Dynamic>(&credits_)) dynamic->know(peer);
    }
    /// What goes to the peer now fills contact slots there, without credits.
    [[nodiscard]] bool by_contact(PeerIndex to) const noexcept {
        const auto* dynamic = std::get_if<Dynamic>(&credits_);
        return dynamic != nullptr && dynamic->by_contact(to);
    }
    /// A message begins to go to the peer by contact slots.
    void contact_sent(PeerIndex to, Actions& actions) {
        if (auto* dynamic = std::get_if<Dynamic>(&credits_)) dynamic->contact_sent(to, actions);
    }
    /// Packets of one message that filled contact slots have been retrieved; `ended`: its last one, too.
    [[nodiscard]] Status contact_retrieved(PeerIndex from, uint32_t packets, bool ended, Actions& actions) {
        auto* dynamic = std::get_if<Dynamic>(&credits_);
        return dynamic == nullptr ? Status::kProtocol
                                  : dynamic->contact_retrieved(from, packets, ended, actions);
    }
    [[nodiscard]] Status welcome_arrived(PeerIndex from, uint32_t credits, Actions& actions) {
        auto* dynamic = std::get_if<Dynamic>(&credits_);
        return dynamic == nullptr ? Status::kProtocol : dynamic->welcome_arrived(from, credits, actions);
    }
    [[nodiscard]] Status farewell_arrived(PeerIndex from, Actions& actions) {
        auto* dynamic = std::get_if<Dynamic>(&credits_);
        return dynamic == nullptr ? Status::kProtocol : dynamic->farewell_arrived(from, actions);
    }
    /// Takes the slots back from a peer that has some. Flow control does so by itself where others need them.
    void part(PeerIndex from, Actions& actions) {
        if (auto* dynamic = std::get_if<Dynamic>(&credits_)) dynamic->part(from, actions);
    }

    /// The peer's process has ended and none of its packets is left in the mailbox: its slots are free, we
    /// owe it nothing and it owes us nothing. Under `static` and `growing` a process that takes the index
    /// over starts afresh; under `dynamic` the index stays unused.
    void reset_peer(PeerIndex peer) {
        on(0, [&](auto& credits) {
            credits.reset_peer(peer);
            return 0;
        });
    }

    // For counters and tests. All are 0 under a mode without credits.

    [[nodiscard]] uint32_t credits(PeerIndex peer) const noexcept {
        return on(0u, [&](const auto& credits) { return credits.peer(peer).credits; });
    }
    [[nodiscard]] uint32_t retrieved(PeerIndex peer) const noexcept {
        return on(0u, [&](const auto& credits) { return credits.peer(peer).retrieved_packets; });
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

    /// Whether what must always hold of one peer's state holds. O(credit_slots).
    [[nodiscard]] bool check_invariants(PeerIndex peer) const noexcept {
        return on(true, [&](const auto& credits) { return credits.check_invariants(peer); });
    }

    /// Hands every word that events can change to `visit`, in a fixed order, for trace hashes and explorers.
    template <typename Visit>
    void visit_state(Visit&& visit) const {
        on(0, [&](const auto& credits) {
            credits.visit_state(visit);
            return 0;
        });
    }

  private:
    using Credits = std::variant<std::monostate, StaticCredits, GrowingCredits, Dynamic>;

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

    Mode mode_;
    Credits credits_;
};

using FlowControl = BasicFlowControl<>;

}  // namespace velo::flowctl
