/// Quota policy of static flow control: every peer owns the same slots for the whole run (FC 5).
#pragma once

#include <cstdint>

#include "flowctl/message_end.h"
#include "flowctl/plan.h"
#include "flowctl/quota_ledger.h"

namespace velo::flowctl {

class FixedQuota {
  public:
    explicit FixedQuota(const Plan& plan) : plan_(plan) {}

    void message_ended(QuotaLedger&, PeerIndex, MessageEnd) {}
    /// Credits of new slots that ride with a return of ours, `max` at most.
    uint32_t enlarge(QuotaLedger&, PeerIndex, uint32_t) { return 0; }
    void reset(QuotaLedger& ledger, PeerIndex index) { ledger.reset(index, plan_.threshold_of(index)); }
    template <typename Visit>
    void visit_state(const QuotaLedger&, Visit&&) const {}

  private:
    Plan plan_;
};

}  // namespace velo::flowctl
