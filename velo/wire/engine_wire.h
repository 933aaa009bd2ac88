/// Messages between engines: transfers that are copied instead of read or written directly, or moved
/// by both ends, and atomics.
///
/// They travel like host messages, under the same flow control, as message class kEngine. A receiver
/// checks every field before it uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "rma/coop_method.h"
#include "velo/base/ids.h"

namespace velo {

/// The key that stands in place of a registration's: `nla` is an address, and the owner looks for a
/// registration that holds it. Keys of registrations are odd.
inline constexpr uint32_t kKeyOfAddress = 0;

enum class Opcode : uint8_t {
    /// Asks for [nla, nla + value) to be sent back in kPullData messages. With `guarded`: by guarded copies.
    kPull = 1,
    /// Data of a pull, in order from its beginning; `value` is its offset.
    kPullData,
    /// Data to be written at nla; `last` marks the end, which is answered by kDone. With `guarded`: by guarded copies.
    kPutData,
    /// Applies `atomic` at nla with `value` and `compare`; answered by kDone with the old value.
    kAtomic,
    /// The operation `cookie` of the receiver has ended with `status`.
    kDone,
    /// Asks the owner of [nla, nla + value) for its part in moving it to `compare` in the asker's memory
    /// (CoopCall), by the CoopMethod in `status`. With `last`: all of it, in kCoopData messages.
    kCoop,
    /// Data of a cooperative block: 56 bytes of header, then what belongs at offset `value`. `compare`: the number of
    /// bytes there were written directly instead, and none follow. `key`: ns that the owner took; 0: not timed.
    kCoopData,
    /// About a reservation of a rail (velo/rendezvous/reserving.h). `atomic`: RailMessageKind; `width`: the rail;
    /// `last`: the requester sends; `value`: the request's number; `status` kUnsupported: no such rail is reserved.
    kRail,
};

struct EngineHeader {
    Opcode opcode = Opcode::kDone;
    uint8_t atomic = 0;   ///< velo_atomic_t
    uint8_t width = 0;    ///< of an atomic, 4 or 8 bytes
    uint8_t status = 0;   ///< velo::Status
    Cookie cookie{};  ///< names the requester's slot and its generation
    uint64_t nla = 0;
    uint32_t key = 0;
    uint8_t last = 0;
    uint8_t guarded = 0;  ///< memory there may be unmapped (Core::copy_out, copy_in)
    uint8_t reserved[2] = {};
    uint64_t value = 0;
    uint64_t compare = 0;
};
static_assert(sizeof(EngineHeader) == 40 && std::is_trivially_copyable_v<EngineHeader>);

/// Data of a cooperative block begins on a cache line of the ring.
struct CoopDataHeader {
    EngineHeader header;
    uint64_t reserved[2] = {};
};
static_assert(sizeof(CoopDataHeader) == 56);

using rma::CoopMethod;
using rma::kCoopMethods;

/// `value` of kCoop.
struct CoopCall {
    uint32_t bytes = 0;
    uint16_t generation = 0;
    uint16_t slot = 0;

    [[nodiscard]] constexpr uint64_t pack() const {
        return uint64_t{bytes} | uint64_t{generation} << 32 | uint64_t{slot} << 48;
    }
    [[nodiscard]] static constexpr CoopCall unpack(uint64_t word) {
        return {static_cast<uint32_t>(word), static_cast<uint16_t>(word >> 32),
                static_cast<uint16_t>(word >> 48)};
    }
};

}  // namespace velo
