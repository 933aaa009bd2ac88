/// Credits that follow the activity of the senders: the dynamic flow control of FC 6, both roles of one
/// process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "flowctl/actions.h"
#include "flowctl/activity_lists.h"
#include "flowctl/dynamic_reading.h"
#include "flowctl/message_turns.h"
#include "flowctl/plan.h"
#include "flowctl/sender_table.h"
#include "flowctl/static_credits.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// What one process keeps for one peer (FC 6.2), beside its credit_slots + 1 thresholds of two bytes each.
struct DynamicPeer {
    /// Sender role: packets that may still go to the peer.
    uint32_t credits = 0;
    /// Receiver role: what the peer should have in the near future. These add up to the data region.
    uint32_t intended_quota = 0;
    /// Receiver role: credits granted: held by the peer, under way, or in packets that are not retrieved.
    uint32_t current_credits = 0;
    /// Receiver role: packets retrieved since the threshold was last reached, less what was piggybacked.
    uint32_t retrieved_packets = 0;
    union {
        /// Receiver role: credits piggybacked since the threshold was last reached.
        uint32_t piggybacked_credits = 0;
        /// Sender role, of a peer that is not met: what its welcome brought, which can not be used yet.
        uint32_t offered_credits;
    };
    /// Neighbours in the activity list.
    PeerIndex newer = 0;
    PeerIndex older = 0;
    /// Receiver role (Stealing::kSilent, kTurns).
    MessageTurn turn;
    /// Thresholds reached since the last monitoring point.
    uint8_t thresholds_reached = 0;
    /// Where in the ring of thresholds the head of the FIFO is.
    uint8_t head = 0;
    uint8_t list : 2 = 0;
    /// Receiver role: between the compulsory request and its response.
    bool blocked : 1 = false;
    /// Sender role: a compulsory request, or a response, waits for a credit.
    bool request_waits : 1 = false;
    bool response_waits : 1 = false;
    /// Receiver role: between its messages, and short of credits for the next one (Stealing::kTurns).
    bool waits : 1 = false;
    /// Receiver role: it owns slots here, has been told so, and is in a list.
    bool met : 1 = false;
    /// Receiver role: it has used credits since it was met, so it has been told of them, and has met us.
    bool spends : 1 = false;
    /// Sender role: it has told us that we own slots there.
    bool welcomed : 1 = false;
    /// We have said farewell, and it has not yet.
    bool leaving : 1 = false;
    /// Sender role: packets went there since it was last looked at.
    bool used : 1 = false;
    /// Receiver role: messages in a row that were shorter than the longest one lately.
    uint8_t shorter_messages : 3 = 0;
    /// Receiver role: none of its messages has had to wait since it was met.
    bool first_message : 1 = false;
};
static_assert(sizeof(DynamicPeer) == 48, "with three thresholds 54 bytes, a third of FC's 150 (equation 7)");

/// What happened among the senders of one receiver.
struct DynamicCounters {
    uint64_t steals = 0;
    uint64_t list_moves = 0;
    uint64_t peers_met = 0;
    uint64_t peers_left = 0;  ///< farewells said first by this process
};

