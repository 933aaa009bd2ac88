/// Who moves which part of a block that two processes move together.
///
/// The reader opens a slot in its own segment; the owner of the data takes chunks from the front, the reader
/// from the back, until they meet. One word holds everything, so no chunk is taken twice or by nobody. A
/// generation in it makes an owner that comes late, when the slot serves another block, find nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace velo::shm {

struct alignas(64) JointSlot {
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

    /// Takes the next chunk from the front; `index` is its place. False: none is left, or the block is done.
    static bool claim_front(JointSlot& slot, uint16_t generation, uint32_t chunks, uint32_t& index) {
        return claim(slot, generation, chunks, [&](Claims& claims) { index = claims.front++; });
    }
    /// The same from the back.
    static bool claim_back(JointSlot& slot, uint16_t generation, uint32_t chunks, uint32_t& index) {
        return claim(slot, generation, chunks, [&](Claims& claims) { index = chunks - ++claims.back; });
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
    static bool claim(JointSlot& slot, uint16_t generation, uint32_t chunks, Take&& take) {
        uint64_t word = slot.claims.load(std::memory_order_acquire);
        for (;;) {
            Claims claims = unpack(word);
            if (claims.generation != generation || claims.front + claims.back >= chunks) return false;
            take(claims);
            if (slot.claims.compare_exchange_weak(word, pack(claims), std::memory_order_acq_rel)) return true;
        }
    }
};

}  // namespace velo::shm
