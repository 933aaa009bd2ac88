/// A block that two processes move together: how it is cut, which part each takes, and what is still due.
///
/// The one that wants the block moved, the reader, opens a work item in its own segment; the other one, the owner,
/// takes chunks from the front, the reader from the back, until they meet. One word of the item holds all claims, so
/// no chunk is taken twice or left out. A generation in it makes an owner that comes late, when the item serves
/// another block, find nothing. How parts travel and how their ends are reported is for the two users to say:
/// velo/rendezvous/coop_reader.h on the node, sim_device/shim/offer.h in the software device.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "velo/base/check.h"

namespace velo::base {

/// Other processes can write to it, so nothing of it is relied on that the reader cannot check.
struct ClaimWord {
    std::atomic<uint64_t> word;
};

/// A part of a block, in bytes from its beginning. No bytes: nothing was left to take.
struct BlockPart {
    uint32_t offset = 0;
    uint32_t bytes = 0;
};

/// The owner's side, and what both sides know. The word says what was taken.
class SharedBlock {
  public:
    constexpr SharedBlock() = default;
    constexpr SharedBlock(uint32_t bytes, uint16_t generation)
        : bytes_(bytes), generation_(generation), chunk_shift_(chunk_shift(bytes)) {}

    [[nodiscard]] constexpr uint32_t bytes() const { return bytes_; }
    [[nodiscard]] constexpr uint16_t generation() const { return generation_; }
    /// Chunks that a part of this length is made of; the block's last one may be shorter than others.
    [[nodiscard]] constexpr uint32_t chunks(uint32_t part_bytes) const {
        return static_cast<uint32_t>((uint64_t{part_bytes} + (1u << chunk_shift_) - 1) >> chunk_shift_);
    }

    /// Takes the next chunks from the front: as many as fit into `bytes_max`, and at least one.
    BlockPart claim_front(ClaimWord& shared, uint32_t bytes_max = 0) const {
        return claim(shared, bytes_max, true);
    }

  protected:
    static constexpr uint32_t kChunksMax = (1u << 24) - 1;

    struct Claims {
        uint16_t generation;
        uint32_t front;
        uint32_t back;

        [[nodiscard]] constexpr uint64_t pack() const {
            return uint64_t{generation} << 48 | uint64_t{back} << 24 | front;
        }
        [[nodiscard]] static constexpr Claims unpack(uint64_t word) {
            return {static_cast<uint16_t>(word >> 48), static_cast<uint32_t>(word & kChunksMax),
                    static_cast<uint32_t>(word >> 24 & kChunksMax)};
        }
    };

    [[nodiscard]] constexpr BlockPart part(uint32_t first, uint32_t count) const {
        const uint64_t begin = std::min<uint64_t>(uint64_t{first} << chunk_shift_, bytes_);
        const uint64_t end = std::min<uint64_t>(uint64_t{first + count} << chunk_shift_, bytes_);
        return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin)};
    }
    BlockPart claim(ClaimWord& shared, uint32_t bytes_max, bool from_front) const {
        const uint32_t all = chunks(bytes_);
        uint64_t word = shared.word.load(std::memory_order_acquire);
        for (;;) {
            Claims claims = Claims::unpack(word);
            if (claims.generation != generation_ || claims.front + claims.back >= all) return {};
            const uint32_t room = std::max(bytes_max >> chunk_shift_, 1u);
            const uint32_t count = std::min(room, all - claims.front - claims.back);
            const uint32_t first = from_front ? claims.front : all - claims.back - count;
            (from_front ? claims.front : claims.back) += count;
            if (shared.word.compare_exchange_weak(word, claims.pack(), std::memory_order_acq_rel))
                return part(first, count);
        }
    }

  private:
    /// Both sides must agree. Small enough to share the block out, and large enough that a chunk's cost (a
    /// system call of 1 to 1.5 us) does not show.
    static constexpr uint8_t chunk_shift(uint32_t bytes) {
        if (bytes <= 32u << 10) return 14;
        if (bytes <= 128u << 10) return 15;
        if (bytes <= 512u << 10) return 16;
        return bytes <= 1u << 20 ? 17 : 18;
    }

    uint32_t bytes_ = 0;
    uint16_t generation_ = 0;
    uint8_t chunk_shift_ = 0;
};