/// Owner: FlowControl. Thread: the engine's. Every event is O(credit_slots) at most for each return that it
/// leads to, whatever the number of peers; nothing but know() allocates after construction.
///
/// Invariants:
/// - available slots + the sum of all current credits = data region. With contact slots, there are also the
///   credit slots of those that are met: available + granted + met * credit_slots = data region.
/// - For each peer, the thresholds are at least 1 and add up to current_credits + 1 + retrieved_packets.
///   So a peer without credits has retrieved_packets >= the head, for the other thresholds add up to at
///   least credit_slots >= 1: whatever took its last credit has found the threshold reached. At that time
///   a slot was free, the packet's own, so at least one credit went back. Hence no sender waits for ever.
/// - The FIFO lists the last credit_slots + 1 returns. With m explicit credit packets unread, a sender can
///   use only what lies before them in the list, which is why no credit region overflows.
/// A return may be put off after its threshold was reached, and be of any size that is available: neither
/// touches the invariants. But a sender that has less than its static slots gets some at once.
/// The paper leaves steps open, and some of its steps break these; `kReading` says which reading is taken.
/// The default is the one that the explorer found nothing against (docs/flow-control.md); tests switch the
/// others on.
template <DynamicReading kReading = DynamicReading{}>
class DynamicCredits : public SenderTable<DynamicPeer> {
  public:
    explicit DynamicCredits(const Plan& plan)
        : SenderTable(plan.contact_slots != 0 ? 0 : plan.peers),
          thresholds_(size_t{known()} * (plan.credit_slots + 1), 1),
          available_slots_(plan.data_region_slots - known() * plan.quota),
          unassigned_slots_(plan.contact_slots != 0 ? plan.data_region_slots : 0),
          credit_slots_(plan.credit_slots),
          static_slots_(plan.quota),
          first_quota_(plan.first_quota),
          planned_peers_(plan.peers),
          data_region_slots_(plan.data_region_slots),
          sender_slots_max_(plan.sender_slots_max),
          return_max_(plan.return_max),
          piggyback_(plan.piggyback),
          by_contact_(plan.contact_slots != 0),
          stealing_(plan.stealing) {
        for (PeerIndex index = 0; index < known(); ++index) {
            DynamicPeer& peer = peers_[index];
            peer.met = peer.welcomed = peer.spends = true;
            peer.credits = peer.current_credits = static_slots_;
            const uint32_t equal_share =
                plan.data_region_slots / plan.peers + (index < plan.data_region_slots % plan.peers ? 1 : 0);
            peer.intended_quota = std::min(equal_share, plan.sender_slots_max);
            // FC 6.3: in increasing order, so that the lowest is the first victim.
            lists_.add_front(peers_, index, Activity::kLow);
        }
    }

    // Sender role.

    void packets_sent(PeerIndex to, uint32_t packets) {
        SenderTable::packets_sent(to, packets);
        at(to).used = true;
    }

    /// FC 6.5.4. Control packets that wait go first; between them, the request.
    [[nodiscard]] Status credits_arrived(PeerIndex from, uint32_t credits, Actions& actions) {
        DynamicPeer& peer = at(from);
        if (!peer.met) [[unlikely]]
            return peer.leaving ? Status::kOk : Status::kProtocol;
        if (credits == 0 || credits > data_region_slots_ - peer.credits) [[unlikely]]
            return Status::kProtocol;
        peer.credits += credits;
        if (peer.request_waits) [[unlikely]]
            send_request(from, actions);
        if (peer.response_waits && peer.credits != 0) [[unlikely]]
            send_response(from, actions);
        return Status::kOk;
    }

    /// The peer wants what we hold beyond our static slots.
    [[nodiscard]] Status return_requested(PeerIndex by, Actions& actions) {
        DynamicPeer& peer = at(by);
        if (peer.leaving) return Status::kOk;  // what it wants back is on its way
        if (!peer.met || peer.response_waits) return Status::kProtocol;
        if (peer.credits != 0) {
            send_response(by, actions);
        } else {
            peer.response_waits = true;
        }
        return Status::kOk;
    }

