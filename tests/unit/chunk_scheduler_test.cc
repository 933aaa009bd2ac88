#include "rma/chunk_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace velo::rma {
namespace {

Transfer make(uint64_t bytes, uint32_t chunk_bytes) {
    Transfer transfer;
    transfer.bytes = bytes;
    transfer.chunk_bytes = chunk_bytes;
    return transfer;
}

std::vector<uint64_t> chunk_lengths(uint64_t bytes, uint32_t chunk_bytes, uint32_t lead_bytes = 0) {
    ChunkScheduler scheduler(1);
    Source source;
    Transfer transfer = make(bytes, chunk_bytes);
    transfer.lead_bytes = lead_bytes;
    scheduler.post(transfer, source);
    std::vector<uint64_t> lengths;
    uint64_t offset = 0;
    for (Chunk chunk; scheduler.next(chunk);) {
        EXPECT_EQ(chunk.offset, offset);
        offset += chunk.bytes;
        lengths.push_back(chunk.bytes);
        if (scheduler.chunk_done(transfer, chunk.bytes, Status::kOk)) break;
    }
    EXPECT_EQ(offset, bytes) << "chunks cover a transfer once and in order";
    return lengths;
}

TEST(ChunkScheduler, what_goes_ahead_is_a_chunk_of_its_own_and_the_others_are_equal) {
    EXPECT_EQ(chunk_lengths(100, 200, 60), (std::vector<uint64_t>{60, 40}));
    EXPECT_EQ(chunk_lengths(260, 200, 60), (std::vector<uint64_t>{60, 200}));
    EXPECT_EQ(chunk_lengths(4096 + 64 + 1, 4096, 64), (std::vector<uint64_t>{64, 2049, 2048}));
    EXPECT_EQ(chunk_lengths(61, 60, 60), (std::vector<uint64_t>{60, 1}));
}

TEST(ChunkSchedulerDeathTest, as_much_as_all_does_not_go_ahead) {
    EXPECT_DEATH(chunk_lengths(60, 200, 60), "60 bytes go ahead of 60");
    EXPECT_DEATH(chunk_lengths(300, 60, 61), "61 bytes go ahead of 300");
}

TEST(ChunkScheduler, chunks_are_as_few_as_can_be_and_nearly_equal) {
    EXPECT_EQ(chunk_lengths(1, 4096), (std::vector<uint64_t>{1}));
    EXPECT_EQ(chunk_lengths(4096, 4096), (std::vector<uint64_t>{4096}));
    EXPECT_EQ(chunk_lengths(4097, 4096), (std::vector<uint64_t>{2049, 2048})) << "no tail of one byte";
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        const auto chunk =
            static_cast<uint32_t>(i % 2 == 0 ? 64 * (1 + random() % 1000) : 1 + random() % 5000);
        const uint64_t bytes = 1 + random() % (uint64_t{chunk} * (1 + random() % 300));
        SCOPED_TRACE(std::to_string(bytes) + " in " + std::to_string(chunk));
        const std::vector<uint64_t> lengths = chunk_lengths(bytes, chunk);
        EXPECT_EQ(lengths.size(), (bytes + chunk - 1) / chunk);
        EXPECT_LE(lengths.front(), chunk);
        for (size_t at = 1; at + 2 < lengths.size(); ++at) ASSERT_EQ(lengths[at], lengths.front());
        if (lengths.size() < 2) continue;
        const uint64_t last = lengths.back();
        const uint64_t before = lengths[lengths.size() - 2];
        EXPECT_LE(std::max(last, before), lengths.front());
        EXPECT_GE(2 * last + 1, lengths.front()) << "no short tail";
        EXPECT_LE(before - last, std::max<uint64_t>(64 * lengths.size(), 1)) << "a cache line a chunk";
    }
}

TEST(ChunkScheduler, a_transfer_of_4_gib_and_a_byte_ends_with_its_last_byte) {
    constexpr uint64_t kBytes = (uint64_t{4} << 30) + 1;
    const std::vector<uint64_t> lengths = chunk_lengths(kBytes, 256u << 10);
    EXPECT_EQ(lengths.size(), 16385u);
    EXPECT_GE(lengths.back(), 128u << 10);
    EXPECT_EQ(chunk_lengths(kBytes, UINT32_MAX).size(), 2u);
}

