/// Atomic operations on this process's memory, for peers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "velo/velo.h"

namespace velo {

/// Applies an operation to the integer at `target`, sequentially consistent with every other atomic of this
/// process. Returns the old value. MIN and MAX compare as signed.
template <class T>
T apply_atomic(velo_atomic_t operation, T* target, T operand, T compare) {
    const auto replace = [&](auto&& next) {
        T old = __atomic_load_n(target, __ATOMIC_SEQ_CST);
        while (!__atomic_compare_exchange_n(target, &old, next(old), false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST)) {
        }
        return old;
    };
    using Signed = std::make_signed_t<T>;
    switch (operation) {
        case VELO_ATOMIC_ADD: return __atomic_fetch_add(target, operand, __ATOMIC_SEQ_CST);
        case VELO_ATOMIC_AND: return __atomic_fetch_and(target, operand, __ATOMIC_SEQ_CST);
        case VELO_ATOMIC_OR: return __atomic_fetch_or(target, operand, __ATOMIC_SEQ_CST);
        case VELO_ATOMIC_XOR: return __atomic_fetch_xor(target, operand, __ATOMIC_SEQ_CST);
        case VELO_ATOMIC_SWAP: return __atomic_exchange_n(target, operand, __ATOMIC_SEQ_CST);
        case VELO_ATOMIC_MIN:
            return replace([&](T old) {
                return static_cast<Signed>(operand) < static_cast<Signed>(old) ? operand : old;
            });
        case VELO_ATOMIC_MAX:
            return replace([&](T old) {
                return static_cast<Signed>(operand) > static_cast<Signed>(old) ? operand : old;
            });
        case VELO_ATOMIC_COMPARE_SWAP:
            __atomic_compare_exchange_n(target, &compare, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
            return compare;
        case VELO_ATOMIC_LOGICAL_AND: return replace([&](T old) { return T{old != 0 && operand != 0}; });
        case VELO_ATOMIC_LOGICAL_OR: return replace([&](T old) { return T{old != 0 || operand != 0}; });
        case VELO_ATOMIC_LOGICAL_XOR: return replace([&](T old) { return T{(old != 0) != (operand != 0)}; });
        case VELO_ATOMIC_COUNT: break;
    }
    return T{};
}

/// Applies an operation to an integer of `width` bytes, 4 or 8, at an address of that alignment. Returns the old
/// value.
inline uint64_t apply_atomic(velo_atomic_t operation, uint32_t width, uint64_t address, uint64_t operand,
                             uint64_t compare) {
    if (width == 4) {
        return apply_atomic(operation, reinterpret_cast<uint32_t*>(address), static_cast<uint32_t>(operand),
                            static_cast<uint32_t>(compare));
    }
    return apply_atomic(operation, reinterpret_cast<uint64_t*>(address), operand, compare);
}

}  // namespace velo
