/// Long puts and gets that their target may help with: the offer, as both sides see it.
///
/// A slot is in the requester's segment. Its terms repeat what the request in the target's ring says, so that
/// neither a damaged request nor a damaged slot makes the target touch memory that was not named.
#pragma once

#include <atomic>
#include <cstdint>

#include "velo/device/device.h"
#include "velo/wire/shared_block.h"

namespace velo::shim {

inline constexpr uint32_t kOfferSlots = 64;
/// Shorter operations are done before the target has come. Measured: 32 KiB take 4 us, two halves 3 us each.
inline constexpr uint32_t kOfferBytesMin = 32u << 10;

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

}  // namespace velo::shim
