/// Whether a handle can be relied on.
///
/// Handles come from the host's memory, and osc/rdma of Open MPI 4.1 hands over pointers into a table that
/// its owner changes meanwhile. The copy may be half of one handle and half of another, so a handle
/// carries a check of itself.
#pragma once

#include <cstdint>
#include <type_traits>

#include "velo/velo.h"

namespace velo {

/// Differs, but for one chance in 2^64, when any word of the handle is another handle's.
[[nodiscard]] constexpr uint64_t check_of(const velo_handle_t& handle) {
    uint64_t check = 0x76656c6f;  // a zeroed handle does not fit
    const auto mix = [&](uint64_t word) {
        check = (check ^ word) * 0x9e3779b97f4a7c15;
        check ^= check >> 29;
    };
    mix(handle.base);
    mix(handle.bytes);
    mix(handle.nla[0]);
    mix(handle.nla[1]);
    mix(handle.device_key);
    mix(uint64_t{handle.reserved} << 32 | handle.on_node_key);
    return check;
}
static_assert(std::is_trivially_copyable_v<velo_handle_t> && sizeof(velo_handle_t) == 56,
              "every byte of a handle is checked");

/// The handle is whole, and all of [address, address + bytes) is inside it.
[[nodiscard]] constexpr bool names(const velo_handle_t& handle, uint64_t address, uint64_t bytes) {
    const uint64_t offset = address - handle.base;
    return address >= handle.base && bytes <= handle.bytes && offset <= handle.bytes - bytes &&
           handle.check == check_of(handle);
}

}  // namespace velo
