/// Which chunk of which transfer is issued next.
///
/// A transfer is cut into chunks, so that a large one does not hold a rail, and at most `outstanding_max`
/// chunks of all transfers are under way: each further one is started by the completion of an earlier one
/// (RDRP 3). The next chunk is of the transfer with the fewest chunks under way, first in first out among
/// equals. A slow transfer therefore holds its share of the window and no more, and one that completes fast
/// is served again at once.
///
/// A pure machine: no I/O, clock, lock or log, and no allocation after its constructor. Owner: the engine.
/// Thread: the engine's. Cost of every call: O(1), amortised.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::rma {

/// The scheduler's part of a transfer. The caller owns it, and leaves it alone from post() until
/// chunk_done() says that it is finished.
struct Transfer {
    Transfer* next = nullptr;
    Transfer* previous = nullptr;
    uint64_t bytes = 0;
    uint64_t issued_bytes = 0;
    uint64_t chunk_bytes = 0;
    uint32_t outstanding = 0;     ///< chunks issued and not done
    Status status = Status::kOk;  ///< the first failure stays

    [[nodiscard]] bool all_issued() const { return issued_bytes == bytes || status != Status::kOk; }
};

/// One chunk to issue.
struct Chunk {
    Transfer* transfer = nullptr;
    uint64_t offset = 0;
    uint32_t bytes = 0;
};

class ChunkScheduler {
  public:
    /// Limit of Chunk::bytes.
    static constexpr uint64_t kChunkBytesMax = std::numeric_limits<decltype(Chunk::bytes)>::max();

    explicit ChunkScheduler(uint32_t outstanding_max)
        : waiting_(size_t{outstanding_max} + 1), outstanding_max_(outstanding_max) {
        VELO_CHECK(outstanding_max > 0, "outstanding_max %u", outstanding_max);
    }

    /// Takes a transfer of at least one byte, `bytes` and `chunk_bytes` filled in.
    void post(Transfer& transfer) {
        VELO_CHECK(transfer.bytes > 0, "a transfer of no bytes, chunk %llu", number(transfer.chunk_bytes));
        VELO_CHECK(transfer.chunk_bytes > 0 && transfer.chunk_bytes <= kChunkBytesMax, "chunk %llu",
                   number(transfer.chunk_bytes));
        transfer.issued_bytes = 0;
        transfer.outstanding = 0;
        transfer.status = Status::kOk;
        append(transfer);
    }

    /// The next chunk that may be issued now. False: none until chunk_done() or post().
    bool next(Chunk& chunk) {
        VELO_DCHECK(outstanding_ <= outstanding_max_, "%u of %u chunks", outstanding_, outstanding_max_);
        if (outstanding_ == outstanding_max_ || waiting_count_ == 0) return false;
        // A waiting operation has at most as many chunks under way as there are in all.
        while (waiting_[fewest_].front == nullptr) {
            ++fewest_;
            VELO_DCHECK(fewest_ <= outstanding_, "%u transfers wait, unseen", waiting_count_);
        }
        Transfer& transfer = *waiting_[fewest_].front;
        remove(transfer);
        chunk.transfer = &transfer;
        chunk.offset = transfer.issued_bytes;
        chunk.bytes =
            static_cast<uint32_t>(std::min(transfer.chunk_bytes, transfer.bytes - transfer.issued_bytes));
        VELO_DCHECK(chunk.bytes > 0, "all %llu bytes are issued", number(transfer.bytes));
        transfer.issued_bytes += chunk.bytes;
        ++transfer.outstanding;
        ++outstanding_;
        if (!transfer.all_issued()) append(transfer);
        return true;
    }