    // Receiver role.

    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, MessageEnd end,
                                           Actions& actions) {
        DynamicPeer& peer = at(from);
        if (packets > peer.current_credits) [[unlikely]]
            return Status::kProtocol;
        peer.current_credits -= packets;
        peer.retrieved_packets += packets;
        peer.spends = true;
        available_slots_ += packets;
        if (!end.control) turns_.packets_retrieved(peer, packets, end.ended);
        if (peer.leaving) [[unlikely]]
            return Status::kOk;
        if (end.waited) [[unlikely]]
            note_wait(peer);
        if (reached(from)) [[unlikely]]
            return_what_is_due(from, actions);
        if (turns_.anybody_waits()) [[unlikely]]
            serve_waiting(actions);
        return Status::kOk;
    }

    [[nodiscard]] bool return_due(PeerIndex from, uint32_t packets) const noexcept {
        return at(from).retrieved_packets + packets >= threshold(from);
    }

    /// Compulsory response (FC 6.5.4). Its packet has been reported like any other.
    [[nodiscard]] Status credits_given_up(PeerIndex from, uint32_t credits, Actions& actions) {
        DynamicPeer& peer = at(from);
        if (peer.leaving) return Status::kOk;  // all that it has comes back
        if (!peer.blocked || credits > peer.current_credits ||
            credits > peer.current_credits + peer.retrieved_packets - credit_slots_) {
            return Status::kProtocol;
        }
        peer.current_credits -= credits;
        available_slots_ += credits;
        if constexpr (kReading.response == DynamicReading::Response::kTrim) trim(from, credits);
        peer.blocked = false;
        if (kReading.test_after_unblocking && reached(from)) return_what_is_due(from, actions);
        if (turns_.anybody_waits()) [[unlikely]]
            serve_waiting(actions);
        return Status::kOk;
    }

    /// FC 6.6. While a sender is blocked nothing is piggybacked to it.
    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max, Actions& actions);

    // First contact and farewell (contact_slots; dynamic_contact.h).

    /// There is an entry for the peer from here on. The only event that allocates.
    void know(PeerIndex index);
    /// What goes to the peer fills contact slots there, without credits.
    [[nodiscard]] bool by_contact(PeerIndex to) const noexcept {
        return by_contact_ && !(at(to).met && at(to).welcomed);
    }
    /// We are about to send to a peer without credits; its answers are to find slots here.
    void contact_sent(PeerIndex to, Actions& actions);
    /// Packets of one message that filled contact slots have been retrieved; `ended`: its last one, too.
    [[nodiscard]] Status contact_retrieved(PeerIndex from, uint32_t packets, bool ended, Actions& actions);
    /// We own `credits` slots there.
    [[nodiscard]] Status welcome_arrived(PeerIndex from, uint32_t credits, Actions& actions);
    /// The peer neither uses slots here nor lends us any, from here on.
    [[nodiscard]] Status farewell_arrived(PeerIndex from, Actions& actions);
    /// Takes the slots back from a peer that is met. Flow control does this by itself with peers that have
    /// been idle for long, where others need slots.
    void part(PeerIndex from, Actions& actions);
    /// Peers that own slots.
    [[nodiscard]] uint32_t met() const noexcept { return by_contact_ ? met_ : known(); }
    [[nodiscard]] uint32_t unassigned_slots() const noexcept { return unassigned_slots_; }
    /// Slots that peers own as credit slots; those of a peer that is leaving included.
    [[nodiscard]] uint32_t lent_credit_slots() const noexcept {
        return by_contact_ ? (met_ + leaving_) * credit_slots_ : 0;
    }

    /// The peer's process has ended and none of its packets is left in the mailbox. Its index stays unused.
    void reset_peer(PeerIndex index) {
        if (by_contact_) return forget(index);
        DynamicPeer& peer = at(index);
        available_slots_ += peer.current_credits;
        for (uint32_t place = 0; place <= credit_slots_; ++place) thresholds_[slot_of(index, place)] = 1;
        peer.credits = peer.current_credits = peer.piggybacked_credits = 0;
        peer.retrieved_packets = credit_slots_;
        peer.blocked = peer.request_waits = peer.response_waits = false;
        // In the middle of a message for ever, it is given nothing for the next one.
        peer.turn.message_packets = 1;
    }

    // For tests, counters and reports.

    [[nodiscard]] uint32_t available_slots() const noexcept { return available_slots_; }
    [[nodiscard]] const DynamicCounters& counters() const noexcept { return counters_; }
    [[nodiscard]] uint32_t quota(PeerIndex index) const noexcept { return at(index).intended_quota; }
    [[nodiscard]] uint32_t granted(PeerIndex index) const noexcept { return at(index).current_credits; }
    [[nodiscard]] Activity activity(PeerIndex index) const noexcept { return lists_.level_of(at(index)); }
    /// Of the FIFO of thresholds, from its head.
    [[nodiscard]] uint32_t threshold(PeerIndex index, uint32_t place = 0) const noexcept {
        return thresholds_[slot_of(index, at(index).head + place)];
    }

    [[nodiscard]] bool check_invariants(PeerIndex index) const noexcept {
        const DynamicPeer& peer = at(index);
        if (!peer.met) return peer.credits == 0;
        uint32_t sum = 0;
        for (uint32_t place = 0; place <= credit_slots_; ++place) {
            if (threshold(index, place) == 0) return false;
            sum += threshold(index, place);
        }
        return sum == peer.current_credits + 1 + peer.retrieved_packets &&
               peer.intended_quota >= static_slots_ && available_slots_ <= data_region_slots_;
    }

    template <typename Visit>
    void visit_state(Visit&& visit) const;

  private:
    using SenderTable<DynamicPeer>::at;
    using SenderTable<DynamicPeer>::peers_;

    /// A sender is silent after so many of the gaps that are usual between messages of one sender.
    static constexpr uint32_t kSilentGaps = 2;
    /// Where senders come in any order, one in e^4 gaps is as long as this, and not one in e^2.
    static constexpr uint32_t kSilentGapsTurns = 4;
    /// A peer has been idle for long after so many gaps, and so many messages of others beyond them.
    static constexpr uint32_t kIdleGaps = 8;
    static constexpr uint32_t kIdleMessages = 64;
    /// This share of the data region is given to senders in the middle of a message only.
    static constexpr uint32_t kHeldBack = 16;
    /// More than one an event, so that the queue does not grow; few, so that an event is O(1).
    static constexpr uint32_t kWaitingLookedAt = 2;

    /// `place` is less than two rounds of the ring.
    [[nodiscard]] size_t slot_of(PeerIndex index, uint32_t place) const noexcept {
        const uint32_t ring = credit_slots_ + 1;
        return size_t{index} * ring + (place >= ring ? place - ring : place);
    }
    [[nodiscard]] bool reached(PeerIndex index) const noexcept {
        const uint32_t packets = at(index).retrieved_packets;
        if constexpr (kReading.reached == DynamicReading::Reached::kExactly) {
            return packets == threshold(index);
        }
        return packets >= threshold(index);
    }

    /// Takes the head out of the FIFO and puts `threshold` in.
    void rotate(PeerIndex index, uint32_t threshold) {
        DynamicPeer& peer = at(index);
        thresholds_[slot_of(index, peer.head)] = static_cast<uint16_t>(threshold);
        peer.head = static_cast<uint8_t>(peer.head == credit_slots_ ? 0 : peer.head + 1);
    }

    void add_to_head(PeerIndex index, uint32_t packets) {
        uint16_t& threshold = thresholds_[slot_of(index, at(index).head)];
        threshold = static_cast<uint16_t>(threshold + packets);
    }

    /// Whether credits can be given for a message that is only expected.
    [[nodiscard]] bool spare(uint64_t credits) const noexcept {
        return credits + data_region_slots_ / kHeldBack + slots_for_newcomers() <= available_slots_;
    }
    /// While peers are being met, more are expected, and find slots.
    [[nodiscard]] uint32_t slots_for_newcomers() const noexcept {
        if (!by_contact_ || turns_.messages() - last_meeting_ > 2 * met_) return 0;
        const uint32_t needed = (planned_peers_ - std::min(planned_peers_, met_)) * (credit_slots_ + static_slots_);
        return std::min(needed, data_region_slots_ / 2);
    }

    void grant(DynamicPeer& peer, uint32_t credits) {
        peer.current_credits += credits;
        available_slots_ -= credits;
    }

    /// The threshold that the intended quota asks for (equation 1).
    [[nodiscard]] uint32_t wanted_threshold(const DynamicPeer& peer) const noexcept {
        return std::min(threshold_for(peer.intended_quota, credit_slots_), return_max_);
    }

    /// Packets to be sent in one turn: a message, but not more than half of the region for one sender.
    [[nodiscard]] uint32_t turn_packets(const DynamicPeer& peer) const noexcept {
        return std::min(turns_.expected_packets(peer), std::max(static_slots_, data_region_slots_ / 2));
    }
    /// Whether the share is too small for a turn without a stall (equation 3). Who has half of the region for
    /// itself has nobody to take turns with.
    [[nodiscard]] bool takes_turns(const DynamicPeer& peer) const noexcept {
        if (stealing_ != Stealing::kTurns) return false;
        const uint32_t packets = turn_packets(peer);
        if (peer.intended_quota >= 2 * packets || peer.intended_quota >= data_region_slots_ / 2) return false;
        return peer.intended_quota - peer.intended_quota / (credit_slots_ + 1) < packets;
    }

    /// Whether what was retrieved is little, and the next message will not make it reach the threshold.
    [[nodiscard]] bool can_wait(PeerIndex index) const noexcept {
        const uint32_t retrieved = at(index).retrieved_packets;
        const uint32_t reached_at = threshold(index);
        return retrieved < reached_at / 2 && retrieved + turns_.expected_packets(at(index)) < reached_at;
    }

    void move(PeerIndex index, Activity level) {
        counters_.list_moves += lists_.level_of(at(index)) != level;
        count_null(at(index), -1);
        lists_.move_front(peers_, index, level);
        count_null(at(index), 1);
    }
    void count_null(const DynamicPeer& peer, int change) {
        if (lists_.level_of(peer) == Activity::kNull) null_ += static_cast<uint32_t>(change);
    }

    // Out of line is what few packets lead to.
    [[gnu::noinline]] void return_what_is_due(PeerIndex index, Actions& actions);
    [[gnu::noinline]] void note_wait(DynamicPeer& peer);
    void return_credits(PeerIndex index, Actions& actions);
    uint32_t lacking(const DynamicPeer& peer) const;
    [[gnu::noinline]] void return_in_turn(PeerIndex index, Actions& actions);
    [[gnu::noinline]] void serve_waiting(Actions& actions);
    void give(PeerIndex index, uint32_t credits, Actions& actions);
    void watch(PeerIndex index);
    uint32_t piggyback_in_turn(PeerIndex to, uint32_t max, Actions& actions);
    uint32_t due_to_blocked(PeerIndex index);
    uint32_t due(PeerIndex index, uint32_t max);
    void count_threshold(PeerIndex index, Actions& actions);
    void monitor(PeerIndex index, Actions& actions);
    void steal(PeerIndex index, Actions& actions);
    void trim(PeerIndex index, uint32_t credits);
    bool meet(PeerIndex index, Actions& actions);
    [[nodiscard]] uint32_t first_credits(const DynamicPeer& peer) const;
    void meet_if_possible(PeerIndex index, Actions& actions);
    void make_room(Actions& actions);
    void after_theft(PeerIndex index, Actions& actions);
    void ask_back(PeerIndex index, Actions& actions);
    void forget(PeerIndex index);
    bool idle_for_long(DynamicPeer& peer) const;
    [[nodiscard]] uint32_t silent_gaps() const {
        return stealing_ == Stealing::kTurns ? kSilentGapsTurns : kSilentGaps;
    }
    [[nodiscard]] uint32_t fair_share(uint32_t active) const;
    bool take_unassigned(DynamicPeer& peer);

    void send_request(PeerIndex to, Actions& actions) {
        DynamicPeer& peer = at(to);
        --peer.credits;
        peer.request_waits = false;
        actions.push({.kind = ActionKind::kSendReturnRequest, .peer = to, .credits = 0});
    }
    /// The response costs a credit of what is kept.
    void send_response(PeerIndex to, Actions& actions) {
        DynamicPeer& peer = at(to);
        const uint32_t given_up = peer.credits > static_slots_ ? peer.credits - static_slots_ : 0;
        peer.credits -= given_up + 1;
        peer.response_waits = false;
        actions.push({.kind = ActionKind::kSendReturnResponse, .peer = to, .credits = given_up});
    }

    /// credit_slots + 1 of each peer, a ring.
    std::vector<uint16_t> thresholds_;
    ActivityLists<DynamicPeer> lists_;
    uint32_t available_slots_;
    /// Of no peer's intended quota (contact_slots).
    uint32_t unassigned_slots_;
    uint32_t met_ = 0;
    uint32_t leaving_ = 0;
    uint32_t null_ = 0;  ///< in that list
    uint32_t last_meeting_ = 0;  ///< counted in messages
    MessageTurns<DynamicPeer> turns_;
    DynamicCounters counters_;
    uint32_t credit_slots_;
    uint32_t static_slots_;
    uint32_t first_quota_;
    uint32_t planned_peers_;
    uint32_t data_region_slots_;
    uint32_t sender_slots_max_;
    uint32_t return_max_;
    bool piggyback_;
    bool by_contact_;
    Stealing stealing_;
};

