/// Room for unexpected messages: a number of records, and one of cells for their data.
///
/// Both lie in one word. They are changed and looked at with each message, and a load of two fields that were stored
/// one by one waits until all earlier stores have left for the cache.
#pragma once

#include <cstdint>

#include "velo/base/check.h"

namespace velo::match {

class Room {
  public:
    static constexpr uint32_t kMax = 0xffff;  ///< of either

    constexpr Room() = default;
    constexpr Room(uint32_t records, uint32_t cells) : both_(records | cells << 16) {
        VELO_DCHECK(records <= kMax && cells <= kMax, "room for %u records and %u cells", records, cells);
    }

    [[nodiscard]] constexpr uint32_t records() const { return both_ & kMax; }
    [[nodiscard]] constexpr uint32_t cells() const { return both_ >> 16; }
    [[nodiscard]] constexpr bool empty() const { return both_ == 0; }
    /// Whether there can be so much more.
    [[nodiscard]] constexpr bool fits(Room more) const {
        return records() + more.records() <= kMax && cells() + more.cells() <= kMax;
    }
    [[nodiscard]] constexpr bool has(Room part) const { return part.records() <= records() && part.cells() <= cells(); }

    /// The sum fits.
    constexpr Room& operator+=(Room more) {
        VELO_DCHECK(fits(more), "more room than can be counted");
        both_ += more.both_;
        return *this;
    }
    /// Subtracts a part that this room has.
    constexpr Room& operator-=(Room part) {
        VELO_DCHECK(has(part), "room is used that is not there");
        both_ -= part.both_;
        return *this;
    }
    [[nodiscard]] friend constexpr Room operator+(Room room, Room more) { return room += more; }
    [[nodiscard]] friend constexpr Room operator-(Room whole, Room part) { return whole -= part; }

  private:
    uint32_t both_ = 0;
};

}  // namespace velo::match
