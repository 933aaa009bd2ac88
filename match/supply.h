/// Counts of equal pieces of memory out of a budget: those that are made, free and reserved.
///
/// The budget is charged for a piece when it is made. A reserved piece is certain: it is free, or memory for it is held
/// in the budget. So a sender can be promised room that costs nothing until it is used.
///
/// Owner: what has the pieces. Invariant: reserved <= free + held in the budget.
#pragma once

#include <cstdint>

#include "match/budget.h"
#include "velo/base/check.h"

namespace velo::match {

class Supply {
  public:
    Supply(Budget& budget, uint64_t bytes_each) : budget_(budget), bytes_each_(bytes_each) {}

    /// Whether this number can be taken, as far as the budget goes.
    [[nodiscard]] bool has(uint32_t pieces) const {
        return pieces <= spare() || uint64_t{pieces - spare()} * bytes_each_ <= budget_.available();
    }
    /// Memory must be there for this number of pieces before that many are taken, or reserved.
    [[nodiscard]] uint32_t reach_to_take(uint32_t pieces) const {
        return pieces <= spare() ? made_ : made_ + held() + (pieces - spare());
    }
    [[nodiscard]] uint32_t reach_to_reserve(uint32_t pieces) const {
        const uint32_t wanted = reserved_ + pieces;
        return wanted > free_ ? made_ + (wanted - free_) : made_;
    }

    /// Takes pieces that has() says are there. Returns how many of them the caller makes now; the others are free ones.
    [[nodiscard]] uint32_t take(uint32_t pieces) {
        VELO_DCHECK(has(pieces), "%u pieces are taken, of %u spare ones", pieces, spare());
        const uint32_t made = pieces <= spare() ? 0 : pieces - spare();
        free_ -= pieces - made;
        return make(made);
    }
    /// Takes reserved pieces. Returns how many of them the caller makes now; the others are free ones.
    [[nodiscard]] uint32_t take_reserved(uint32_t pieces) {
        VELO_CHECK(pieces <= reserved_, "pieces are taken that were not reserved");
        const uint32_t made = pieces <= free_ ? 0 : pieces - free_;
        reserved_ -= pieces;
        free_ -= pieces - made;
        hold();
        return make(made);
    }
    void give_back(uint32_t pieces) {
        VELO_DCHECK(pieces <= in_use(), "%u pieces are given back of %u", pieces, in_use());
        free_ += pieces;
        hold();
    }
    /// False: there is no memory for these, and nothing has changed.
    [[nodiscard]] bool may_reserve(uint32_t pieces) const {
        const uint32_t wanted = reserved_ + pieces;
        return wanted <= free_ || uint64_t{wanted - free_} * bytes_each_ <= budget_.left();
    }
    void reserve(uint32_t pieces) {
        VELO_DCHECK(may_reserve(pieces), "%u pieces are reserved without memory", pieces);
        reserved_ += pieces;
        hold();
    }
    void unreserve(uint32_t pieces) {
        VELO_CHECK(pieces <= reserved_, "more pieces are given up than were reserved");
        reserved_ -= pieces;
        hold();
    }

    [[nodiscard]] uint32_t made() const { return made_; }
    [[nodiscard]] uint32_t in_use() const { return made_ - free_; }
    [[nodiscard]] uint32_t reserved() const { return reserved_; }
    /// Free ones that were not reserved.
    [[nodiscard]] uint32_t spare() const { return free_ > reserved_ ? free_ - reserved_ : 0; }

  private:
    [[nodiscard]] uint32_t make(uint32_t pieces) {
        VELO_CHECK(budget_.take(pieces * bytes_each_), "the budget did not hold what was there");
        made_ += pieces;
        return pieces;
    }
    /// Reserved pieces that are not made yet.
    [[nodiscard]] uint32_t held() const { return reserved_ > free_ ? reserved_ - free_ : 0; }
    void hold() { budget_.hold(uint64_t{held()} * bytes_each_); }

    Budget& budget_;
    uint64_t bytes_each_;
    uint32_t made_ = 0;
    uint32_t free_ = 0;
    uint32_t reserved_ = 0;
};

}  // namespace velo::match
