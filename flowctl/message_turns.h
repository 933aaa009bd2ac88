/// Whose message is next, and how long it will be, as far as a receiver can tell from the messages before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "flowctl/plan.h"

namespace velo::flowctl {

/// What a receiver keeps for one sender.
struct MessageTurn {
    /// Counted in messages of all senders: the peer's last one.
    uint32_t last_message = 0;
    /// Who waits for credits behind this one.
    PeerIndex next_waiting = 0;
    /// Packets so far of the message under way; 0 between messages.
    uint16_t message_packets = 0;
    /// Of the longest message lately; 0 before the first one.
    uint16_t message_packets_max = 0;
};

/// Time is counted in messages, of all senders together. In a pattern that repeats, the senders' next
/// messages come in the order of their last ones; nothing but speed hangs on whether they do.
///
/// `Peer` has the member `turn`, and `waits : 1`, which belong to this class.
/// Owner: DynamicCredits. Thread: the engine's. Every event is O(1).
template <class Peer>
class MessageTurns {
  public:
    static constexpr PeerIndex kNobody = ~PeerIndex{0};

    void packets_retrieved(Peer& peer, uint32_t packets, bool ended) {
        MessageTurn& turn = peer.turn;
        turn.message_packets = at_most_16_bits(turn.message_packets + packets);
        if (!ended) return;
        turn.message_packets_max = longest_lately(turn.message_packets_max, turn.message_packets);
        typical_packets_ = longest_lately(typical_packets_, turn.message_packets);
        turn.message_packets = 0;
        const uint32_t gap = ++messages_ - turn.last_message;
        turn.last_message = messages_;
        // Who comes back after long is no measure, and moves the mean a little only.
        const uint32_t mean = gap_sum_ / kGapWeight;
        gap_sum_ += std::min(gap, 2 * mean + kSilentMessagesMin) - mean;
    }

    /// A packet of flow control was counted like one of a message.
    void discount_packet(Peer& peer) { peer.turn.message_packets -= peer.turn.message_packets != 0; }

    /// Who takes part in what is going on would have sent something since. The usual gap between two messages
    /// of one sender is the number of active senders where they take turns, and 1 where there is one.
    [[nodiscard]] bool silent(const Peer& peer, uint32_t gaps,
                              uint32_t messages_min = kSilentMessagesMin) const noexcept {
        return age(peer) > messages_min + gaps * (gap_sum_ / kGapWeight);
    }
    /// Of all senders so far.
    [[nodiscard]] uint32_t messages() const noexcept { return messages_; }
    /// The peer counts as one that has just sent a message.
    void begin(Peer& peer) { peer.turn.last_message = messages_; }

    /// Three quarters of the usual gap have gone by since the peer's last message.
    [[nodiscard]] bool near(const Peer& peer) const noexcept {
        return uint64_t{4 * kGapWeight} * age(peer) >= uint64_t{3} * gap_sum_;
    }

    /// Of the peer's next message, or of the whole of the one under way.
    [[nodiscard]] uint32_t expected_packets(const Peer& peer) const noexcept {
        return peer.turn.message_packets_max != 0 ? peer.turn.message_packets_max : typical_packets_;
    }

    // Those that wait for credits, in the order of their last messages. Whose message came before it was
    // given any keeps its place, and goes behind the others when it is found first.

    [[nodiscard]] bool anybody_waits() const noexcept { return first_ != kNobody; }
    [[nodiscard]] PeerIndex first_waiting() const noexcept { return first_; }

    void wait(std::vector<Peer>& peers, PeerIndex index) {
        Peer& peer = peers[index];
        if (peer.waits) return;
        peer.waits = true;
        peer.turn.next_waiting = kNobody;
        (first_ == kNobody ? first_ : peers[last_].turn.next_waiting) = index;
        last_ = index;
    }

    [[nodiscard]] bool first_came_early(const std::vector<Peer>& peers) const noexcept {
        const Peer& peer = peers[first_];
        return first_ != last_ && age(peer) < age(peers[peer.turn.next_waiting]);
    }

    void first_waits_no_longer(std::vector<Peer>& peers) {
        Peer& peer = peers[first_];
        peer.waits = false;
        first_ = peer.turn.next_waiting;
    }

    template <typename Visit>
    void visit_state(const std::vector<Peer>& peers, Visit&& visit) const {
        visit(gap_sum_);
        visit(typical_packets_);
        for (const Peer& peer : peers) {
            visit(age(peer));
            visit(peer.turn.message_packets);
            visit(peer.turn.message_packets_max);
        }
        for (PeerIndex index = first_; index != kNobody; index = peers[index].turn.next_waiting) visit(index);
        visit(uint32_t{kNobody});
    }

  private:
    /// Nobody is silent before so many messages of others.
    static constexpr uint32_t kSilentMessagesMin = 16;
    /// The usual gap is a mean over about so many messages.
    static constexpr uint32_t kGapWeight = 16;
    /// A length is forgotten within about so many shorter messages.
    static constexpr uint32_t kLengthWeight = 16;

    [[nodiscard]] uint32_t age(const Peer& peer) const noexcept { return messages_ - peer.turn.last_message; }
    [[nodiscard]] static uint16_t at_most_16_bits(uint32_t packets) noexcept {
        return static_cast<uint16_t>(std::min<uint32_t>(packets, std::numeric_limits<uint16_t>::max()));
    }
    [[nodiscard]] static uint16_t longest_lately(uint32_t before, uint32_t packets) noexcept {
        if (packets >= before) [[likely]]
            return at_most_16_bits(packets);
        return at_most_16_bits(std::max(packets, before - (before + kLengthWeight - 1) / kLengthWeight));
    }

    uint32_t messages_ = 0;
    /// kGapWeight times the mean gap.
    uint32_t gap_sum_ = 0;
    /// message_packets_max of all senders together: what is expected of one that has not sent any.
    uint16_t typical_packets_ = 0;
    PeerIndex first_ = kNobody;
    PeerIndex last_ = kNobody;
};

}  // namespace velo::flowctl
