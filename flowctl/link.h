/// The link of a pair, as one of its two processes sees it: which of them has opened its mailbox to the
/// other.
///
/// Packets of a pair stay in order. A peer that finds no slots here uses contact slots, so no link has to be
/// open for messages to go. Closing: the process that closes neither uses credits of the peer's nor returns
/// any from then on; the peer answers with kClosed. With the answer, all that the peer had under way has been
/// retrieved. Two kClose packets that cross answer each other. Two words, because one word for both made each
/// process answer a stray one without end.
///
/// Pure functions on a state and the outbox; the ledger follows what they say.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "flowctl/outbox.h"
#include "flowctl/plan.h"

namespace velo::flowctl {

enum class LinkState : uint8_t {
    /// Neither has opened its mailbox to the other, as far as we know.
    kUnknown,
    /// The peer has opened to us, and we have no slots for it.
    kOffered,
    /// We have opened to the peer.
    kOpening,
    /// Both have: credits are used.
    kOpen,
    /// We have closed, and wait for the answer.
    kClosing,
};
inline constexpr uint32_t kLinkStates = 5;

enum class LinkEvent : uint8_t {
    kOpens,          ///< we open our mailbox to the peer
    kCloses,         ///< we close
    kOpenArrived,    ///< the peer has opened to us
    kCloseArrived,   ///< the peer has closed
    kClosedArrived,  ///< it has answered our kClose
};
inline constexpr uint32_t kLinkEvents = 5;

/// Whether the peer owns slots of our mailbox that it may still use.
[[nodiscard]] constexpr bool lends(LinkState state) noexcept {
    return state == LinkState::kOpening || state == LinkState::kOpen;
}

/// The table of legal transitions. Nothing: for our own events a mistake, for arrived ones one of the peer.
[[nodiscard]] constexpr std::optional<LinkState> next_state(LinkState state, LinkEvent event) noexcept {
    using enum LinkState;
    constexpr std::optional<LinkState> no;
    constexpr std::array<std::array<std::optional<LinkState>, kLinkEvents>, kLinkStates> table{{
        //            kOpens   kCloses   kOpenArrived  kCloseArrived  kClosedArrived
        /* Unknown */ {{kOpening, no, kOffered, no, no}},
        /* Offered */ {{kOpen, no, no, kUnknown, no}},
        /* Opening */ {{no, kClosing, kOpen, no, no}},
        /* Open    */ {{no, kClosing, no, kUnknown, no}},
        // An opening that our kClose has crossed is void.
        /* Closing */ {{no, no, kClosing, kUnknown, kUnknown}},
    }};
    return table[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

/// Whether exactly the states that lend can close, and none of them opens again.
[[nodiscard]] constexpr bool closes_what_is_lent() noexcept {
    for (uint32_t i = 0; i < kLinkStates; ++i) {
        const auto state = static_cast<LinkState>(i);
        if (lends(state) != next_state(state, LinkEvent::kCloses).has_value()) return false;
        if (lends(state) && next_state(state, LinkEvent::kOpens)) return false;
    }
    return true;
}
static_assert(closes_what_is_lent());

/// Applies an event to the link with `peer`: the next state, and what is due to the peer. False, and nothing
/// changed, where the table has no transition. `first_credits`: of kOpens.
[[nodiscard]] inline bool apply(LinkState& state, LinkEvent event, Outbox& outbox, PeerIndex peer,
                                uint32_t first_credits = 0) {
    const std::optional<LinkState> next = next_state(state, event);
    if (!next) return false;
    // The peer cannot have answered what has not left.
    const bool close_waits = outbox.has(peer, ControlKind::kClose);
    if (event == LinkEvent::kClosedArrived && close_waits) return false;
    switch (event) {
        case LinkEvent::kOpens: outbox.add_open(peer, first_credits); break;
        case LinkEvent::kCloses:
            outbox.remove(peer, kVoidWhenClosing);
            outbox.add(peer, ControlKind::kClose);
            break;
        case LinkEvent::kCloseArrived:
            outbox.remove(peer, kVoidWhenClosing);
            // An opening that has not left would reach the peer behind our answer, as one that is not meant.
            if (state != LinkState::kClosing || close_waits) {
                outbox.remove(peer, ControlSet(ControlKind::kOpen, ControlKind::kClose));
                outbox.add(peer, ControlKind::kClosed);
            }
            break;
        case LinkEvent::kOpenArrived:
        case LinkEvent::kClosedArrived: break;
    }
    // Whether messages use credits or contact slots has changed.
    outbox.can_send(peer);
    state = *next;
    return true;
}

}  // namespace velo::flowctl
