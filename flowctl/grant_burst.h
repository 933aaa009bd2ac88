/// Grant policy of velo's dynamic flow control: where quotas are smaller than messages, senders are granted
/// credits for a whole message in turn. docs/flow-control.md says why.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "flowctl/dynamic_books.h"
#include "flowctl/grant_threshold.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

template <class Quota>
class BurstGrant : public ThresholdGrant<Quota, true> {
    using Base = ThresholdGrant<Quota, true>;

  protected:
    using Base::at;
    using Base::Base;
    using Base::ledger_;
    using Base::min_quota_;
    using Base::pattern_;
    using Base::return_max_;

    void return_due_credits(PeerIndex index, Outbox& outbox) {
        if (at(index).blocked || !bursts(at(index))) [[likely]]
            return Base::return_due_credits(index, outbox);
        return_burst(index, outbox);
    }

    /// A burst's credits, whether or not the message is near, because they cost no packet. They enter the
    /// FIFO like an explicit return, or, before the threshold is reached, as a part of the last one: that is
    /// read before them. Not before the peer has used any: it may not be able to, or our kOpen may not have
    /// left.
    [[nodiscard]] uint32_t piggyback_due_credits(PeerIndex to, uint32_t max, Outbox& outbox) {
        const DynamicPeer& peer = at(to);
        if (!bursts(peer)) [[likely]]
            return Base::piggyback_due_credits(to, max, outbox);
        if (!peer.spends) return 0;
        const uint32_t wanted = std::min({this->lacking(peer), max, kReturnMax - ledger_.last_threshold(to)});
        if (wanted == 0 || !this->spare(wanted)) return 0;
        this->count_threshold(to, outbox);
        if (ledger_.reached(to)) {
            ledger_.return_credits(to, wanted);
        } else {
            ledger_.extend_last(to, wanted);
        }
        watch(to);
        return wanted;
    }

    /// A peer begins with its whole quota where that lets half a message go, or with what a message that it
    /// has begun lacks, where there are slots for that.
    [[nodiscard]] uint32_t first_credits(const DynamicPeer& peer) const {
        const bool begun = peer.times.message_packets != 0 && pattern_.expected_packets(peer) != 0;
        uint32_t wanted = begun ? this->lacking(peer) : min_quota_;
        if (2 * peer.quota() >= this->burst_packets(peer)) wanted = std::max(wanted, peer.quota());
        wanted = std::min(wanted, return_max_);
        return wanted > min_quota_ && this->spare(wanted) ? wanted : min_quota_;
    }

    /// A message has waited for credits although slots were available. Not to be called for a peer's first one,
    /// which no burst could have been granted for.
    [[gnu::noinline]] void message_waited(DynamicPeer& peer) {
        if (pattern_.first_message(peer)) return;
        if (bursts(peer) && this->spare(this->burst_packets(peer))) pattern_.deadline_missed();
    }

    [[nodiscard]] bool any_queued() const noexcept { return pattern_.any_queued(); }

