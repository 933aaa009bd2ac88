/// Which chunk of which transfer is issued next.
///
/// A transfer is cut into chunks, so that a large one does not hold a rail, and at most `outstanding_max`
/// chunks of all transfers are under way: each further one is started by the completion of an earlier one
/// (RDRP 3). Transfers take turns, one chunk each, so that a short one beside a long one is not delayed by
/// more than a round.
///
/// A pure machine: no I/O, clock, lock, log or allocation. Owner: the engine. Thread: the engine's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "velo/base/check.h"
#include "velo/base/intrusive_queue.h"
#include "velo/base/status.h"

namespace velo::rma {

/// The scheduler's part of a transfer. The caller owns it, and leaves it alone from post() until
/// chunk_done() says that it is finished.
struct Transfer {
    Transfer* next = nullptr;
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
    explicit ChunkScheduler(uint32_t outstanding_max) : outstanding_max_(outstanding_max) {
        VELO_CHECK(outstanding_max > 0, "outstanding_max %u", outstanding_max);
    }

    /// Takes a transfer of at least one byte, `bytes` and `chunk_bytes` filled in.
    void post(Transfer& transfer) {
        VELO_CHECK(transfer.bytes > 0 && transfer.chunk_bytes > 0, "bytes %llu, chunk %llu",
                   static_cast<unsigned long long>(transfer.bytes),
                   static_cast<unsigned long long>(transfer.chunk_bytes));
        transfer.issued_bytes = 0;
        transfer.outstanding = 0;
        transfer.status = Status::kOk;
        waiting_.push_back(&transfer);
    }

    /// The next chunk that may be issued now. False: none until chunk_done() or post().
    bool next(Chunk& chunk) {
        if (outstanding_ >= outstanding_max_ || waiting_.empty()) return false;
        Transfer* transfer = waiting_.pop_front();
        chunk.transfer = transfer;
        chunk.offset = transfer->issued_bytes;
        chunk.bytes =
            static_cast<uint32_t>(std::min(transfer->chunk_bytes, transfer->bytes - transfer->issued_bytes));
        transfer->issued_bytes += chunk.bytes;
        ++transfer->outstanding;
        ++outstanding_;
        if (!transfer->all_issued()) waiting_.push_back(transfer);
        return true;
    }

    /// A chunk has ended. True: it was its transfer's last, and the transfer is the caller's again. After a
    /// failure no further chunk is issued, and the transfer ends with its outstanding ones.
    [[nodiscard]] bool chunk_done(Transfer& transfer, Status status) {
        VELO_CHECK(transfer.outstanding > 0 && outstanding_ > 0, "%u of %u chunks", transfer.outstanding,
                   outstanding_);
        --transfer.outstanding;
        --outstanding_;
        if (status != Status::kOk && transfer.status == Status::kOk) {
            const bool waits = transfer.issued_bytes != transfer.bytes;
            transfer.status = status;
            if (waits) waiting_.remove(&transfer);
        }
        return transfer.outstanding == 0 && transfer.all_issued();
    }

    /// Shows every transfer of which something has not been issued.
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        for (const Transfer* at = waiting_.front(); at != nullptr; at = at->next) visit(*at);
    }

    [[nodiscard]] uint32_t outstanding() const { return outstanding_; }
    [[nodiscard]] bool idle() const { return outstanding_ == 0 && waiting_.empty(); }

  private:
    base::IntrusiveQueue<Transfer> waiting_;
    uint32_t outstanding_max_;
    uint32_t outstanding_ = 0;
};

}  // namespace velo::rma
