/// Credits that go back when a threshold is reached (FC 5), under a quota policy of slots that peers own: the
/// static and growing modes, both roles of one process.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/message_end.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "flowctl/quota_ledger.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// Owner: FlowControl. Thread: the engine's. Every event is O(1); nothing allocates after construction.
///
/// Piggybacking (FC 5.4, 6.6): a piggybacked return takes retrieved packets with it and so delays, or saves,
/// the explicit return. The bound on the credit region does not depend on how the two are mixed: every
/// explicit packet still carries at least the threshold (see threshold_for), piggybacked credits ride in data
/// packets, whose slots their own credits pay for, and both are terms of one sum, the quota.
template <class Quota>
class ThresholdCredits {
  public:
    explicit ThresholdCredits(const Plan& plan)
        : ledger_(plan), quota_(plan), return_max_(plan.return_max), piggyback_(plan.piggyback) {
        VELO_CHECK(return_max_ >= plan.threshold && return_max_ <= kReturnMax,
                   "returns of at most %u credits", return_max_);
    }

    [[nodiscard]] uint32_t known() const noexcept { return ledger_.known(); }
    [[nodiscard]] uint32_t sendable(PeerIndex to, uint32_t packets) const noexcept {
        return ledger_.sendable(to, packets);
    }
    void packets_sent(PeerIndex to, uint32_t packets) { ledger_.spend(to, packets); }
    [[nodiscard]] Status credits_arrived(PeerIndex from, uint32_t credits, Outbox& outbox) {
        const Status status = ledger_.receive(from, credits);
        if (status == Status::kOk) outbox.credits_came(from);
        return status;
    }

    /// The test is >=: after a run the counter may be past the threshold. At most one return an event: what
    /// return_max keeps back waits for the next packet, and that packet can come, because the return just
    /// made is under way.
    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, MessageEnd end, Outbox& outbox) {
        if (const Status status = ledger_.retrieve(from, packets); status != Status::kOk) [[unlikely]]
            return status;
        const QuotaAccount& account = ledger_[from];
        uint32_t credits = 0;
        if (account.retrieved() >= account.threshold()) {
            credits = std::min(account.retrieved(), return_max_);
            ledger_.return_credits(from, credits);
        }
        quota_.message_ended(ledger_, from, end);
        if (credits == 0) return Status::kOk;
        credits += quota_.enlarge(ledger_, from, return_max_ - credits);
        outbox.add_credits(from, credits);
        return Status::kOk;
    }

    [[nodiscard]] bool is_return_due(PeerIndex from, uint32_t packets) const noexcept {
        return ledger_[from].retrieved() + packets >= ledger_[from].threshold();
    }

    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max, Outbox&) {
        if (!piggyback_) return 0;
        max = std::min(max, return_max_);
        const uint32_t credits = std::min(ledger_[to].retrieved(), max);
        if (credits != 0) ledger_.return_credits(to, credits);
        return credits + quota_.enlarge(ledger_, to, max - credits);
    }

    void reset_peer(PeerIndex index) { quota_.reset(ledger_, index); }

    [[nodiscard]] uint32_t credits(PeerIndex index) const noexcept { return ledger_[index].credits(); }
    [[nodiscard]] uint32_t retrieved(PeerIndex index) const noexcept { return ledger_[index].retrieved(); }
    [[nodiscard]] uint32_t quota(PeerIndex index) const noexcept { return ledger_[index].quota(); }
    [[nodiscard]] uint32_t threshold(PeerIndex index) const noexcept { return ledger_[index].threshold(); }
    [[nodiscard]] uint32_t granted(PeerIndex index) const noexcept { return ledger_[index].granted(); }
    /// Slots of the data region that no peer owns or was promised.
    [[nodiscard]] uint32_t free_slots() const noexcept { return ledger_.free_slots(); }
    [[nodiscard]] bool check_invariants(PeerIndex index) const noexcept { return ledger_.balanced(index); }

    template <typename Visit>
    void visit_state(Visit&& visit) const {
        for (const QuotaAccount& account : ledger_.entries()) {
            visit(account.credits());
            visit(account.retrieved());
        }
        quota_.visit_state(ledger_, visit);
    }

  private:
    QuotaLedger ledger_;
    Quota quota_;
    uint32_t return_max_;
    bool piggyback_;
};

}  // namespace velo::flowctl
