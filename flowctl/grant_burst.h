/// Grant policy of velo's dynamic flow control: where quotas are smaller than messages, senders are granted
/// credits for a whole message in turn. docs/flow-control.md says why.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "flowctl/dynamic_accounts.h"
#include "flowctl/grant_threshold.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

template <class Quota>
class BurstGrant {
    using Threshold = ThresholdGrant<Quota, true>;

  public:
    static void return_credits(DynamicAccounts& accounts, PeerIndex index, Outbox& outbox) {
        if (accounts.at(index).blocked || !bursts(accounts, accounts.at(index))) [[likely]]
            return Threshold::return_credits(accounts, index, outbox);
        return_burst(accounts, index, outbox);
    }

    /// A burst's credits, whether or not the message is near, because they cost no packet. They enter the
    /// FIFO like an explicit return, or, before the threshold is reached, as a part of the last one: that is
    /// read before them. Not before the peer has used any: it may not be able to, or our kOpen may not have
    /// left.
    [[nodiscard]] static uint32_t piggyback_credits(DynamicAccounts& accounts, PeerIndex to, uint32_t max,
                                                    Outbox& outbox) {
        const DynamicPeer& peer = accounts.at(to);
        if (!bursts(accounts, peer)) [[likely]]
            return Threshold::piggyback_credits(accounts, to, max, outbox);
        if (!peer.spends) return 0;
        const uint32_t wanted =
            std::min({accounts.lacking(peer), max, kReturnMax - accounts.ledger.last_threshold(to)});
        if (wanted == 0 || !accounts.spare(wanted)) return 0;
        Quota::count_threshold(accounts, to, outbox);
        if (accounts.ledger.reached(to)) {
            accounts.ledger.return_credits(to, wanted);
        } else {
            accounts.ledger.extend_last(to, wanted);
        }
        watch(accounts, to);
        return wanted;
    }

    /// A peer begins with its whole quota where that lets half a message go, or with what a message that it
    /// has begun lacks, where there are slots for that.
    [[nodiscard]] static uint32_t first_credits(const DynamicAccounts& accounts, const DynamicPeer& peer) {
        const bool begun = peer.times.message_packets != 0 && accounts.pattern.expected_packets(peer) != 0;
        uint32_t wanted = begun ? accounts.lacking(peer) : accounts.min_quota;
        if (2 * peer.quota() >= accounts.burst_packets(peer)) wanted = std::max(wanted, peer.quota());
        wanted = std::min(wanted, accounts.return_max);
        return wanted > accounts.min_quota && accounts.spare(wanted) ? wanted : accounts.min_quota;
    }

    /// A message has waited for credits although slots were available. Not to be called for a peer's first one,
    /// which no burst could have been granted for.
    [[gnu::noinline]] static void message_waited(DynamicAccounts& accounts, DynamicPeer& peer) {
        if (accounts.pattern.first_message(peer)) return;
        if (bursts(accounts, peer) && accounts.spare(accounts.burst_packets(peer)))
            accounts.pattern.deadline_missed();
    }

    [[nodiscard]] static bool any_queued(const DynamicAccounts& accounts) noexcept {
        return accounts.pattern.any_queued();
    }

    /// A burst's credits to the sender that is first in the queue, when its message is near and there are
    /// slots for all of it, or as soon as there are slots for all that are queued. A sender in the middle of
    /// a message has been seen to by then; one that is blocked, when the response comes.
    [[gnu::noinline]] static void grant_queued(DynamicAccounts& accounts, Outbox& outbox) {
        for (uint32_t visited = 0; visited < kVisitedMax; ++visited) {
            const PeerIndex index = accounts.pattern.first_queued();
            if (index == MessagePattern<DynamicPeer>::kNobody || outbox.added_since_mark() >= kControlMax)
                return;
            const DynamicPeer& peer = accounts.at(index);
            const uint32_t wanted = accounts.lacking(peer);
            const bool possible = lends(peer.link) && wanted != 0 && peer.times.message_packets == 0 &&
                                  !peer.blocked && bursts(accounts, peer) && accounts.ledger.reached(index);
            // A sender that has fallen idle would keep what it is granted: its next message will show that it goes
            // on.
            if (possible && !Quota::is_idle(accounts, peer)) {
                const bool now = (accounts.pattern.near(peer) && accounts.spare(wanted)) ||
                                 accounts.spare(uint64_t{wanted} * accounts.pattern.queued());
                if (!now) return;
                accounts.pattern.returned_early();
                give(accounts, index, wanted, outbox);
            }
            accounts.pattern.dequeue(accounts.ledger.entries(), index);
        }
    }

