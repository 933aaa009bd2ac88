/// The ways of moving a cooperative block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace velo::rma {

/// How the owner moves its part of a cooperative block.
enum class CoopMethod : uint8_t {
    kRing = 0,             ///< the owner writes its part there with ordinary stores
    kDirect = 1,           ///< both copy straight from and to the other's memory
    kRingNontemporal = 2,  ///< as kRing, with stores that do not fetch the lines from the reader's cache first
};
inline constexpr size_t kCoopMethods = 3;

}  // namespace velo::rma
