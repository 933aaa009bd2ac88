/// Which chunk of which transfer is issued next, and whether it may be now: the window of a process.
///
/// A transfer is cut into chunks of nearly the same length, so that a large one does not hold a rail. All that
/// is under way is bounded in chunks and in bytes, over all transfers of the process, and each further chunk is
/// started by the end of an earlier one (RDRP 3).
///
/// A *source* is a peer by one way of moving data; all chunks of a source end alike. The next chunk is of the
/// source with the fewest chunks under way, first in first out among equals, and transfers of one source take
/// turns. A slow source therefore holds its share of the window and no more, and one whose chunks end fast is
/// served again at once. A source that has less than its share (window / active sources, at least one chunk)
/// does not wait until others give back what they have beyond theirs: those may have to wait for a process
/// that computes.
///
/// A source is *slow* while its chunks are under way for at least twice as long as those of all sources on
/// average. It gets one chunk as any other, and a further one only while all that wait are slow. Otherwise
/// slow sources would come to hold two chunks each, and a fast one a single chunk, so that its link would
/// be idle from the end of each chunk until the next one is issued. Time counts in ends of chunks. A source's
/// chunks under way times the ends between two of its own are the time of one; by the same law (Little's) the
/// mean over all is the number of chunks under way. A source with few chunks under way is not slow by that.
///
/// A transfer may be posted with its first chunk only, and opened later: the first one goes ahead of a
/// permission that the rest waits for (rma/rail_reservations.h).
///
/// With c chunks of window and a active sources, at most max(c, a + 1) chunks are under way; while sources
/// come, those that were there have up to c - 1 beside the shares of the new ones: at most 2 max(c, a + 1).
///
/// A pure machine: no I/O, clock, lock or log, and no allocation after its constructor. Owner: the engine.
/// Thread: the engine's. Cost of every call: O(1), amortised.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "velo/base/check.h"
#include "velo/base/intrusive_list.h"
#include "velo/base/status.h"

namespace velo::rma {

struct Source;

/// The scheduler's part of a transfer. The caller owns it, and leaves it alone from post() until
/// chunk_done() says that it is finished.
struct Transfer {
    Transfer* next = nullptr;
    Transfer* previous = nullptr;
    Source* source = nullptr;
    uint64_t bytes = 0;
    uint64_t issued_bytes = 0;
    uint32_t chunk_bytes = 0;     ///< most of a chunk
    uint32_t lead_bytes = 0;      ///< of the first chunk, where that one is shorter (rma/stream_lead.h)
    uint32_t outstanding = 0;     ///< chunks issued and not done
    Status status = Status::kOk;  ///< the first failure stays
    bool first_only = false;      ///< of more chunks than one the first alone is issued, until open()

    [[nodiscard]] bool all_issued() const { return issued_bytes == bytes || status != Status::kOk; }
    /// Nothing of it is issued as things are.
    [[nodiscard]] bool rests() const { return all_issued() || (first_only && issued_bytes != 0); }
    [[nodiscard]] uint32_t next_chunk_bytes() const {
        if (issued_bytes < lead_bytes) return lead_bytes;
        const uint64_t left = bytes - issued_bytes;
        if (left >= 2 * uint64_t{chunk_bytes}) return chunk_bytes;
        return static_cast<uint32_t>(left <= chunk_bytes ? left : (left + 1) / 2);
    }
    /// Makes all chunks nearly as long as each other, and no more of them; the last two share what rounding
    /// leaves.
    void make_chunks_equal() {
        const uint64_t behind = bytes - lead_bytes;
        if (behind <= chunk_bytes) return;
        const uint64_t chunks = (behind + chunk_bytes - 1) / chunk_bytes;
        const uint64_t equal = (behind + chunks - 1) / chunks;
        const uint64_t aligned = (equal + kAlignment - 1) & ~(kAlignment - 1);
        VELO_DCHECK(equal <= chunk_bytes, "chunks of %u bytes become longer", chunk_bytes);
        chunk_bytes = static_cast<uint32_t>(aligned > chunk_bytes ? equal : aligned);
    }

