/// Memory for the data of unexpected messages: cells of one size, of which a message takes as many as it needs.
///
/// With one size there is no fragmentation, so room that was promised to a sender in cells is there when its message
/// comes, in whatever order others were freed. Data is copied in and out by the piece.
///
/// Owner: the match engine. Thread: the engine's, under its lock. The budget is charged for each cell when it is made;
/// cells are made in chunks of memory that stay, so at most a chunk more than the budget is allocated.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "match/budget.h"

namespace velo::match {

using CellRef = uint32_t;
inline constexpr CellRef kNoCell = ~CellRef{0};

class DataCells {
  public:
    static constexpr uint32_t kCellBytes = 256;
    static constexpr uint32_t kDataBytes = kCellBytes - 2 * sizeof(CellRef);
    static constexpr uint32_t kPerChunk = 64;

    explicit DataCells(uint64_t budget_bytes) : budget_(budget_bytes) {}

    [[nodiscard]] static constexpr uint32_t cells_of(uint32_t bytes) { return (bytes + kDataBytes - 1) / kDataBytes; }

    /// Keeps a copy. kNoCell: there is no memory for all of it, and nothing has changed, or `bytes` is 0.
    [[nodiscard]] CellRef store(const std::byte* data, uint32_t bytes) {
        if (bytes == 0 || !make(cells_of(bytes))) return kNoCell;
        CellRef first = kNoCell;
        CellRef* place = &first;
        for (uint32_t done = 0; done < bytes;) {
            const CellRef ref = free_;
            Cell& cell = at(ref);
            free_ = cell.next;
            --free_count_;
            const uint32_t piece = std::min(bytes - done, kDataBytes);
            std::memcpy(cell.data.data(), data + done, piece);
            done += piece;
            *place = ref;
            place = &cell.next;
        }
        *place = kNoCell;
        return first;
    }

    /// Calls visit(data, bytes) for each piece, in order, of a message of this length.
    template <class Visit>
    void for_each_piece(CellRef first, uint32_t bytes, Visit&& visit) const {
        for (CellRef ref = first; bytes != 0; ref = at(ref).next) {
            const uint32_t piece = std::min(bytes, kDataBytes);
            visit(at(ref).data.data(), piece);
            bytes -= piece;
        }
    }

    /// All cells of a message.
    void free(CellRef first) {
        while (first != kNoCell) {
            Cell& cell = at(first);
            const CellRef next = std::exchange(cell.next, free_);
            free_ = std::exchange(first, next);
            ++free_count_;
        }
    }

    [[nodiscard]] const Budget& budget() const { return budget_; }
    [[nodiscard]] uint32_t in_use() const { return made_ - free_count_; }

  private:
    struct Cell {
        CellRef next;
        uint32_t unused;
        std::array<std::byte, kDataBytes> data;
    };
    static_assert(sizeof(Cell) == kCellBytes);

    [[nodiscard]] Cell& at(CellRef ref) { return chunks_[ref / kPerChunk][ref % kPerChunk]; }
    [[nodiscard]] const Cell& at(CellRef ref) const { return chunks_[ref / kPerChunk][ref % kPerChunk]; }

    /// After this that number of cells is free. False: there is no memory; those that were made stay, free.
    [[nodiscard]] bool make(uint32_t cells) {
        if (free_count_ >= cells) return true;
        if (budget_.left() < uint64_t{cells - free_count_} * kCellBytes) return false;
        while (free_count_ < cells) {
            if (made_ == chunks_.size() * kPerChunk && !add_chunk()) return false;
            if (!budget_.take(kCellBytes)) return false;
            at(made_).next = std::exchange(free_, made_);
            ++made_;
            ++free_count_;
        }
        return true;
    }
    [[nodiscard]] bool add_chunk() {
        try {
            chunks_.emplace_back(new Cell[kPerChunk]);
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }

    Budget budget_;
    std::vector<std::unique_ptr<Cell[]>> chunks_;
    CellRef free_ = kNoCell;
    uint32_t free_count_ = 0;
    uint32_t made_ = 0;
};

}  // namespace velo::match
