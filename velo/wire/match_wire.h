/// Messages of matching: kinds, and what stands before a message's data.
///
/// They travel as messages of the host's class, under the same flow control and in order, with tags that no
/// host uses. A receiver checks every field before it uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "match/envelope.h"
#include "match/room.h"
#include "velo/velo.h"

namespace velo::match {

/// Hosts use tags below this one only (Open MPI's end with those for users, 0x80 to 0x9f).
inline constexpr uint8_t kFirstWireTag = 0xf0;

enum class WireTag : uint8_t {
    kEager = kFirstWireTag,  ///< in room that was granted; EagerHeader, its number if that is reported, data
    kRequest,      ///< RequestHeader, then all of its data, or its Place, or nothing
    kAnswer,       ///< of a request
    kGrant,        ///< room that was set aside
    kOffers,       ///< receives that were posted, or the wish to hear of all that waits again
    kEnd,          ///< of a pass
    kClearToSend,  ///< a message that was accepted without data has matched
    kReady,        ///< where its data is
    kDone,         ///< it was matched, and its data has been fetched
    kLeft,         ///< no receive follows: what its receiver has not matched it never will
};

/// Envelope of a message. A communicator's number has 16 bits; the component says so to its host.
struct EagerHeader {
    static constexpr uint32_t kTellsNumber = 1;
    static constexpr uint32_t kFirst = 2;
    static constexpr uint32_t kHasData = 4;
    static constexpr uint32_t kHasHandle = 8;
    /// Of a request: the flags from this bit on are a number n; at most 2^n messages wait with the sender.
    static constexpr uint32_t kWaitingShift = 8;

    int32_t tag = 0;
    /// The upper half is flags. One field: base::copy_fields() loads four bytes here.
    uint32_t context_and_flags = 0;
    int32_t source = 0;

    [[nodiscard]] static EagerHeader of(const Envelope& envelope, uint32_t flags) {
        return {envelope.tag, envelope.context | flags << 16, envelope.source};
    }
    /// Writes a header that is being put together: by fields, as base::copy_fields() says why.
    [[gnu::always_inline]] void write(std::byte* to) const {
        std::memcpy(to, &tag, sizeof tag);
        std::memcpy(to + offsetof(EagerHeader, context_and_flags), &context_and_flags, sizeof context_and_flags);
        std::memcpy(to + offsetof(EagerHeader, source), &source, sizeof source);
    }
    /// Reads a header by fields: a copy in memory would be read back by other widths than it was written with.
    [[nodiscard, gnu::always_inline]] static EagerHeader read(const std::byte* from) {
        EagerHeader header;
        std::memcpy(&header.tag, from, sizeof tag);
        std::memcpy(&header.context_and_flags, from + offsetof(EagerHeader, context_and_flags),
                    sizeof context_and_flags);
        std::memcpy(&header.source, from + offsetof(EagerHeader, source), sizeof source);
        return header;
    }
    /// Whether the header has no flags, and is a message's (is_of_message).
    [[nodiscard]] bool is_plain() const {
        const uint64_t place = uint64_t{static_cast<uint32_t>(source)} << 32 | context_and_flags;
        return (place & 0x8000'0000'ffff'0000) == 0 && tag != kAnyTag;
    }
    [[nodiscard]] uint32_t flags() const { return context_and_flags >> 16; }
    [[nodiscard]] Envelope envelope() const { return {context_and_flags & 0xffff, source, tag}; }
};
static_assert(sizeof(EagerHeader) == 12);

struct RequestHeader {
    EagerHeader head;
    uint32_t age = 0;
    uint64_t number = 0;  ///< the sender's
    uint64_t bytes = 0;
};
static_assert(sizeof(RequestHeader) == 32);

/// The place of a message's data, by which it is fetched.
struct Place {
    uint64_t address = 0;  ///< of its data, at the sender
    velo_handle_t handle = {};
};

struct GrantHeader {
    uint16_t records = 0;
    uint16_t cells = 0;

    [[nodiscard]] static GrantHeader of(Room room) {
        return {static_cast<uint16_t>(room.records()), static_cast<uint16_t>(room.cells())};
    }
    [[nodiscard]] Room room() const { return {records, cells}; }
};

struct AnswerHeader {
    enum class Outcome : uint8_t {
        kRefused,
        kAccepted,  ///< with its data
        kDataless,  ///< its data is still to be sent or fetched
        kMatched,   ///< with its data
    };
    uint64_t number = 0;
    uint32_t age = 0;
    GrantHeader grant = {};
    Outcome outcome = Outcome::kRefused;
    uint8_t reserved[7] = {};
};
static_assert(sizeof(AnswerHeader) == 24);

/// The receives follow.
struct OffersHeader {
    uint32_t age = 0;
    uint8_t count = 0;
    uint8_t resend_all = 0;
    uint8_t reserved[2] = {};
};

struct EndHeader {
    uint32_t age = 0;
};

struct ClearToSendHeader {
    uint64_t number = 0;
    uint64_t receive = 0;  ///< the receiver's number for it
};

struct ReadyHeader {
    uint64_t receive = 0;
    Place place = {};
};

struct DoneHeader {
    uint64_t number = 0;
};

/// False: the message is too short for it.
template <class Header>
[[nodiscard]] bool read_header(Header& header, const std::byte* data, uint32_t bytes) {
    static_assert(std::is_trivially_copyable_v<Header>);
    if (bytes < sizeof header) return false;
    std::memcpy(&header, data, sizeof header);
    return true;
}

}  // namespace velo::match