TEST(ChunkScheduler, never_more_chunks_are_outstanding_than_allowed) {
    ChunkScheduler scheduler(2);
    Source source;
    Transfer transfer = make(100, 10);
    scheduler.post(transfer, source);
    Chunk chunk;
    EXPECT_TRUE(scheduler.next(chunk));
    EXPECT_TRUE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.chunk_done(transfer, 10, Status::kOk));
    EXPECT_TRUE(scheduler.next(chunk)) << "a completion starts the next";
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_EQ(scheduler.chunks_hwm(), 2u);
}

TEST(ChunkScheduler, never_more_bytes_are_outstanding_than_allowed_but_one_chunk_of_a_source) {
    ChunkScheduler scheduler(100, 35);
    Source source;
    Transfer transfer = make(1000, 10);
    scheduler.post(transfer, source);
    Chunk chunk;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_EQ(scheduler.bytes(), 30u);

    Source other;
    Transfer large = make(70, 70);
    scheduler.post(large, other);
    EXPECT_TRUE(scheduler.next(chunk)) << "a chunk longer than the window goes alone";
    EXPECT_EQ(chunk.transfer, &large);
    EXPECT_EQ(scheduler.bytes(), 100u);
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_EQ(scheduler.bytes_hwm(), 100u);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(scheduler.chunk_done(transfer, 10, Status::kOk));
    EXPECT_TRUE(scheduler.next(chunk)) << "one chunk of each source";
    EXPECT_FALSE(scheduler.next(chunk)) << "70 + 10 bytes";
    EXPECT_TRUE(scheduler.chunk_done(large, 70, Status::kOk));
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.next(chunk));
}

