/// Memory that was named to peers, and their rights to it.
#pragma once

#include <cstdint>

namespace velo {

/// Rights of a registration; the values are bits.
enum Access : uint8_t {
    kAccessRead = 1,    ///< source of a remote get
    kAccessWrite = 2,   ///< target of a remote put
    kAccessAtomic = 4,  ///< target of remote atomics
    kAccessAny = 7,
};

/// A registered range, as its owner published it. Flat and position-independent.
struct Registration {
    uint64_t nla = 0;    ///< network logical address of the first byte
    uint64_t bytes = 0;  ///< length of the range
    uint64_t key = 0;    ///< never 0 where registered; other ones each time
    uint32_t access = 0;
    bool operator==(const Registration&) const = default;
};
static_assert(sizeof(Registration) == 32);

}  // namespace velo