  private:
    static constexpr uint64_t kAlignment = 64;  ///< a cache line
};

/// The scheduler's part of a source. The caller owns it, and keeps it where it is while it is active.
struct Source {
    Source* next = nullptr;
    Source* previous = nullptr;
    base::IntrusiveList<Transfer> waiting;  ///< transfers of which something is not issued, in their turns
    uint32_t chunks = 0;                    ///< under way
    uint32_t time_sum = 0;    ///< ChunkScheduler::kTimeWeight times the mean time of a chunk, in ends
    uint64_t latest_end = 0;  ///< the number of its latest end, or of the latest before it was active
    /// Bits of a chunk's length that count in bytes: none of those that take the time of this process only, and no
    /// capacity of a network.
    uint32_t bytes_mask = UINT32_MAX;
    bool held = false;  ///< put_back() was called, and not resume()
    bool slow = false;  ///< does not change while it is in a list

    [[nodiscard]] bool active() const { return !waiting.empty() || chunks != 0; }
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

    explicit ChunkScheduler(uint32_t chunks_max, uint64_t bytes_max = UINT64_MAX)
        : chunks_max_(chunks_max),
          bytes_max_(std::min(bytes_max, kBytesMax)),
          waiting_(chunks_max),
          slow_(chunks_max) {
        VELO_CHECK(chunks_max > 0 && bytes_max > 0, "a window of %u chunks, %llu bytes", chunks_max,
                   number(bytes_max));
    }

    /// Takes a transfer of at least one byte, `bytes`, `chunk_bytes`, `lead_bytes` and `first_only` filled in.
    void post(Transfer& transfer, Source& source) {
        VELO_CHECK(transfer.bytes > 0 && transfer.chunk_bytes > 0, "a transfer of %llu bytes, chunk %u",
                   number(transfer.bytes), transfer.chunk_bytes);
        VELO_CHECK(transfer.lead_bytes < transfer.bytes && transfer.lead_bytes <= transfer.chunk_bytes,
                   "%u bytes go ahead of %llu, chunk %u", transfer.lead_bytes, number(transfer.bytes),
                   transfer.chunk_bytes);
        transfer.source = &source;
        transfer.issued_bytes = 0;
        transfer.outstanding = 0;
        transfer.status = Status::kOk;
        transfer.make_chunks_equal();
        enqueue(transfer);
    }
    /// All chunks of a transfer may be issued from now on.
    void open(Transfer& transfer) {
        VELO_DCHECK(transfer.source != nullptr, "%llu bytes are opened that were not posted",
                    number(transfer.bytes));
        const bool rested = transfer.rests();
        transfer.first_only = false;
        if (rested && !transfer.all_issued()) enqueue(transfer);
    }

    /// The next chunk that may be issued now. False: none until chunk_done(), post() or resume().
    bool next(Chunk& chunk) {
        Source* source = fewest();
        if (source == nullptr) return none();
        VELO_DCHECK(!source->held && !source->waiting.empty(), "a source with %u chunks is served",
                    source->chunks);
        Transfer& transfer = *source->waiting.front;
        VELO_DCHECK(!transfer.rests() && transfer.source == source, "%llu bytes are issued of %llu",
                    number(transfer.issued_bytes), number(transfer.bytes));
        const uint32_t bytes = transfer.next_chunk_bytes();
        const uint32_t counted = bytes & source->bytes_mask;
        if (!admits(*source, counted)) return none();
        if (source != sole_) unfile(*source);
        chunk = {.transfer = &transfer, .offset = transfer.issued_bytes, .bytes = bytes};
        VELO_DCHECK(bytes > 0, "all %llu bytes are issued", number(transfer.bytes));
        transfer.issued_bytes += bytes;
        ++transfer.outstanding;
        ++source->chunks;
        ++chunks_;
        bytes_ += counted;
        const bool rests = transfer.issued_bytes == transfer.bytes || transfer.first_only;
        if (rests || transfer.next != nullptr) {
            source->waiting.remove(transfer);
            if (!rests) source->waiting.push_back(transfer);
        }
        if (source->waiting.empty()) {
            --waiting_count_;
            sole_ = nullptr;
        } else if (source != sole_) {
            file(*source);
        }
        return true;
    }

    /// A chunk that next() has just given, and that cannot be issued now. Its source is left alone until
    /// resume(), and then begins with this chunk.
    void put_back(const Chunk& chunk) {
        Transfer& transfer = *chunk.transfer;
        Source& source = *transfer.source;
        VELO_CHECK(transfer.issued_bytes == chunk.offset + chunk.bytes && !source.held,
                   "%llu bytes issued, not %llu", number(transfer.issued_bytes),
                   number(chunk.offset + chunk.bytes));
        VELO_CHECK(transfer.status == Status::kOk, "a chunk of a transfer that failed: %s",
                   to_string(transfer.status));
        if (!source.waiting.empty()) remove(source);
        if (!transfer.rests()) source.waiting.remove(transfer);
        transfer.issued_bytes = chunk.offset;
        release(transfer, chunk.bytes);
        source.waiting.push_front(transfer);
        source.held = true;
        append(source);
    }

