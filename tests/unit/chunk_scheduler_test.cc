#include "rma/chunk_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace velo::rma {
namespace {

Transfer make(uint64_t bytes, uint64_t chunk_bytes) {
    Transfer transfer;
    transfer.bytes = bytes;
    transfer.chunk_bytes = chunk_bytes;
    return transfer;
}

TEST(ChunkScheduler, chunks_cover_a_transfer_once_and_in_order) {
    ChunkScheduler scheduler(64);
    Transfer transfer = make(1000, 300);
    scheduler.post(transfer);
    Chunk chunk;
    uint64_t offset = 0;
    while (scheduler.next(chunk)) {
        EXPECT_EQ(chunk.offset, offset);
        offset += chunk.bytes;
    }
    EXPECT_EQ(offset, 1000u);
    EXPECT_EQ(scheduler.outstanding(), 4u);
}

TEST(ChunkScheduler, never_more_chunks_are_outstanding_than_allowed) {
    ChunkScheduler scheduler(2);
    Transfer transfer = make(100, 10);
    scheduler.post(transfer);
    Chunk chunk;
    EXPECT_TRUE(scheduler.next(chunk));
    EXPECT_TRUE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_FALSE(scheduler.chunk_done(transfer, Status::kOk));
    EXPECT_TRUE(scheduler.next(chunk)) << "a completion starts the next";
    EXPECT_FALSE(scheduler.next(chunk));
}

/// Chunks of one transfer are moved one after the other, each for the time given; those of different ones at
/// once. Returns when the first transfer has ended; the others have no end.
uint64_t time_beside_others(const std::vector<uint64_t>& chunk_times, uint32_t window, uint64_t chunks) {
    ChunkScheduler scheduler(window);
    std::deque<Transfer> transfers;
    std::map<Transfer*, uint64_t> free_at;
    for (size_t i = chunk_times.size(); i-- > 0;) {
        transfers.push_front(make(i == 0 ? chunks : UINT32_MAX, 1));
        scheduler.post(transfers.front());
    }
    std::multimap<uint64_t, Transfer*> ends;
    for (uint64_t now = 0;;) {
        Chunk chunk;
        while (scheduler.next(chunk)) {
            const auto place = static_cast<size_t>(
                std::find_if(transfers.begin(), transfers.end(),
                             [&](const Transfer& transfer) { return &transfer == chunk.transfer; }) -
                transfers.begin());
            uint64_t& busy = free_at[chunk.transfer];
            busy = std::max(busy, now) + chunk_times[place];
            ends.emplace(busy, chunk.transfer);
        }
        const auto first = ends.begin();
        now = first->first;
        Transfer* ended = first->second;
        ends.erase(first);
        if (scheduler.chunk_done(*ended, Status::kOk) && ended == &transfers.front()) return now;
    }
}

TEST(ChunkScheduler, a_fast_transfer_beside_slow_ones_keeps_its_speed) {
    constexpr uint64_t kChunks = 2000;
    EXPECT_EQ(time_beside_others({1}, 8, kChunks), kChunks);
    EXPECT_LE(time_beside_others({1, 100}, 8, kChunks), kChunks * 102 / 100);
    EXPECT_LE(time_beside_others({1, 100}, 2, kChunks), kChunks * 102 / 100);
    EXPECT_LE(time_beside_others({1, 100, 100, 100, 100}, 8, kChunks), kChunks * 110 / 100);
}

TEST(ChunkScheduler, a_chunk_that_was_put_back_comes_again_first_among_equals) {
    ChunkScheduler scheduler(4);
    Transfer one = make(25, 10);
    Transfer other = make(10, 10);
    scheduler.post(one);
    scheduler.post(other);
    Chunk chunk;
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_EQ(chunk.transfer, &one);
    scheduler.put_back(chunk);
    EXPECT_EQ(scheduler.outstanding(), 0u);
    for (const uint64_t offset : {uint64_t{0}, UINT64_MAX, uint64_t{10}, uint64_t{20}}) {
        ASSERT_TRUE(scheduler.next(chunk));
        if (offset == UINT64_MAX) {
            EXPECT_EQ(chunk.transfer, &other);
            continue;
        }
        EXPECT_EQ(chunk.transfer, &one);
        EXPECT_EQ(chunk.offset, offset);
        EXPECT_EQ(chunk.bytes, offset == 20 ? 5u : 10u);
        scheduler.put_back(chunk);
        Chunk again;
        ASSERT_TRUE(scheduler.next(again));
        EXPECT_EQ(again.transfer, &one);
        EXPECT_EQ(again.offset, offset);
        EXPECT_EQ(again.bytes, chunk.bytes);
    }
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_TRUE(scheduler.chunk_done(other, Status::kOk));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(scheduler.chunk_done(one, Status::kOk), i == 2);
    EXPECT_TRUE(scheduler.idle());
}

TEST(ChunkScheduler, transfers_take_turns) {
    ChunkScheduler scheduler(1000);
    Transfer large = make(1'000'000, 10'000);
    Transfer small = make(20'000, 10'000);
    scheduler.post(large);
    scheduler.post(small);
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
    Transfer failing = make(1000, 100);
    Transfer other = make(100, 100);
    scheduler.post(failing);
    scheduler.post(other);
    Chunk chunk;
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_TRUE(scheduler.next(chunk));
    ASSERT_EQ(failing.outstanding, 2u);
    EXPECT_FALSE(scheduler.chunk_done(failing, Status::kAtuFault));
    EXPECT_FALSE(scheduler.next(chunk));
    EXPECT_TRUE(scheduler.chunk_done(failing, Status::kOk));
    EXPECT_EQ(failing.status, Status::kAtuFault) << "the first failure stays";
    EXPECT_TRUE(scheduler.chunk_done(other, Status::kOk));
    EXPECT_TRUE(scheduler.idle());
}

TEST(ChunkScheduler, any_order_of_completions_finishes_every_transfer_once) {
    for (uint32_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const uint32_t limit = 1 + random() % 6;
        ChunkScheduler scheduler(limit);
        std::deque<Transfer> transfers;
        std::map<Transfer*, uint64_t> bytes_done;
        std::vector<Chunk> outstanding;
        size_t finished = 0;
        size_t failed = 0;
        for (int step = 0; step < 4000; ++step) {
            if (transfers.size() < 30 && random() % 8 == 0) {
                transfers.push_back(make(1 + random() % 500, 1 + random() % 60));
                scheduler.post(transfers.back());
            }
            Chunk chunk;
            while (scheduler.next(chunk)) {
                if (random() % 10 == 0) {
                    scheduler.put_back(chunk);
                    break;
                }
                outstanding.push_back(chunk);
            }
            ASSERT_LE(outstanding.size(), limit);
            if (outstanding.empty()) continue;
            std::swap(outstanding[random() % outstanding.size()], outstanding.back());
            const Chunk done = outstanding.back();
            outstanding.pop_back();
            bytes_done[done.transfer] += done.bytes;
            const Status status = random() % 50 == 0 ? Status::kFailed : Status::kOk;
            if (scheduler.chunk_done(*done.transfer, status)) {
                ++finished;
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
