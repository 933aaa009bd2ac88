/// Messages between engines: transfers that are copied instead of read or written directly, and atomics.
///
/// They travel like host messages, under the same flow control, as message class kEngine. A receiver
/// checks every field before it uses it.
#pragma once

#include <cstdint>
#include <type_traits>

namespace velo {

enum class Opcode : uint8_t {
    /// Asks for [nla, nla + value) to be sent back in kPullData messages.
    kPull = 1,
    /// Data of a pull, in order from its beginning; `value` is its offset.
    kPullData,
    /// Data to be written at nla; `last` marks the end, which is answered by kDone.
    kPutData,
    /// Applies `atomic` at nla with `value` and `compare`; answered by kDone with the old value.
    kAtomic,
    /// The operation `cookie` of the receiver has ended with `status`.
    kDone,
};

struct EngineHeader {
    Opcode opcode = Opcode::kDone;
    uint8_t atomic = 0;   ///< velo_atomic_t
    uint8_t width = 0;    ///< of an atomic, 4 or 8 bytes
    uint8_t status = 0;   ///< velo::Status
    uint32_t cookie = 0;  ///< names the requester's slot and its generation
    uint64_t nla = 0;
    uint32_t key = 0;
    uint8_t last = 0;
    uint8_t reserved[3] = {};
    uint64_t value = 0;
    uint64_t compare = 0;
};
static_assert(sizeof(EngineHeader) == 40 && std::is_trivially_copyable_v<EngineHeader>);

}  // namespace velo
