/// Who moves which part of a block that two processes move together.
///
/// The one that wants the block moved, the reader, opens a slot in its own segment; the other one, the owner,
/// takes chunks from the front, the reader from the back, until they meet. One word holds everything, so no
/// chunk is taken twice or by nobody. A generation in it makes an owner that comes late, when the slot serves
/// another block, find nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace velo::base {

struct JointSlot {
    std::atomic<uint64_t> claims;
};

/// The two ends' view of a slot. Stateless.
class JointClaims {
  public:
    static constexpr uint32_t kChunksMax = (1u << 24) - 1;

    /// Chunks from now on can be claimed under `generation`. Only the reader.
    static void open(JointSlot& slot, uint16_t generation) {
        slot.claims.store(pack({generation, 0, 0}), std::memory_order_release);
    }

    /// Takes up to `most` chunks from the front; `index` is the first one's place. Returns how many; 0: none
    /// is left, or the block is done.
    static uint32_t claim_front(JointSlot& slot, uint16_t generation, uint32_t chunks, uint32_t& index,
                                uint32_t most = 1) {
        return claim(slot, generation, chunks, most, [&](Claims& claims, uint32_t count) {
            index = claims.front;
            claims.front += count;
        });
    }
    /// The same from the back.
    static uint32_t claim_back(JointSlot& slot, uint16_t generation, uint32_t chunks, uint32_t& index,
                               uint32_t most = 1) {
        return claim(slot, generation, chunks, most, [&](Claims& claims, uint32_t count) {
            claims.back += count;
            index = chunks - claims.back;
        });
    }

    /// Nothing can be claimed any more. Returns how many chunks were taken from the front. Only the reader.
    static uint32_t close(JointSlot& slot) {
        const Claims claims = unpack(slot.claims.load(std::memory_order_relaxed));
        const Claims closed = {claims.generation, kChunksMax, 0};
        return unpack(slot.claims.exchange(pack(closed), std::memory_order_acq_rel)).front;
    }

  private:
    struct Claims {
        uint16_t generation;
        uint32_t front;
        uint32_t back;
    };
    static constexpr uint64_t pack(Claims claims) {
        return uint64_t{claims.generation} << 48 | uint64_t{claims.back} << 24 | claims.front;
    }
    static constexpr Claims unpack(uint64_t word) {
        return {static_cast<uint16_t>(word >> 48), static_cast<uint32_t>(word & kChunksMax),
                static_cast<uint32_t>(word >> 24 & kChunksMax)};
    }
    template <class Take>
    static uint32_t claim(JointSlot& slot, uint16_t generation, uint32_t chunks, uint32_t most, Take&& take) {
        uint64_t word = slot.claims.load(std::memory_order_acquire);
        for (;;) {
            Claims claims = unpack(word);
            if (claims.generation != generation || claims.front + claims.back >= chunks) return 0;
            const uint32_t count = std::min(most, chunks - claims.front - claims.back);
            take(claims, count);
            if (slot.claims.compare_exchange_weak(word, pack(claims), std::memory_order_acq_rel))
                return count;
        }
    }
};

}  // namespace velo::base
