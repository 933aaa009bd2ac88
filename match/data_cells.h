/// Memory for the data of unexpected messages: cells of one size, of which a message takes as many as it needs.
///
/// With one size there is no fragmentation, so room that was promised to a sender in cells is there when its message
/// comes, in whatever order others were freed. Data is copied in and out by the piece.
///
/// Owner: the match engine. Thread: the engine's, under its lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "match/budget.h"
#include "match/pool.h"

namespace velo::match {

using CellRef = uint32_t;
inline constexpr CellRef kNoCell = ~CellRef{0};

class DataCells {
  public:
    static constexpr uint32_t kCellBytes = 256;
    static constexpr uint32_t kDataBytes = kCellBytes - 2 * sizeof(CellRef);

    explicit DataCells(uint64_t budget_bytes) : budget_(budget_bytes) {}

    [[nodiscard]] static constexpr uint32_t cells_of(uint32_t bytes) { return (bytes + kDataBytes - 1) / kDataBytes; }

    /// Keeps a copy. kNoCell: there is no memory for all of it, and nothing has changed, or `bytes` is 0.
    [[nodiscard]] CellRef store(const std::byte* data, uint32_t bytes) {
        if (!cells_.has(cells_of(bytes))) return kNoCell;
        return fill(data, bytes, [this] { return cells_.take(); });
    }
    /// The same in cells that were reserved.
    [[nodiscard]] CellRef store_reserved(const std::byte* data, uint32_t bytes) {
        return fill(data, bytes, [this] { return cells_.take_reserved(); });
    }
    /// False: there is no memory for these, and nothing has changed.
    [[nodiscard]] bool reserve(uint32_t cells) { return cells_.reserve(cells); }
    void unreserve(uint32_t cells) { cells_.unreserve(cells); }

    /// Calls visit(data, bytes) for each piece, in order, of a message of this length.
    template <class Visit>
    void for_each_piece(CellRef first, uint32_t bytes, Visit&& visit) const {
        for (CellRef ref = first; bytes != 0; ref = cells_.at(ref).next) {
            const uint32_t piece = std::min(bytes, kDataBytes);
            visit(cells_.at(ref).data.data(), piece);
            bytes -= piece;
        }
    }

    /// All cells of a message.
    void free(CellRef first) {
        while (first != kNoCell) {
            const CellRef next = cells_.at(first).next;
            cells_.give_back(first);
            first = next;
        }
    }

    [[nodiscard]] const Budget& budget() const { return budget_; }
    [[nodiscard]] uint32_t in_use() const { return cells_.in_use(); }

  private:
    struct Cell {
        CellRef next;
        uint32_t unused;
        std::array<std::byte, kDataBytes> data;
    };
    static_assert(sizeof(Cell) == kCellBytes);

    /// If the system has no memory in the middle of it, the cells that were taken are free again.
    template <class Take>
    [[nodiscard]] CellRef fill(const std::byte* data, uint32_t bytes, Take&& take) {
        CellRef first = kNoCell;
        CellRef* place = &first;
        for (uint32_t done = 0; done < bytes;) {
            const CellRef ref = take();
            *place = ref;
            if (ref == kNoCell) {
                free(first);
                return kNoCell;
            }
            Cell& cell = cells_.at(ref);
            const uint32_t piece = std::min(bytes - done, kDataBytes);
            std::memcpy(cell.data.data(), data + done, piece);
            done += piece;
            place = &cell.next;
            *place = kNoCell;
        }
        return first;
    }

    Budget budget_;
    Pool<Cell, &Cell::next> cells_{budget_};
};

}  // namespace velo::match
