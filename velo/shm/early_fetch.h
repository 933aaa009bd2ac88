/// Whether a reader that waits asks for the lines of the next message before it is there.
///
/// A message's header is written last, so a reader that waits for the header alone pays a second transfer for the
/// lines behind it. Asked for while they are being written, they come sooner, or the writer has to fetch them back for
/// its next store: 256 B one way take 20 % less on one CPU and 60 % more on another (docs/design-choices.md). So both
/// are tried now and then, and the time that several messages in a row take decides: it holds both ends' work, it evens
/// out that an early fetch comes at a good moment or at a bad one, and the shortest of several such times is that of no
/// other process.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace velo::shm {

/// Pure. Owner: a ring's reader.
class EarlyFetch {
  public:
    /// With a part of a message's lines it never pays, and a longer one is being written for long.
    static constexpr uint32_t kLinesMax = 9;
    /// Messages of a window, in which all are fetched early or none is, and windows of a trial.
    static constexpr uint32_t kWindow = 16;
    static constexpr uint32_t kWindows = 6;
    /// Messages before the first trial, and between two: the longer, the more often they have changed nothing.
    static constexpr uint32_t kFirst = 32;
    static constexpr uint32_t kBetweenMin = 1024;
    static constexpr uint32_t kBetweenMax = 65536;
    /// The other way takes over when it takes less than this part of the time.
    static constexpr double kGain = 0.92;

    /// Of the next message, those that are asked for before it is there: as many as the last one had.
    [[nodiscard]] uint32_t lines() const { return expected_; }
    /// A message of one line was taken.
    void took_line() { expected_ = 1; }
    /// Another one. `waited`: it was looked for before. `now()`: the time in ns; only called in trials.
    template <class Now>
    void took(uint32_t lines, bool waited, Now&& now) {
        if (lines < 2 || lines > kLinesMax) {
            expected_ = 1;
            return;
        }
        const bool same = lines == lines_ && waited;
        lines_ = lines;
        if (waited && left_ != 0) {
            --left_;
        } else if (!same) {
            messages_ = 0;
        } else if (messages_++ == 0) {
            began_ns_ = now();
        } else if (messages_ > kWindow) {
            end_window(now() - began_ns_);
        }
        expected_ = asks_ ? lines : 1;
    }

    /// Whether lines are asked for when no trial is on.
    [[nodiscard]] bool chosen() const { return chosen_; }

  private:
    void end_window(uint64_t ns) {
        best_ns_[asks_] = std::min(best_ns_[asks_], ns);
        messages_ = 0;
        if (++windows_ < kWindows) {
            asks_ = !asks_;
            return;
        }
        const bool changes =
            static_cast<double>(best_ns_[!chosen_]) < kGain * static_cast<double>(best_ns_[chosen_]);
        chosen_ = chosen_ != changes;
        between_ = changes ? kBetweenMin : std::min(2 * between_, kBetweenMax);
        left_ = between_;
        asks_ = chosen_;
        windows_ = 0;
        best_ns_ = {~uint64_t{0}, ~uint64_t{0}};
    }

    uint32_t expected_ = 1;
    uint32_t lines_ = 0;  ///< of the last message that had more than one
    uint32_t left_ = kFirst;
    uint32_t between_ = kBetweenMin / 2;
    bool chosen_ = false;
    bool asks_ = false;
    uint32_t messages_ = 0;  ///< of the present window
    uint32_t windows_ = 0;   ///< of the present trial
    uint64_t began_ns_ = 0;
    std::array<uint64_t, 2> best_ns_ = {~uint64_t{0}, ~uint64_t{0}};  ///< of a window, without and with early fetches
};

}  // namespace velo::shm