    /// Chunks that were put back may be issued again.
    void resume() {
        while (!held_.empty()) {
            Source& source = *held_.front;
            remove(source);
            source.held = false;
            append(source);
        }
    }

    /// A chunk of `bytes` has ended. True: it was its transfer's last, and the transfer is the caller's
    /// again. After a failure no further chunk is issued, and the transfer ends with its outstanding ones.
    [[nodiscard]] bool chunk_done(Transfer& transfer, uint32_t bytes, Status status) {
        Source& source = *transfer.source;
        VELO_DCHECK(active_ != 0 && source.active(), "a chunk of %u bytes ends while none is under way",
                    bytes);
        const bool filed = !source.waiting.empty() && &source != sole_;
        if (filed) unfile(source);
        if (active_ > 1) measure(source);
        release(transfer, bytes);
        if (filed) file(source);
        if (status != Status::kOk && transfer.status == Status::kOk) [[unlikely]] {
            fail(transfer, status);
        }
        if (!source.active()) {
            source.held = false;
            --active_;
            VELO_DCHECK(active_ != 0 || (chunks_ == 0 && bytes_ == 0 && waiting_count_ == 0),
                        "%u chunks, %llu bytes and %u sources without an active one", chunks_, number(bytes_),
                        waiting_count_);
        }
        return transfer.outstanding == 0 && transfer.all_issued();
    }

    /// Shows every transfer of which something has not been issued.
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        const auto show = [&](const Source* source) {
            for (; source != nullptr; source = source->next)
                for (const Transfer* at = source->waiting.front; at != nullptr; at = at->next) visit(*at);
        };
        show(sole_);
        for (const Order* order : {&waiting_, &slow_})
            for (const List& list : order->lists) show(list.front);
        show(held_.front);
    }

    /// Under way.
    [[nodiscard]] uint32_t chunks() const { return chunks_; }
    [[nodiscard]] uint64_t bytes() const { return bytes_; }
    [[nodiscard]] uint64_t bytes_max() const { return bytes_max_; }
    /// Most that were, whenever next() had no more.
    [[nodiscard]] uint32_t chunks_hwm() const { return chunks_hwm_; }
    [[nodiscard]] uint64_t bytes_hwm() const { return bytes_hwm_; }
    [[nodiscard]] uint32_t active_sources() const { return active_; }
    [[nodiscard]] bool idle() const { return active_ == 0; }

  private:
    using List = base::IntrusiveList<Source>;
    static constexpr uint64_t kBytesMax = uint64_t{1} << 62;
    static constexpr uint32_t kTimeWeight = 8;  ///< a chunk's part of a mean time is an eighth
    static constexpr uint32_t kSlowTimes = 2;
    static constexpr uint64_t kTimeMax = 1u << 20;  ///< kTimeWeight times as much is a time_sum
    static_assert(kTimeWeight * kTimeMax <= UINT32_MAX);

    /// Sources by chunks under way. Those with as many as the window has, or more, are one list.
    struct Order {
        explicit Order(uint32_t chunks_max) : lists(size_t{chunks_max} + 1) {}

        [[nodiscard]] List& list_of(const Source& source) {
            return lists[std::min<size_t>(source.chunks, lists.size() - 1)];
        }
        void add(Source& source) {
            list_of(source).push_back(source);
            fewest = std::min(fewest, source.chunks);
            ++count;
        }
        void remove(Source& source) {
            VELO_DCHECK(count != 0, "a source with %u chunks is removed, of none", source.chunks);
            list_of(source).remove(source);
            --count;
        }
        [[nodiscard]] Source* first() {
            if (count == 0) return nullptr;
            while (lists[fewest].empty()) {
                ++fewest;
                VELO_DCHECK(fewest < lists.size(), "%u sources wait, unseen", count);
            }
            return lists[fewest].front;
        }

        std::vector<List> lists;
        uint32_t count = 0;
        uint32_t fewest = 0;  ///< no list below it has a source
    };
    /// For %llu, whatever uint64_t is.
    [[nodiscard]] static constexpr unsigned long long number(uint64_t value) { return value; }

