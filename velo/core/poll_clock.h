/// Counts the polls of an engine, and reads the clock in some of them.
#pragma once

#include <cstdint>

namespace velo {

/// `Clock` has now_ns(). Owner: the engine. Thread: the engine's.
template <class Clock>
class PollClock {
  public:
    explicit PollClock(const Clock& clock) : clock_(clock) {}

    struct Interval {
        uint32_t polls = 0;
        uint64_t ns = 0;
    };

    [[nodiscard]] uint64_t read() const { return clock_.now_ns(); }
    [[nodiscard]] uint32_t polls() const { return polls_; }
    /// Nanoseconds, as of the last sample.
    [[nodiscard]] uint64_t now() const { return now_; }
    /// Begins a poll. True: sample() is due. A sample costs as much as all the rest of an idle poll.
    bool begin_poll() { return ++polls_ >= next_sample_; }
    /// Returns what has passed since the last sample.
    Interval sample() {
        const Interval passed = {.polls = polls_ - sampled_, .ns = read() - now_};
        now_ += passed.ns;
        sampled_ = polls_;
        next_sample_ = polls_ + (passed.ns > passed.polls * kSlowPollNs ? 1 : kPollsBetween);
        return passed;
    }

  private:
    static constexpr uint32_t kPollsBetween = 16;
    /// Polls that are further apart, as those of a rank that shares its core, read the clock each.
    static constexpr uint64_t kSlowPollNs = 100'000;

    [[no_unique_address]] Clock clock_;
    uint32_t polls_ = 0;
    uint32_t sampled_ = 0;
    uint32_t next_sample_ = 0;
    uint64_t now_ = 0;
};

}  // namespace velo
