/// Shares of a block that two processes move together.
///
/// The one that wants the block moved, the reader, opens a slot in its own segment; the other one, the owner,
/// takes chunks from the front, the reader from the back, until they meet. One word holds everything, so no
/// chunk is taken twice or left out. A generation in it makes an owner that comes late, when the slot serves
/// another block, find nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace velo::base {

struct ClaimWord {
    std::atomic<uint64_t> word;
};

/// The two ends' view of a slot. Stateless.
class ChunkClaims {
  public:
    static constexpr uint32_t kChunksMax = (1u << 24) - 1;

    /// Chunks from now on can be claimed under `generation`. Only the reader.
    static void open(ClaimWord& shared, uint16_t generation) {
        shared.word.store(pack({generation, 0, 0}), std::memory_order_release);
    }

    /// Takes up to `most` chunks from the front; `index` is the first one's place. Returns how many; 0: none
    /// is left, or the block is done.
    static uint32_t claim_front(ClaimWord& shared, uint16_t generation, uint32_t chunks, uint32_t& index,
                                uint32_t most = 1) {
        return claim(shared, generation, chunks, most, [&](Claims& claims, uint32_t count) {
            index = claims.front;
            claims.front += count;
        });
    }
    /// The same from the back.
    static uint32_t claim_back(ClaimWord& shared, uint16_t generation, uint32_t chunks, uint32_t& index,
                               uint32_t most = 1) {
        return claim(shared, generation, chunks, most, [&](Claims& claims, uint32_t count) {
            claims.back += count;
            index = chunks - claims.back;
        });
    }

    /// The state of a slot. It lies where other processes can write, so nothing of it is relied on unless it
    /// fits().
    struct Claims {
        uint16_t generation;
        uint32_t front;
        uint32_t back;

        /// The reader took `own` chunks from the back, and knows it.
        [[nodiscard]] constexpr bool fits(uint16_t of, uint32_t own, uint32_t chunks) const {
            return generation == of && back == own && front <= chunks && back <= chunks - front;
        }
    };

    [[nodiscard]] static Claims look(const ClaimWord& shared) {
        return unpack(shared.word.load(std::memory_order_relaxed));
    }

    /// Nothing can be claimed any more. Returns what was. Only the reader.
    static Claims close(ClaimWord& shared) {
        const Claims closed = {look(shared).generation, kChunksMax, 0};
        return unpack(shared.word.exchange(pack(closed), std::memory_order_acq_rel));
    }

  private:
    static constexpr uint64_t pack(Claims claims) {
        return uint64_t{claims.generation} << 48 | uint64_t{claims.back} << 24 | claims.front;
    }
    static constexpr Claims unpack(uint64_t word) {
        return {static_cast<uint16_t>(word >> 48), static_cast<uint32_t>(word & kChunksMax),
                static_cast<uint32_t>(word >> 24 & kChunksMax)};
    }
    template <class Take>
    static uint32_t claim(ClaimWord& shared, uint16_t generation, uint32_t chunks, uint32_t most, Take&& take) {
        uint64_t word = shared.word.load(std::memory_order_acquire);
        for (;;) {
            Claims claims = unpack(word);
            if (claims.generation != generation || claims.front + claims.back >= chunks) return 0;
            const uint32_t count = std::min(most, chunks - claims.front - claims.back);
            take(claims, count);
            if (shared.word.compare_exchange_weak(word, pack(claims), std::memory_order_acq_rel))
                return count;
        }
    }
};

}  // namespace velo::base
