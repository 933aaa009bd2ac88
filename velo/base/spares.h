/// Objects that are used again and again: made when none is free, and kept until the end.
#pragma once

#include <deque>
#include <vector>

#include "velo/base/check.h"

namespace velo::base {

/// Thread: the owner's. An object stays where it is. Throws std::bad_alloc.
template <class T>
class Spares {
  public:
    /// As its last user left it, or new.
    [[nodiscard]] T& take() {
        if (free_.empty()) {
            free_.reserve(all_.size() + 1);
            return all_.emplace_back();
        }
        T& taken = *free_.back();
        free_.pop_back();
        return taken;
    }
    void give_back(T& taken) noexcept {
        VELO_DCHECK(free_.size() < all_.size(), "one of %zu is given back twice", all_.size());
        free_.push_back(&taken);
    }

  private:
    std::deque<T> all_;
    std::vector<T*> free_;  ///< its capacity is that of all of them
};

}  // namespace velo::base
