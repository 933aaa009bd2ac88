/// The state of dynamic flow control that its policies decide upon: ledger, activity lists, pattern of messages, and
/// links (FC 6).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "flowctl/activity_lists.h"
#include "flowctl/fifo_ledger.h"
#include "flowctl/link.h"
#include "flowctl/message_pattern.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// State of one peer (FC 6.2), beside its credit_slots + 1 thresholds of two bytes each.
struct DynamicPeer : FifoAccount {
    /// Thresholds reached since the last monitoring point.
    uint8_t thresholds_reached = 0;
    uint8_t list : 2 = 0;
    LinkState link : 3 = LinkState::kUnknown;
    /// Receiver role: between the compulsory request and its response.
    bool blocked : 1 = false;
    /// Receiver role: between its messages, and short of credits for the next one (BurstGrant).
    bool queued_for_grant : 1 = false;
    /// Receiver role: it has used credits since its account began, so it knows of them, and has opened to us.
    bool spends : 1 = false;
    /// Sender role: packets went there since the peer was last considered for closing.
    bool used : 1 = false;
    /// Receiver role: messages in a row that were shorter than the longest one lately.
    uint8_t shorter_messages : 3 = 0;
    /// Receiver role: how far apart its last two messages were.
    uint8_t gap_class : 4 = 0;
    /// Neighbours in the activity list.
    PeerIndex newer = 0;
    PeerIndex older = 0;
    /// Receiver role.
    MessageTimes times;
};
static_assert(sizeof(DynamicPeer) == 48, "with three thresholds 54 bytes, a third of FC's 150 (equation 7)");

/// Counts of one receiver's events.
struct DynamicCounters {
    uint64_t steals = 0;
    uint64_t list_moves = 0;
    uint64_t opened = 0;  ///< mailbox opened to a peer
    uint64_t closed = 0;  ///< closed by this process first
};

/// Owner: DynamicCredits, which hands it to its policies: a quota policy says whose slots are taken for whom
/// (quota_paper.h, quota_activity.h), a grant policy when credits go back (grant_threshold.h, grant_burst.h). A policy
/// has no state of its own, and knows no other but the quota policy that a grant policy is made with.
struct DynamicAccounts {
    explicit DynamicAccounts(const Plan& plan)
        : ledger(plan),
          credit_slots(plan.credit_slots),
          min_quota(plan.quota),
          initial_quota(plan.initial_quota),
          planned_peers(plan.peers),
          data_slots(plan.data_region_slots),
          sender_slots_max(plan.sender_slots_max),
          return_max(plan.return_max),
          piggyback(plan.piggyback),
          by_contact(plan.contact_slots != 0) {
        VELO_CHECK(min_quota >= credit_slots && sender_slots_max >= min_quota,
                   "%u slots for a sender of at most %u", min_quota, sender_slots_max);
        owners = ledger.known();
        for (PeerIndex index = 0; index < ledger.known(); ++index) {
            at(index).link = LinkState::kOpen;
            at(index).spends = true;
            // FC 6.3: in increasing order, so that the lowest is the first victim.
            lists.add_front(ledger.entries(), index, Activity::kLow);
        }
    }

    /// Part of the data region that is granted to senders in the middle of a message only.
    static constexpr uint32_t kHeldBack = 16;
    /// A run of packets can pass several monitoring points; it leads to two requests at most.
    static constexpr uint32_t kRequestsMax = 2;
    /// Messages that credits are granted for ahead of the next one, at most: about as many as go by while
    /// credits come back from a receiver that sends as well. The optimum is flat: over twelve simulated
    /// patterns with 8 to 64 slots, CPU-bound and NIC-bound (64 processes, medians of three seeds), the 96
    /// overheads added up to 1,217 % with 2, 1,208 with 3, 1,178 with 4, before recall() looked at excess.
    static constexpr uint32_t kMessagesAheadMax = 3;
    /// Messages ahead that a stream of the peer's needs so that it does not stop at each: fewer where
    /// messages of others come in between, because credits come back meanwhile.
    [[nodiscard]] uint32_t messages_ahead_max(const DynamicPeer& peer) const noexcept {
        return kMessagesAheadMax / pattern.own_gap(peer).value_or(kMessagesAheadMax + 1);
    }
    static constexpr PeerIndex kNone = ActivityLists<DynamicPeer>::kNobody;

