/// Grant policy of FC's dynamic flow control: credits go back when the head of the threshold FIFO is reached,
/// explicitly (FC 6.5.2, 6.5.4) or piggybacked (FC 6.6).
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/dynamic_accounts.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// `kPatient`: not of the paper. Piggybacks beyond a threshold as well, so that no explicit return follows;
/// and leaves what can wait, because a piggyback costs both sides some time.
template <class Quota, bool kPatient>
class ThresholdGrant {
  public:
    /// With the threshold reached; after several packets at a time, perhaps several times over. All that is
    /// due goes back in one packet.
    static void return_credits(DynamicAccounts& accounts, PeerIndex index, Outbox& outbox) {
        uint32_t credits = 0;
        // When nothing is available, at least one credit has just gone back: for the slot that the packet
        // left.
        while (accounts.ledger.reached(index) && accounts.ledger.available_slots() != 0 &&
               credits < accounts.return_max) {
            const DynamicPeer& peer = accounts.at(index);
            if (peer.blocked) {
                // FC 6.5.2: one credit, and only to a sender that has less than its minimum quota.
                if (peer.granted() >= accounts.min_quota) break;
                accounts.ledger.return_one(index);
                ++credits;
            } else {
                Quota::count_threshold(accounts, index, outbox);
                credits += accounts.ledger.return_credits(
                    index, std::min(accounts.wanted_threshold(peer), accounts.return_max - credits));
            }
        }
        VELO_DCHECK(credits <= accounts.return_max, "%u credits to peer %u at once", credits, index);
        if (credits != 0) outbox.add_credits(index, credits);
    }

    /// FC 6.6. At the threshold a return is due like the explicit one, and what was piggybacked before is a
    /// part of it. Below the threshold, what was retrieved goes back. The sender is not blocked.
    [[nodiscard]] static uint32_t piggyback_credits(DynamicAccounts& accounts, PeerIndex to, uint32_t max,
                                                    Outbox& outbox) {
        const DynamicPeer& peer = accounts.at(to);
        uint32_t credits = 0;
        const bool due = accounts.ledger.reached_with_piggybacked(to);
        while (accounts.ledger.reached_with_piggybacked(to)) {
            if (peer.piggybacked() + std::min(accounts.ledger.available_slots(), max - credits) == 0)
                return credits;
            Quota::count_threshold(accounts, to, outbox);
            credits += accounts.ledger.return_rest(to, accounts.wanted_threshold(peer), max - credits);
        }
        if (kPatient ? can_wait(accounts, to) : due) return credits;
        const uint32_t rest = std::min({peer.retrieved(), max - credits, accounts.ledger.available_slots()});
        if (rest != 0) accounts.ledger.piggyback(to, rest);
        VELO_DCHECK(credits + rest <= max, "%u piggybacked credits to peer %u, of %u", credits + rest, to,
                    max);
        return credits + rest;
    }

    /// A peer begins with its minimum quota; one in the middle of a message with what that lacks, out of its
    /// quota.
    [[nodiscard]] static uint32_t first_credits(const DynamicAccounts& accounts, const DynamicPeer& peer) {
        if (peer.times.message_packets == 0) return accounts.min_quota;
        uint32_t wanted =
            accounts.pattern.expected_packets(peer) != 0 ? accounts.lacking(peer) : peer.quota();
        wanted = std::min({wanted, peer.quota(), accounts.return_max});
        return wanted > accounts.min_quota && accounts.spare(wanted) ? wanted : accounts.min_quota;
    }

    // Nothing is granted ahead of retrieved packets.
    static void message_waited(DynamicAccounts&, DynamicPeer&) {}
    static void grant_queued(DynamicAccounts&, Outbox&) {}
    [[nodiscard]] static bool any_queued(const DynamicAccounts&) noexcept { return false; }

  private:
    /// Whether what was retrieved is little, and the next message will not make it reach the threshold.
    [[nodiscard]] static bool can_wait(const DynamicAccounts& accounts, PeerIndex index) noexcept {
        const uint32_t retrieved = accounts.at(index).retrieved();
        const uint32_t reached_at = accounts.ledger.threshold(index);
        return retrieved < reached_at / 2 &&
               retrieved + accounts.pattern.expected_packets(accounts.at(index)) < reached_at;
    }
};

/// The paper's.
template <class Quota>
using PaperGrant = ThresholdGrant<Quota, false>;

}  // namespace velo::flowctl