TEST(ChunkScheduler, chunks_that_do_not_cross_the_network_count_as_chunks_only) {
    ChunkScheduler scheduler(3, 10);
    Source source;
    source.bytes_mask = 0;
    Transfer transfer = make(100'000, 1000);
    scheduler.post(transfer, source);
    Chunk chunk;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_EQ(scheduler.bytes(), 0u);
}

/// Chunks of one source are moved one after the other, each for the time given; those of different ones at
/// once. Each source has as many transfers as it says. Returns when the first source's first transfer has
/// ended; the others have no end. The others may have been there for a while.
struct Load {
    uint64_t chunk_time;
    uint32_t transfers;
};
uint64_t time_beside_others(const std::vector<Load>& loads, uint32_t window, uint64_t chunks,
                            bool others_first = false) {
    ChunkScheduler scheduler(window);
    std::vector<Source> sources(loads.size());
    std::map<Source*, uint64_t> free_at;
    std::deque<Transfer> transfers;
    std::multimap<uint64_t, Chunk> ends;
    const auto issue = [&](uint64_t now) {
        for (Chunk chunk; scheduler.next(chunk);) {
            Source* source = chunk.transfer->source;
            uint64_t& busy = free_at[source];
            busy = std::max(busy, now) + loads[static_cast<size_t>(source - sources.data())].chunk_time;
            ends.emplace(busy, chunk);
        }
    };
    for (size_t i = loads.size(); i-- > 0;) {
        for (uint32_t transfer = 0; transfer < loads[i].transfers; ++transfer) {
            transfers.push_back(make(i == 0 ? chunks : UINT32_MAX, 1));
            scheduler.post(transfers.back(), sources[i]);
        }
        if (others_first) issue(0);
    }
    for (uint64_t now = 0;;) {
        issue(now);
        const auto first = ends.begin();
        now = first->first;
        const Chunk ended = first->second;
        ends.erase(first);
        if (scheduler.chunk_done(*ended.transfer, ended.bytes, Status::kOk) &&
            ended.transfer->source == &sources[0])
            return now;
    }
}

TEST(ChunkScheduler, a_fast_source_beside_slow_ones_keeps_its_speed) {
    constexpr uint64_t kChunks = 2000;
    constexpr uint64_t kNever = UINT64_MAX / 1'000'000;
    EXPECT_EQ(time_beside_others({{1, 1}}, 8, kChunks), kChunks);
    for (const bool others_first : {false, true}) {
        for (const uint64_t slow : {uint64_t{100}, kNever}) {
            for (const uint32_t transfers : {1, 20}) {
                SCOPED_TRACE(std::to_string(slow) + " x " + std::to_string(transfers) +
                             (others_first ? ", first" : ""));
                const Load other = {slow, transfers};
                EXPECT_EQ(time_beside_others({{1, 1}, other}, 8, kChunks, others_first), kChunks);
                EXPECT_EQ(time_beside_others({{1, 1}, other}, 2, kChunks, others_first), kChunks);
                EXPECT_EQ(time_beside_others({{1, 1}, other, other, other, other}, 8, kChunks, others_first),
                          kChunks);
                EXPECT_EQ(time_beside_others({{1, 1}, other, other, other, other}, 2, kChunks, others_first),
                          kChunks);
            }
        }
    }
}

/// As time_beside_others(), but each chunk is under way for `latency` before its source begins it, and all
/// sources have no end. Returns how many chunks of each ended between two times. From half of the first on,
/// `later` are the loads.
std::vector<uint64_t> ended_between(uint64_t begin, uint64_t end, std::vector<Load> loads, uint32_t window,
                                    uint64_t latency, const std::vector<Load>& later = {}) {
    ChunkScheduler scheduler(window);
    std::vector<Source> sources(loads.size());
    std::vector<uint64_t> busy(loads.size()), ended(loads.size());
    std::deque<Transfer> transfers;
    std::multimap<uint64_t, Chunk> ends;
    for (Source& source : sources) {
        transfers.push_back(make(UINT32_MAX, 1));
        scheduler.post(transfers.back(), source);
    }
    for (uint64_t now = 0; now < end;) {
        if (!later.empty() && now >= begin / 2) loads = later;
        for (Chunk chunk; scheduler.next(chunk);) {
            const auto i = static_cast<size_t>(chunk.transfer->source - sources.data());
            busy[i] = std::max(busy[i], now + latency) + loads[i].chunk_time;
            ends.emplace(busy[i], chunk);
        }
        const auto first = ends.begin();
        now = first->first;
        const Chunk chunk = first->second;
        ends.erase(first);
        EXPECT_FALSE(scheduler.chunk_done(*chunk.transfer, chunk.bytes, Status::kOk));
        if (now >= begin) ++ended[static_cast<size_t>(chunk.transfer->source - sources.data())];
    }
    return ended;
}

TEST(ChunkScheduler, a_fast_source_beside_slow_ones_has_chunks_that_cover_the_latency) {
    for (const uint64_t factor : {20, 100, 1000}) {
        const Load slow = {10 * factor, 1};
        for (const size_t others : {1, 2, 4, 6}) {
            SCOPED_TRACE(std::to_string(others) + " slower by " + std::to_string(factor));
            std::vector<Load> loads(1 + others, slow);
            loads.back() = {10, 1};
            const auto ended = ended_between(50'000, 150'000, loads, 8, 10);
            EXPECT_GE(ended.back(), 9'800u);
            for (size_t i = 0; i < others; ++i) EXPECT_GE(ended[i], 98'000 / (slow.chunk_time + 10));
        }
    }
}

TEST(ChunkScheduler, equal_sources_stay_equal_whatever_the_latency) {
    for (const uint64_t latency : {0, 10, 1000}) {
        for (const size_t count : {2, 3, 5, 7, 20}) {
            SCOPED_TRACE(std::to_string(count) + " sources, latency " + std::to_string(latency));
            const auto ended = ended_between(20'000, 220'000, std::vector<Load>(count, {10, 1}), 8, latency);
            const auto [least, most] = std::ranges::minmax(ended);
            EXPECT_GE(100 * least, 95 * most);
        }
    }
}

TEST(ChunkScheduler, a_source_that_was_slow_gets_its_share_again) {
    const std::vector<Load> later(5, {10, 1});
    std::vector<Load> loads = later;
    loads.front() = {1000, 1};
    const auto ended = ended_between(40'000, 240'000, loads, 8, 30, later);
    const auto [least, most] = std::ranges::minmax(ended);
    EXPECT_GE(100 * least, 95 * most);
}

TEST(ChunkScheduler, sources_that_stay_have_equal_shares_of_the_window) {
    ChunkScheduler scheduler(8);
    std::array<Source, 4> sources;
    std::deque<Transfer> transfers;
    std::deque<Chunk> outstanding;
    uint32_t most = 0;
    for (Source& source : sources) {
        transfers.push_back(make(UINT32_MAX, 1));
        scheduler.post(transfers.back(), source);
        for (Chunk chunk; scheduler.next(chunk);) outstanding.push_back(chunk);
        most = std::max(most, scheduler.chunks());
    }
    EXPECT_EQ(most, 8u + 8 / 2 + 8 / 3 + 8 / 4) << "the first source keeps what it had until it ends";
    EXPECT_LE(most, 2 * 8u);
    for (int i = 0; i < 100; ++i) {
        const Chunk done = outstanding.front();
        outstanding.pop_front();
        EXPECT_FALSE(scheduler.chunk_done(*done.transfer, done.bytes, Status::kOk));
        for (Chunk chunk; scheduler.next(chunk);) outstanding.push_back(chunk);
    }
    EXPECT_EQ(scheduler.chunks(), 8u);
    for (const Source& source : sources) EXPECT_EQ(source.chunks, 2u);
}

TEST(ChunkScheduler, a_chunk_that_was_put_back_comes_again_first_and_waits_until_resume) {
    ChunkScheduler scheduler(4);
    Source source;
    Source another;
    Transfer one = make(25, 10);
    Transfer other = make(10, 10);
    scheduler.post(one, source);
    scheduler.post(other, another);
    Chunk chunk;
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_EQ(chunk.transfer, &one);
    scheduler.put_back(chunk);
    EXPECT_EQ(scheduler.chunks(), 0u);
    ASSERT_TRUE(scheduler.next(chunk)) << "others go on";
    ASSERT_EQ(chunk.transfer, &other);
    EXPECT_FALSE(scheduler.next(chunk));
    uint64_t offset = 0;
    while (offset != 25) {
        scheduler.resume();
        ASSERT_TRUE(scheduler.next(chunk));
        ASSERT_EQ(chunk.transfer, &one);
        EXPECT_EQ(chunk.offset, offset);
        const uint32_t bytes = chunk.bytes;
        scheduler.put_back(chunk);
        ASSERT_FALSE(scheduler.next(chunk));
        scheduler.resume();
        ASSERT_TRUE(scheduler.next(chunk));
        EXPECT_EQ(chunk.offset, offset);
        EXPECT_EQ(chunk.bytes, bytes);
        offset += bytes;
    }
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_TRUE(scheduler.chunk_done(other, 10, Status::kOk));
    EXPECT_FALSE(scheduler.chunk_done(one, 10, Status::kOk));
    EXPECT_FALSE(scheduler.chunk_done(one, 10, Status::kOk));
    EXPECT_TRUE(scheduler.chunk_done(one, 5, Status::kOk));
    EXPECT_TRUE(scheduler.idle());
}

TEST(ChunkScheduler, a_first_chunk_goes_ahead_of_a_transfer_that_is_opened_later) {
    ChunkScheduler scheduler(4);
    Source source;
    Transfer ahead = make(30, 10);
    ahead.first_only = true;
    Transfer other = make(20, 10);
    scheduler.post(ahead, source);
    scheduler.post(other, source);
    Chunk chunk;
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_EQ(chunk.transfer, &ahead);
    scheduler.put_back(chunk);
    scheduler.resume();
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_EQ(chunk.transfer, &ahead) << "it was put back, and nothing else has gone";
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(scheduler.next(chunk));
        EXPECT_EQ(chunk.transfer, &other);
    }
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.chunk_done(ahead, 10, Status::kOk));
    EXPECT_FALSE(scheduler.chunk_done(other, 10, Status::kOk));
    EXPECT_TRUE(scheduler.chunk_done(other, 10, Status::kOk));
    EXPECT_TRUE(scheduler.idle()) << "with nothing under way, and nothing that may go";
    scheduler.open(ahead);
    scheduler.open(ahead);
    ASSERT_TRUE(scheduler.next(chunk));
    EXPECT_EQ(chunk.offset, 10u);
    ASSERT_TRUE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.chunk_done(ahead, 10, Status::kOk));
    EXPECT_TRUE(scheduler.chunk_done(ahead, 10, Status::kOk));

    Transfer failing = make(30, 10);
    failing.first_only = true;
    scheduler.post(failing, source);
    ASSERT_TRUE(scheduler.next(chunk));
    EXPECT_TRUE(scheduler.chunk_done(failing, 10, Status::kAtuFault)) << "all that it has begun has ended";
    scheduler.open(failing);
    EXPECT_TRUE(scheduler.idle());
}