    [[nodiscard]] Activity activity(PeerIndex index) const noexcept { return lists.level_of(ledger[index]); }
    [[nodiscard]] DynamicPeer& at(PeerIndex index) noexcept { return ledger[index]; }
    [[nodiscard]] const DynamicPeer& at(PeerIndex index) const noexcept { return ledger[index]; }

    /// The threshold that the quota asks for (equation 1).
    [[nodiscard]] uint32_t wanted_threshold(const DynamicPeer& peer) const noexcept {
        return std::min(threshold_for(peer.quota(), credit_slots), return_max);
    }

    /// Packets of one burst: a message, but not more than half of the region for one sender.
    [[nodiscard]] uint32_t burst_packets(const DynamicPeer& peer) const noexcept {
        return std::min(pattern.expected_packets(peer), std::max(min_quota, data_slots / 2));
    }
    /// Credits that are missing to the rest of the burst, and to the minimum quota, by which the next message shows
    /// when it comes too early. A message that is longer than expected goes on in halves of a burst.
    [[nodiscard]] uint32_t lacking(const DynamicPeer& peer, uint32_t messages_ahead = 0) const noexcept {
        const uint32_t packets = burst_packets(peer);
        const uint32_t sent = peer.times.message_packets;
        const uint32_t wanted =
            (packets > sent ? packets - sent : packets / 2) + min_quota + messages_ahead * packets;
        return std::min(wanted - std::min(wanted, peer.granted()), return_max);
    }

    /// Whether credits can be granted for a message that is only expected.
    [[nodiscard]] bool spare(uint64_t credits) const noexcept {
        return credits + slots_for_newcomers() <= spare_slots();
    }
    /// Slots that can be granted for messages that are only expected, if no newcomer is.
    [[nodiscard]] uint32_t spare_slots() const noexcept {
        const uint32_t available = ledger.available_slots();
        return available - std::min(available, data_slots / kHeldBack);
    }
    /// While mailboxes are being opened, more first contacts are expected, and find slots.
    [[nodiscard]] uint32_t slots_for_newcomers() const noexcept {
        if (!by_contact || pattern.messages() - last_opening > 2 * owners) return 0;
        const uint32_t needed =
            (planned_peers - std::min(planned_peers, owners)) * (credit_slots + min_quota);
        return std::min(needed, data_slots / 2);
    }

    void count_inactive(PeerIndex index, int change) {
        if (lists.level_of(at(index)) == Activity::kNull) inactive += static_cast<uint32_t>(change);
        VELO_DCHECK(inactive <= owners, "%u of %u peers are inactive", inactive, owners);
    }
    void move(PeerIndex index, Activity level) {
        VELO_DCHECK(lends(at(index).link), "peer %u is in a list and owns no slots", index);
        counters.list_moves += lists.level_of(at(index)) != level;
        count_inactive(index, -1);
        lists.move_front(ledger.entries(), index, level);
        count_inactive(index, 1);
    }
    void add_to_list(PeerIndex index, Activity level) {
        lists.add_front(ledger.entries(), index, level);
        count_inactive(index, 1);
    }
    void remove_from_list(PeerIndex index) {
        count_inactive(index, -1);
        lists.remove(ledger.entries(), index);
    }

    // Activity (FC 6.5.2).

    /// Counts a threshold that was reached. True at each monitoring point: after credit_slots + 1 thresholds
    /// the sender has used all that it had at the last one.
    [[nodiscard]] bool at_monitoring_point(PeerIndex index) {
        DynamicPeer& peer = at(index);
        VELO_DCHECK(peer.thresholds_reached <= credit_slots, "%u thresholds of peer %u",
                    peer.thresholds_reached, index);
        if (++peer.thresholds_reached <= credit_slots) return false;
        peer.thresholds_reached = 0;
        return true;
    }
    /// FC figure 12: moves the sender to the list above its own. True where it was highly active, or in the
    /// null list.
    bool raise_activity(PeerIndex index) {
        switch (lists.level_of(at(index))) {
            case Activity::kLow: move(index, Activity::kMedium); return false;
            case Activity::kMedium: move(index, Activity::kHigh); return false;
            case Activity::kHigh:
            case Activity::kNull: break;
        }
        if (lists.empty(Activity::kLow)) lists.shift();
        move(index, Activity::kHigh);
        return true;
    }