/// With the threshold reached.
template <DynamicReading kReading>
void DynamicCredits<kReading>::return_what_is_due(PeerIndex index, Actions& actions) {
    const DynamicPeer& peer = at(index);
    if (!peer.blocked && takes_turns(peer)) [[unlikely]] {
        return_in_turn(index, actions);
    } else {
        return_credits(index, actions);
    }
}

/// FC 6.5.2, when the threshold is reached; after several packets at a time, perhaps several times over. All
/// that is due goes back in one packet.
template <DynamicReading kReading>
void DynamicCredits<kReading>::return_credits(PeerIndex index, Actions& actions) {
    DynamicPeer& peer = at(index);
    uint32_t credits = 0;
    // Where nothing is available, at least one credit has just gone back: for the slot that the packet left.
    while (reached(index) && available_slots_ != 0 && credits < return_max_) {
        uint32_t more = 0;
        if (peer.blocked) {
            more = due_to_blocked(index);
            if (more == 0) break;
        } else {
            count_threshold(index, actions);
            more = due(index, return_max_ - credits);
        }
        grant(peer, more);
        credits += more;
    }
    if (credits != 0) {
        actions.push({.kind = ActionKind::kSendCredits, .peer = index, .credits = credits});
    }
}

/// The unblocked flow: the head leaves the FIFO, and what goes back enters it.
template <DynamicReading kReading>
uint32_t DynamicCredits<kReading>::due(PeerIndex index, uint32_t max) {
    DynamicPeer& peer = at(index);
    const uint32_t wanted = std::min(wanted_threshold(peer), max);
    const uint32_t granted = std::min(wanted, available_slots_);
    peer.retrieved_packets -= threshold(index);
    peer.piggybacked_credits = 0;
    rotate(index, kReading.short_of_slots == DynamicReading::ShortOfSlots::kGranted ? granted : wanted);
    return granted;
}

