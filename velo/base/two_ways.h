/// Which of two ways of doing the same thing takes less time, found out by doing it.
///
/// Things of one kind that follow each other are done in one way for a while, then in the other, by turns,
/// and the time of a whole window of them decides. It holds what the way costs all who take part, and evens
/// out what differs from one time to the next; the shortest of several windows is free of what others did
/// meanwhile. Then the better way is used, and both are tried again ever more rarely.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "velo/base/check.h"

namespace velo::base {

/// Pure. Ways are false and true.
class TwoWays {
  public:
    /// Things of a window that is timed, and windows of a trial.
    static constexpr uint32_t kWindow = 16;
    static constexpr uint32_t kWindows = 6;
    struct Numbers {
        /// Things before the first trial, and between two: the longer, the more often they have changed
        /// nothing.
        uint32_t first;
        uint32_t between_min;
        uint32_t between_max;
        /// Things that are done before a window is timed: a way that was not in use has its memory out of the
        /// caches.
        uint32_t lead;
    };
    /// The other way takes over when it takes less than this part of the time.
    static constexpr double kGain = 0.92;
    /// After one window of each, a trial is over if the other way takes this many times as long. The first one is also
    /// if that is the way in use, for less than `between_min`: a window in which something else ran proves little.
    static constexpr double kClear = 1.5;
    static constexpr uint32_t kFirstPart = 4;

    /// `numbers` stay where they are.
    TwoWays(bool first, const Numbers& numbers)
        : numbers_(&numbers),
          left_(numbers.first),
          between_(numbers.between_min / 2),
          chosen_(first),
          way_(first) {
        VELO_CHECK(numbers.between_min >= 2 && numbers.between_max >= numbers.between_min,
                   "%u to %u things between two trials", numbers.between_min, numbers.between_max);
    }

    /// The way of the next thing.
    [[nodiscard]] bool way() const { return way_; }
    /// The way in use when no trial is on.
    [[nodiscard]] bool chosen() const { return chosen_; }

    /// One has ended that was done in this way. `like_last`: it is like the one before, and nothing else is
    /// in between that takes time. `now()`: the time in ns; only called in trials.
    template <class Now>
    void ended(bool way, bool like_last, Now&& now) {
        if (left_ != 0) {
            --left_;
        } else if (!like_last || way != way_) {
            done_ = 0;
        } else if (done_++ == numbers_->lead) {
            began_ns_ = now();
        } else if (done_ > numbers_->lead + kWindow) {
            end_window(now() - began_ns_);
        }
    }
    /// The time of the next one says nothing.
    void interrupt() { done_ = 0; }

  private:
    void end_window(uint64_t ns) {
        VELO_DCHECK(windows_ < kWindows && left_ == 0, "window %u of a trial of %u", windows_, kWindows);
        best_ns_[way_] = std::min(best_ns_[way_], ns);
        done_ = 0;
        ++windows_;
        const double ratio = static_cast<double>(best_ns_[!chosen_]) / static_cast<double>(best_ns_[chosen_]);
        const bool early = windows_ == 2 && (ratio > kClear || (first_ && ratio * kClear < 1));
        if (windows_ < kWindows && !early) {
            way_ = !way_;
            return;
        }
        const bool changes = ratio < kGain;
        chosen_ = chosen_ != changes;
        between_ = changes ? numbers_->between_min : std::min(2 * between_, numbers_->between_max);
        left_ = changes && early ? numbers_->between_min / kFirstPart : between_;
        first_ = false;
        way_ = chosen_;
        windows_ = 0;
        best_ns_ = {~uint64_t{0}, ~uint64_t{0}};
    }

    const Numbers* numbers_;
    uint32_t left_;
    uint32_t between_;
    uint32_t done_ = 0;     ///< of the present window
    uint32_t windows_ = 0;  ///< of the present trial
    bool chosen_;
    bool way_;
    bool first_ = true;  ///< there has been no trial
    uint64_t began_ns_ = 0;
    std::array<uint64_t, 2> best_ns_ = {~uint64_t{0}, ~uint64_t{0}};  ///< of a window, by the way
};

}  // namespace velo::base
