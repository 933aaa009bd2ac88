/// How often, and for how long, messages waited for credits: by peer and in all.
///
/// Pure: who calls gives the time, in nanoseconds. Owner: PacketChannel. Thread: the engine's. Messages to one
/// peer go in order, so at most one of them waits for credits at a time; those behind it wait for their turn.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "velo/base/check.h"
#include "velo/device/device.h"

namespace velo {

class CreditStalls {
  public:
    /// Waits of [2^i, 2^(i+1)) ns; the first also has those of 0, the last all that are longer (39 hours).
    using Histogram = std::array<uint64_t, 48>;

    /// A message to this peer cannot go for want of credits. One that had waited before and was not heard of
    /// again (withdrawn) ends here.
    void began(DeviceAddr peer, uint64_t now_ns) {
        if (peer >= peers_.size()) peers_.resize(peer + 1);
        ended(peer, now_ns);
        peers_[peer].since_ns = now_ns;
        peers_[peer].waits = true;
        ++peers_[peer].count;
        ++count_;
        ++waiting_;
        since_sum_ns_ += now_ns;
    }

    /// A message that waited has left, or never will. Nothing happens where none waits.
    void ended(DeviceAddr peer, uint64_t now_ns) {
        if (peer >= peers_.size() || !peers_[peer].waits) return;
        Peer& entry = peers_[peer];
        const uint64_t ns = now_ns - std::min(now_ns, entry.since_ns);
        VELO_DCHECK(waiting_ != 0, "a wait for peer %u ends, of none", uint32_t{peer});
        entry.waits = false;
        entry.ns += ns;
        ns_ += ns;
        --waiting_;
        since_sum_ns_ -= entry.since_ns;
        ++histogram_[bucket_of(ns)];
    }

    /// All waits end: so does the process.
    void all_ended(uint64_t now_ns) {
        for (DeviceAddr peer = 0; peer < peers_.size(); ++peer) ended(peer, now_ns);
    }

    [[nodiscard]] uint64_t count() const { return count_; }
    [[nodiscard]] uint64_t count(DeviceAddr peer) const {
        return peer < peers_.size() ? peers_[peer].count : 0;
    }
    /// Whether the time makes a difference to ns().
    [[nodiscard]] bool any_waits() const { return waiting_ != 0; }
    /// Time waited so far, with what waits now. `now_ns` counts only then.
    [[nodiscard]] uint64_t ns(uint64_t now_ns) const { return ns_ + waiting_ * now_ns - since_sum_ns_; }
    [[nodiscard]] uint64_t ns(DeviceAddr peer, uint64_t now_ns) const {
        if (peer >= peers_.size()) return 0;
        const Peer& entry = peers_[peer];
        return entry.ns + (entry.waits ? now_ns - std::min(now_ns, entry.since_ns) : 0);
    }
    /// Lengths of the waits that have ended.
    [[nodiscard]] const Histogram& histogram() const { return histogram_; }

    [[nodiscard]] static constexpr size_t bucket_of(uint64_t ns) {
        const size_t bucket = ns == 0 ? 0 : static_cast<size_t>(std::bit_width(ns)) - 1;
        return std::min(bucket, std::tuple_size_v<Histogram> - 1);
    }

  private:
    struct Peer {
        uint64_t count = 0;
        uint64_t ns = 0;  ///< of waits that have ended
        uint64_t since_ns = 0;
        bool waits = false;
    };
    std::vector<Peer> peers_;  ///< up to the last one that was ever waited for
    uint64_t count_ = 0;
    uint64_t ns_ = 0;
    uint64_t waiting_ = 0;
    uint64_t since_sum_ns_ = 0;  ///< of those that wait
    Histogram histogram_{};
};

}  // namespace velo