    /// The source to serve next, or nullptr: none waits.
    [[nodiscard]] Source* fewest() {
        if (sole_ != nullptr || waiting_count_ == 0) return sole_;
        Source* source = waiting_.first();
        return source != nullptr ? source : slow_.first();
    }
    [[nodiscard]] bool admits(const Source& source, uint64_t bytes) const {
        if ((chunks_ < chunks_max_ || chunks_ <= active_) && bytes_ + bytes <= bytes_max_) [[likely]]
            return true;
        if (source.chunks == 0) return true;
        const uint64_t share = (uint64_t{source.chunks} + 1) * active_;
        return share <= chunks_max_ && share * bytes <= bytes_max_;
    }
    bool none() {
        chunks_hwm_ = std::max(chunks_hwm_, chunks_);
        bytes_hwm_ = std::max(bytes_hwm_, bytes_);
        return false;
    }

    /// A transfer begins to wait.
    void enqueue(Transfer& transfer) {
        Source& source = *transfer.source;
        if (!source.active()) {
            ++active_;
            source.latest_end = ends_;
        }
        const bool waited = !source.waiting.empty();
        source.waiting.push_back(transfer);
        if (!waited) append(source);
    }
    [[nodiscard]] Order& order_of(const Source& source) {
        if (source.slow && source.chunks != 0) return slow_;
        return waiting_;
    }
    /// A source begins to wait.
    void append(Source& source) {
        VELO_DCHECK(!source.waiting.empty(), "a source waits with nothing, %u chunks", source.chunks);
        VELO_DCHECK(sole_ == nullptr || waiting_count_ == 1, "%u sources, and one that waits alone",
                    waiting_count_);
        if (source.held) return file(source);
        if (++waiting_count_ == 1) {
            sole_ = &source;
            return;
        }
        if (sole_ != nullptr) file(*sole_);
        sole_ = nullptr;
        file(source);
    }
    /// A source waits no longer.
    void remove(Source& source) {
        if (&source != sole_) unfile(source);
        if (source.held) return;
        sole_ = nullptr;
        --waiting_count_;
    }
    void file(Source& source) {
        if (source.held) return held_.push_back(source);
        order_of(source).add(source);
    }
    void unfile(Source& source) {
        if (source.held) return held_.remove(source);
        order_of(source).remove(source);
    }

    /// A chunk ends while several sources are active. One that takes only this process's time does not count.
    void measure(Source& source) {
        if (source.bytes_mask == 0) return;
        const uint64_t time = (++ends_ - source.latest_end) * source.chunks;
        source.latest_end = ends_;
        source.time_sum -= source.time_sum / kTimeWeight;
        source.time_sum += static_cast<uint32_t>(std::min(time, kTimeMax));
        source.slow = source.time_sum >= uint64_t{kSlowTimes} * kTimeWeight * chunks_;
    }

    /// Nothing more of it is issued.
    [[gnu::cold]] void fail(Transfer& transfer, Status status) {
        Source& source = *transfer.source;
        const bool waited = !transfer.rests();
        transfer.status = status;
        if (!waited) return;
        if (source.waiting.front == source.waiting.back) remove(source);
        source.waiting.remove(transfer);
    }
    /// A chunk is under way no longer. Its source is in no list.
    void release(Transfer& transfer, uint32_t bytes) {
        Source& source = *transfer.source;
        VELO_CHECK(transfer.outstanding > 0, "a chunk of %u bytes ends, of none", bytes);
        VELO_DCHECK(source.chunks > 0 && chunks_ > 0 && bytes_ >= (bytes & source.bytes_mask),
                    "%u of %u chunks, %llu bytes", source.chunks, chunks_, number(bytes_));
        --transfer.outstanding;
        --source.chunks;
        --chunks_;
        bytes_ -= bytes & source.bytes_mask;
    }

    uint32_t chunks_max_;
    uint64_t bytes_max_ = kBytesMax;
    Source* sole_ = nullptr;     ///< the only one that waits; in no list, because it needs no order
    Order waiting_;              ///< sources of which something is not issued
    Order slow_;                 ///< of those, the slow ones that have a chunk under way
    List held_;                  ///< and the ones that were put back
    uint64_t ends_ = 0;          ///< of chunks, while several sources were active
    uint64_t bytes_ = 0;
    uint64_t bytes_hwm_ = 0;
    uint32_t chunks_ = 0;
    uint32_t chunks_hwm_ = 0;
    uint32_t active_ = 0;
    uint32_t waiting_count_ = 0;  ///< sources in `waiting_` and `slow_`, or 1 for `sole_`
};

}  // namespace velo::rma
