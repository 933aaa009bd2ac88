/// How far apart two cores are, in the time that a cache line takes from the one to the other.
///
/// What is the fastest way to hand over a block hangs on it: below some 100 ns (cores that share a cache)
/// ordinary stores, above it non-temporal ones, which do not fetch each line from the reader first
/// (docs/design-choices.md has the measurements). The scheduler moves processes, so it is measured again now
/// and then, by the reader, on a message that the writer marked.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace velo::shm {

/// Shortest body that can be measured on.
inline constexpr uint32_t kMeasurableBytes = 1024;

/// Time in ns to read one line of a body that another core has just written, which is not in the caches of
/// this one: the mean over five. `body`: 64-byte aligned, kMeasurableBytes long.
inline uint32_t measure_line_transfer(const std::byte* body) {
    // Each load waits for the one before it, and no two share a pair of lines, which are fetched together.
    constexpr uint8_t kLines[] = {13, 3, 10, 6, 15};
    uint64_t zero = 0;
    asm volatile("" : "+r"(zero));  // not known to the compiler, so it keeps the dependency
    const auto load = [&](uint64_t offset) {
        return *reinterpret_cast<const volatile uint64_t*>(body + offset);
    };
    uint64_t seen = load(0);  // whatever the page itself costs
    timespec before;
    timespec after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (const uint8_t line : kLines) seen = load(64 * line + seen * zero);
    asm volatile("" : : "r"(seen));
    clock_gettime(CLOCK_MONOTONIC, &after);
    const int64_t ns = (after.tv_sec - before.tv_sec) * 1'000'000'000 + (after.tv_nsec - before.tv_nsec);
    return static_cast<uint32_t>(std::clamp<int64_t>(ns / 5, 1, 100'000));
}

/// A running estimate. Pure.
class Distance {
  public:
    static constexpr uint32_t kFarNs = 110;

    /// One measured time. A single one that was interrupted moves the estimate by less than itself.
    void add(uint32_t ns) {
        ns_ = ns_ == 0 ? std::min(ns, 2 * kFarNs) : (3 * ns_ + std::min(ns, 4 * ns_) + 2) / 4;
    }
    /// 0: not measured yet.
    [[nodiscard]] uint32_t ns() const { return ns_; }
    [[nodiscard]] static bool far(uint32_t ns) { return ns >= kFarNs; }

  private:
    uint32_t ns_ = 0;
};

}  // namespace velo::shm
