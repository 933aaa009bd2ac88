/// Whether messages of some KiB to a process of the same node go through the ring, or are fetched from their
/// sender.
///
/// Through the ring a message is copied twice, by stores; fetched it is copied once, by a call to the system,
/// after the match. With 16 KiB the ring takes a fifth of the time on one CPU and half as much again on
/// another (docs/results/mtl.md). So both are tried, for each class of lengths.
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
    /// Classes of lengths: to 8 KiB, 16 KiB, 32 KiB and 64 KiB.
    static constexpr size_t kClasses = std::bit_width(kBytesMax - 1) - std::bit_width(kBytesMin - 1) + 1;
    /// A lead is a megabyte, which the ring has to be walked for before its lines are in the caches again.
    static constexpr std::array<base::TwoWays::Numbers, kClasses> kNumbers = {{
        {.first = 256, .between_min = 8192, .between_max = 262144, .lead = 128},
        {.first = 128, .between_min = 4096, .between_max = 131072, .lead = 64},
        {.first = 64, .between_min = 2048, .between_max = 65536, .lead = 32},
        {.first = 32, .between_min = 1024, .between_max = 32768, .lead = 16},
    }};

    /// The way of a message of this length, of kBytesMin to kBytesMax, that is sent now. True: through the ring.
    [[nodiscard]] bool eager(uint64_t bytes) const { return ways_[class_of(bytes)].way(); }
    /// A message has been sent, or fetched, which was sent in this way. `now()`: the time in ns.
    template <class Now>
    void ended(uint64_t bytes, bool eager, Now&& now) {
        ways_[class_of(bytes)].ended(eager, bytes == last_bytes_, now);
        last_bytes_ = bytes;
    }

  private:
    [[nodiscard]] static size_t class_of(uint64_t bytes) {
        return static_cast<size_t>(std::bit_width(bytes - 1)) - kShortest;
    }
    static constexpr size_t kShortest = std::bit_width(kBytesMin - 1);

    std::array<base::TwoWays, kClasses> ways_ = {
        base::TwoWays(true, kNumbers[0]), base::TwoWays(true, kNumbers[1]), base::TwoWays(true, kNumbers[2]),
        base::TwoWays(true, kNumbers[3])};
    uint64_t last_bytes_ = 0;
};

}  // namespace velo
