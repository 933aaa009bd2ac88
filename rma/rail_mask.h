/// Sets of rails.
#pragma once

#include <cstdint>

namespace velo::rma {

/// Bit i: rail i is in the set.
using RailMask = uint64_t;

inline constexpr uint32_t kRailsMax = 64;
static_assert(kRailsMax == 8 * sizeof(RailMask));

[[nodiscard]] constexpr RailMask rail_bit(uint32_t rail) {
    return RailMask{1} << rail;
}

}  // namespace velo::rma
