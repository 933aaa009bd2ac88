/// Messages between engines: transfers that are copied instead of read or written directly, or moved
/// by both ends, and atomics.
///
/// They travel like host messages, under the same flow control, as message class kEngine. Each is a header of its own,
/// the opcode first, and in some the data. A receiver takes a header by read_header(), which checks what the fields say
/// by themselves, and compares what they name with its own state before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "rma/coop_method.h"
#include "rma/rail_reservation.h"
#include "velo/base/ids.h"
#include "velo/base/status.h"

namespace velo {

/// The key that stands in place of a registration's: `nla` is an address, and the owner looks for a
/// registration that holds it. Keys of registrations are odd.
inline constexpr uint32_t kKeyOfAddress = 0;

enum class Opcode : uint8_t {
    kPull = 1,     ///< asks for memory
    kPullData,     ///< a piece of it
    kPutData,      ///< a piece of memory to be written
    kAtomic,       ///< asks for an atomic operation
    kDone,         ///< an operation has ended
    kCoopCall,     ///< asks the owner of memory for its part in a cooperative copy
    kCoopPart,     ///< asks the owner for a named part of one
    kCoopData,     ///< a piece of one, through the ring
    kCoopWritten,  ///< a piece of one was written directly
    kRail,         ///< about a reservation of a rail
};

using rma::CoopMethod;
using rma::kCoopMethods;

/// Asks for [nla, nla + bytes), to be sent back in PullDataHeader messages.
struct PullHeader {
    static constexpr Opcode kOpcode = Opcode::kPull;

    Opcode opcode = kOpcode;
    uint8_t guarded = 0;  ///< 1: the memory may be unmapped (Core::copy_out, copy_in)
    uint8_t reserved[2] = {};
    Cookie cookie{};  ///< of the asker's operation
    uint64_t nla = 0;
    uint64_t bytes = 0;
    uint32_t key = 0;
    uint32_t reserved_end = 0;

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const { return guarded <= 1 && data_bytes == 0; }
};
static_assert(sizeof(PullHeader) == 32);

/// Data of a pull, in order from its beginning.
struct PullDataHeader {
    static constexpr Opcode kOpcode = Opcode::kPullData;

    Opcode opcode = kOpcode;
    uint8_t reserved[3] = {};
    Cookie cookie{};
    uint64_t offset = 0;  ///< of the piece

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const { return data_bytes != 0; }
};
static_assert(sizeof(PullDataHeader) == 16);

/// Data to be written at nla. The last piece is answered by DoneHeader, and so is each that fails.
struct PutDataHeader {
    static constexpr Opcode kOpcode = Opcode::kPutData;

    Opcode opcode = kOpcode;
    uint8_t guarded = 0;  ///< as in PullHeader
    uint8_t last = 0;
    uint8_t reserved = 0;
    Cookie cookie{};
    uint64_t nla = 0;
    uint32_t key = 0;
    uint32_t reserved_end = 0;

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const {
        return guarded <= 1 && last <= 1 && data_bytes != 0;
    }
};
static_assert(sizeof(PutDataHeader) == 24);

/// Asks for an operation at nla; answered by DoneHeader with the old value.
struct AtomicHeader {
    static constexpr Opcode kOpcode = Opcode::kAtomic;

    Opcode opcode = kOpcode;
    uint8_t operation = 0;  ///< velo_atomic_t
    uint8_t width = 0;      ///< 4 or 8 bytes
    uint8_t reserved = 0;
    Cookie cookie{};
    uint64_t nla = 0;
    uint64_t operand = 0;
    uint64_t compare = 0;  ///< of a compare-and-swap
    uint32_t key = 0;
    uint32_t reserved_end = 0;

    /// An operation that is none is answered with a status.
    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const { return data_bytes == 0; }
};
static_assert(sizeof(AtomicHeader) == 40);

/// The operation `cookie` of the receiver has ended.
struct DoneHeader {
    static constexpr Opcode kOpcode = Opcode::kDone;

    Opcode opcode = kOpcode;
    Status status = Status::kOk;
    uint8_t reserved[2] = {};
    Cookie cookie{};
    /// Of an atomic: the old value. Of a cooperative copy: bytes that its owner has claimed and does not bring.
    uint64_t value = 0;

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const {
        return status <= kLastStatus && data_bytes == 0;
    }
};
static_assert(sizeof(DoneHeader) == 16);

/// Asks the owner of [nla, nla + bytes) for its part in moving it (velo/wire/shared_block.h).
struct CoopCallHeader {
    static constexpr Opcode kOpcode = Opcode::kCoopCall;

