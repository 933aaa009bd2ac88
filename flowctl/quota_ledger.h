/// The accounts where each peer owns slots of its own: static and growing flow control (FC 5, IBFC 4.3).
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/ledger.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// The account of one peer (FC 5.1), 32 bits each.
class QuotaAccount : public Account {
  public:
    /// Slots of our mailbox that the peer owns and knows of.
    [[nodiscard]] uint32_t quota() const noexcept { return quota_; }
    /// Retrieved packets at which credits go back explicitly.
    [[nodiscard]] uint32_t threshold() const noexcept { return threshold_; }
    /// Credits held by the peer, under way, or in packets that are not retrieved.
    [[nodiscard]] uint32_t granted() const noexcept { return quota_ - retrieved(); }

  private:
    friend class QuotaLedger;

    uint32_t quota_ = 0;
    uint32_t threshold_ = 0;
};
static_assert(sizeof(QuotaAccount) == 16, "four peers share a cache line");

/// Invariants, for each peer: retrieved <= quota; 1 <= threshold <= quota. Free slots and those that peers
/// own or were promised add up to the data region.
///
/// Favoured peers (FC footnote 7a): of a mailbox that does not divide evenly some peers own quota + 1 slots,
/// and the senders are not notified. A sender starts with `quota` credits like every other; its account here
/// starts as if it had been given quota + 1 and one packet of it had been retrieved. That packet's credit
/// goes back with the first return, and from then on the peer has quota + 1. This is a state that quota + 1
/// reaches by itself (send one, retrieve it), so the proofs for quota + 1 hold here. One condition remains: a
/// state that rests has retrieved < threshold. Here 1 < threshold_for(quota + 1, n), because equation 2 gives
/// quota >= n.
class QuotaLedger : public Ledger<QuotaLedger, QuotaAccount> {
  public:
    explicit QuotaLedger(const Plan& plan)
        : Ledger(plan.peers, std::max(plan.quota_max(), plan.sender_slots_max)),
          data_slots_(plan.data_region_slots),
          free_slots_(plan.data_region_slots),
          initial_quota_(plan.quota),
          excess_peers_(plan.excess_peers) {
        VELO_CHECK(plan.quota >= 1, "a plan for %u peers without slots for them", plan.peers);
        for (PeerIndex peer = 0; peer < plan.peers; ++peer) {
            reserve(plan.quota_of(peer));
            QuotaAccount& account = (*this)[peer];
            account.quota_ = plan.quota_of(peer);
            account.threshold_ = plan.threshold_of(peer);
            restart(peer);
        }
    }

    [[nodiscard]] uint32_t free_slots() const noexcept { return free_slots_; }
    [[nodiscard]] uint32_t initial_quota() const noexcept { return initial_quota_; }

    /// Packets of the peer have left the mailbox. kProtocol for more than it can have sent.
    [[nodiscard]] Status retrieve(PeerIndex from, uint32_t packets) {
        const Audit audit(*this, from);
        QuotaAccount& account = (*this)[from];
        if (packets > account.granted()) [[unlikely]]
            return Status::kProtocol;
        retrieved_of(account) += packets;
        return Status::kOk;
    }

    /// This number of the retrieved packets' credits goes back to the peer.
    void return_credits(PeerIndex to, uint32_t credits) {
        const Audit audit(*this, to);
        uint32_t& retrieved = retrieved_of((*this)[to]);
        VELO_CHECK(credits <= retrieved, "%u credits to peer %u for %u packets", credits, to, retrieved);
        retrieved -= credits;
    }

    /// Takes slots out of the free ones, to be given to a peer later.
    void reserve(uint32_t slots) {
        VELO_CHECK(slots <= free_slots_, "%u slots of %u free ones", slots, free_slots_);
        free_slots_ -= slots;
        owned_slots_ += slots;
    }
    void unreserve(uint32_t slots) {
        VELO_CHECK(slots <= owned_slots_, "%u slots of %u owned ones", slots, owned_slots_);
        free_slots_ += slots;
        owned_slots_ -= slots;
    }
    /// The peer owns reserved slots from here on; their credits go to it at once.
    void enlarge(PeerIndex index, uint32_t slots, uint32_t threshold) {
        const Audit audit(*this, index);
        QuotaAccount& account = (*this)[index];
        account.quota_ += slots;
        account.threshold_ = threshold;
        VELO_DCHECK(threshold >= 1 && threshold <= account.quota_, "a threshold of %u for peer %u", threshold,
                    index);
    }

    /// A process that starts takes the account over, with the quota of the beginning.
    void reset(PeerIndex index, uint32_t threshold) {
        const Audit audit(*this, index);
        QuotaAccount& account = (*this)[index];
        const uint32_t quota = initial_quota_ + (index < excess_peers_ ? 1 : 0);
        if (account.quota_ > quota) unreserve(account.quota_ - quota);
        account.quota_ = quota;
        account.threshold_ = threshold;
        restart(index);
    }

    [[nodiscard]] bool balanced(PeerIndex index) const noexcept {
        const QuotaAccount& account = (*this)[index];
        return account.credits() <= credits_max_ && account.retrieved() <= account.quota() &&
               account.quota() <= owned_slots_ && free_slots_ + owned_slots_ == data_slots_;
    }

  private:
    void restart(PeerIndex index) {
        QuotaAccount& account = (*this)[index];
        credits_of(account) = initial_quota_;
        retrieved_of(account) = index < excess_peers_ ? 1 : 0;
    }

    uint32_t data_slots_;
    uint32_t free_slots_;
    /// Slots owned by peers, or promised to them.
    uint32_t owned_slots_ = 0;
    uint32_t initial_quota_;
    uint32_t excess_peers_;
};

}  // namespace velo::flowctl
