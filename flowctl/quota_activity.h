/// Quota policy of velo's dynamic flow control: slots are taken from a sender that has fallen idle, or that
/// has much more than the active one (docs/flow-control.md). The lists and monitoring points are those of
/// FC 6.5.2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/dynamic_accounts.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// A sender that holds far more than its next message needs is asked for the rest, since BurstGrant grants whole
/// messages.
class ActivityQuota {
  public:
    static constexpr bool kUsesPattern = true;

    /// A sender that takes from idle ones alone need not have been active for long.
    static void count_threshold(DynamicAccounts& accounts, PeerIndex index, Outbox& outbox) {
        if (!accounts.at_monitoring_point(index)) return;
        accounts.raise_activity(index);
        if (outbox.added_since_mark() < accounts.kRequestsMax) steal(accounts, index, outbox);
    }

    [[nodiscard]] static bool is_idle(const DynamicAccounts& accounts, const DynamicPeer& peer) noexcept {
        return accounts.pattern.idle(peer, kIdleGaps);
    }

    /// One step towards slots for a peer that found none: an idle peer's link is closed; an idle sender loses
    /// all but its minimum quota; another one what it has beyond its fair share, or as much as is needed. The
    /// peer that found no slots asks again with its next message.
    static void make_room(DynamicAccounts& accounts, Outbox& outbox) {
        if (const PeerIndex oldest = accounts.lists.last(Activity::kNull); oldest != accounts.kNone) {
            if (idle_for_long(accounts, accounts.at(oldest))) return accounts.close_link(oldest, outbox);
            accounts.lists.move_front(accounts.ledger.entries(), oldest, Activity::kNull);
        }
        for (int level = 0; level < 2 && accounts.lists.empty(Activity::kLow); ++level)
            accounts.lists.shift();
        const PeerIndex index = accounts.lists.last(Activity::kLow);
        if (index == accounts.kNone) return;
        const DynamicPeer& victim = accounts.at(index);
        const uint32_t kept = is_idle(accounts, victim)
                                  ? accounts.min_quota
                                  : fair_quota(accounts, accounts.owners - accounts.inactive + 1);
        const uint32_t needed = accounts.credit_slots + accounts.min_quota;
        const uint32_t lacks = needed - std::min(needed, accounts.ledger.unassigned_slots());
        const uint32_t taken = std::max(victim.quota() - std::min(victim.quota(), kept),
                                        std::min(lacks, victim.quota() - accounts.min_quota));
        VELO_DCHECK(taken + accounts.min_quota <= victim.quota(), "peer %u loses %u slots of %u", index,
                    taken, victim.quota());
        accounts.ledger.release(index, taken);
        accounts.counters.steals += taken != 0;
        accounts.after_theft(index, outbox);
    }

    /// One step towards slots for senders that go on: the one that has been in the low list longest is asked
    /// for what it holds, where that is more than twice its share and more than its messages can need, or, if
    /// `from_idle`, where it is idle.
    /// (Of the factors 1, 1.5 and 2 the last two are alike: the same 96 overheads add up to 1,182, 1,138 and
    /// 1,136 %.)
    static void recall(DynamicAccounts& accounts, PeerIndex for_whom, bool from_idle, Outbox& outbox) {
        for (int level = 0; level < 2 && accounts.lists.empty(Activity::kLow); ++level)
            accounts.lists.shift();
        const PeerIndex index = accounts.lists.last(Activity::kLow);
        if (index == accounts.kNone) return;
        // The sender is about to be given credits: its link must not close, nor may it be asked for them.
        if (index == for_whom) return accounts.move(index, Activity::kMedium);
        const DynamicPeer& victim = accounts.at(index);
        const bool idle = is_idle(accounts, victim);
        const uint32_t kept =
            idle ? accounts.min_quota : fair_quota(accounts, accounts.owners - accounts.inactive);
        const uint32_t needed =
            (1 + accounts.messages_ahead_max(victim)) * accounts.burst_packets(victim) + accounts.min_quota;
        const bool much = victim.granted() > std::max(2 * kept, needed);
        if (victim.blocked || !(much || (idle && from_idle))) return accounts.move(index, Activity::kMedium);
        accounts.ledger.release(index, victim.quota() - std::min(victim.quota(), kept));
        if (idle) return accounts.after_theft(index, outbox);
        accounts.move(index, Activity::kMedium);
        accounts.ask_back(index, outbox);
    }

