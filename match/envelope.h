/// Envelopes, by which messages and receives are matched (MPI 4.1, 3.2.3 and 3.2.4), and the kinds of
/// receives by the parts that they leave open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace velo::match {

/// MPI_ANY_SOURCE and MPI_ANY_TAG as Open MPI has them.
inline constexpr int32_t kAnySource = -1;
inline constexpr int32_t kAnyTag = -1;

/// The envelope of a message: its communicator, the sender's rank there, and its tag; or that of a receive,
/// which may leave source and tag open. Tags below kAnyTag belong to collective operations; an open tag does
/// not fit them.
struct Envelope {
    uint32_t context = 0;
    int32_t source = 0;
    int32_t tag = 0;

    /// Communicator and source, as they lie in memory: compared, hashed and stored as one.
    [[nodiscard]] constexpr uint64_t place() const {
        return uint64_t{static_cast<uint32_t>(source)} << 32 | context;
    }
    [[nodiscard]] static constexpr Envelope of(uint64_t place, int32_t tag) {
        return {static_cast<uint32_t>(place), static_cast<int32_t>(place >> 32), tag};
    }
    friend constexpr bool operator==(const Envelope& a, const Envelope& b) {
        return a.place() == b.place() && a.tag == b.tag;
    }
};

/// A message leaves nothing open. Envelopes that a peer sent are tested with this before they are matched.
[[nodiscard]] constexpr bool is_of_message(const Envelope& envelope) {
    if (envelope.source < 0) [[unlikely]]
        return false;
    return envelope.tag != kAnyTag;
}

/// Whether each message that fits the second of two receives fits the first.
[[nodiscard]] constexpr bool covers(const Envelope& wide, const Envelope& narrow) {
    return wide.context == narrow.context && (wide.source == kAnySource || wide.source == narrow.source) &&
           (wide.tag == narrow.tag || (wide.tag == kAnyTag && narrow.tag >= 0));
}

enum class Kind : uint8_t {
    kExact,
    kOpenTag,
    kOpenSource,
    kOpen,
};
inline constexpr size_t kKinds = 4;
inline constexpr std::array<Kind, kKinds - 1> kOpenKinds = {Kind::kOpenTag, Kind::kOpenSource, Kind::kOpen};

[[nodiscard]] constexpr size_t index(Kind kind) {
    return static_cast<size_t>(kind);
}

/// The kind of a receive.
[[nodiscard]] constexpr Kind kind_of(const Envelope& receive) {
    return static_cast<Kind>((receive.tag == kAnyTag ? 1 : 0) + (receive.source == kAnySource ? 2 : 0));
}

// Bit 0 of a kind is an open tag, bit 1 an open source.
static_assert(kind_of({0, 0, kAnyTag}) == Kind::kOpenTag && kind_of({0, kAnySource, 0}) == Kind::kOpenSource);
static_assert(kind_of({0, kAnySource, kAnyTag}) == Kind::kOpen);

/// Whether receives of this kind can fit the message at all.
[[nodiscard]] constexpr bool can_fit(Kind kind, const Envelope& message) {
    return message.tag >= 0 || kind == Kind::kExact || kind == Kind::kOpenSource;
}

/// The receive of this kind that fits the message.
[[nodiscard]] constexpr Envelope opened(const Envelope& message, Kind kind) {
    return {.context = message.context,
            .source = (index(kind) & 2) != 0 ? kAnySource : message.source,
            .tag = (index(kind) & 1) != 0 ? kAnyTag : message.tag};
}

[[nodiscard]] constexpr bool fits(const Envelope& receive, const Envelope& message) {
    const Kind kind = kind_of(receive);
    return can_fit(kind, message) && opened(message, kind) == receive;
}

/// Programs use one tag and many sources, one source and consecutive tags, or tags that are multiples of a
/// power of two. The upper half of a product with an odd number depends on all bits of each, and one addition
/// is enough to mix them: each message is hashed twice.
struct EnvelopeHash {
    [[nodiscard]] constexpr uint32_t operator()(const Envelope& envelope) const {
        constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
        constexpr uint64_t kOther = 0xc2b2ae3d27d4eb4f;
        return static_cast<uint32_t>(
            (envelope.place() * kOther + static_cast<uint32_t>(envelope.tag) * kGolden) >> 32);
    }
};

}  // namespace velo::match
