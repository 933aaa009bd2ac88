/// Whether messages of some KiB to a process of the same node go through the ring, or are fetched from their sender.
///
/// Through the ring a message is copied twice, by stores; fetched it is copied once, by a call to the system, after the
/// match. With 16 KiB the ring takes a fifth of the time on one CPU and half as much again on another
/// (docs/results/mtl.md). So both are tried, for each class of lengths.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "velo/base/two_ways.h"

namespace velo {

/// Pure. Owner: the sender's state of a peer, once there is such a message.
class EagerChoice {
  public:
    /// Shorter messages always go through the ring.
    static constexpr uint64_t kBytesMin = 8192;
    static constexpr uint64_t kBytesMax = 65536;

    /// A message of this length is sent, of kBytesMin to kBytesMax. True: through the ring. `now()`: the time in ns.
    template <class Now>
    [[nodiscard]] bool eager(uint64_t bytes, Now&& now) {
        base::TwoWays& ways = ways_[class_of(bytes)];
        ways.one(bytes == last_bytes_, now);
        last_bytes_ = bytes;
        return ways.way();
    }
    /// The way of the last one.
    [[nodiscard]] bool way(uint64_t bytes) const { return ways_[class_of(bytes)].way(); }

  private:
    [[nodiscard]] static size_t class_of(uint64_t bytes) {
        return static_cast<size_t>(std::bit_width(bytes - 1)) - kShortest;
    }
    static constexpr size_t kShortest = std::bit_width(kBytesMin - 1);
    static constexpr size_t kClasses = std::bit_width(kBytesMax - 1) - kShortest + 1;

    /// To 8 KiB, 16 KiB, 32 KiB and 64 KiB.
    std::array<base::TwoWays, kClasses> ways_ = {base::TwoWays(true), base::TwoWays(true), base::TwoWays(true),
                                                 base::TwoWays(true)};
    uint64_t last_bytes_ = 0;
};

}  // namespace velo
