/// Whether a reader that waits asks for the lines of the next message before it is there.
///
/// A message's header is written last, so a reader that waits for the header alone pays a second transfer for
/// the lines behind it. Asked for while they are being written, they come sooner, or the writer has to fetch
/// them back for its next store: 256 B one way take 20 % less on one CPU and 60 % more on another
/// (docs/design-choices.md). So both are tried.
#pragma once

#include <cstdint>

#include "velo/base/two_ways.h"

namespace velo::shm {

/// Pure. Owner: a ring's reader.
class EarlyFetch {
  public:
    /// With a part of a message's lines it never pays, and a longer one is being written for long.
    static constexpr uint32_t kLinesMax = 9;
    static constexpr base::TwoWays::Numbers kNumbers = {
        .first = 32, .between_min = 1024, .between_max = 65536, .lead = 0};

    /// Lines of the next message that are asked for before it is there: as many as the last one had.
    [[nodiscard]] uint32_t lines() const { return expected_; }
    /// A message of one line was taken.
    void took_line() { expected_ = 1; }
    /// A message of more lines was taken. `waited`: it was looked for before. `now()`: the time in ns.
    template <class Now>
    void took(uint32_t lines, bool waited, Now&& now) {
        if (lines < 2 || lines > kLinesMax) {
            expected_ = 1;
            return;
        }
        if (waited) {
            ways_.ended(ways_.way(), lines == lines_, now);
        } else {
            ways_.interrupt();
        }
        lines_ = lines;
        expected_ = ways_.way() ? lines : 1;
    }

    /// Whether lines are asked for when no trial is on.
    [[nodiscard]] bool chosen() const { return ways_.chosen(); }

  private:
    base::TwoWays ways_{false, kNumbers};
    uint32_t expected_ = 1;
    uint32_t lines_ = 0;  ///< of the last message that had more than one
};

}  // namespace velo::shm