    Opcode opcode = kOpcode;
    CoopMethod method{};
    uint16_t slot = 0;  ///< of the claims, in the asker's segment
    Cookie cookie{};
    uint64_t nla = 0;
    uint64_t destination = 0;  ///< address in the asker, for direct copies
    uint32_t key = 0;
    uint32_t bytes = 0;
    uint16_t generation = 0;  ///< of the slot
    uint16_t reserved[3] = {};

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const {
        return static_cast<size_t>(method) < kCoopMethods && data_bytes == 0;
    }
};
static_assert(sizeof(CoopCallHeader) == 40);

/// Asks the owner of [nla, nla + bytes) to send all of it through the ring.
struct CoopPartHeader {
    static constexpr Opcode kOpcode = Opcode::kCoopPart;

    Opcode opcode = kOpcode;
    CoopMethod method{};
    uint8_t reserved[2] = {};
    Cookie cookie{};
    uint64_t nla = 0;
    uint32_t key = 0;
    uint32_t bytes = 0;
    uint32_t offset = 0;  ///< of the part in its block, from which the answers count
    uint32_t reserved_end = 0;

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const {
        return (method == CoopMethod::kRing || method == CoopMethod::kRingNontemporal) && data_bytes == 0;
    }
};
static_assert(sizeof(CoopPartHeader) == 32);

/// Data of a cooperative block. It begins on a cache line of the ring.
struct CoopDataHeader {
    static constexpr Opcode kOpcode = Opcode::kCoopData;

    Opcode opcode = kOpcode;
    uint8_t reserved[3] = {};
    Cookie cookie{};
    uint64_t offset = 0;  ///< in the block
    uint32_t ns = 0;      ///< that the owner took for it; 0: not timed
    uint32_t reserved_end[9] = {};

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const { return data_bytes != 0; }
};
static_assert(sizeof(CoopDataHeader) == 56);

/// The owner has written these bytes of a cooperative block where they belong.
struct CoopWrittenHeader {
    static constexpr Opcode kOpcode = Opcode::kCoopWritten;

    Opcode opcode = kOpcode;
    uint8_t reserved[3] = {};
    Cookie cookie{};
    uint64_t offset = 0;
    uint32_t bytes = 0;
    uint32_t ns = 0;  ///< as in CoopDataHeader

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const { return bytes != 0 && data_bytes == 0; }
};
static_assert(sizeof(CoopWrittenHeader) == 24);

/// About a reservation of a rail (velo/rendezvous/reserving.h).
struct RailHeader {
    static constexpr Opcode kOpcode = Opcode::kRail;

    Opcode opcode = kOpcode;
    rma::RailMessageKind kind{};
    uint8_t rail = 0;
    Status status = Status::kOk;  ///< of a NACK; kUnsupported: no such rail is reserved here
    uint8_t sends = 0;            ///< 1: the requester does (a put)
    uint8_t reserved[3] = {};
    uint32_t number = 0;  ///< of the request

    [[nodiscard]] constexpr bool is_valid(uint32_t data_bytes) const {
        return kind <= rma::RailMessageKind::kDone && status <= kLastStatus && sends <= 1 && data_bytes == 0;
    }
};
static_assert(sizeof(RailHeader) == 12);

/// The longest header of a message that has no data.
inline constexpr size_t kControlBytesMax = 40;

/// Beginning of every header that names an operation.
struct OperationHead {
    Opcode opcode{};
    uint8_t others[3] = {};
    Cookie cookie{};
};

/// 0: the message is empty.
[[nodiscard]] inline Opcode opcode_of(const std::byte* data, uint32_t bytes) {
    return bytes == 0 ? Opcode{} : static_cast<Opcode>(data[0]);
}
/// Copies the header out of a message. False: the message is too short for it, or its fields say what cannot be.
template <class Header>
[[nodiscard]] bool read_header(Header& header, const std::byte* data, uint32_t bytes) {
    static_assert(std::has_unique_object_representations_v<Header>, "each byte has a value");
    static_assert(offsetof(Header, opcode) == offsetof(OperationHead, opcode));
    if (bytes < sizeof header) return false;
    std::memcpy(&header, data, sizeof header);
    return header.opcode == Header::kOpcode && header.is_valid(bytes - static_cast<uint32_t>(sizeof header));
}
template <class Header>
void write_header(std::byte* to, const Header& header) {
    static_assert(std::has_unique_object_representations_v<Header>, "no byte of other memory leaves");
    std::memcpy(to, &header, sizeof header);
}

}  // namespace velo
