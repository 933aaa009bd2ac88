/// Credits of shares that start small and grow where messages had to wait (IBFC 4.3), both roles of one
/// process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowctl/actions.h"
#include "flowctl/plan.h"
#include "flowctl/static_credits.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// Static credits whose quota grows, never to shrink, as long as the mailbox has slots that nobody owns.
///
/// Owner: FlowControl. Thread: the engine's. O(1) an event; nothing allocates after construction.
///
/// Explicit credit packets take no credit (IBFC 4.2, the optimistic rule), and yet none needs the device to
/// hold it back: what a share grows by travels with a return that its retrieved packets have earned, and only
/// then is the threshold that of the larger share. Of m explicit packets that the sender has not read, let Q
/// be the quota before the first. The sender works with credits out of Q alone, for all that Q grew by lies
/// in those packets or, packets being in order, behind them. Each of the m, and the next one, is earned by at
/// least threshold(Q) retrieved packets out of Q, and (credit_slots + 1) * threshold(Q) > Q. So m + 1 <=
/// credit_slots.
class GrowingCredits : public StaticCredits {
  public:
    explicit GrowingCredits(const Plan& plan)
        : StaticCredits(plan),
          grown_(plan.peers),
          free_slots_(plan.data_region_slots - plan.peers * plan.quota),
          credit_slots_(plan.credit_slots),
          step_(plan.growing_step),
          slots_max_(plan.sender_slots_max),
          growth_(plan.growth) {}

    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, MessageEnd end,
                                           Actions& actions) {
        const uint32_t before = actions.size();
        const Status status = StaticCredits::packets_retrieved(from, packets, end, actions);
        if (status != Status::kOk) return status;
        if (end.waited) grow(from);
        if (actions.size() != before) {
            Action& credits = actions.back();
            credits.credits += take_grown(from, return_max_ - credits.credits);
        }
        return Status::kOk;
    }

    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max, Actions& actions) noexcept {
        if (!piggyback_) return 0;
        max = std::min(max, return_max_);
        const uint32_t credits = StaticCredits::take_piggyback(to, max, actions);
        return credits + take_grown(to, max - credits);
    }

    void reset_peer(PeerIndex index) {
        StaticPeer& peer = at(index);
        free_slots_ += peer.quota - quota_ + grown_[index];
        grown_[index] = 0;
        peer.quota = quota_;
        peer.threshold = growing_threshold(quota_, credit_slots_);
        StaticCredits::reset_peer(index);
    }

    /// Slots of the data region that nobody owns.
    [[nodiscard]] uint32_t free_slots() const noexcept { return free_slots_; }

    template <typename Visit>
    void visit_state(Visit&& visit) const {
        StaticCredits::visit_state(visit);
        for (PeerIndex index = 0; index < peers_.size(); ++index) {
            visit(peers_[index].quota);
            visit(grown_[index]);
        }
    }

  private:
    void grow(PeerIndex index) {
        const uint32_t share = peers_[index].quota + grown_[index];
        const uint32_t wanted = growth_ == Growth::kExponential ? share : step_;
        const uint32_t more = std::min({wanted, free_slots_, slots_max_ - share});
        grown_[index] += more;
        free_slots_ -= more;
    }

    uint32_t take_grown(PeerIndex index, uint32_t max) {
        const uint32_t credits = std::min(grown_[index], max);
        if (credits == 0) return 0;
        grown_[index] -= credits;
        StaticPeer& peer = at(index);
        peer.quota += credits;
        peer.threshold = growing_threshold(peer.quota, credit_slots_);
        return credits;
    }

    /// What a share has grown by and its sender has not been told of.
    std::vector<uint32_t> grown_;
    uint32_t free_slots_;
    uint32_t credit_slots_;
    uint32_t step_;
    uint32_t slots_max_;
    Growth growth_;
};

}  // namespace velo::flowctl