  private:
    /// More than one an event, so that the queue does not grow; few, so that an event is O(1).
    static constexpr uint32_t kVisitedMax = 2;
    /// Control packets that one event leads to: a return to a sender, one to a queued sender, a request to a
    /// third.
    static constexpr uint32_t kControlMax = 3;

    /// Whether the quota is too small for a burst without a stall (equation 3). A sender that has half of the
    /// region for itself shares it with no other.
    [[nodiscard]] static bool bursts(const DynamicAccounts& accounts, const DynamicPeer& peer) noexcept {
        const uint32_t packets = accounts.burst_packets(peer);
        if (peer.quota() >= 2 * packets || peer.quota() >= accounts.data_slots / 2) return false;
        return peer.quota() - peer.quota() / (accounts.credit_slots + 1) < packets;
    }

    /// With the threshold reached. In the middle of a message: all that is missing, or a good part of it.
    /// Between messages: a burst where there are slots for all that are active; otherwise nothing yet, but
    /// that the sender keeps its minimum quota.
    [[gnu::noinline]] static void return_burst(DynamicAccounts& accounts, PeerIndex index, Outbox& outbox) {
        const DynamicPeer& peer = accounts.at(index);
        VELO_DCHECK(accounts.ledger.reached(index) && !peer.blocked, "a burst for peer %u out of turn",
                    index);
        const uint32_t below_min = accounts.min_quota - std::min(accounts.min_quota, peer.granted());
        // The sender has just given up its credits, and would keep a burst.
        if (peer.times.message_packets == 0 && Quota::is_idle(accounts, peer)) {
            if (below_min != 0)
                give(accounts, index, std::min(below_min, accounts.ledger.available_slots()), outbox);
            return;
        }
        const uint32_t ahead = messages_ahead(accounts, peer);
        const uint32_t wanted = accounts.lacking(peer, ahead);
        uint32_t credits = std::min(wanted, accounts.ledger.available_slots());
        if (peer.times.message_packets == 0) {
            // A sender does not wait for others when there are slots for all that are active.
            if (ahead == 0 && !accounts.spare(uint64_t{wanted} * (accounts.pattern.mean_gap() + 1))) {
                if (wanted != 0) accounts.pattern.enqueue(accounts.ledger.entries(), index);
                credits = std::min(below_min, accounts.ledger.available_slots());
            }
        } else if (credits < wanted && below_min == 0 && credits < accounts.burst_packets(peer) / 2) {
            credits = 0;
        }
        // Idle senders may hold the credits that a stream lacks.
        const bool from_idle =
            ahead < accounts.messages_ahead_max(peer) &&
            affords(accounts, peer, accounts.messages_ahead_max(peer), accounts.data_slots);
        if (from_idle || credits < wanted) Quota::recall(accounts, index, from_idle, outbox);
        if (credits != 0) give(accounts, index, credits, outbox);
    }

    /// Whether `slots` hold this number of messages of each active sender, as many of which there are as this
    /// one's last gap says.
    [[nodiscard]] static bool affords(const DynamicAccounts& accounts, const DynamicPeer& peer,
                                      uint32_t messages, uint32_t slots) {
        const std::optional<uint32_t> gap = accounts.pattern.own_gap(peer);
        return gap && uint64_t{messages} * accounts.burst_packets(peer) * (*gap + 1) <= slots;
    }
    /// Messages ahead that there are slots for.
    [[nodiscard]] static uint32_t messages_ahead(const DynamicAccounts& accounts, const DynamicPeer& peer) {
        uint32_t messages = 0;
        while (messages < accounts.messages_ahead_max(peer) &&
               affords(accounts, peer, messages + 1, accounts.spare_slots()))
            ++messages;
        return messages;
    }

    /// An explicit return, paid for with the head of the FIFO.
    static void give(DynamicAccounts& accounts, PeerIndex index, uint32_t credits, Outbox& outbox) {
        VELO_DCHECK(lends(accounts.at(index).link) && credits <= accounts.return_max, "%u credits to peer %u",
                    credits, index);
        Quota::count_threshold(accounts, index, outbox);
        credits = accounts.ledger.return_credits(index, credits);
        watch(accounts, index);
        outbox.add_credits(index, credits);
    }

    /// A sender that holds more than its minimum quota may fall idle with it, so it does not stay in the null
    /// list, where no victim is looked for.
    static void watch(DynamicAccounts& accounts, PeerIndex index) {
        if (accounts.at(index).granted() > accounts.min_quota &&
            accounts.lists.level_of(accounts.at(index)) == Activity::kNull) {
            accounts.move(index, Activity::kLow);
        }
    }
};

}  // namespace velo::flowctl
