/// Quota policy of velo's dynamic flow control: slots are taken from a sender that has fallen idle, or that
/// has much more than the active one (docs/flow-control.md). The lists and monitoring points are those of
/// FC 6.5.2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/dynamic_books.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// A sender that holds far more than its next message needs is asked for the rest, since BurstGrant grants whole
/// messages.
class ActivityQuota : public DynamicBooks {
  public:
    static constexpr bool kUsesPattern = true;

  protected:
    using DynamicBooks::DynamicBooks;

    /// A sender that takes from idle ones alone need not have been active for long.
    void count_threshold(PeerIndex index, Outbox& outbox) {
        if (!at_monitoring_point(index)) return;
        raise_activity(index);
        if (outbox.added_since_mark() < kRequestsMax) steal(index, outbox);
    }

    [[nodiscard]] bool is_idle(const DynamicPeer& peer) const noexcept {
        return pattern_.idle(peer, kIdleGaps);
    }

    /// One step towards slots for a peer that found none: an idle peer's link is closed; an idle sender loses
    /// all but its minimum quota; another one what it has beyond its fair share, or as much as is needed. The
    /// peer that found no slots asks again with its next message.
    void make_room(Outbox& outbox) {
        if (const PeerIndex oldest = lists_.last(Activity::kNull); oldest != kNone) {
            if (idle_for_long(at(oldest))) return close_link(oldest, outbox);
            lists_.move_front(ledger_.entries(), oldest, Activity::kNull);
        }
        for (int level = 0; level < 2 && lists_.empty(Activity::kLow); ++level) lists_.shift();
        const PeerIndex index = lists_.last(Activity::kLow);
        if (index == kNone) return;
        const DynamicPeer& victim = at(index);
        const uint32_t kept = is_idle(victim) ? min_quota_ : fair_quota(owners_ - inactive_ + 1);
        const uint32_t needed = credit_slots_ + min_quota_;
        const uint32_t lacks = needed - std::min(needed, ledger_.unassigned_slots());
        const uint32_t taken = std::max(victim.quota() - std::min(victim.quota(), kept),
                                        std::min(lacks, victim.quota() - min_quota_));
        VELO_DCHECK(taken + min_quota_ <= victim.quota(), "peer %u loses %u slots of %u", index, taken,
                    victim.quota());
        ledger_.release(index, taken);
        counters_.steals += taken != 0;
        after_theft(index, outbox);
    }

    /// One step towards slots for senders that go on: the one that has been in the low list longest is asked
    /// for what it holds, where that is more than twice its share and more than its messages can need, or, if
    /// `from_idle`, where it is idle.
    /// (Of the factors 1, 1.5 and 2 the last two are alike: the same 96 overheads add up to 1,182, 1,138 and
    /// 1,136 %.)
    void recall(PeerIndex for_whom, bool from_idle, Outbox& outbox) {
        for (int level = 0; level < 2 && lists_.empty(Activity::kLow); ++level) lists_.shift();
        const PeerIndex index = lists_.last(Activity::kLow);
        if (index == kNone) return;
        // The sender is about to be given credits: its link must not close, nor may it be asked for them.
        if (index == for_whom) return move(index, Activity::kMedium);
        const DynamicPeer& victim = at(index);
        const bool idle = is_idle(victim);
        const uint32_t kept = idle ? min_quota_ : fair_quota(owners_ - inactive_);
        const uint32_t needed = (1 + messages_ahead_max(victim)) * burst_packets(victim) + min_quota_;
        const bool much = victim.granted() > std::max(2 * kept, needed);
        if (victim.blocked || !(much || (idle && from_idle))) return move(index, Activity::kMedium);
        ledger_.release(index, victim.quota() - std::min(victim.quota(), kept));
        if (idle) return after_theft(index, outbox);
        move(index, Activity::kMedium);
        ask_back(index, outbox);
    }

  private:
    /// Usual gaps between two messages of one sender after which it counts as idle. With senders in random order, one
    /// gap in e^4 is longer than four usual ones.
    static constexpr uint32_t kIdleGaps = 4;
    /// Gaps after which a peer has been idle for long, and messages of others beyond them.
    static constexpr uint32_t kLongGaps = 8;
    static constexpr uint32_t kLongMessages = 64;

    void steal(PeerIndex index, Outbox& outbox) {
        const DynamicPeer& peer = at(index);
        if (ledger_.unassigned_slots() != 0 && take_unassigned(index)) return;
        const PeerIndex victim_index = lists_.last(Activity::kLow);
        if (victim_index == kNone) return;
        const DynamicPeer& victim = at(victim_index);
        VELO_DCHECK(victim_index != index && victim.quota() >= min_quota_, "peer %u steals from peer %u",
                    index, victim_index);
        const bool idle = is_idle(victim);
        // The victim's messages have become shorter since its last burst.
        const uint32_t enough = std::max(2 * victim.quota(), burst_packets(victim) + min_quota_);
        if (!victim.blocked && victim.granted() > enough)
            return ask_back(victim_index, outbox);
        // Among senders that go on, only one that has much more gives. So a sender that comes back gets its
        // share again, and equal ones take nothing from each other.
        const uint32_t much_more = peer.quota() + peer.quota() / 2 + credit_slots_ + 1;
        if (!idle && victim.quota() <= much_more) {
            move(victim_index, Activity::kMedium);
            return;
        }
        const uint32_t apart =
            std::max(victim.quota(), peer.quota()) - std::min(victim.quota(), peer.quota());
        uint32_t wanted = std::max(credit_slots_ + 1, apart / 2);  // equation 6
        if (idle) wanted = std::max(wanted, (victim.quota() - min_quota_ + 1) / 2);
        const uint32_t room = sender_slots_max_ - std::min(peer.quota(), sender_slots_max_);
        const uint32_t stolen = std::min({wanted, victim.quota() - min_quota_, room});
        counters_.steals += stolen != 0;
        ledger_.move_quota(victim_index, index, stolen);
        after_theft(victim_index, outbox);
    }

    /// The quota that each of `active` senders would have if no other had more than its minimum quota.
    [[nodiscard]] uint32_t fair_quota(uint32_t active) const {
        const uint32_t inactive = ledger_.lent_slots() + inactive_ * min_quota_;
        const uint32_t shared = data_slots_ - std::min(data_slots_, inactive);
        active = std::max(active, 1u);
        return std::max(min_quota_, (shared + active - 1) / active);
    }

    /// A sender that has used all that it had takes from what is assigned to no peer first. True: it did.
    bool take_unassigned(PeerIndex index) {
        const uint32_t quota = at(index).quota();
        const uint32_t most = std::min(sender_slots_max_, fair_quota(owners_ - inactive_));
        if (quota >= most) return false;
        const uint32_t wanted = std::max(credit_slots_ + 1, quota / 2);
        const uint32_t more = std::min({wanted, most - quota, ledger_.unassigned_slots()});
        ledger_.assign(index, more);
        return more != 0;
    }

    /// A peer that has neither sent a message nor been sent one while many came from others. (Second chance:
    /// a peer that was sent one is considered again later.)
    [[nodiscard]] bool idle_for_long(DynamicPeer& peer) const {
        if (peer.used) {
            peer.used = false;
            return false;
        }
        return pattern_.idle(peer, kLongGaps, kLongMessages);
    }
};

}  // namespace velo::flowctl