/// The blocked flow: one credit, and only to a sender that has less than its static slots.
template <DynamicReading kReading>
uint32_t DynamicCredits<kReading>::due_to_blocked(PeerIndex index) {
    using Reading = DynamicReading;
    DynamicPeer& peer = at(index);
    if (peer.current_credits >= static_slots_) {
        if constexpr (kReading.blocked_none != Reading::BlockedNone::kNothing) {
            peer.retrieved_packets = 0;
            rotate(index,
                   kReading.blocked_none == Reading::BlockedNone::kResetOne ? 1 : wanted_threshold(peer));
        }
        return 0;
    }
    if constexpr (kReading.blocked_one == Reading::BlockedOne::kConsume) {
        peer.retrieved_packets -= threshold(index);
        rotate(index, 1);
    } else if constexpr (kReading.blocked_one == Reading::BlockedOne::kUncount) {
        --peer.retrieved_packets;
    }
    return 1;
}

/// FC 6.6. At the threshold a return is due like the explicit one, and what was piggybacked before is a part of it:
/// the rest goes now (adjustment by deficit), or what is too much raises the threshold that is next (by excess).
/// Below the threshold, what was retrieved goes back. Not so in the paper: beyond a threshold as well, so that no
/// explicit return follows; and not what can wait, because a piggyback costs both sides some time.
template <DynamicReading kReading>
uint32_t DynamicCredits<kReading>::take_piggyback(PeerIndex to, uint32_t max, Actions& actions) {
    using Reading = DynamicReading;
    if (!piggyback_) return 0;
    DynamicPeer& peer = at(to);
    if (peer.blocked || !peer.met) return 0;
    max = std::min(max, return_max_);
    if (takes_turns(peer)) [[unlikely]]
        return piggyback_in_turn(to, max, actions);
    uint32_t credits = 0;
    const bool threshold_due = peer.retrieved_packets + peer.piggybacked_credits >= threshold(to);
    while (peer.retrieved_packets + peer.piggybacked_credits >= threshold(to)) {
        const uint32_t before = peer.piggybacked_credits;
        const uint32_t left = kReading.at_least_one ? std::max(available_slots_, 1u) : available_slots_;
        const uint32_t possible = before + std::min(left, max - credits);
        if (possible == 0) return credits;
        count_threshold(to, actions);
        const uint32_t wanted = wanted_threshold(peer);
        const uint32_t beyond = peer.retrieved_packets + before - threshold(to);
        peer.retrieved_packets = kReading.overshoot == Reading::Overshoot::kCarry ? beyond : 0;
        peer.piggybacked_credits = 0;
        if (wanted >= before) {
            const uint32_t inserted = std::min(wanted, possible);
            rotate(to, inserted);
            grant(peer, inserted - before);
            credits += inserted - before;
        } else {
            rotate(to, wanted);
            if constexpr (kReading.excess == Reading::Excess::kAddToHead) add_to_head(to, before - wanted);
        }
    }
    if (stealing_ == Stealing::kPaper ? threshold_due : can_wait(to)) return credits;
    const uint32_t free = kReading.piggyback_unavailable ? max : available_slots_;
    const uint32_t rest = std::min({peer.retrieved_packets, max - credits, free});
    peer.retrieved_packets -= rest;
    peer.piggybacked_credits += rest;
    grant(peer, rest);
    return credits + rest;
}

