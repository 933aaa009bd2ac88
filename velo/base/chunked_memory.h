/// Memory for what may wait in large numbers, and goes back to the system once it has left.
///
/// Pieces lie one behind another in chunks. Each user fills a chunk of its own, so that pieces which are
/// freed together lie together, and a chunk goes back with its last piece. A few are kept for the next burst.
/// A long piece is a chunk by itself.
///
/// Thread: the owner's. Invariant: a chunk is live while it holds a piece, and is kept or gone otherwise.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "velo/base/check.h"

namespace velo::base {

class ChunkedMemory {
  public:
    struct Chunk {
        Chunk* before;
        Chunk* after;
        Chunk** filling;  ///< of its user; nullptr: it is one long piece
        size_t bytes;
        uint32_t used_bytes;
        uint32_t pieces;
    };
    /// A user's chunk that is being filled. It outlives the pieces in it.
    using Filling = Chunk*;

    /// Small enough for a user of few pieces, large enough that its system calls do not count.
    static constexpr size_t kChunkBytes = 64u << 10;
    static constexpr uint32_t kKeptChunksMax = 8;

    ChunkedMemory() = default;
    ChunkedMemory(const ChunkedMemory&) = delete;
    ChunkedMemory& operator=(const ChunkedMemory&) = delete;
    ~ChunkedMemory() {
        while (kept_ != nullptr) give_back(take_from(kept_));
        while (live_ != nullptr) give_back(take_from(live_));
    }

    /// nullptr: the system has no memory. Aligned as any object needs.
    [[nodiscard]] void* allocate(Filling& filling, size_t bytes) {
        const size_t needed = (sizeof(Piece) + bytes + kAlignment - 1) & ~(kAlignment - 1);
        Chunk* chunk = filling;
        if (needed > kPieceBytesMax) {
            chunk = new_chunk((sizeof(Chunk) + needed + kPageBytes - 1) & ~(kPageBytes - 1));
        } else if (chunk == nullptr || kChunkBytes - chunk->used_bytes < needed) {
            chunk = new_chunk(kChunkBytes);
            if (chunk != nullptr) {
                chunk->filling = &filling;
                filling = chunk;
            }
        }
        if (chunk == nullptr) return nullptr;
        auto* const piece = new (reinterpret_cast<std::byte*>(chunk) + chunk->used_bytes) Piece{chunk};
        VELO_DCHECK(needed <= chunk->bytes - chunk->used_bytes, "%zu bytes in a chunk of %zu", needed,
                    chunk->bytes);
        chunk->used_bytes += static_cast<uint32_t>(needed);
        ++chunk->pieces;
        return piece + 1;
    }

    void free(void* memory) {
        Chunk* const chunk = (static_cast<Piece*>(memory) - 1)->chunk;
        VELO_DCHECK(chunk->pieces != 0, "a chunk of %zu bytes", chunk->bytes);
        if (--chunk->pieces != 0) return;
        if (chunk->filling != nullptr && *chunk->filling == chunk) *chunk->filling = nullptr;
        unlink(live_, chunk);
        if (chunk->bytes == kChunkBytes && kept_chunks_ < kKeptChunksMax) {
            link(kept_, chunk);
            ++kept_chunks_;
        } else {
            give_back(chunk);
        }
    }

    /// Address space that is in use or kept.
    [[nodiscard]] size_t bytes() const { return bytes_; }

  private:
    struct Piece {
        Chunk* chunk;
    };
    static constexpr size_t kAlignment = alignof(std::max_align_t);
    static constexpr size_t kPageBytes = 4096;
    static constexpr size_t kPieceBytesMax = kChunkBytes / 4;
    static_assert((sizeof(Chunk) + sizeof(Piece)) % kAlignment == 0);

    static void link(Chunk*& list, Chunk* chunk) {
        chunk->before = nullptr;
        chunk->after = list;
        if (list != nullptr) list->before = chunk;
        list = chunk;
    }
    static void unlink(Chunk*& list, Chunk* chunk) {
        VELO_DCHECK((chunk->before == nullptr ? list : chunk->before->after) == chunk,
                    "a chunk is in another list");
        (chunk->before == nullptr ? list : chunk->before->after) = chunk->after;
        if (chunk->after != nullptr) chunk->after->before = chunk->before;
    }
    static Chunk* take_from(Chunk*& list) {
        Chunk* const chunk = list;
        unlink(list, chunk);
        return chunk;
    }

    [[nodiscard]] Chunk* new_chunk(size_t bytes) {
        void* memory = nullptr;
        if (bytes == kChunkBytes && kept_ != nullptr) {
            memory = take_from(kept_);
            --kept_chunks_;
        } else {
            memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED) return nullptr;
            bytes_ += bytes;
        }
        auto* const chunk = new (memory) Chunk{};
        chunk->bytes = bytes;
        chunk->used_bytes = sizeof(Chunk);
        link(live_, chunk);
        return chunk;
    }
    void give_back(Chunk* chunk) {
        bytes_ -= chunk->bytes;
        munmap(chunk, chunk->bytes);
    }

    Chunk* live_ = nullptr;
    Chunk* kept_ = nullptr;
    uint32_t kept_chunks_ = 0;
    size_t bytes_ = 0;
};

}  // namespace velo::base