TEST(ChunkScheduler, transfers_of_a_source_take_turns) {
    ChunkScheduler scheduler(1000);
    Source source;
    Transfer large = make(1'000'000, 10'000);
    Transfer small = make(20'000, 10'000);
    scheduler.post(large, source);
    scheduler.post(small, source);
    std::vector<Transfer*> order;
    Chunk chunk;
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(scheduler.next(chunk));
        order.push_back(chunk.transfer);
    }
    EXPECT_EQ(order, (std::vector<Transfer*>{&large, &small, &large, &small, &large}));
}

TEST(ChunkScheduler, a_failure_ends_a_transfer_with_its_outstanding_chunks_and_no_others) {
    ChunkScheduler scheduler(3);
    Source source;
    Transfer failing = make(1000, 100);
    Transfer other = make(100, 100);
    scheduler.post(failing, source);
    scheduler.post(other, source);
    Chunk chunk;
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_EQ(failing.outstanding, 2u);
    EXPECT_FALSE(scheduler.chunk_done(failing, 100, Status::kAtuFault));
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_TRUE(scheduler.chunk_done(failing, 100, Status::kOk));
    EXPECT_EQ(failing.status, Status::kAtuFault) << "the first failure stays";
    EXPECT_TRUE(scheduler.chunk_done(other, 100, Status::kOk));
    EXPECT_TRUE(scheduler.idle());
}

