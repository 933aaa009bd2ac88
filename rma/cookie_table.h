/// Operations that wait for an answer, named by a cookie that goes out and comes back.
///
/// A cookie is an entry's index and its generation, so that an answer that comes late or twice, or that a
/// peer made up, finds nothing. Owner: the engine. Thread: the engine's.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "velo/base/ids.h"

namespace velo::rma {

template <class T>
class CookieTable {
  public:
    static constexpr uint32_t kIndexBits = 16;
    static constexpr Cookie kNone{UINT32_MAX};

    /// At most 65536 entries.
    explicit CookieTable(uint32_t capacity) : capacity_(capacity) {}

    /// A cookie for `value`, or kNone when every entry is taken.
    Cookie take(const T& value) {
        auto index = static_cast<uint32_t>(entries_.size());
        if (!free_.empty()) {
            index = free_.back();
            free_.pop_back();
        } else if (index != capacity_) {
            entries_.emplace_back();
        } else {
            return kNone;
        }
        entries_[index].value = value;
        entries_[index].taken = true;
        return cookie_of(static_cast<uint16_t>(index));
    }

    /// The operation that the cookie names, or nullptr.
    T* find(Cookie cookie) {
        const uint16_t index = index_of(cookie);
        if (index >= entries_.size()) return nullptr;
        Entry& entry = entries_[index];
        return entry.taken && entry.generation == static_cast<uint32_t>(cookie) >> kIndexBits ? &entry.value : nullptr;
    }

    /// The same, by index only: for devices, whose cookies have no room for more.
    T* find_index(uint16_t index) {
        return index < entries_.size() && entries_[index].taken ? &entries_[index].value : nullptr;
    }
    [[nodiscard]] Cookie cookie_of(uint16_t index) const {
        return Cookie{index | uint32_t{entries_[index].generation} << kIndexBits};
    }
    [[nodiscard]] static uint16_t index_of(Cookie cookie) { return static_cast<uint16_t>(cookie); }

    /// Ends a cookie that find() knows.
    void release(Cookie cookie) {
        const uint16_t index = index_of(cookie);
        entries_[index].taken = false;
        ++entries_[index].generation;
        free_.push_back(index);
    }

    [[nodiscard]] bool full() const { return taken() == capacity_; }
    [[nodiscard]] uint32_t taken() const { return static_cast<uint32_t>(entries_.size() - free_.size()); }

    /// Calls visit(cookie, value) for every taken entry; `visit` may release the one it is shown.
    template <class Visit>
    void for_each(Visit&& visit) {
        for (uint32_t index = 0; index < entries_.size(); ++index) {
            if (entries_[index].taken) visit(cookie_of(static_cast<uint16_t>(index)), entries_[index].value);
        }
    }

  private:
    struct Entry {
        T value{};
        uint16_t generation = 0;
        bool taken = false;
    };
    uint32_t capacity_;
    std::deque<Entry> entries_;  ///< those that were ever taken; they stay where they are
    std::vector<uint32_t> free_;
};

}  // namespace velo::rma
