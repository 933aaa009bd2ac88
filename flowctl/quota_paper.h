/// Quota policy of FC's dynamic flow control: the most active sender steals from the least recently active
/// one, at each monitoring point (FC 6.4, 6.5.2).
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/dynamic_accounts.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"

namespace velo::flowctl {

class PaperQuota {
  public:
    /// Whether anything depends on when messages came.
    static constexpr bool kUsesPattern = false;

    static void count_threshold(DynamicAccounts& accounts, PeerIndex index, Outbox& outbox) {
        if (!accounts.at_monitoring_point(index)) return;
        if (accounts.raise_activity(index) && outbox.added_since_mark() < accounts.kRequestsMax)
            steal(accounts, index, outbox);
    }

    /// Every peer owns slots from the start.
    static void make_room(DynamicAccounts&, Outbox&) {}
    [[nodiscard]] static bool is_idle(const DynamicAccounts&, const DynamicPeer&) noexcept { return false; }

  private:
    /// FC 6.4 and 6.5.2, figure 13.
    static void steal(DynamicAccounts& accounts, PeerIndex index, Outbox& outbox) {
        const DynamicPeer& peer = accounts.at(index);
        const PeerIndex victim_index = accounts.lists.last(Activity::kLow);
        if (victim_index == accounts.kNone) return;
        const DynamicPeer& victim = accounts.at(victim_index);
        VELO_DCHECK(victim_index != index && victim.quota() >= accounts.min_quota,
                    "peer %u steals from peer %u", index, victim_index);
        const uint32_t apart =
            std::max(victim.quota(), peer.quota()) - std::min(victim.quota(), peer.quota());
        const uint32_t wanted = std::max(accounts.credit_slots + 1, apart / 2);  // equation 6
        const uint32_t room = accounts.sender_slots_max - std::min(peer.quota(), accounts.sender_slots_max);
        const uint32_t stolen = std::min({wanted, victim.quota() - accounts.min_quota, room});
        accounts.counters.steals += stolen != 0;
        accounts.ledger.move_quota(victim_index, index, stolen);
        accounts.after_theft(victim_index, outbox);
    }
};

}  // namespace velo::flowctl
