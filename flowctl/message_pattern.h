/// A receiver's estimate of the next message: its sender, and its length, by the messages before.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// A receiver's record of one sender.
struct MessageTimes {
    /// Counted in messages of all senders: the peer's last one.
    uint32_t last_message = 0;
    /// Neighbours in the queue for a grant: queued after this peer, and before it.
    PeerIndex queued_after = 0;
    PeerIndex queued_before = 0;
    /// Packets so far of the message under way; 0 between messages.
    uint16_t message_packets = 0;
    /// Packets of the longest message lately; 0 before the first one.
    uint16_t message_packets_max = 0;
};

/// Time is counted in messages, of all senders together. In a pattern that repeats, the senders' next
/// messages come in the order of their last ones; only speed depends on it.
///
/// `Peer` has the members `times`, `queued_for_grant : 1`, `shorter_messages : 3` and `gap_class : 4`, which
/// belong to this class. Owner: DynamicCredits. Thread: the engine's. Every event is O(1).
template <class Peer>
class MessagePattern {
  public:
    static constexpr PeerIndex kNobody = ~PeerIndex{0};

    [[gnu::always_inline]] void packets_retrieved(Peer& peer, uint32_t packets, bool ended) {
        MessageTimes& times = peer.times;
        const uint16_t so_far = at_most_16_bits(times.message_packets + packets);
        times.message_packets = ended ? 0 : so_far;
        if (!ended) return;
        if (so_far != times.message_packets_max || peer.shorter_messages != 0) note_length(peer, so_far);
        if (so_far != typical_packets_) typical_packets_ = longest_lately(typical_packets_, so_far);
        const uint32_t gap = ++messages_ - times.last_message;
        times.last_message = messages_;
        note_gap(peer, gap);
        // Clamped, so that a sender that resumes after a long pause does not distort the mean.
        const uint32_t mean = gap_sum_ / kGapWeight;
        gap_sum_ += std::min(gap, 2 * mean + kGapSlack) - mean;
    }

    /// Whether an active sender would have sent something since. The usual gap between two messages of one
    /// sender is the number of active senders where they alternate, and 1 where there is one.
    [[nodiscard]] bool idle(const Peer& peer, uint32_t gaps,
                            uint32_t messages_min = kIdleMessagesMin) const noexcept {
        return age(peer) > messages_min + gaps * (gap_sum_ / kGapWeight);
    }
    /// Messages of all senders between two of one: the number of active senders where they alternate.
    [[nodiscard]] uint32_t mean_gap() const noexcept { return gap_sum_ / kGapWeight; }
    /// Messages of all senders between the peer's last two, rounded down to a power of two, at least 1: so
    /// many senders were active then. Nothing where it has not sent two.
    [[nodiscard]] std::optional<uint32_t> own_gap(const Peer& peer) const noexcept {
        if (peer.gap_class < kFirstGap) return {};
        return uint32_t{1} << (peer.gap_class - kFirstGap);
    }
    /// Whether it has sent one message; whether it has sent more.
    [[nodiscard]] bool two_messages(const Peer& peer) const noexcept { return peer.gap_class >= kFirstGap; }
    [[nodiscard]] bool first_message(const Peer& peer) const noexcept {
        return peer.gap_class == kOneMessage;
    }
    /// Messages of all senders so far.
    [[nodiscard]] uint32_t messages() const noexcept { return messages_; }
    /// The peer counts as one that has just sent a message.
    void begin(Peer& peer) {
        peer.times.last_message = messages_;
        peer.gap_class = 0;
    }

    /// Whether the peer's next message is near: as much of the usual gap has passed since its last one as
    /// patience says.
    [[nodiscard]] bool near(const Peer& peer) const noexcept {
        return uint64_t{kWholeGap * kGapWeight} * age(peer) >= uint64_t{patience_} * gap_sum_;
    }
    /// A message waited for credits although slots were available: bursts are granted earlier.
    void deadline_missed() noexcept { patience_ -= patience_ / kEarlier; }
    /// A burst was granted in a packet of its own. A little later, its credits might have been piggybacked.
    void returned_early() noexcept { patience_ = std::min(patience_ + kLater, kPatienceMax); }

    /// Packets of the peer's next message, or of the whole of the one under way.
    [[nodiscard]] uint32_t expected_packets(const Peer& peer) const noexcept {
        return peer.times.message_packets_max != 0 ? peer.times.message_packets_max : typical_packets_;
    }

    // The queue for a grant, in order of arrival: mostly that of the peers' last messages.

    [[nodiscard]] bool any_queued() const noexcept { return first_ != kNobody; }
    [[nodiscard]] PeerIndex first_queued() const noexcept { return first_; }

    [[nodiscard]] uint32_t queued() const noexcept { return queued_; }