    /// A burst's credits to the sender that is first in the queue, when its message is near and there are
    /// slots for all of it, or as soon as there are slots for all that are queued. A sender in the middle of
    /// a message has been seen to by then; one that is blocked, when the response comes.
    [[gnu::noinline]] void grant_queued(Outbox& outbox) {
        for (uint32_t visited = 0; visited < kVisitedMax; ++visited) {
            const PeerIndex index = pattern_.first_queued();
            if (index == MessagePattern<DynamicPeer>::kNobody || outbox.added_since_mark() >= kControlMax)
                return;
            const DynamicPeer& peer = at(index);
            const uint32_t wanted = this->lacking(peer);
            const bool possible = lends(peer.link) && wanted != 0 && peer.times.message_packets == 0 &&
                                  !peer.blocked && bursts(peer) && ledger_.reached(index);
            // A sender that has fallen idle would keep what it is granted: its next message will show that it goes
            // on.
            if (possible && !this->is_idle(peer)) {
                const bool now = (pattern_.near(peer) && this->spare(wanted)) ||
                                 this->spare(uint64_t{wanted} * pattern_.queued());
                if (!now) return;
                pattern_.returned_early();
                give(index, wanted, outbox);
            }
            pattern_.dequeue(ledger_.entries(), index);
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
    [[nodiscard]] bool bursts(const DynamicPeer& peer) const noexcept {
        const uint32_t packets = this->burst_packets(peer);
        if (peer.quota() >= 2 * packets || peer.quota() >= this->data_slots_ / 2) return false;
        return peer.quota() - peer.quota() / (this->credit_slots_ + 1) < packets;
    }

    /// With the threshold reached. In the middle of a message: all that is missing, or a good part of it.
    /// Between messages: a burst where there are slots for all that are active; otherwise nothing yet, but
    /// that the sender keeps its minimum quota.
    [[gnu::noinline]] void return_burst(PeerIndex index, Outbox& outbox) {
        const DynamicPeer& peer = at(index);
        VELO_DCHECK(ledger_.reached(index) && !peer.blocked, "a burst for peer %u out of turn", index);
        const uint32_t below_min = min_quota_ - std::min(min_quota_, peer.granted());
        // The sender has just given up its credits, and would keep a burst.
        if (peer.times.message_packets == 0 && this->is_idle(peer)) {
            if (below_min != 0) give(index, std::min(below_min, ledger_.available_slots()), outbox);
            return;
        }
        const uint32_t ahead = messages_ahead(peer);
        const uint32_t wanted = this->lacking(peer, ahead);
        uint32_t credits = std::min(wanted, ledger_.available_slots());
        if (peer.times.message_packets == 0) {
            // A sender does not wait for others when there are slots for all that are active.
            if (ahead == 0 && !this->spare(uint64_t{wanted} * (pattern_.mean_gap() + 1))) {
                if (wanted != 0) pattern_.enqueue(ledger_.entries(), index);
                credits = std::min(below_min, ledger_.available_slots());
            }
        } else if (credits < wanted && below_min == 0 && credits < this->burst_packets(peer) / 2) {
            credits = 0;
        }
        // Idle senders may hold the credits that a stream lacks.
        const bool from_idle = ahead < this->messages_ahead_max(peer) &&
                               affords(peer, this->messages_ahead_max(peer), this->data_slots_);
        if (from_idle || credits < wanted) this->recall(index, from_idle, outbox);
        if (credits != 0) give(index, credits, outbox);
    }

    /// Whether `slots` hold this number of messages of each active sender, as many of which there are as this
    /// one's last gap says.
    [[nodiscard]] bool affords(const DynamicPeer& peer, uint32_t messages, uint32_t slots) const {
        const std::optional<uint32_t> gap = pattern_.own_gap(peer);
        return gap && uint64_t{messages} * this->burst_packets(peer) * (*gap + 1) <= slots;
    }
    /// Messages ahead that there are slots for.
    [[nodiscard]] uint32_t messages_ahead(const DynamicPeer& peer) const {
        uint32_t messages = 0;
        while (messages < this->messages_ahead_max(peer) && affords(peer, messages + 1, this->spare_slots()))
            ++messages;
        return messages;
    }

    /// An explicit return, paid for with the head of the FIFO.
    void give(PeerIndex index, uint32_t credits, Outbox& outbox) {
        VELO_DCHECK(lends(at(index).link) && credits <= return_max_, "%u credits to peer %u", credits, index);
        this->count_threshold(index, outbox);
        credits = ledger_.return_credits(index, credits);
        watch(index);
        outbox.add_credits(index, credits);
    }

    /// A sender that holds more than its minimum quota may fall idle with it, so it does not stay in the null
    /// list, where no victim is looked for.
    void watch(PeerIndex index) {
        if (at(index).granted() > min_quota_ && this->lists_.level_of(at(index)) == Activity::kNull) {
            this->move(index, Activity::kLow);
        }
    }
};

}  // namespace velo::flowctl
