/// Grant policy of FC's dynamic flow control: credits go back when the head of the threshold FIFO is reached,
/// explicitly (FC 6.5.2, 6.5.4) or piggybacked (FC 6.6).
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/dynamic_books.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// `kPatient`: not of the paper. Piggybacks beyond a threshold as well, so that no explicit return follows;
/// and leaves what can wait, because a piggyback costs both sides some time.
template <class Quota, bool kPatient>
class ThresholdGrant : public Quota {
  protected:
    using Quota::at;
    using Quota::ledger_;
    using Quota::Quota;
    using Quota::return_max_;

    /// With the threshold reached; after several packets at a time, perhaps several times over. All that is
    /// due goes back in one packet.
    void return_due_credits(PeerIndex index, Outbox& outbox) {
        uint32_t credits = 0;
        // When nothing is available, at least one credit has just gone back: for the slot that the packet
        // left.
        while (ledger_.reached(index) && ledger_.available_slots() != 0 && credits < return_max_) {
            const DynamicPeer& peer = at(index);
            if (peer.blocked) {
                // FC 6.5.2: one credit, and only to a sender that has less than its minimum quota.
                if (peer.granted() >= this->min_quota_) break;
                ledger_.return_one(index);
                ++credits;
            } else {
                this->count_threshold(index, outbox);
                credits += ledger_.return_credits(
                    index, std::min(this->wanted_threshold(peer), return_max_ - credits));
            }
        }
        VELO_DCHECK(credits <= return_max_, "%u credits to peer %u at once", credits, index);
        if (credits != 0) outbox.add_credits(index, credits);
    }

    /// FC 6.6. At the threshold a return is due like the explicit one, and what was piggybacked before is a
    /// part of it. Below the threshold, what was retrieved goes back. The sender is not blocked.
    [[nodiscard]] uint32_t piggyback_due_credits(PeerIndex to, uint32_t max, Outbox& outbox) {
        const DynamicPeer& peer = at(to);
        uint32_t credits = 0;
        const bool due = ledger_.reached_with_piggybacked(to);
        while (ledger_.reached_with_piggybacked(to)) {
            if (peer.piggybacked() + std::min(ledger_.available_slots(), max - credits) == 0) return credits;
            this->count_threshold(to, outbox);
            credits += ledger_.return_rest(to, this->wanted_threshold(peer), max - credits);
        }
        if (kPatient ? can_wait(to) : due) return credits;
        const uint32_t rest = std::min({peer.retrieved(), max - credits, ledger_.available_slots()});
        if (rest != 0) ledger_.piggyback(to, rest);
        VELO_DCHECK(credits + rest <= max, "%u piggybacked credits to peer %u, of %u", credits + rest, to,
                    max);
        return credits + rest;
    }

    /// A peer begins with its minimum quota; one in the middle of a message with what that lacks, out of its
    /// quota.
    [[nodiscard]] uint32_t first_credits(const DynamicPeer& peer) const {
        if (peer.times.message_packets == 0) return this->min_quota_;
        uint32_t wanted = this->pattern_.expected_packets(peer) != 0 ? this->lacking(peer) : peer.quota();
        wanted = std::min({wanted, peer.quota(), return_max_});
        return wanted > this->min_quota_ && this->spare(wanted) ? wanted : this->min_quota_;
    }

    // Nothing is granted ahead of retrieved packets.
    void message_waited(DynamicPeer&) {}
    void grant_queued(Outbox&) {}
    [[nodiscard]] bool any_queued() const noexcept { return false; }

  private:
    /// Whether what was retrieved is little, and the next message will not make it reach the threshold.
    [[nodiscard]] bool can_wait(PeerIndex index) const noexcept {
        const uint32_t retrieved = at(index).retrieved();
        const uint32_t reached_at = ledger_.threshold(index);
        return retrieved < reached_at / 2 &&
               retrieved + this->pattern_.expected_packets(at(index)) < reached_at;
    }
};

}  // namespace velo::flowctl
