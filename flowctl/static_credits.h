/// Credits of equal, constant quotas: the static flow control of FC 5, both roles of one process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowctl/actions.h"
#include "flowctl/plan.h"
#include "flowctl/sender_table.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// What the retrieved packets contained of a message's end.
struct MessageEnd {
    bool ended = false;
    /// The message had waited for credits at its sender (IBFC 4.3).
    bool waited = false;
    /// It was no part of a message: a compulsory request or response.
    bool control = false;
};

/// What one process keeps for one peer (FC 5.1), 32 bits each.
struct StaticPeer {
    /// Sender role: packets that may still go to the peer.
    uint32_t credits = 0;
    /// Receiver role: packets taken out of the mailbox whose credits have not gone back.
    uint32_t retrieved_packets = 0;
    /// Receiver role: slots of our mailbox that the peer owns.
    uint32_t quota = 0;
    /// Receiver role: retrieved_packets at which credits go back explicitly.
    uint32_t threshold = 0;
};
static_assert(sizeof(StaticPeer) == 16, "four peers share a cache line");

/// Owner: FlowControl. Thread: the engine's. Every event is O(1); nothing allocates after construction.
/// Invariant, for each peer: credits <= Plan::quota_max() and retrieved_packets <= quota.
///
/// Piggybacking (FC 5.4, 6.6): a piggybacked return takes retrieved_packets with it and so puts off, or
/// saves, the explicit return. The bound on the credit region does not depend on how the two are mixed:
/// every explicit packet still carries at least the threshold (see threshold_for), piggybacked credits
/// ride in data packets, whose slots their own credits pay for, and both are terms of one sum, the quota.
///
/// Favoured peers (FC footnote 7a): of a mailbox that does not divide evenly some peers own quota + 1
/// slots, and nobody tells them. The sender starts with `quota` credits like everybody; here its state
/// starts as if it had been given quota + 1 and one packet of its had been retrieved already. That packet's
/// credit goes back with the first return, and from then on the peer simply has quota + 1. This is a state
/// that quota + 1 reaches by itself (send one, retrieve it), so whatever holds for a peer that starts with
/// quota + 1 holds here. One condition remains: a state that rests has retrieved_packets < threshold. Here
/// 1 < threshold_for(quota + 1, n), because equation 2 gives quota >= n.
class StaticCredits : public SenderTable<StaticPeer> {
  public:
    explicit StaticCredits(const Plan& plan)
        : SenderTable(plan.peers),
          quota_(plan.quota),
          quota_max_(std::max(plan.quota_max(), plan.sender_slots_max)),
          excess_peers_(plan.excess_peers),
          return_max_(plan.return_max),
          piggyback_(plan.piggyback) {
        for (PeerIndex peer = 0; peer < plan.peers; ++peer) {
            peers_[peer].quota = plan.quota_of(peer);
            peers_[peer].threshold = plan.threshold_of(peer);
            reset_peer(peer);
        }
    }

    /// An explicit packet without credits would fill a slot of the credit region that no threshold paid
    /// for, so 0 is a violation like too many.
    [[nodiscard]] Status credits_arrived(PeerIndex from, uint32_t credits, Actions&) noexcept {
        StaticPeer& peer = at(from);
        if (credits == 0 || credits > quota_max_ - peer.credits) [[unlikely]]
            return Status::kProtocol;
        peer.credits += credits;
        return Status::kOk;
    }

    /// The test is >=: after a batch the counter may be past the threshold. At most one return an event:
    /// what return_max keeps back waits for the next packet, and that packet can come, because the return
    /// just made is under way.
    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, MessageEnd, Actions& actions) {
        StaticPeer& peer = at(from);
        if (packets > peer.quota - peer.retrieved_packets) [[unlikely]]
            return Status::kProtocol;
        peer.retrieved_packets += packets;
        if (peer.retrieved_packets >= peer.threshold) {
            const uint32_t credits = std::min(peer.retrieved_packets, return_max_);
            peer.retrieved_packets -= credits;
            actions.push({.kind = ActionKind::kSendCredits, .peer = from, .credits = credits});
        }
        return Status::kOk;
    }

    [[nodiscard]] bool return_due(PeerIndex from, uint32_t packets) const noexcept {
        return at(from).retrieved_packets + packets >= at(from).threshold;
    }

    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max, Actions&) noexcept {
        if (!piggyback_) return 0;
        StaticPeer& peer = at(to);
        const uint32_t credits = std::min({peer.retrieved_packets, max, return_max_});
        peer.retrieved_packets -= credits;
        return credits;
    }

    void reset_peer(PeerIndex index) {
        StaticPeer& peer = at(index);
        peer.credits = quota_;
        peer.retrieved_packets = index < excess_peers_ ? 1 : 0;
    }

    [[nodiscard]] uint32_t quota(PeerIndex index) const noexcept { return at(index).quota; }
    [[nodiscard]] uint32_t threshold(PeerIndex index) const noexcept { return at(index).threshold; }
    [[nodiscard]] uint32_t granted(PeerIndex index) const noexcept {
        return at(index).quota - at(index).retrieved_packets;
    }

    [[nodiscard]] bool check_invariants(PeerIndex index) const noexcept {
        const StaticPeer& peer = at(index);
        return peer.credits <= quota_max_ && peer.retrieved_packets <= peer.quota;
    }

    template <typename Visit>
    void visit_state(Visit&& visit) const {
        for (const StaticPeer& peer : peers_) {
            visit(peer.credits);
            visit(peer.retrieved_packets);
        }
    }

  protected:
    uint32_t quota_;
    uint32_t quota_max_;
    uint32_t excess_peers_;
    uint32_t return_max_;
    bool piggyback_;
};

}  // namespace velo::flowctl
