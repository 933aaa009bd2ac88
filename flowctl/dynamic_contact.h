/// DynamicCredits: memory that follows the conversation. Part of dynamic_credits.h.
///
/// A peer owns no slot before the first contact. Packets without credits fill the mailbox's contact slots, which
/// all peers share and whose number the device bounds. Each of the two processes then *meets* the other, if it
/// has room: it sets static slots and credit slots aside, and says so (welcome). Who is met and welcome uses
/// credits. *Parting* goes the other way: a farewell says that its sender uses no credits of the peer's and
/// returns none from here on; the peer answers with its own. Packets of a pair stay in order, so with its
/// farewell all that a process had under way has been retrieved. Two farewells that cross answer each other.
///
/// Welcomes and farewells fill contact slots, so none of this waits for a credit. Who cannot be met, because
/// the mailbox is shared out to others that are active, goes on with contact slots: slower, and never stuck.
#pragma once

#include <algorithm>
#include <utility>

#include "flowctl/dynamic_credits.h"

namespace velo::flowctl {

template <DynamicReading kReading>
void DynamicCredits<kReading>::know(PeerIndex index) {
    if (index < known()) return;
    peers_.resize(size_t{index} + 1);
    thresholds_.resize(peers_.size() * (credit_slots_ + 1), 1);
}

/// What a peer is to begin with: its static slots, and what a message that it has begun lacks, where there are
/// slots for that.
template <DynamicReading kReading>
uint32_t DynamicCredits<kReading>::first_credits(const DynamicPeer& peer) const {
    if (peer.turn.message_packets == 0) return static_slots_;
    uint32_t wanted = turns_.expected_packets(peer) != 0 ? lacking(peer) : peer.intended_quota;
    if (!takes_turns(peer)) wanted = std::min(wanted, peer.intended_quota);
    wanted = std::min(wanted, return_max_);
    return wanted > static_slots_ && spare(wanted) ? wanted : static_slots_;
}

/// False where there is no room. The credit slots bound what the peer's credit packets fill. FC 6.3 begins with
/// thresholds of 1 and as many credits as credit slots; any g credits do whose thresholds add up to g + 1,
/// because the last return before the peer has read one would take g + 1 packets.
template <DynamicReading kReading>
bool DynamicCredits<kReading>::meet(PeerIndex index, Actions& actions) {
    const uint32_t needed = credit_slots_ + static_slots_;
    if (available_slots_ < needed || unassigned_slots_ < needed) return false;
    DynamicPeer& peer = at(index);
    peer.met = true;
    peer.spends = false;
    peer.first_message = true;
    peer.current_credits = 0;
    peer.intended_quota = std::min({first_quota_, sender_slots_max_, unassigned_slots_ - credit_slots_});
    turns_.begin(peer);
    if (peer.welcomed) peer.credits = peer.offered_credits;
    peer.piggybacked_credits = 0;
    available_slots_ -= credit_slots_;
    unassigned_slots_ -= credit_slots_ + peer.intended_quota;
    ++met_;
    last_meeting_ = turns_.messages();
    ++counters_.peers_met;
    const uint32_t credits = first_credits(peer);
    grant(peer, credits);
    const uint32_t to_share = (kReading.first_thresholds_add_up ? credits : credit_slots_) + 1;
    for (uint32_t place = 0; place <= credit_slots_; ++place) {
        const uint32_t rest = place == credit_slots_ ? to_share % (credit_slots_ + 1) : 0;
        thresholds_[slot_of(index, place)] = static_cast<uint16_t>(to_share / (credit_slots_ + 1) + rest);
    }
    const bool only_static = peer.intended_quota == static_slots_ && credits == static_slots_;
    lists_.add_front(peers_, index, only_static ? Activity::kNull : Activity::kLow);
    count_null(peer, 1);
    actions.push({.kind = ActionKind::kSendWelcome, .peer = index, .credits = credits});
    return true;
}

template <DynamicReading kReading>
void DynamicCredits<kReading>::meet_if_possible(PeerIndex index, Actions& actions) {
    if (meet(index, actions)) return;
    make_room(actions);
    meet(index, actions);
}

template <DynamicReading kReading>
void DynamicCredits<kReading>::contact_sent(PeerIndex to, Actions& actions) {
    const DynamicPeer& peer = at(to);
    if (peer.met || peer.leaving) return;
    meet_if_possible(to, actions);
}

template <DynamicReading kReading>
Status DynamicCredits<kReading>::contact_retrieved(PeerIndex from, uint32_t packets, bool ended,
                                                   Actions& actions) {
    if (!by_contact_) return Status::kProtocol;
    DynamicPeer& peer = at(from);
    turns_.packets_retrieved(peer, packets, ended);
    if (!peer.met && !peer.leaving) {
        // Not a step for each packet of a long message.
        if (ended) {
            meet_if_possible(from, actions);
        } else {
            meet(from, actions);
        }
    }
    return Status::kOk;
}

template <DynamicReading kReading>
Status DynamicCredits<kReading>::welcome_arrived(PeerIndex from, uint32_t credits, Actions& actions) {
    DynamicPeer& peer = at(from);
    if (!by_contact_ || peer.welcomed) return Status::kProtocol;
    if (peer.leaving) return Status::kOk;  // void with our farewell
    if (credits == 0 || credits > data_region_slots_) return Status::kProtocol;
    peer.welcomed = true;
    if (!peer.met) {
        peer.offered_credits = credits;
        meet_if_possible(from, actions);
        return Status::kOk;
    }
    peer.credits = credits;
    if (peer.request_waits) send_request(from, actions);
    return Status::kOk;
}

template <DynamicReading kReading>
void DynamicCredits<kReading>::part(PeerIndex from, Actions& actions) {
    DynamicPeer& peer = at(from);
    VELO_CHECK(by_contact_ && peer.met, "peer %u is not met", from);
    count_null(peer, -1);
    lists_.remove(peers_, from);
    peer.met = peer.welcomed = false;
    peer.leaving = true;
    peer.credits = 0;
    peer.blocked = peer.request_waits = peer.response_waits = false;
    --met_;
    ++leaving_;
    ++counters_.peers_left;
    actions.push({.kind = ActionKind::kSendFarewell, .peer = from, .credits = 0});
}

template <DynamicReading kReading>
Status DynamicCredits<kReading>::farewell_arrived(PeerIndex from, Actions& actions) {
    if (!by_contact_) return Status::kProtocol;
    const bool answered = at(from).leaving;
    forget(from);
    if (!answered) actions.push({.kind = ActionKind::kSendFarewell, .peer = from, .credits = 0});
    return Status::kOk;
}

/// Nothing of the peer is left here: its slots are free. (Its place among those that wait is passed over.)
template <DynamicReading kReading>
void DynamicCredits<kReading>::forget(PeerIndex index) {
    DynamicPeer& peer = at(index);
    if (peer.met) {
        count_null(peer, -1);
        lists_.remove(peers_, index);
        --met_;
    }
    if (peer.leaving) --leaving_;
    if (peer.met || peer.leaving) {
        available_slots_ += peer.current_credits + credit_slots_;
        unassigned_slots_ += peer.intended_quota + credit_slots_;
    }
    const DynamicPeer left = std::exchange(peer, DynamicPeer{});
    peer.turn = left.turn;
    peer.turn.message_packets_max = 0;
    peer.waits = left.waits;
}

/// What each of `active` senders would have if nobody else had more than its static slots.
template <DynamicReading kReading>
uint32_t DynamicCredits<kReading>::fair_share(uint32_t active) const {
    const uint32_t idle = (met_ + leaving_) * credit_slots_ + null_ * static_slots_;
    const uint32_t shared = data_region_slots_ - std::min(data_region_slots_, idle);
    active = std::max(active, 1u);
    return std::max(static_slots_, (shared + active - 1) / active);
}

/// A sender that has used all that it had takes from what is nobody's first. True: it did.
template <DynamicReading kReading>
bool DynamicCredits<kReading>::take_unassigned(DynamicPeer& peer) {
    const uint32_t most = std::min(sender_slots_max_, fair_share(met_ - null_));
    if (peer.intended_quota >= most) return false;
    const uint32_t wanted = std::max(credit_slots_ + 1, peer.intended_quota / 2);
    const uint32_t more = std::min({wanted, most - peer.intended_quota, unassigned_slots_});
    peer.intended_quota += more;
    unassigned_slots_ -= more;
    return more != 0;
}

/// A peer that has neither sent a message nor been sent one while many came from others. (Second chance: who
/// was sent one is asked about again later.)
template <DynamicReading kReading>
bool DynamicCredits<kReading>::idle_for_long(DynamicPeer& peer) const {
    if (peer.used) {
        peer.used = false;
        return false;
    }
    return turns_.silent(peer, kIdleGaps, kIdleMessages);
}

/// One step towards room for somebody who could not be met: an idle peer is left; a silent one loses all but
/// its static slots; another one what it has beyond its share, or as much as is needed. Who could not be met
/// asks again with its next message.
template <DynamicReading kReading>
void DynamicCredits<kReading>::make_room(Actions& actions) {
    if (const PeerIndex idle = lists_.last(Activity::kNull); idle != ActivityLists<DynamicPeer>::kNobody) {
        if (idle_for_long(at(idle))) return part(idle, actions);
        lists_.move_front(peers_, idle, Activity::kNull);
    }
    for (int level = 0; level < 2 && lists_.empty(Activity::kLow); ++level) lists_.shift();
    const PeerIndex index = lists_.last(Activity::kLow);
    if (index == ActivityLists<DynamicPeer>::kNobody) return;
    DynamicPeer& victim = at(index);
    const uint32_t kept = turns_.silent(victim, silent_gaps()) ? static_slots_ : fair_share(met_ - null_ + 1);
    const uint32_t needed = credit_slots_ + static_slots_;
    const uint32_t lacks = needed - std::min(needed, unassigned_slots_);
    const uint32_t taken = std::max(victim.intended_quota - std::min(victim.intended_quota, kept),
                                    std::min(lacks, victim.intended_quota - static_slots_));
    victim.intended_quota -= taken;
    unassigned_slots_ += taken;
    counters_.steals += taken != 0;
    after_theft(index, actions);
}

}  // namespace velo::flowctl
