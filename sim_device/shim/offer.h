/// Long puts and gets that their target may help with: the offer, as both sides see it.
///
/// A slot is in the requester's segment. Its terms repeat what the request in the target's ring says, so that
/// neither a damaged request nor a damaged slot makes the target touch memory that was not named.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "velo/base/chunk_claims.h"
#include "velo/device.h"

namespace velo::shim {

inline constexpr uint32_t kOfferSlots = 64;
/// Shorter operations are done before the target has come. Measured: 32 KiB take 4 us, two halves 3 us each.
inline constexpr uint32_t kOfferBytesMin = 32u << 10;

/// Bytes of a chunk. Small enough to share the operation out; a chunk costs a system call of 1.5 us.
[[nodiscard]] constexpr uint32_t offer_chunk_bytes(uint32_t bytes) {
    if (bytes < 64u << 10) return 16u << 10;
    if (bytes <= 128u << 10) return 32u << 10;
    return bytes <= 1u << 20 ? 64u << 10 : 128u << 10;
}
[[nodiscard]] constexpr uint32_t offer_chunks(uint32_t bytes) {
    const uint32_t chunk_bytes = offer_chunk_bytes(bytes);
    return (bytes + chunk_bytes - 1) / chunk_bytes;
}

/// Part of an operation, in bytes from its beginning.
struct OfferPart {
    uint32_t offset;
    uint32_t bytes;
};
/// `count` chunks from `first` on.
[[nodiscard]] constexpr OfferPart offer_part(uint32_t bytes, uint32_t first, uint32_t count) {
    const uint32_t chunk_bytes = offer_chunk_bytes(bytes);
    const uint32_t offset = first * chunk_bytes;
    return {offset, std::min(count * chunk_bytes, bytes - offset)};
}

/// Which operation of the requester an offer is about; packed into one word of it.
struct OfferTerms {
    uint32_t bytes = 0;  ///< at most 2^24
    uint16_t generation = 0;
    uint8_t slot = 0;
    RmaKind kind = RmaKind::kGet;

    [[nodiscard]] constexpr uint64_t pack() const {
        return uint64_t{bytes & 0xffffff} | uint64_t{generation} << 24 | uint64_t{slot} << 40 |
               uint64_t{static_cast<uint8_t>(kind)} << 48;
    }
    [[nodiscard]] static constexpr OfferTerms unpack(uint64_t word) {
        return {static_cast<uint32_t>(word & 0xffffff), static_cast<uint16_t>(word >> 24),
                static_cast<uint8_t>(word >> 40), static_cast<RmaKind>(word >> 48 & 0xff)};
    }
};

/// The target's work: chunks moved, and kOk or why it stopped. All but kOk is its last word.
struct OfferReport {
    uint16_t generation = 0;
    Status status = Status::kOk;
    uint32_t chunks = 0;

    [[nodiscard]] constexpr uint64_t pack() const {
        return uint64_t{generation} << 48 | uint64_t{static_cast<uint8_t>(status)} << 32 | chunks;
    }
    [[nodiscard]] static constexpr OfferReport unpack(uint64_t word) {
        return {static_cast<uint16_t>(word >> 48), static_cast<Status>(word >> 32 & 0xff),
                static_cast<uint32_t>(word)};
    }
};

struct alignas(64) OfferSlot {
    // Written by the requester, but for the claims.
    base::ClaimWord claims;
    std::atomic<uint64_t> terms;
    std::atomic<uint64_t> address;  ///< the requester's memory
    std::atomic<uint64_t> nla;      ///< the target's
    std::atomic<uint32_t> key;
    // Written by the target.
    alignas(64) std::atomic<uint64_t> report;
    std::atomic<uint32_t> seen;  ///< generation that the target came in time for; a hint
};
static_assert(sizeof(OfferSlot) == 128);
static_assert(offer_chunks(8u << 20) <= base::ChunkClaims::kChunksMax);

}  // namespace velo::shim
