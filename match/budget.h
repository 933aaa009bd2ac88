/// Bytes that may be in use for one purpose, and the most that ever were. Some can be held for one user of several.
///
/// Owner: whatever it bounds. Invariant: used + held <= limit, always.
#pragma once

#include <algorithm>
#include <cstdint>

#include "velo/base/check.h"

namespace velo::match {

class Budget {
  public:
    explicit Budget(uint64_t limit) : limit_(limit) {}

    /// False: that would be too many, and nothing has changed.
    [[nodiscard]] bool take(uint64_t bytes) {
        if (bytes > available()) return false;
        used_ += bytes;
        used_max_ = std::max(used_max_, used_);
        VELO_DCHECK(used_ + held_ <= limit_, "bytes that are held were taken");
        return true;
    }
    void give_back(uint64_t bytes) {
        VELO_CHECK(bytes <= used_, "more is given back than was taken");
        used_ -= bytes;
    }

    /// These are for the user that says it, who lowers this before taking them. It looks at left() before raising it.
    void hold(uint64_t bytes) {
        VELO_CHECK(bytes <= left(), "more is held than there is");
        held_ = bytes;
    }

    [[nodiscard]] uint64_t limit() const { return limit_; }
    [[nodiscard]] uint64_t left() const { return limit_ - used_; }
    [[nodiscard]] uint64_t available() const { return left() - held_; }
    [[nodiscard]] uint64_t used() const { return used_; }
    [[nodiscard]] uint64_t used_max() const { return used_max_; }

  private:
    uint64_t limit_;
    uint64_t used_ = 0;
    uint64_t used_max_ = 0;
    uint64_t held_ = 0;
};

}  // namespace velo::match
