/// Pieces of memory of one size, out of a budget, of which some can be reserved.
///
/// Pieces are named by number, made one at a time in chunks of memory that stay, and used again when they are free. The
/// budget is charged for each when it is made, so at most a chunk more than the budget is allocated.
///
/// A reserved piece is certain: it is free, or memory for it is held in the budget, and its chunk is allocated. So a
/// sender can be promised room that costs nothing until it is used.
///
/// Thread: the engine's, under its lock. Invariant: reserved <= free + held in the budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "match/budget.h"
#include "velo/base/check.h"

namespace velo::match {

/// `kNext`: the member of a piece that links the free ones.
template <class T, uint32_t T::*kNext>
class Pool {
  public:
    using Ref = uint32_t;
    static constexpr Ref kNone = ~Ref{0};
    static constexpr uint32_t kPerChunk = 64;

    explicit Pool(Budget& budget) : budget_(budget) {}

    /// kNone: there is no memory but what is reserved, and nothing has changed.
    [[nodiscard]] Ref take() {
        if (free_count_ > reserved_) return pop();
        if (!reach(made_ + held() + 1) || !budget_.take(sizeof(T))) return kNone;
        return made_++;
    }
    /// One that was reserved.
    [[nodiscard]] Ref take_reserved() {
        VELO_CHECK(reserved_ != 0, "a piece is taken that was not reserved");
        --reserved_;
        if (free_count_ != 0) {
            const Ref ref = pop();
            hold();
            return ref;
        }
        hold();
        VELO_CHECK(budget_.take(sizeof(T)), "the budget did not hold what was reserved");
        return made_++;
    }
    void give_back(Ref ref) {
        at(ref).*kNext = std::exchange(free_, ref);
        ++free_count_;
        hold();
    }
    /// False: there is no memory for these, and nothing has changed.
    [[nodiscard]] bool reserve(uint32_t pieces) {
        const uint32_t wanted = reserved_ + pieces;
        const uint32_t missing = wanted > free_count_ ? wanted - free_count_ : 0;
        if (uint64_t{missing} * sizeof(T) > budget_.left() || !reach(made_ + missing)) return false;
        reserved_ = wanted;
        hold();
        return true;
    }
    void unreserve(uint32_t pieces) {
        VELO_CHECK(pieces <= reserved_, "more pieces are given up than were reserved");
        reserved_ -= pieces;
        hold();
    }

    /// As far as the budget goes, take() can be called this number of times.
    [[nodiscard]] bool has(uint32_t pieces) const {
        return pieces <= spare() || uint64_t{pieces - spare()} * sizeof(T) <= budget_.available();
    }

    [[nodiscard]] T& at(Ref ref) { return chunks_[ref / kPerChunk][ref % kPerChunk]; }
    [[nodiscard]] const T& at(Ref ref) const { return chunks_[ref / kPerChunk][ref % kPerChunk]; }
    [[nodiscard]] uint32_t made() const { return made_; }
    [[nodiscard]] uint32_t in_use() const { return made_ - free_count_; }
    [[nodiscard]] uint32_t reserved() const { return reserved_; }
    /// Free ones that were not reserved.
    [[nodiscard]] uint32_t spare() const { return free_count_ > reserved_ ? free_count_ - reserved_ : 0; }

  private:
    [[nodiscard]] Ref pop() {
        --free_count_;
        return std::exchange(free_, at(free_).*kNext);
    }
    /// Reserved pieces that are not made yet.
    [[nodiscard]] uint32_t held() const { return reserved_ > free_count_ ? reserved_ - free_count_ : 0; }
    void hold() { budget_.hold(uint64_t{held()} * sizeof(T)); }
    /// After this there are chunks for as many pieces. Memory that is not written costs nothing.
    [[nodiscard]] bool reach(uint32_t pieces) {
        try {
            while (chunks_.size() * kPerChunk < pieces) chunks_.emplace_back(new T[kPerChunk]);
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }

    Budget& budget_;
    std::vector<std::unique_ptr<T[]>> chunks_;
    Ref free_ = kNone;
    uint32_t free_count_ = 0;
    uint32_t made_ = 0;
    uint32_t reserved_ = 0;
};

}  // namespace velo::match
