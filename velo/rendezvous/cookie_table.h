/// Operations that wait for an answer, named by a cookie that goes out and comes back.
///
/// A cookie is an entry's index and its generation, so that an answer that comes late or twice, or that a
/// peer made up, finds nothing. Entries stay where they are. Owner: the engine. Thread: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "velo/base/check.h"
#include "velo/base/ids.h"

namespace velo::rma {

/// The part of an entry that its user reads.
struct CookieEntry {
    Cookie cookie{};

    /// The index alone, for devices, whose cookies hold no more.
    [[nodiscard]] uint16_t index() const { return static_cast<uint16_t>(cookie); }
};

/// `T` is a CookieEntry. Cost of every call but for_each(): O(1).
template <class T>
class CookieTable {
  public:
    static constexpr uint32_t kIndexBits = 16;

    /// At most 65536 entries.
    explicit CookieTable(uint32_t capacity) : capacity_(capacity) {
        VELO_CHECK(capacity <= 1u << kIndexBits, "%u entries", capacity);
    }

    /// An entry with a cookie and the values of T{}, or nullptr when every entry is taken.
    T* take() {
        if (free_ == nullptr && !grow()) [[unlikely]]
            return nullptr;
        Entry& entry = *free_;
        free_ = entry.next_free;
        VELO_DCHECK(!entry.taken && taken_ < made_, "entry %u is free and taken", entry.index());
        entry.taken = true;
        ++taken_;
        return &entry;
    }

    /// The operation that the cookie names, or nullptr.
    T* find(Cookie cookie) {
        T* found = find_index(static_cast<uint16_t>(cookie));
        return found != nullptr && found->cookie == cookie ? found : nullptr;
    }
    /// The operation at an index, whatever its generation, or nullptr.
    T* find_index(uint16_t index) {
        if (index >= made_) return nullptr;
        Entry& entry = this->entry(index);
        return entry.taken ? &entry : nullptr;
    }

    /// Ends an operation that take() has given.
    void release(T& value) {
        auto& entry = static_cast<Entry&>(value);
        VELO_DCHECK(entry.taken, "entry %u ends twice", entry.index());
        // The next generation, which wraps around above the index.
        const Cookie next{static_cast<uint32_t>(entry.cookie) + (1u << kIndexBits)};
        value = T{};
        entry.cookie = next;
        entry.taken = false;
        entry.next_free = free_;
        free_ = &entry;
        --taken_;
    }

    [[nodiscard]] bool full() const { return taken_ == capacity_; }
    [[nodiscard]] uint32_t taken() const { return taken_; }

    /// Calls visit(value) for every taken entry; `visit` may release the one it is shown.
    template <class Visit>
    void for_each(Visit&& visit) {
        for (uint32_t index = 0; index < made_; ++index) {
            Entry& entry = this->entry(index);
            if (entry.taken) visit(static_cast<T&>(entry));
        }
    }

  private:
    static constexpr uint32_t kBlockEntries = 64;
    static constexpr size_t kLineBytes = 64;
    struct alignas(kLineBytes) Entry : T {
        bool taken = false;
        Entry* next_free = nullptr;
    };

    [[nodiscard]] Entry& entry(uint32_t index) { return blocks_[index / kBlockEntries][index % kBlockEntries]; }
    /// False: there are as many entries as there may be.
    [[gnu::cold]] bool grow() {
        if (made_ == capacity_) return false;
        if (made_ % kBlockEntries == 0) blocks_.push_back(std::make_unique<Entry[]>(kBlockEntries));
        Entry& made = entry(made_);
        made.cookie = Cookie{made_++};
        free_ = &made;
        return true;
    }

    uint32_t capacity_;
    uint32_t made_ = 0;  ///< entries that were ever taken
    uint32_t taken_ = 0;
    Entry* free_ = nullptr;
    std::vector<std::unique_ptr<Entry[]>> blocks_;
};

}  // namespace velo::rma
