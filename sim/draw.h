/// Numbers by a seed: a pure function, so that any of them can be asked for in any order.
#pragma once

#include <cstdint>

namespace velo::sim {

/// Number `i` of a rank: splitmix64 of where it stands.
[[nodiscard]] constexpr uint64_t draw(uint64_t seed, uint32_t rank, uint32_t i) {
    uint64_t x = (uint64_t{rank} << 32 | i) * 0x9e3779b97f4a7c15 + seed;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

}  // namespace velo::sim
