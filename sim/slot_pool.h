/// Items by number, whose numbers are used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace velo::sim {

/// References end at the next take(). Thread: one.
template <typename T>
class SlotPool {
  public:
    /// The number of a new item, the one given back last if there is one.
    [[nodiscard]] uint32_t take() {
        if (spare_.empty()) {
            items_.emplace_back();
            return static_cast<uint32_t>(items_.size() - 1);
        }
        const uint32_t slot = spare_.back();
        spare_.pop_back();
        items_[slot] = T();
        return slot;
    }
    /// The item can be read until its number is taken again.
    void give_back(uint32_t slot) { spare_.push_back(slot); }
    [[nodiscard]] T& operator[](uint32_t slot) { return items_[slot]; }
    [[nodiscard]] const T& operator[](uint32_t slot) const { return items_[slot]; }
    /// Items that were taken and not given back.
    [[nodiscard]] size_t in_use() const { return items_.size() - spare_.size(); }

  private:
    std::vector<T> items_;
    std::vector<uint32_t> spare_;
};

}  // namespace velo::sim
