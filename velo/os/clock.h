/// The clock that waits and periods are measured by.
#pragma once

#include <cstdint>
#include <ctime>

namespace velo::base {

/// Nanoseconds of CLOCK_MONOTONIC: the same for all processes of a machine.
[[nodiscard]] inline uint64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct MonotonicClock {
    [[nodiscard]] static uint64_t now_ns() { return monotonic_ns(); }
};

}  // namespace velo::base
