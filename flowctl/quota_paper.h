/// Quota policy of FC's dynamic flow control: the most active sender steals from the least recently active
/// one, at each monitoring point (FC 6.4, 6.5.2).
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/dynamic_books.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"

namespace velo::flowctl {

class PaperQuota : public DynamicBooks {
  public:
    /// Whether anything depends on when messages came.
    static constexpr bool kUsesPattern = false;

  protected:
    using DynamicBooks::DynamicBooks;

    void count_threshold(PeerIndex index, Outbox& outbox) {
        if (!at_monitoring_point(index)) return;
        if (raise_activity(index) && outbox.added_since_mark() < kRequestsMax) steal(index, outbox);
    }

    /// Every peer owns slots from the start.
    void make_room(Outbox&) {}
    [[nodiscard]] bool is_idle(const DynamicPeer&) const noexcept { return false; }

  private:
    /// FC 6.4 and 6.5.2, figure 13.
    void steal(PeerIndex index, Outbox& outbox) {
        const DynamicPeer& peer = at(index);
        const PeerIndex victim_index = lists_.last(Activity::kLow);
        if (victim_index == kNone) return;
        const DynamicPeer& victim = at(victim_index);
        VELO_DCHECK(victim_index != index && victim.quota() >= min_quota_, "peer %u steals from peer %u",
                    index, victim_index);
        const uint32_t apart =
            std::max(victim.quota(), peer.quota()) - std::min(victim.quota(), peer.quota());
        const uint32_t wanted = std::max(credit_slots_ + 1, apart / 2);  // equation 6
        const uint32_t room = sender_slots_max_ - std::min(peer.quota(), sender_slots_max_);
        const uint32_t stolen = std::min({wanted, victim.quota() - min_quota_, room});
        counters_.steals += stolen != 0;
        ledger_.move_quota(victim_index, index, stolen);
        after_theft(victim_index, outbox);
    }
};

}  // namespace velo::flowctl