/// The reader's side of the block that a work item serves. Owner: the reader. Thread: one at a time.
/// Invariant: bytes that have ended are at most the block's.
class ReaderBlock : public SharedBlock {
  public:
    ReaderBlock() = default;

    /// The next block of this work item: its chunks can be claimed from now on.
    void open(ClaimWord& shared, uint32_t bytes) {
        VELO_CHECK(bytes != 0, "a block of no bytes, generation %u", generation());
        *this = ReaderBlock(bytes, static_cast<uint16_t>(generation() + 1));
        shared.word.store(Claims{generation(), 0, 0}.pack(), std::memory_order_release);
    }

    /// Takes the next chunks from the back, as claim_front() does from the front.
    BlockPart claim_back(ClaimWord& shared, uint32_t bytes_max = 0) {
        const BlockPart part = claim(shared, bytes_max, false);
        own_chunks_ += chunks(part.bytes);
        return part;
    }

    /// False: the word was overwritten.
    [[nodiscard]] bool intact(const ClaimWord& shared) const {
        return fits(Claims::unpack(shared.word.load(std::memory_order_relaxed)));
    }

    /// From now on nothing can be claimed, and only what was claimed is due. `whole`: that is all of the
    /// block. False: the word was overwritten, so that the owner's part is not known.
    bool close(ClaimWord& shared, bool whole) {
        closed_ = true;
        const Claims closed = {generation(), kChunksMax, 0};
        const Claims claims = Claims::unpack(shared.word.exchange(closed.pack(), std::memory_order_acq_rel));
        if (!fits(claims)) return false;
        const uint32_t left = chunks(bytes()) - own_chunks_ - claims.front;
        if (whole && left != 0) return false;
        claimed_bytes_ -= part(claims.front, left).bytes;
        return true;
    }
    [[nodiscard]] bool closed() const { return closed_; }

    /// `bytes` of the block have been moved, or never will be.
    void end(uint64_t bytes) {
        ended_bytes_ += std::min<uint64_t>(bytes, left_bytes());
        VELO_DCHECK(ended_bytes_ <= this->bytes(), "%u bytes have ended, of %u", ended_bytes_, this->bytes());
    }
    /// A part that the owner names has been moved, or never will be. False, and without effect: it cannot be one.
    [[nodiscard]] bool end_part(uint64_t offset, uint64_t part_bytes) {
        if (part_bytes == 0 || offset > bytes() || part_bytes > bytes() - offset || part_bytes > left_bytes())
            return false;
        end(part_bytes);
        return true;
    }
    /// The owner brings nothing more.
    void write_off() { claimed_bytes_ = ended_bytes_; }

    [[nodiscard]] uint32_t ended_bytes() const { return ended_bytes_; }
    [[nodiscard]] uint32_t left_bytes() const { return bytes() - ended_bytes_; }
    /// Bytes that have yet to end: all others until the block is closed, then those that were claimed.
    [[nodiscard]] uint32_t due_bytes() const {
        return claimed_bytes_ - std::min(claimed_bytes_, ended_bytes_);
    }

  private:
    ReaderBlock(uint32_t bytes, uint16_t generation)
        : SharedBlock(bytes, generation), claimed_bytes_(bytes) {}

    [[nodiscard]] bool fits(Claims claims) const {
        const uint32_t all = chunks(bytes());
        return claims.generation == generation() && claims.back == own_chunks_ && claims.front <= all &&
               claims.back <= all - claims.front;
    }

    uint32_t own_chunks_ = 0;
    uint32_t claimed_bytes_ = 0;  ///< by both; until it is closed, the block's
    uint32_t ended_bytes_ = 0;
    bool closed_ = false;
};

}  // namespace velo::base