    // Links that close. (DynamicCredits opens them.)

    /// See apply() in link.h.
    [[nodiscard]] bool apply_link(PeerIndex index, LinkEvent event, Outbox& outbox,
                                  uint32_t first_credits = 0) {
        LinkState state = at(index).link;
        const bool legal = apply(state, event, outbox, index, first_credits);
        at(index).link = state;
        return legal;
    }

    /// Takes the slots back from a peer that owns some.
    void close_link(PeerIndex index, Outbox& outbox) {
        DynamicPeer& peer = at(index);
        VELO_CHECK(by_contact && lends(peer.link), "peer %u owns no slots", index);
        release_owner(index);
        const bool legal = apply_link(index, LinkEvent::kCloses, outbox);
        VELO_CHECK(legal, "the link with peer %u cannot close in state %u", index,
                   static_cast<unsigned>(peer.link));
        peer.blocked = false;
        ledger.drop_credits(index);
        ++counters.closed;
    }

    /// The peer may not use slots of ours any more.
    void release_owner(PeerIndex index) {
        VELO_CHECK(owners != 0, "peer %u is one more than there are", index);
        remove_from_list(index);
        --owners;
    }

    /// Nothing of the peer is left here: its slots are free. (Its place in the queue for a grant is passed
    /// over.)
    void forget(PeerIndex index) {
        DynamicPeer& peer = at(index);
        if (lends(peer.link)) release_owner(index);
        ledger.close(index);
        VELO_CHECK(!ledger.begun(index), "peer %u owns slots after its end", index);
        const bool queued = peer.queued_for_grant;
        MessageTimes times = peer.times;
        times.message_packets_max = 0;
        peer = DynamicPeer{};
        peer.queued_for_grant = queued;
        peer.times = times;
    }

    /// Sends a compulsory return request to a peer that holds more than its quota. A peer that has not opened
    /// its mailbox to us cannot be sent one, since a request costs a credit; its link is closed instead, and
    /// reopened by its next message.
    void ask_back(PeerIndex index, Outbox& outbox) {
        DynamicPeer& victim = at(index);
        VELO_DCHECK(lends(victim.link), "peer %u is asked for slots that it does not own", index);
        if (victim.blocked || victim.granted() <= victim.quota()) return;
        if (by_contact && victim.link != LinkState::kOpen) return close_link(index, outbox);
        victim.blocked = true;
        outbox.add(index, ControlKind::kReturnRequest);
    }

    /// A peer that has nothing but its minimum quota left is asked for what it holds beyond that.
    void after_theft(PeerIndex index, Outbox& outbox) {
        VELO_DCHECK(at(index).quota() >= min_quota, "peer %u keeps %u slots", index, at(index).quota());
        if (at(index).quota() > min_quota) {
            move(index, Activity::kMedium);
            return;
        }
        move(index, Activity::kNull);
        ask_back(index, outbox);
    }

    FifoLedger<DynamicPeer> ledger;
    ActivityLists<DynamicPeer> lists;
    MessagePattern<DynamicPeer> pattern;
    DynamicCounters counters;
    uint32_t owners = 0;        ///< peers that own slots and may use them
    uint32_t inactive = 0;      ///< in the null list
    uint32_t last_opening = 0;  ///< counted in messages
    uint32_t credit_slots;
    uint32_t min_quota;
    uint32_t initial_quota;
    uint32_t planned_peers;
    uint32_t data_slots;
    uint32_t sender_slots_max;
    uint32_t return_max;
    bool piggyback;
    bool by_contact;
};

}  // namespace velo::flowctl