  private:
    /// Usual gaps between two messages of one sender after which it counts as idle. With senders in random order, one
    /// gap in e^4 is longer than four usual ones.
    static constexpr uint32_t kIdleGaps = 4;
    /// Gaps after which a peer has been idle for long, and messages of others beyond them.
    static constexpr uint32_t kLongGaps = 8;
    static constexpr uint32_t kLongMessages = 64;

    static void steal(DynamicAccounts& accounts, PeerIndex index, Outbox& outbox) {
        const DynamicPeer& peer = accounts.at(index);
        if (accounts.ledger.unassigned_slots() != 0 && take_unassigned(accounts, index)) return;
        const PeerIndex victim_index = accounts.lists.last(Activity::kLow);
        if (victim_index == accounts.kNone) return;
        const DynamicPeer& victim = accounts.at(victim_index);
        VELO_DCHECK(victim_index != index && victim.quota() >= accounts.min_quota,
                    "peer %u steals from peer %u", index, victim_index);
        const bool idle = is_idle(accounts, victim);
        // The victim's messages have become shorter since its last burst.
        const uint32_t enough =
            std::max(2 * victim.quota(), accounts.burst_packets(victim) + accounts.min_quota);
        if (!victim.blocked && victim.granted() > enough) return accounts.ask_back(victim_index, outbox);
        // Among senders that go on, only one that has much more gives. So a sender that comes back gets its
        // share again, and equal ones take nothing from each other.
        const uint32_t much_more = peer.quota() + peer.quota() / 2 + accounts.credit_slots + 1;
        if (!idle && victim.quota() <= much_more) {
            accounts.move(victim_index, Activity::kMedium);
            return;
        }
        const uint32_t apart =
            std::max(victim.quota(), peer.quota()) - std::min(victim.quota(), peer.quota());
        uint32_t wanted = std::max(accounts.credit_slots + 1, apart / 2);  // equation 6
        if (idle) wanted = std::max(wanted, (victim.quota() - accounts.min_quota + 1) / 2);
        const uint32_t room = accounts.sender_slots_max - std::min(peer.quota(), accounts.sender_slots_max);
        const uint32_t stolen = std::min({wanted, victim.quota() - accounts.min_quota, room});
        accounts.counters.steals += stolen != 0;
        accounts.ledger.move_quota(victim_index, index, stolen);
        accounts.after_theft(victim_index, outbox);
    }

    /// The quota that each of `active` senders would have if no other had more than its minimum quota.
    [[nodiscard]] static uint32_t fair_quota(const DynamicAccounts& accounts, uint32_t active) {
        const uint32_t inactive = accounts.ledger.lent_slots() + accounts.inactive * accounts.min_quota;
        const uint32_t shared = accounts.data_slots - std::min(accounts.data_slots, inactive);
        active = std::max(active, 1u);
        return std::max(accounts.min_quota, (shared + active - 1) / active);
    }

    /// A sender that has used all that it had takes from what is assigned to no peer first. True: it did.
    static bool take_unassigned(DynamicAccounts& accounts, PeerIndex index) {
        const uint32_t quota = accounts.at(index).quota();
        const uint32_t most =
            std::min(accounts.sender_slots_max, fair_quota(accounts, accounts.owners - accounts.inactive));
        if (quota >= most) return false;
        const uint32_t wanted = std::max(accounts.credit_slots + 1, quota / 2);
        const uint32_t more = std::min({wanted, most - quota, accounts.ledger.unassigned_slots()});
        accounts.ledger.assign(index, more);
        return more != 0;
    }

    /// A peer that has neither sent a message nor been sent one while many came from others. (Second chance:
    /// a peer that was sent one is considered again later.)
    [[nodiscard]] static bool idle_for_long(const DynamicAccounts& accounts, DynamicPeer& peer) {
        if (peer.used) {
            peer.used = false;
            return false;
        }
        return accounts.pattern.idle(peer, kLongGaps, kLongMessages);
    }
};

}  // namespace velo::flowctl
