/// Where shares are smaller than messages, senders have credits for a whole message in turns
/// (Stealing::kTurns): that part of DynamicCredits, which includes it. docs/flow-control.md says why.
#pragma once

#include "flowctl/dynamic_credits.h"

namespace velo::flowctl {

/// What is missing to the rest of the turn, and to the static slots, which tell of the next message when it
/// comes too early. A message that is longer than expected goes on in halves of a turn.
template <DynamicReading kReading>
uint32_t DynamicCredits<kReading>::lacking(const DynamicPeer& peer) const {
    const uint32_t packets = turn_packets(peer);
    const uint32_t sent = peer.turn.message_packets;
    const uint32_t wanted = (packets > sent ? packets - sent : packets / 2) + static_slots_;
    return std::min(wanted - std::min(wanted, peer.current_credits), return_max_);
}

/// With the threshold reached. In the middle of a message: all that is missing, or a good part of it. Between
/// messages: nothing yet, but that the sender keeps its static slots.
template <DynamicReading kReading>
void DynamicCredits<kReading>::return_in_turn(PeerIndex index, Actions& actions) {
    DynamicPeer& peer = at(index);
    const uint32_t wanted = lacking(peer);
    const uint32_t below_static = static_slots_ - std::min(static_slots_, peer.current_credits);
    uint32_t credits = std::min(wanted, available_slots_);
    if (peer.turn.message_packets == 0) {
        if (wanted != 0) turns_.wait(peers_, index);
        credits = std::min(below_static, available_slots_);
    } else if (credits < wanted && below_static == 0 && credits < turn_packets(peer) / 2) {
        credits = 0;
    }
    if (credits != 0) give(index, credits, actions);
}

/// A turn's credits to who has waited longest, when its message is near and there are slots for all of it, or
/// as soon as there are slots for all that wait. Who is in the middle of a message by then has been seen to;
/// who is blocked, when the response comes.
template <DynamicReading kReading>
void DynamicCredits<kReading>::serve_waiting(Actions& actions) {
    for (uint32_t looked_at = 0; looked_at < kWaitingLookedAt; ++looked_at) {
        const PeerIndex index = turns_.first_waiting();
        if (index == MessageTurns<DynamicPeer>::kNobody || actions.size() + 1 >= Actions::kCapacity) return;
        const DynamicPeer& peer = at(index);
        const uint32_t wanted = lacking(peer);
        const bool possible = peer.met && wanted != 0 && peer.turn.message_packets == 0 && !peer.blocked &&
                              takes_turns(peer) && reached(index);
        // Who has fallen silent would keep what it is given: its next message will tell of itself.
        const bool silent = turns_.silent(peer, silent_gaps());
        if (possible && !silent) {
            const bool now = (turns_.near(peer) && spare(wanted)) || spare(uint64_t{wanted} * turns_.waiting());
            if (!now) return;
            turns_.came_by_packet();
            give(index, wanted, actions);
        }
        turns_.waits_no_longer(peers_, index);
    }
}

/// Who holds more than its static slots may fall silent with it, and so is not left in the null list, where nobody
/// is looked for.
template <DynamicReading kReading>
void DynamicCredits<kReading>::watch(PeerIndex index) {
    const DynamicPeer& peer = at(index);
    if (peer.current_credits > static_slots_ && lists_.level_of(peer) == Activity::kNull) {
        move(index, Activity::kLow);
    }
}

/// Of a message that has had to wait for credits although there were some. Not of the first one of a peer, which
/// no turn could have been given for.
template <DynamicReading kReading>
void DynamicCredits<kReading>::note_wait(DynamicPeer& peer) {
    if (peer.first_message) {
        peer.first_message = false;
        return;
    }
    if (takes_turns(peer) && spare(turn_packets(peer))) turns_.came_late();
}

/// An explicit return, paid for with the head of the FIFO.
template <DynamicReading kReading>
void DynamicCredits<kReading>::give(PeerIndex index, uint32_t credits, Actions& actions) {
    DynamicPeer& peer = at(index);
    count_threshold(index, actions);
    peer.retrieved_packets -= threshold(index);
    peer.piggybacked_credits = 0;
    rotate(index, credits);
    grant(peer, credits);
    watch(index);
    actions.push({.kind = ActionKind::kSendCredits, .peer = index, .credits = credits});
}

/// A turn's credits, whoever is near, because they cost no packet. They enter the FIFO like an explicit
/// return, or, before the threshold is reached, as a part of the last one: that is read before them. Not before
/// the peer has used any: it may not be able to, or not have been welcomed yet.
template <DynamicReading kReading>
uint32_t DynamicCredits<kReading>::piggyback_in_turn(PeerIndex to, uint32_t max, Actions& actions) {
    DynamicPeer& peer = at(to);
    if (!peer.spends) return 0;
    uint16_t& last = thresholds_[slot_of(to, peer.head + credit_slots_)];
    const uint32_t wanted = std::min({lacking(peer), max, kReturnMax - last});
    if (wanted == 0 || !spare(wanted)) return 0;
    count_threshold(to, actions);
    if (reached(to)) {
        peer.retrieved_packets -= threshold(to);
        peer.piggybacked_credits = 0;
        rotate(to, wanted);
    } else {
        last = static_cast<uint16_t>(last + wanted);
    }
    grant(peer, wanted);
    watch(to);
    return wanted;
}

}  // namespace velo::flowctl