    /// At the end, also where the peer is queued already.
    void enqueue(std::vector<Peer>& peers, PeerIndex index) {
        VELO_DCHECK(index < peers.size(), "peer %u of %zu", index, peers.size());
        dequeue(peers, index);
        Peer& peer = peers[index];
        peer.queued_for_grant = true;
        ++queued_;
        peer.times.queued_after = kNobody;
        peer.times.queued_before = last_;
        (last_ == kNobody ? first_ : peers[last_].times.queued_after) = index;
        last_ = index;
    }

    void dequeue(std::vector<Peer>& peers, PeerIndex index) {
        Peer& peer = peers[index];
        if (!peer.queued_for_grant) return;
        peer.queued_for_grant = false;
        --queued_;
        const PeerIndex later = peer.times.queued_after;
        const PeerIndex earlier = peer.times.queued_before;
        (earlier == kNobody ? first_ : peers[earlier].times.queued_after) = later;
        (later == kNobody ? last_ : peers[later].times.queued_before) = earlier;
        VELO_DCHECK((first_ == kNobody) == (queued_ == 0) && (last_ == kNobody) == (queued_ == 0),
                    "%u peers are queued", queued_);
    }

    template <typename Visit>
    void visit_state(const std::vector<Peer>& peers, Visit&& visit) const {
        visit(gap_sum_);
        visit(typical_packets_);
        visit(patience_);
        for (const Peer& peer : peers) {
            visit(age(peer));
            visit(peer.times.message_packets);
            visit((peer.times.message_packets_max * 8u + peer.shorter_messages) * 16u + peer.gap_class);
        }
        for (PeerIndex index = first_; index != kNobody; index = peers[index].times.queued_after)
            visit(index);
        visit(uint32_t{kNobody});
    }

  private:
    /// Messages of others before a sender can count as idle.
    static constexpr uint32_t kIdleMessagesMin = 16;
    /// A gap counts as twice the mean and this at most, so that the mean of a lone sender stays near 1 where
    /// senders change. The optimum is flat: over twelve simulated patterns with 8 to 64 slots (64 processes,
    /// CPU-bound, medians of three seeds) the overheads add up to 588 % with 2, 574 with 4, 590 with 16.
    static constexpr uint32_t kGapSlack = 4;
    /// Messages that the mean of the gap is taken over, about.
    static constexpr uint32_t kGapWeight = 16;
    /// Shorter messages in a row before a sender's longest one is halved, since programs send short messages
    /// between long ones. Each that follows halves it again.
    static constexpr uint8_t kShorterMax = 7;
    /// Messages within which the longest one of all senders is forgotten, about.
    static constexpr uint32_t kLengthWeight = 16;
    /// Units of patience_.
    static constexpr uint32_t kWholeGap = 1024;
    static constexpr uint32_t kPatienceMax = kWholeGap * 3 / 4;
    static constexpr uint32_t kEarlier = 8;
    static constexpr uint32_t kLater = 4;

    /// gap_class: 0 before the peer's first message, this after it, and from kFirstGap on a power of two.
    static constexpr uint8_t kOneMessage = 1;
    static constexpr uint8_t kFirstGap = 2;
    static constexpr uint32_t kGapClassMax = 15;
    static_assert(kGapClassMax < 1u << 4, "gap_class has four bits");

    static void note_gap(Peer& peer, uint32_t gap) noexcept {
        const uint32_t next = static_cast<uint32_t>(std::bit_width(gap)) + kFirstGap - 1;
        peer.gap_class =
            peer.gap_class == 0 ? kOneMessage : static_cast<uint8_t>(std::min(next, kGapClassMax));
    }
    [[nodiscard]] uint32_t age(const Peer& peer) const noexcept {
        return messages_ - peer.times.last_message;
    }
    [[nodiscard]] static uint16_t at_most_16_bits(uint32_t packets) noexcept {
        return static_cast<uint16_t>(std::min<uint32_t>(packets, std::numeric_limits<uint16_t>::max()));
    }
    [[nodiscard]] static uint16_t longest_lately(uint32_t before, uint32_t packets) noexcept {
        if (packets >= before) [[likely]]
            return at_most_16_bits(packets);
        return at_most_16_bits(std::max(packets, before - (before + kLengthWeight - 1) / kLengthWeight));
    }

    [[gnu::noinline]] void note_length(Peer& peer, uint16_t packets) {
        MessageTimes& times = peer.times;
        if (packets >= times.message_packets_max) {
            times.message_packets_max = packets;
            peer.shorter_messages = 0;
        } else if (peer.shorter_messages < kShorterMax) {
            ++peer.shorter_messages;
        } else {
            times.message_packets_max = std::max<uint16_t>(packets, times.message_packets_max / 2);
        }
    }

    uint32_t messages_ = 0;
    /// kGapWeight times the mean gap.
    uint32_t gap_sum_ = 0;
    /// message_packets_max over all senders: the expectation for one that has not sent any.
    uint16_t typical_packets_ = 0;
    /// Part of the usual gap that passes before a burst is granted.
    uint32_t patience_ = kPatienceMax;
    PeerIndex first_ = kNobody;
    PeerIndex last_ = kNobody;
    uint32_t queued_ = 0;
};

}  // namespace velo::flowctl
