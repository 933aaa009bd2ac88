/// DynamicCredits: who is active, and from whom slots are taken for it (FC 6.4, 6.5.2). Part of
/// dynamic_credits.h.
#pragma once

#include <algorithm>

#include "flowctl/dynamic_credits.h"

namespace velo::flowctl {

/// After credit_slots + 1 thresholds the sender has used all that it had at the last monitoring point.
template <DynamicReading kReading>
void DynamicCredits<kReading>::count_threshold(PeerIndex index, Actions& actions) {
    DynamicPeer& peer = at(index);
    if (++peer.thresholds_reached <= credit_slots_) return;
    peer.thresholds_reached = 0;
    monitor(index, actions);
}

/// FC 6.5.2, figure 12.
template <DynamicReading kReading>
void DynamicCredits<kReading>::monitor(PeerIndex index, Actions& actions) {
    DynamicPeer& peer = at(index);
    // A batch can pass several monitoring points; two requests are what an event has room for.
    const bool room = actions.size() < 2;
    switch (lists_.level_of(peer)) {
        case Activity::kLow: move(index, Activity::kMedium); break;
        case Activity::kMedium: move(index, Activity::kHigh); break;
        case Activity::kHigh:
        case Activity::kNull:
            if (lists_.empty(Activity::kLow)) lists_.shift();
            move(index, Activity::kHigh);
            if (room && stealing_ == Stealing::kPaper) steal(index, actions);
            break;
    }
    // Who takes from the silent alone need not have been active for long.
    if (room && stealing_ != Stealing::kPaper) steal(index, actions);
}

/// FC 6.4 and 6.5.2, figure 13.
template <DynamicReading kReading>
void DynamicCredits<kReading>::steal(PeerIndex index, Actions& actions) {
    DynamicPeer& peer = at(index);
    if (unassigned_slots_ != 0 && take_unassigned(peer)) return;
    const PeerIndex victim_index = lists_.last(Activity::kLow);
    if (victim_index == ActivityLists<DynamicPeer>::kNobody) return;
    DynamicPeer& victim = at(victim_index);
    const bool idle = stealing_ != Stealing::kPaper && turns_.silent(victim, silent_gaps());
    // Its messages have become shorter since its last turn.
    const uint32_t enough = std::max(2 * victim.intended_quota, turn_packets(victim) + static_slots_);
    if (stealing_ == Stealing::kTurns && !victim.blocked && victim.current_credits > enough) {
        return ask_back(victim_index, actions);
    }
    // Among senders that go on, only who has much more gives; so who comes back gets its share again, and
    // equal ones take nothing from each other.
    const uint32_t much_more = peer.intended_quota + peer.intended_quota / 2 + credit_slots_ + 1;
    if (stealing_ != Stealing::kPaper && !idle && victim.intended_quota <= much_more) {
        move(victim_index, Activity::kMedium);
        return;
    }
    const uint32_t apart = peer.intended_quota > victim.intended_quota
                               ? peer.intended_quota - victim.intended_quota
                               : victim.intended_quota - peer.intended_quota;
    uint32_t wanted = std::max(credit_slots_ + 1, apart / 2);  // equation 6
    if (idle) wanted = std::max(wanted, (victim.intended_quota - static_slots_ + 1) / 2);
    const uint32_t room = sender_slots_max_ - std::min(peer.intended_quota, sender_slots_max_);
    const uint32_t stolen = std::min({wanted, victim.intended_quota - static_slots_, room});
    counters_.steals += stolen != 0;
    peer.intended_quota += stolen;
    victim.intended_quota -= stolen;
    after_theft(victim_index, actions);
}

/// Who has nothing but its static slots left is asked for what it holds beyond them.
template <DynamicReading kReading>
void DynamicCredits<kReading>::after_theft(PeerIndex index, Actions& actions) {
    DynamicPeer& victim = at(index);
    if (victim.intended_quota > static_slots_) {
        move(index, Activity::kMedium);
        return;
    }
    move(index, Activity::kNull);
    ask_back(index, actions);
}

/// The compulsory request, to who holds more than its quota. Who has no slots for us can not use its own here, and can
/// not be sent a request, which costs a credit: it is left, and met again. (It is in no list then.)
template <DynamicReading kReading>
void DynamicCredits<kReading>::ask_back(PeerIndex index, Actions& actions) {
    DynamicPeer& victim = at(index);
    if (victim.blocked || victim.current_credits <= victim.intended_quota) return;
    if (by_contact_ && !victim.welcomed) return part(index, actions);
    victim.blocked = true;
    if (victim.credits != 0) {
        send_request(index, actions);
    } else {
        victim.request_waits = true;
    }
}

}  // namespace velo::flowctl
