/// Whether peers that something waits for still answer.
///
/// No provider tells that an idle peer was killed, and a send to one is "try again" without end. So a peer that is
/// watched, and silent, is pinged, at growing intervals; one that stays silent for the timeout is dead. Any message
/// from a peer counts as life.
///
/// Silence is measured in time during which this process polled: a gap between two polls that is longer than kGapNs
/// does not count, because a process that was stopped has not listened.
///
/// A process that computes is silent as well. If something else knows of it (host_probe.h), that is asked from a
/// quarter of the timeout on, and its word that the process runs begins the silence anew; pings are not repeated then,
/// because the ones that lie in the peer's mailbox suffice.
///
/// Pure: the time is an argument, in nanoseconds of any clock that does not go back.
/// Source: velo/device/device.h, watch().
#pragma once

#include <algorithm>
#include <cstdint>

#include "velo/base/check.h"

namespace velo::ofi {

class PeerHealth {
  public:
    /// State of a peer; times are heard time.
    struct Peer {
        uint64_t silent_since_ns = 0;
        uint64_t watched_ns = 0;
        uint8_t pings = 0;  ///< since it was heard of
        bool watched = false;
    };
    enum class Due : uint8_t { kNothing, kPing, kProbe, kDead };

    /// A peer that was not watched for so long is asked no more.
    static constexpr uint64_t kWatchNs = 1'000'000'000;
    static constexpr uint64_t kGapNs = 1'000'000'000;
    /// Silence before the first ping; each further one comes after twice the silence, so that a peer that is stopped
    /// finds few of them. Timeouts below 20 s ping earlier.
    static constexpr uint64_t kPingNs = 1'000'000'000;
    static constexpr uint32_t kPingsInTimeout = 20;
    /// Pings that a silent peer can find at most: at 1, 2, 4, 8 and 16 of the 20 parts of the timeout.
    static constexpr uint32_t kPingsUnanswered = 5;
    static_assert(1u << (kPingsUnanswered - 1) < kPingsInTimeout);
    static constexpr uint32_t kProbeShare = 4;

    explicit constexpr PeerHealth(uint64_t timeout_ns)
        : timeout_ns_(timeout_ns), ping_ns_(std::min(kPingNs, timeout_ns / kPingsInTimeout)) {}

    /// This process polls: time goes on.
    constexpr void polled(uint64_t now_ns) {
        const uint64_t gap_ns = now_ns - now_ns_;
        if (now_ns > now_ns_ && gap_ns <= kGapNs) heard_ns_ += gap_ns;
        now_ns_ = std::max(now_ns, now_ns_);
    }
    constexpr void watch(Peer& peer) const {
        if (!watches(peer)) heard(peer);
        peer.watched = true;
        peer.watched_ns = heard_ns_;
    }
    constexpr void heard(Peer& peer) const {
        peer.silent_since_ns = heard_ns_;
        peer.pings = 0;
    }
    /// A watched peer that is in MPI answers a ping, so it is not silent for longer than between two of them.
    [[nodiscard]] constexpr bool heard_lately(const Peer& peer) const {
        return watches(peer) && heard_ns_ - peer.silent_since_ns <= 2 * ping_ns_;
    }
    [[nodiscard]] constexpr bool watches(const Peer& peer) const {
        return peer.watched && heard_ns_ - peer.watched_ns <= kWatchNs;
    }
    /// The next step for a peer; a ping is due until pinged().
    [[nodiscard]] constexpr Due due(const Peer& peer) const {
        if (!watches(peer)) return Due::kNothing;
        const uint64_t silence_ns = heard_ns_ - peer.silent_since_ns;
        if (silence_ns >= timeout_ns_) return Due::kDead;
        if (peer.pings < kPingsUnanswered && silence_ns >= ping_ns_ << peer.pings) return Due::kPing;
        return silence_ns >= timeout_ns_ / kProbeShare ? Due::kProbe : Due::kNothing;
    }
    static constexpr void pinged(Peer& peer) {
        VELO_DCHECK(peer.pings < kPingsUnanswered, "a silent peer is pinged after %u pings", peer.pings);
        ++peer.pings;
    }
    /// Something other than the peer says that it runs.
    constexpr void runs(Peer& peer) const {
        peer.silent_since_ns = heard_ns_;
        peer.pings = kPingsUnanswered;
    }

  private:
    uint64_t timeout_ns_;
    uint64_t ping_ns_;
    uint64_t now_ns_ = 0;    ///< of the last poll
    uint64_t heard_ns_ = 0;  ///< time spent polling
};

}  // namespace velo::ofi
