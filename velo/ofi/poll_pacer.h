/// How often the provider is asked whether something happened.
///
/// An idle fi_cq_read is a system call over the tcp providers (1.2 to 1.8 us), ten times what a message between
/// processes of one host takes. So the provider is asked in each call of progress() only while its messages come or
/// something is under way, and otherwise once in an interval, which is what a packet that comes by surprise waits at
/// most.
///
/// Pure. Times are nanoseconds of progress()'s clock, which may stand still.
#pragma once

#include <cstdint>

namespace velo::ofi {

class PollPacer {
  public:
    static constexpr uint64_t kIdleIntervalNs = 7'000;
    /// Messages that came keep the rate up for so long: a reply and the next message are within it.
    static constexpr uint64_t kLingerNs = 100'000;
    static_assert(kIdleIntervalNs < kLingerNs);

    explicit constexpr PollPacer(uint64_t idle_interval_ns = kIdleIntervalNs) : idle_interval_ns_(idle_interval_ns) {}

    /// Whether to ask now; `busy`: something is under way that only asking moves.
    [[nodiscard]] constexpr bool due(uint64_t now_ns, bool busy) {
        if (!busy && now_ns - traffic_ns_ >= kLingerNs && now_ns - asked_ns_ < idle_interval_ns_) return false;
        asked_ns_ = now_ns;
        return true;
    }
    /// A message came or went.
    constexpr void traffic(uint64_t now_ns) { traffic_ns_ = now_ns; }

  private:
    uint64_t idle_interval_ns_;
    uint64_t asked_ns_ = 0;
    uint64_t traffic_ns_ = 0;
};

}  // namespace velo::ofi
