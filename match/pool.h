/// Pieces of memory of one size, out of a budget, of which some can be reserved.
///
/// Pieces are named by number, made one at a time in chunks of memory that stay, and used again when they are free. At
/// most a chunk more than the budget is allocated; that of a reserved piece is there.
///
/// Thread: the engine's, under its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "match/supply.h"
#include "velo/base/check.h"

namespace velo::match {

/// `kNext`: the member of a piece that links the free ones.
template <class T, uint32_t T::*kNext>
class Pool {
  public:
    using Ref = uint32_t;
    static constexpr Ref kNone = ~Ref{0};
    static constexpr uint32_t kPerChunk = 64;

    explicit Pool(Budget& budget) : supply_(budget, sizeof(T)) {}

    /// kNone: there is no memory but what is reserved, and nothing has changed.
    [[nodiscard]] Ref take() {
        if (supply_.spare() == 0 && (!supply_.has(1) || !reach(supply_.reach_to_take(1)))) return kNone;
        return supply_.take(1) != 0 ? supply_.made() - 1 : pop();
    }
    /// Takes a piece that was reserved.
    [[nodiscard]] Ref take_reserved() { return supply_.take_reserved(1) != 0 ? supply_.made() - 1 : pop(); }
    void give_back(Ref ref) {
        VELO_DCHECK(ref < supply_.made() && ref != free_, "piece %u of %u is freed", ref, supply_.made());
        at(ref).*kNext = std::exchange(free_, ref);
        supply_.give_back(1);
    }
    /// False: there is no memory for these, and nothing has changed.
    [[nodiscard]] bool reserve(uint32_t pieces) {
        if (!supply_.may_reserve(pieces) || !reach(supply_.reach_to_reserve(pieces))) return false;
        supply_.reserve(pieces);
        return true;
    }
    /// Reserves a piece that was given back just now, and not taken again.
    void reserve_freed() {
        VELO_CHECK(supply_.may_reserve(1), "a piece that was freed is not free");
        supply_.reserve(1);
    }
    void unreserve(uint32_t pieces) { supply_.unreserve(pieces); }

    [[nodiscard]] T& at(Ref ref) { return const_cast<T&>(std::as_const(*this).at(ref)); }
    [[nodiscard]] const T& at(Ref ref) const {
        VELO_DCHECK(ref < supply_.made() && ref / kPerChunk < chunks_.size(), "piece %u of %u", ref,
                    supply_.made());
        return chunks_[ref / kPerChunk][ref % kPerChunk];
    }
    [[nodiscard]] const Supply& supply() const { return supply_; }

  private:
    [[nodiscard]] Ref pop() {
        VELO_DCHECK(free_ != kNone, "none of %u pieces is free", supply_.made());
        return std::exchange(free_, at(free_).*kNext);
    }
    /// After this there are chunks for as many pieces. Memory that is not written costs nothing.
    [[nodiscard]] bool reach(uint32_t pieces) {
        try {
            while (chunks_.size() * kPerChunk < pieces) chunks_.emplace_back(new T[kPerChunk]);
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }

    Supply supply_;
    std::vector<std::unique_ptr<T[]>> chunks_;
    Ref free_ = kNone;
};

}  // namespace velo::match
