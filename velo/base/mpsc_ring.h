/// Bounded ring in shared memory: many producers, one consumer, cells of one size.
///
/// Owner: the consumer, whose segment it lies in. A producer claims a cell only after it saw a free one
/// (compare-and-swap on `tail` against `head`), so a full ring refuses and nothing is overwritten. A cell is
/// published by its last word, the position plus one: no cell needs clearing, and what an earlier lap left
/// behind never looks new. Every index is masked, so that garbage in the segment cannot lead outside it.
/// Thread: producers any, consumer one at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::base {

/// `T`: trivially copyable payload. The layout is Control, then `capacity` cells.
template <class T, size_t kCellAlign = 64>
class MpscRing {
    static_assert(std::is_trivially_copyable_v<T>);
    static_assert(std::atomic<uint64_t>::is_always_lock_free);

    struct Control {
        alignas(64) std::atomic<uint64_t> tail;  ///< next position to claim; producers
        alignas(64) std::atomic<uint64_t> head;  ///< next position to read; consumer
    };
    struct alignas(kCellAlign) Cell {
        T payload;
        std::atomic<uint64_t> published;  ///< position + 1
    };

  public:
    MpscRing() = default;

    /// Bytes of shared memory for `capacity` cells (a power of two).
    static constexpr size_t bytes_for(size_t capacity) { return sizeof(Control) + capacity * sizeof(Cell); }

    /// `memory`: zeroed at creation, 64-byte aligned, bytes_for(capacity) long.
    MpscRing(std::byte* memory, size_t capacity)
        : control_(reinterpret_cast<Control*>(memory)),
          cells_(reinterpret_cast<Cell*>(memory + sizeof(Control))),
          capacity_(capacity) {
        VELO_CHECK(std::has_single_bit(capacity), "capacity %zu", capacity);
    }

    /// kAgain when the ring is full.
    Status push(const T& value) noexcept {
        uint64_t position = control_->tail.load(std::memory_order_relaxed);
        for (;;) {
            // Pairs with the release of pop(): the cell has been read before it is given out again.
            const uint64_t head = control_->head.load(std::memory_order_acquire);
            if (position - head >= capacity_) {
                // The reader may be past a position that was loaded a while ago; that is not a full ring.
                const uint64_t now = control_->tail.load(std::memory_order_relaxed);
                if (now == position) return Status::kAgain;
                position = now;
                continue;
            }
            if (control_->tail.compare_exchange_weak(position, position + 1, std::memory_order_release,
                                                     std::memory_order_relaxed)) {
                break;
            }
        }
        Cell& cell = cells_[position & (capacity_ - 1)];
        std::memcpy(&cell.payload, &value, sizeof(T));
        cell.published.store(position + 1, std::memory_order_release);  // pairs with pop()'s acquire
        return Status::kOk;
    }

    /// False when nothing is published at the head.
    bool pop(T& value) noexcept {
        while (!readable()) {
            if (head_ >= abandoned_before_) return false;
            step();
        }
        std::memcpy(&value, &cells_[head_ & (capacity_ - 1)].payload, sizeof(T));
        step();
        return true;
    }

    /// Whether the cell at the head is published.
    [[nodiscard]] bool readable() const noexcept {
        const Cell& cell = cells_[head_ & (capacity_ - 1)];
        return cell.published.load(std::memory_order_acquire) == head_ + 1;
    }

    /// Next position to read.
    [[nodiscard]] uint64_t position() const noexcept { return head_; }
    /// Position up to which producers have claimed cells. Acquire: what a producer wrote before its claim
    /// is visible.
    [[nodiscard]] uint64_t claimed() const noexcept { return control_->tail.load(std::memory_order_acquire); }

    /// Cells before `position` that are still unpublished never will be: their producers died between claim
    /// and publication. pop() passes over them; without this the ring would stand still.
    void abandon_before(uint64_t position) noexcept {
        abandoned_before_ = std::min(position, head_ + capacity_);  // `tail` may be garbage
    }

    /// Cells claimed and not yet read, as far as this process sees.
    [[nodiscard]] uint64_t occupied() const noexcept {
        return control_->tail.load(std::memory_order_relaxed) -
               control_->head.load(std::memory_order_relaxed);
    }

    explicit operator bool() const { return control_ != nullptr; }

  private:
    void step() noexcept {
        ++head_;
        control_->head.store(head_, std::memory_order_release);
    }

    Control* control_ = nullptr;
    Cell* cells_ = nullptr;
    size_t capacity_ = 0;
    uint64_t head_ = 0;  ///< consumer's own, never read back from shared memory
    uint64_t abandoned_before_ = 0;
};

}  // namespace velo::base