    /// A chunk that next() has just given, and that cannot be issued now. It comes again, first among equals.
    void put_back(const Chunk& chunk) {
        Transfer& transfer = *chunk.transfer;
        VELO_CHECK(transfer.issued_bytes == chunk.offset + chunk.bytes, "%llu bytes issued, not %llu",
                   number(transfer.issued_bytes), number(chunk.offset + chunk.bytes));
        VELO_CHECK(transfer.status == Status::kOk, "a chunk of a transfer that failed: %s",
                   to_string(transfer.status));
        if (!transfer.all_issued()) remove(transfer);
        transfer.issued_bytes = chunk.offset;
        release(transfer);
        prepend(transfer);
    }

    /// A chunk has ended. True: it was its transfer's last, and the transfer is the caller's again. After a
    /// failure no further chunk is issued, and the transfer ends with its outstanding ones.
    [[nodiscard]] bool chunk_done(Transfer& transfer, Status status) {
        const bool waits = !transfer.all_issued();
        if (waits) remove(transfer);
        release(transfer);
        if (transfer.status == Status::kOk) transfer.status = status;
        if (!transfer.all_issued()) append(transfer);
        return transfer.outstanding == 0 && transfer.all_issued();
    }

    /// Shows every transfer of which something has not been issued.
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        for (const List& list : waiting_) {
            for (const Transfer* at = list.front; at != nullptr; at = at->next) visit(*at);
        }
    }

    [[nodiscard]] uint32_t outstanding() const { return outstanding_; }
    [[nodiscard]] bool idle() const { return outstanding_ == 0 && waiting_count_ == 0; }

  private:
    struct List {
        Transfer* front = nullptr;
        Transfer* back = nullptr;
    };
    /// For %llu, whatever uint64_t is.
    [[nodiscard]] static constexpr unsigned long long number(uint64_t value) { return value; }

    /// The list of what has as many chunks under way as this transfer.
    [[nodiscard]] List& list_of(const Transfer& transfer) {
        VELO_CHECK(transfer.outstanding < waiting_.size(), "%u chunks under way, of %u", transfer.outstanding,
                   outstanding_max_);
        return waiting_[transfer.outstanding];
    }
    void append(Transfer& transfer) { insert(transfer, list_of(transfer).back, nullptr); }
    void prepend(Transfer& transfer) { insert(transfer, nullptr, list_of(transfer).front); }
    void insert(Transfer& transfer, Transfer* before, Transfer* behind) {
        List& list = list_of(transfer);
        VELO_DCHECK(before == nullptr || before->next == behind, "a list of %u is broken",
                    transfer.outstanding);
        transfer.previous = before;
        transfer.next = behind;
        (before == nullptr ? list.front : before->next) = &transfer;
        (behind == nullptr ? list.back : behind->previous) = &transfer;
        fewest_ = std::min(fewest_, transfer.outstanding);
        ++waiting_count_;
    }
    void remove(Transfer& transfer) {
        List& list = list_of(transfer);
        VELO_CHECK(waiting_count_ > 0, "a transfer of %llu bytes does not wait", number(transfer.bytes));
        VELO_DCHECK(
            transfer.previous == nullptr ? list.front == &transfer : transfer.previous->next == &transfer,
            "a transfer of %llu bytes is in no list", number(transfer.bytes));
        (transfer.previous == nullptr ? list.front : transfer.previous->next) = transfer.next;
        (transfer.next == nullptr ? list.back : transfer.next->previous) = transfer.previous;
        transfer.next = transfer.previous = nullptr;
        --waiting_count_;
    }
    /// A chunk is under way no longer. The transfer is in no list.
    void release(Transfer& transfer) {
        VELO_CHECK(transfer.outstanding > 0 && outstanding_ >= transfer.outstanding, "%u of %u chunks",
                   transfer.outstanding, outstanding_);
        --transfer.outstanding;
        --outstanding_;
    }

    std::vector<List> waiting_;  ///< by chunks under way: transfers of which something is not issued
    uint32_t outstanding_max_;
    uint32_t outstanding_ = 0;
    uint32_t waiting_count_ = 0;
    uint32_t fewest_ = 0;  ///< no list below it has a transfer
};

}  // namespace velo::rma
