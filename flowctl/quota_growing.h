/// Quota policy of growing flow control: a quota starts small and grows where messages had to wait
/// (IBFC 4.3).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowctl/message_end.h"
#include "flowctl/plan.h"
#include "flowctl/quota_ledger.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// Quotas grow, never to shrink, as long as the mailbox has slots that no peer owns.
///
/// Explicit credit packets take no credit (IBFC 4.2, the optimistic rule), and yet none needs the device to
/// hold it back: what a quota grows by travels with a return that its retrieved packets have earned, and only
/// then is the threshold that of the larger quota. Of m explicit packets that the sender has not read, let Q
/// be the quota before the first. The sender works with credits out of Q alone, for all that Q grew by lies
/// in those packets or, packets being in order, behind them. Each of the m, and the next one, is earned by at
/// least threshold(Q) retrieved packets out of Q, and (credit_slots + 1) * threshold(Q) > Q. So m + 1 <=
/// credit_slots.
class GrowingQuota {
  public:
    explicit GrowingQuota(const Plan& plan)
        : promised_(plan.peers),
          credit_slots_(plan.credit_slots),
          step_(plan.growing_step),
          slots_max_(plan.sender_slots_max),
          growth_(plan.growth) {
        VELO_CHECK(slots_max_ >= plan.quota, "a sender of at most %u slots begins with %u", slots_max_,
                   plan.quota);
    }

    /// A message that waited promises its sender more slots (IBFC 4.3: linear or exponential).
    void message_ended(QuotaLedger& ledger, PeerIndex from, MessageEnd end) {
        if (!end.waited) return;
        const uint32_t quota = ledger[from].quota() + promised_[from];
        VELO_DCHECK(quota <= slots_max_, "peer %u has %u slots of at most %u", from, quota, slots_max_);
        const uint32_t wanted = growth_ == Growth::kExponential ? quota : step_;
        const uint32_t more = std::min({wanted, ledger.free_slots(), slots_max_ - quota});
        ledger.reserve(more);
        promised_[from] += more;
    }

    uint32_t enlarge(QuotaLedger& ledger, PeerIndex index, uint32_t max) {
        const uint32_t slots = std::min(promised_[index], max);
        if (slots == 0) return 0;
        promised_[index] -= slots;
        ledger.enlarge(index, slots, growing_threshold(ledger[index].quota() + slots, credit_slots_));
        return slots;
    }

    void reset(QuotaLedger& ledger, PeerIndex index) {
        ledger.unreserve(promised_[index]);
        promised_[index] = 0;
        ledger.reset(index, growing_threshold(ledger.initial_quota(), credit_slots_));
    }

    template <typename Visit>
    void visit_state(const QuotaLedger& ledger, Visit&& visit) const {
        for (PeerIndex index = 0; index < ledger.known(); ++index) {
            visit(ledger[index].quota());
            visit(promised_[index]);
        }
    }

  private:
    /// Slots by which a quota has grown and which have not been reported to its sender.
    std::vector<uint32_t> promised_;
    uint32_t credit_slots_;
    uint32_t step_;
    uint32_t slots_max_;
    Growth growth_;
};

}  // namespace velo::flowctl
