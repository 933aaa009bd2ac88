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
    /// Neighbours among those that wait for credits: who sent its last message later, and earlier.
    PeerIndex later_waiting = 0;
    PeerIndex earlier_waiting = 0;
    /// Packets so far of the message under way; 0 between messages.
    uint16_t message_packets = 0;
    /// Of the longest message lately; 0 before the first one.
    uint16_t message_packets_max = 0;
};

/// Time is counted in messages, of all senders together. In a pattern that repeats, the senders' next
/// messages come in the order of their last ones; nothing but speed hangs on whether they do.
///
/// `Peer` has the members `turn`, `waits : 1` and `shorter_messages : 3`, which belong to this class.
/// Owner: DynamicCredits. Thread: the engine's. Every event is O(1).
template <class Peer>
class MessageTurns {
  public:
    static constexpr PeerIndex kNobody = ~PeerIndex{0};

    void packets_retrieved(Peer& peer, uint32_t packets, bool ended) {
        MessageTurn& turn = peer.turn;
        const uint16_t so_far = at_most_16_bits(turn.message_packets + packets);
        turn.message_packets = ended ? 0 : so_far;
        if (!ended) return;
        if (so_far != turn.message_packets_max || peer.shorter_messages != 0) note_length(peer, so_far);
        if (so_far != typical_packets_) typical_packets_ = longest_lately(typical_packets_, so_far);
        const uint32_t gap = ++messages_ - turn.last_message;
        turn.last_message = messages_;
        // Who comes back after long is no measure, and moves the mean a little only.
        const uint32_t mean = gap_sum_ / kGapWeight;
        gap_sum_ += std::min(gap, 2 * mean + kSilentMessagesMin) - mean;
    }

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

    /// As much of the usual gap has gone by since the peer's last message as is let go by before a turn.
    [[nodiscard]] bool near(const Peer& peer) const noexcept {
        return uint64_t{kWholeGap * kGapWeight} * age(peer) >= uint64_t{let_go_by_} * gap_sum_;
    }
    /// A message waited for credits although there were some: turns are to come earlier.
    void came_late() noexcept { let_go_by_ -= let_go_by_ / kEarlier; }
    /// A packet was spent on a turn. A little later, and the credits might have ridden in a message.
    void came_by_packet() noexcept { let_go_by_ = std::min(let_go_by_ + kLater, kLetGoByMax); }

    /// Of the peer's next message, or of the whole of the one under way.
    [[nodiscard]] uint32_t expected_packets(const Peer& peer) const noexcept {
        return peer.turn.message_packets_max != 0 ? peer.turn.message_packets_max : typical_packets_;
    }

    // Those that wait for credits, in the order in which they began to: mostly that of their last messages.

    [[nodiscard]] bool anybody_waits() const noexcept { return first_ != kNobody; }
    [[nodiscard]] PeerIndex first_waiting() const noexcept { return first_; }

    [[nodiscard]] uint32_t waiting() const noexcept { return waiting_; }

    /// Behind all others, also if it has been waiting.
    void wait(std::vector<Peer>& peers, PeerIndex index) {
        waits_no_longer(peers, index);
        Peer& peer = peers[index];
        peer.waits = true;
        ++waiting_;
        peer.turn.later_waiting = kNobody;
        peer.turn.earlier_waiting = last_;
        (last_ == kNobody ? first_ : peers[last_].turn.later_waiting) = index;
        last_ = index;
    }

    void waits_no_longer(std::vector<Peer>& peers, PeerIndex index) {
        Peer& peer = peers[index];
        if (!peer.waits) return;
        peer.waits = false;
        --waiting_;
        const PeerIndex later = peer.turn.later_waiting;
        const PeerIndex earlier = peer.turn.earlier_waiting;
        (earlier == kNobody ? first_ : peers[earlier].turn.later_waiting) = later;
        (later == kNobody ? last_ : peers[later].turn.earlier_waiting) = earlier;
    }

    template <typename Visit>
    void visit_state(const std::vector<Peer>& peers, Visit&& visit) const {
        visit(gap_sum_);
        visit(typical_packets_);
        visit(let_go_by_);
        for (const Peer& peer : peers) {
            visit(age(peer));
            visit(peer.turn.message_packets);
            visit(peer.turn.message_packets_max * 8u + peer.shorter_messages);
        }
        for (PeerIndex index = first_; index != kNobody; index = peers[index].turn.later_waiting) visit(index);
        visit(uint32_t{kNobody});
    }

  private:
    /// Nobody is silent before so many messages of others.
    static constexpr uint32_t kSilentMessagesMin = 16;
    /// The usual gap is a mean over about so many messages.
    static constexpr uint32_t kGapWeight = 16;
    /// A sender's longest message is not forgotten by so many shorter ones in a row: programs send short
    /// messages between long ones. By each that follows, it is by half.
    static constexpr uint8_t kShorterMax = 7;
    /// The longest of all senders is forgotten within about so many messages.
    static constexpr uint32_t kLengthWeight = 16;
    /// Units of let_go_by_.
    static constexpr uint32_t kWholeGap = 1024;
    static constexpr uint32_t kLetGoByMax = kWholeGap * 3 / 4;
    static constexpr uint32_t kEarlier = 8;
    static constexpr uint32_t kLater = 4;

    [[nodiscard]] uint32_t age(const Peer& peer) const noexcept { return messages_ - peer.turn.last_message; }
    [[nodiscard]] static uint16_t at_most_16_bits(uint32_t packets) noexcept {
        return static_cast<uint16_t>(std::min<uint32_t>(packets, std::numeric_limits<uint16_t>::max()));
    }
    [[nodiscard]] static uint16_t longest_lately(uint32_t before, uint32_t packets) noexcept {
        if (packets >= before) [[likely]]
            return at_most_16_bits(packets);
        return at_most_16_bits(std::max(packets, before - (before + kLengthWeight - 1) / kLengthWeight));
    }

    [[gnu::noinline]] void note_length(Peer& peer, uint16_t packets) {
        MessageTurn& turn = peer.turn;
        if (packets >= turn.message_packets_max) {
            turn.message_packets_max = packets;
            peer.shorter_messages = 0;
        } else if (peer.shorter_messages < kShorterMax) {
            ++peer.shorter_messages;
        } else {
            turn.message_packets_max = std::max<uint16_t>(packets, turn.message_packets_max / 2);
        }
    }

    uint32_t messages_ = 0;
    /// kGapWeight times the mean gap.
    uint32_t gap_sum_ = 0;
    /// message_packets_max of all senders together: what is expected of one that has not sent any.
    uint16_t typical_packets_ = 0;
    /// Of the usual gap, before a turn's credits are given.
    uint32_t let_go_by_ = kLetGoByMax;
    PeerIndex first_ = kNobody;
    PeerIndex last_ = kNobody;
    uint32_t waiting_ = 0;
};

}  // namespace velo::flowctl