/// Takes `credits` off the thresholds, the last ones first, and leaves each at least 1.
template <DynamicReading kReading>
void DynamicCredits<kReading>::trim(PeerIndex index, uint32_t credits) {
    for (uint32_t place = credit_slots_ + 1; place-- != 0 && credits != 0;) {
        uint16_t& threshold = thresholds_[slot_of(index, at(index).head + place)];
        const uint32_t taken = std::min(credits, threshold - 1u);
        threshold = static_cast<uint16_t>(threshold - taken);
        credits -= taken;
    }
}

template <DynamicReading kReading>
template <typename Visit>
void DynamicCredits<kReading>::visit_state(Visit&& visit) const {
    visit(available_slots_);
    if (by_contact_) visit(unassigned_slots_);
    if (stealing_ != Stealing::kPaper) {
        turns_.visit_state(peers_, visit);
        if (by_contact_) visit(turns_.messages() - last_meeting_);
    }
    for (PeerIndex index = 0; index < peers_.size(); ++index) {
        const DynamicPeer& peer = peers_[index];
        visit(peer.credits);
        visit(peer.intended_quota);
        visit(peer.current_credits);
        visit(peer.retrieved_packets);
        visit(peer.met ? peer.piggybacked_credits : peer.offered_credits);
        visit(peer.thresholds_reached * 8u + peer.blocked * 4u + peer.request_waits * 2u +
              peer.response_waits);
        if (by_contact_) {
            visit(peer.first_message * 32u + peer.met * 16u + peer.spends * 8u + peer.welcomed * 4u +
                  peer.leaving * 2u + peer.used);
        }
        for (uint32_t place = 0; place <= credit_slots_; ++place) visit(threshold(index, place));
    }
    for (const Activity level : {Activity::kLow, Activity::kMedium, Activity::kHigh, Activity::kNull}) {
        for (PeerIndex at = lists_.last(level); at != ActivityLists<DynamicPeer>::kNobody;
             at = peers_[at].newer) {
            visit(at);
        }
        visit(uint32_t{ActivityLists<DynamicPeer>::kNobody});
    }
}

}  // namespace velo::flowctl

#include "flowctl/dynamic_contact.h"   // IWYU pragma: export
#include "flowctl/dynamic_stealing.h"  // IWYU pragma: export
#include "flowctl/dynamic_turns.h"     // IWYU pragma: export
