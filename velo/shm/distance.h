/// How far apart two cores are, in the time that a cache line takes from the one to the other.
///
/// The fastest way to hand over a block depends on it: below some 100 ns (cores that share a cache)
/// ordinary stores, above it non-temporal ones, which do not fetch each line from the reader first
/// (docs/design-choices.md has the measurements). The scheduler moves processes, so it is measured again now
/// and then, by the reader, when it takes a message that the writer marked.
#pragma once

#include <time.h>

#include <algorithm>
#include <array>
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

/// Lines that a measurement uses, in its order: other ones each time, since a prefetcher that knows them
/// fetches the rest with the first. No two share a pair of lines, which are fetched together.
inline constexpr size_t kProbesUsed = 5;
inline std::array<uint8_t, kProbesUsed> probe_order(uint64_t number) {
    const uint64_t mixed = number * 0x9e3779b97f4a7c15;
    const uint64_t first = mixed >> 61;
    const uint64_t step = (mixed >> 57) | 1;
    std::array<uint8_t, kProbesUsed> order{};
    for (uint64_t i = 0; i < kProbesUsed; ++i) {
        const uint64_t pair = (first + i * step) % (kProbeLines / 2);
        order[i] = static_cast<uint8_t>(2 * pair + (mixed >> (40 + i)) % 2);
    }
    return order;
}

/// `number` of the measurement: 1, 2, 3, ...
inline void write_probe(Probe& probe, uint64_t number) {
    for (const uint8_t line : probe_order(number)) probe[line].word.store(number, std::memory_order_relaxed);
}

struct ProbeReading {
    uint64_t number = 0;  ///< the largest that the lines had
    uint32_t ns = 0;      ///< to read one of them: the mean over five
};

/// Reads the measurement of this number, which the writer may have passed since. The time says something if the
/// number that was found is a new one: the second of two marked messages that are taken one right after the
/// other finds lines here.
inline ProbeReading read_probe(const Probe& probe, uint64_t number) {
    const std::array<uint8_t, kProbesUsed> order = probe_order(number);
    // Each load waits for the one before it.
    uint64_t zero = 0;
    asm volatile("" : "+r"(zero));  // not known to the compiler, so it keeps the dependency
    uint64_t seen = 0;
    uint64_t largest = 0;
    timespec before;
    timespec after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (const uint8_t line : order) {
        seen = probe[line + (seen & zero)].word.load(std::memory_order_relaxed);
        largest = std::max(largest, seen);
    }
    asm volatile("" : : "r"(seen));
    clock_gettime(CLOCK_MONOTONIC, &after);
    const int64_t ns = (after.tv_sec - before.tv_sec) * 1'000'000'000 + (after.tv_nsec - before.tv_nsec);
    return {largest, static_cast<uint32_t>(std::clamp<int64_t>(ns / kProbesUsed, 1, 100'000))};
}

/// A running estimate: the second least of the last five times. Near cores that share the memory's bandwidth with
/// others take as long as far ones every third time. Pure.
class Distance {
  public:
    /// Measured like this, near cores take 16 to 50 ns on an AMD EPYC and 50 to 70 on an Intel Xeon, far ones 100 to
    /// 300. Between these two, cores stay what they were.
    static constexpr uint32_t kFarNs = 88;
    static constexpr uint32_t kNearNs = 80;

    /// Takes one measured time. Cores are near until four of five say otherwise, and far until two do.
    void add(uint32_t ns) {
        times_[next_] = ns;
        next_ = (next_ + 1) % times_.size();
        std::array<uint32_t, 5> ordered = times_;
        std::nth_element(ordered.begin(), ordered.begin() + 1, ordered.end());
        ns_ = std::max(ordered[1], 1u);
    }
    /// 0: not measured yet.
    [[nodiscard]] uint32_t ns() const { return ns_; }
    /// `was`: what they were before.
    [[nodiscard]] static bool far(uint32_t ns, bool was) { return ns >= (was ? kNearNs : kFarNs); }

  private:
    std::array<uint32_t, 5> times_{};
    uint32_t next_ = 0;
    uint32_t ns_ = 0;
};

/// Which messages a producer marks, so that its consumer measures. Pure.
class MeasurePlan {
  public:
    /// Messages that are marked, of those with bodies and of an engine's requests: all of the first few, and then one
    /// of a number.
    static constexpr uint32_t kFirst = 4;
    static constexpr uint32_t kBodiesPerMeasure = 128;
    static constexpr uint32_t kRequestsPerMeasure = 32;

    /// True: this message is marked.
    [[nodiscard]] bool body() { return bodies_++ % kBodiesPerMeasure == 0 || bodies_ <= kFirst; }
    [[nodiscard]] bool request() {
        const bool asked = soon_ || (doubtful_ && !waits());
        soon_ = false;
        return requests_++ % kRequestsPerMeasure == 0 || requests_ <= kFirst || asked;
    }
    /// Marks the next request.
    void soon() { soon_ = true; }
    /// The number of a measurement that begins.
    [[nodiscard]] uint64_t begin() { return ++begun_; }
    /// The result of the last one is still to come.
    [[nodiscard]] bool waits() const { return heard_ != begun_; }
    /// The consumer has the result of measurement `number`. `doubtful`: it says another distance than is believed.
    /// Until one agrees again they follow each other, so that cores that moved are known within five of them.
    void heard(uint64_t number, bool doubtful) {
        if (number != begun_) return;
        heard_ = number;
        doubtful_ = doubtful;
    }

  private:
    uint64_t begun_ = 0;
    uint64_t heard_ = 0;
    uint32_t bodies_ = 0;
    uint32_t requests_ = 0;
    bool soon_ = false;
    bool doubtful_ = false;
};

}  // namespace velo::shm
