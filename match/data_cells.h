/// Memory for the data of unexpected messages: cells of one size, of which a message takes as many as it needs.
///
/// With one size there is no fragmentation, so room that was promised to a sender in cells is there when its message
/// comes, in whatever order others were freed. A message lies in runs of cells that are side by side, one of them
/// mostly, so that it is copied in and out in few pieces. Each run has a header, so that in the worst case, a run for
/// each cell, all of it still fits.
///
/// Owner: the match engine. Thread: the engine's, under its lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "match/budget.h"
#include "match/supply.h"
#include "velo/base/check.h"

namespace velo::match {

/// The first cell of a run.
using CellRef = uint32_t;
inline constexpr CellRef kNoCell = ~CellRef{0};

class DataCells {
  public:
    static constexpr uint32_t kCellBytes = 256;
    static constexpr uint32_t kDataBytes = kCellBytes - 2 * sizeof(CellRef);

    explicit DataCells(uint64_t budget_bytes) : budget_(budget_bytes) {}

    [[nodiscard]] static constexpr uint32_t cells_of(uint32_t bytes) { return (bytes + kDataBytes - 1) / kDataBytes; }

    /// Keeps a copy, in cells_of(bytes) cells. kNoCell: there is no memory for all of it, and nothing has changed, or
    /// `bytes` is 0.
    [[nodiscard]] CellRef store(const std::byte* data, uint32_t bytes) {
        const uint32_t cells = cells_of(bytes);
        if (!supply_.has(cells) || !reach(supply_.reach_to_take(cells))) return kNoCell;
        return fill(data, bytes, supply_.take(cells));
    }
    /// Keeps a copy in cells that were reserved for it.
    [[nodiscard]] CellRef store_reserved(const std::byte* data, uint32_t bytes) {
        return fill(data, bytes, supply_.take_reserved(cells_of(bytes)));
    }
    /// False: there is no memory for these, and nothing has changed.
    [[nodiscard]] bool reserve(uint32_t cells) {
        if (!supply_.may_reserve(cells) || !reach(supply_.reach_to_reserve(cells))) return false;
        supply_.reserve(cells);
        return true;
    }
    void unreserve(uint32_t cells) { supply_.unreserve(cells); }

    /// Calls visit(data, bytes) for each piece, in order, of a message of this length.
    template <class Visit>
    void for_each_piece(CellRef first, uint32_t bytes, Visit&& visit) const {
        for (CellRef ref = first; bytes != 0;) {
            VELO_DCHECK(ref != kNoCell, "%u bytes of a message are in no cell", bytes);
            const Run run = run_at(ref);
            const uint32_t piece = std::min(bytes, run.cells * kCellBytes - uint32_t{sizeof(Run)});
            visit(memory_of(ref) + sizeof(Run), piece);
            bytes -= piece;
            ref = run.next;
        }
    }

    /// All cells of a message.
    void free(CellRef first) {
        while (first != kNoCell) {
            const Run run = run_at(first);
            const uint32_t group = first / kGroupCells;
            VELO_DCHECK(run.cells != 0 && first % kGroupCells + run.cells <= kGroupCells,
                        "a run of %u cells at cell %u", run.cells, first);
            VELO_DCHECK((groups_[group].free & ones(run.cells) << first % kGroupCells) == 0,
                        "cell %u is freed twice", first);
            groups_[group].free |= ones(run.cells) << first % kGroupCells;
            first_free_ = std::min(first_free_, group);
            supply_.give_back(run.cells);
            first = run.next;
        }
    }

    [[nodiscard]] const Budget& budget() const { return budget_; }
    [[nodiscard]] uint32_t in_use() const { return supply_.in_use(); }

  private:
    /// Cells of which runs are made, and which are allocated together.
    static constexpr uint32_t kGroupCells = 64;

    struct Run {
        CellRef next;
        uint32_t cells;
    };
    static_assert(kCellBytes - sizeof(Run) == kDataBytes);
    struct Group {
        std::unique_ptr<std::byte[]> memory;
        uint64_t free = 0;  ///< those of its cells, of those that are made
    };
    static_assert(8 * sizeof(Group::free) == kGroupCells, "a bit for each cell of a group");

    [[nodiscard]] static constexpr uint64_t ones(uint32_t count) { return ~uint64_t{0} >> (kGroupCells - count); }
    [[nodiscard]] std::byte* memory_of(CellRef ref) const {
        VELO_DCHECK(ref / kGroupCells < groups_.size(), "cell %u of %zu groups", ref, groups_.size());
        return &groups_[ref / kGroupCells].memory[size_t{ref % kGroupCells} * kCellBytes];
    }
    [[nodiscard]] Run run_at(CellRef ref) const {
        Run run;
        std::memcpy(&run, memory_of(ref), sizeof run);
        return run;
    }
    /// After this there are groups for as many cells. Memory that is not written costs nothing.
    [[nodiscard]] bool reach(uint32_t cells) {
        try {
            while (groups_.size() * kGroupCells < cells)
                groups_.push_back({std::make_unique_for_overwrite<std::byte[]>(size_t{kGroupCells} * kCellBytes)});
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }

    /// `made`: of its cells, those that are made now, which are the last ones; the supply has counted all.
    [[nodiscard]] CellRef fill(const std::byte* data, uint32_t bytes, uint32_t made) {
        CellRef first = kNoCell;
        std::byte* place = reinterpret_cast<std::byte*>(&first);  // of the reference to the next run
        CellRef fresh = supply_.made() - made;
        for (uint32_t cells = cells_of(bytes); cells != 0;) {
            CellRef ref = fresh;
            uint32_t length = 0;
            if (cells > made) {
                length = take_free(cells - made, ref);
            } else {
                length = std::min(cells, kGroupCells - fresh % kGroupCells);
                made -= length;
                fresh += length;
            }
            cells -= length;
            const Run run = {kNoCell, length};
            const uint32_t piece = std::min(bytes, length * kCellBytes - uint32_t{sizeof run});
            std::byte* const memory = memory_of(ref);
            std::memcpy(place, &ref, sizeof ref);
            std::memcpy(memory, &run, sizeof run);
            if (piece != 0) std::memcpy(memory + sizeof run, data, piece);
            place = memory;
            data += piece;
            bytes -= piece;
        }
        VELO_DCHECK(bytes == 0 && made == 0, "%u bytes without a cell, %u cells without bytes", bytes, made);
        return first;
    }
    /// Takes up to `wanted` free cells that are side by side; at least one is free. Returns their number.
    [[nodiscard]] uint32_t take_free(uint32_t wanted, CellRef& first) {
        while (groups_[first_free_].free == 0) {
            ++first_free_;
            VELO_DCHECK(first_free_ < groups_.size(), "none of %zu groups has a free cell", groups_.size());
        }
        uint64_t& free = groups_[first_free_].free;
        wanted = std::min(wanted, kGroupCells);
        uint64_t begins = free;  // the first cells of runs that are long enough
        for (uint32_t length = 1; length < wanted;) {
            const uint32_t more = std::min(length, wanted - length);
            begins &= begins >> more;
            length += more;
        }
        const auto begin = static_cast<uint32_t>(std::countr_zero(begins != 0 ? begins : free));
        const uint32_t length =
            begins != 0 ? wanted : static_cast<uint32_t>(std::countr_one(free >> begin));
        free &= ~(ones(length) << begin);
        first = first_free_ * kGroupCells + begin;
        return length;
    }

    Budget budget_;
    Supply supply_{budget_, kCellBytes};
    std::vector<Group> groups_;
    uint32_t first_free_ = 0;  ///< no group before this one has a free cell
};

}  // namespace velo::match