/// Holds after every step, in any order of events: each byte once, and the bounds of what is under way.
TEST(ChunkScheduler, any_order_of_completions_finishes_every_transfer_once_within_the_window) {
    for (uint32_t seed = 1; seed <= 300; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const uint32_t limit = 1 + random() % 6;
        const uint64_t bytes_max = seed % 3 == 0 ? UINT64_MAX : 1 + random() % 200;
        constexpr uint32_t kChunkMax = 60;
        ChunkScheduler scheduler(limit, bytes_max);
        std::vector<Source> sources(1 + random() % 5);
        std::deque<Transfer> transfers;
        std::map<Transfer*, uint64_t> bytes_done;
        std::set<Transfer*> ended;
        std::vector<Chunk> outstanding;
        size_t finished = 0;
        size_t failed = 0;
        bool filling = true;
        for (int step = 0; filling || !outstanding.empty(); ++step) {
            filling = step < 4000;
            if (filling && transfers.size() < 30 && random() % 8 == 0) {
                transfers.push_back(make(1 + random() % 500, 1 + random() % kChunkMax));
                transfers.back().first_only = random() % 3 == 0;
                scheduler.post(transfers.back(), sources[random() % sources.size()]);
            }
            for (Transfer& transfer : transfers) {
                const bool due = !filling || random() % 8 == 0;
                if (transfer.first_only && due && ended.count(&transfer) == 0) scheduler.open(transfer);
            }
            scheduler.resume();
            Chunk chunk;
            while (scheduler.next(chunk)) {
                if (filling && random() % 10 == 0) {
                    scheduler.put_back(chunk);
                } else {
                    outstanding.push_back(chunk);
                }
            }
            const auto active = static_cast<uint32_t>(std::count_if(
                sources.begin(), sources.end(), [](const Source& source) { return source.active(); }));
            ASSERT_EQ(scheduler.active_sources(), active);
            ASSERT_EQ(scheduler.chunks(), outstanding.size());
            ASSERT_LE(outstanding.size(), 2 * std::max<size_t>(limit, sources.size() + 1));
            uint64_t bytes = 0;
            for (const Chunk& under_way : outstanding) bytes += under_way.bytes;
            ASSERT_EQ(scheduler.bytes(), bytes);
            if (bytes_max != UINT64_MAX) {
                ASSERT_LE(bytes, 2 * bytes_max + sources.size() * kChunkMax);
            }
            if (outstanding.empty()) {
                ASSERT_TRUE(std::all_of(sources.begin(), sources.end(), [](const Source& source) {
                    return source.waiting.empty() || source.held;
                })) << "something waits, and nothing is under way";
                continue;
            }
            std::swap(outstanding[random() % outstanding.size()], outstanding.back());
            const Chunk done = outstanding.back();
            outstanding.pop_back();
            bytes_done[done.transfer] += done.bytes;
            const Status status = random() % 50 == 0 ? Status::kFailed : Status::kOk;
            if (scheduler.chunk_done(*done.transfer, done.bytes, status)) {
                ++finished;
                ended.insert(done.transfer);
                if (done.transfer->status == Status::kOk) {
                    ASSERT_EQ(bytes_done[done.transfer], done.transfer->bytes);
                } else {
                    ++failed;
                }
            }
        }
        EXPECT_EQ(finished, transfers.size());
        EXPECT_LT(failed, finished);
        EXPECT_TRUE(scheduler.idle());
    }
}

}  // namespace
}  // namespace velo::rma
