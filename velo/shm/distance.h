/// How far apart two cores are, in the time that a cache line takes from the one to the other.
///
/// The fastest way to hand over a block depends on it: below some 100 ns (cores that share a cache)
/// ordinary stores, above it non-temporal ones, which do not fetch each line from the reader first
/// (docs/design-choices.md has the measurements). The scheduler moves processes, so it is measured again now
/// and then, by the reader, when it takes a message that the writer marked.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace velo::shm {

/// Lines that a producer writes now and then for its consumer to time. They are nothing else's, because what
/// lies in a ring is fetched by the consumer's CPU before it asks: it has read what is before it.
struct alignas(64) ProbeLine {
    std::atomic<uint64_t> word;
};
inline constexpr size_t kProbeLines = 16;
using Probe = ProbeLine[kProbeLines];

/// Those that are used: no two share a pair of lines, which are fetched together.
inline constexpr uint8_t kProbeOrder[] = {13, 3, 10, 6, 15};

inline void write_probe(Probe& probe) {
    for (const uint8_t line : kProbeOrder) probe[line].word.store(1, std::memory_order_relaxed);
}

/// Time in ns to read one line that another core has just written: the mean over five.
inline uint32_t read_probe(const Probe& probe) {
    // Each load waits for the one before it.
    uint64_t zero = 0;
    asm volatile("" : "+r"(zero));  // not known to the compiler, so it keeps the dependency
    uint64_t seen = probe[0].word.load(std::memory_order_relaxed);  // whatever the page itself costs
    timespec before;
    timespec after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (const uint8_t line : kProbeOrder) {
        seen = probe[line + (seen & zero)].word.load(std::memory_order_relaxed);
    }
    asm volatile("" : : "r"(seen));
    clock_gettime(CLOCK_MONOTONIC, &after);
    const int64_t ns = (after.tv_sec - before.tv_sec) * 1'000'000'000 + (after.tv_nsec - before.tv_nsec);
    return static_cast<uint32_t>(std::clamp<int64_t>(ns / 5, 1, 100'000));
}

/// A running estimate. Pure.
class Distance {
  public:
    /// Measured like this, near cores take 16 to 35 ns on an AMD EPYC and 50 to 70 on an Intel Xeon, far ones 100 to
    /// 300. Between these two, cores stay what they were.
    static constexpr uint32_t kFarNs = 88;
    static constexpr uint32_t kNearNs = 80;

    /// One measured time. A single one that was interrupted does not make near cores far.
    void add(uint32_t ns) {
        ns_ = ns_ == 0 ? std::min(ns, kFarNs - 1) : (3 * ns_ + std::min(ns, 2 * ns_) + 2) / 4;
    }
    /// 0: not measured yet.
    [[nodiscard]] uint32_t ns() const { return ns_; }
    /// `was`: what they were before.
    [[nodiscard]] static bool far(uint32_t ns, bool was) { return ns >= (was ? kNearNs : kFarNs); }

  private:
    uint32_t ns_ = 0;
};

}  // namespace velo::shm
