/// Blocks moved from both ends: who claims what, how far cores are apart, and the copies.
#include "velo/base/chunk_claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "velo/base/copy.h"
#include "velo/shm/distance.h"
#include "velo/wire.h"

namespace velo::shm {
namespace {

TEST(ChunkClaims, every_interleaving_of_both_ends_shares_out_every_chunk_once) {
    // Each bit of `turns` says who claims next.
    for (uint32_t chunks = 1; chunks <= 6; ++chunks) {
        for (uint32_t turns = 0; turns < 1u << chunks; ++turns) {
            base::ClaimWord slot;
            base::ChunkClaims::open(slot, 7);
            std::vector<int> taken(chunks);
            uint32_t front = 0;
            for (uint32_t turn = 0; turn < chunks; ++turn) {
                uint32_t index = 99;
                const bool from_front = (turns >> turn & 1) != 0;
                ASSERT_TRUE(from_front ? base::ChunkClaims::claim_front(slot, 7, chunks, index)
                                       : base::ChunkClaims::claim_back(slot, 7, chunks, index));
                ASSERT_LT(index, chunks);
                ++taken[index];
                front += from_front;
            }
            uint32_t index = 0;
            EXPECT_FALSE(base::ChunkClaims::claim_front(slot, 7, chunks, index));
            EXPECT_FALSE(base::ChunkClaims::claim_back(slot, 7, chunks, index));
            EXPECT_EQ(taken, std::vector<int>(chunks, 1));
            EXPECT_EQ(base::ChunkClaims::close(slot).front, front);
        }
    }
}

TEST(ChunkClaims, claims_of_several_chunks_leave_none_out_and_take_none_twice) {
    // Each digit of `turns` in base 6 says which end claims next, and how many it wants.
    for (uint32_t chunks = 1; chunks <= 5; ++chunks) {
        for (uint32_t turns = 0; turns < 7776; ++turns) {
            base::ClaimWord slot;
            base::ChunkClaims::open(slot, 3);
            std::vector<int> taken(chunks);
            uint32_t front = 0;
            uint32_t left = chunks;
            for (uint32_t rest = turns; left != 0; rest /= 6) {
                const bool from_front = rest % 2 == 0;
                const uint32_t most = 1 + rest / 2 % 3;
                uint32_t index = 99;
                const uint32_t count = from_front
                                           ? base::ChunkClaims::claim_front(slot, 3, chunks, index, most)
                                           : base::ChunkClaims::claim_back(slot, 3, chunks, index, most);
                ASSERT_EQ(count, std::min(most, left));
                for (uint32_t i = 0; i < count; ++i) ++taken.at(index + i);
                left -= count;
                if (from_front) front += count;
            }
            EXPECT_EQ(taken, std::vector<int>(chunks, 1));
            EXPECT_EQ(base::ChunkClaims::close(slot).front, front);
        }
    }
}

TEST(ChunkClaims, both_ends_at_once_share_out_every_chunk_once) {
    constexpr uint32_t kChunks = 20000;
    base::ClaimWord slot;
    base::ChunkClaims::open(slot, 1);
    std::vector<std::atomic<int>> taken(kChunks);
    std::thread owner([&] {
        uint32_t index = 0;
        while (base::ChunkClaims::claim_front(slot, 1, kChunks, index)) ++taken[index];
    });
    uint32_t index = 0;
    while (base::ChunkClaims::claim_back(slot, 1, kChunks, index)) ++taken[index];
    owner.join();
    for (const auto& times : taken) ASSERT_EQ(times, 1);
}

TEST(ChunkClaims, who_comes_late_finds_nothing) {
    base::ClaimWord slot;
    uint32_t index = 0;
    base::ChunkClaims::open(slot, 1);
    ASSERT_TRUE(base::ChunkClaims::claim_front(slot, 1, 4, index));
    EXPECT_EQ(base::ChunkClaims::close(slot).front, 1u);
    EXPECT_FALSE(base::ChunkClaims::claim_front(slot, 1, 4, index)) << "after the end";
    base::ChunkClaims::open(slot, 2);
    EXPECT_FALSE(base::ChunkClaims::claim_front(slot, 1, 4, index)) << "when the slot serves another block";
    EXPECT_TRUE(base::ChunkClaims::claim_front(slot, 2, 4, index));
    EXPECT_EQ(index, 0u);
}

TEST(CoopCall, survives_packing) {
    const CoopCall call = {.bytes = 0x89abcdef, .generation = 0x4567, .slot = 63};
    const CoopCall again = CoopCall::unpack(call.pack());
    EXPECT_EQ(again.bytes, call.bytes);
    EXPECT_EQ(again.generation, call.generation);
    EXPECT_EQ(again.slot, call.slot);
}

TEST(Distance, follows_what_is_measured_and_is_not_fooled_by_one_interruption) {
    Distance distance;
    EXPECT_EQ(distance.ns(), 0u);
    EXPECT_FALSE(Distance::far(distance.ns())) << "unknown counts as near";
    for (int i = 0; i < 10; ++i) distance.add(50);
    EXPECT_EQ(distance.ns(), 50u);
    distance.add(100'000);
    EXPECT_FALSE(Distance::far(distance.ns()));
    for (int i = 0; i < 20; ++i) distance.add(300);
    EXPECT_TRUE(Distance::far(distance.ns()));
    for (int i = 0; i < 20; ++i) distance.add(40);
    EXPECT_FALSE(Distance::far(distance.ns()));
}

/// Every length and alignment, with guards around.
template <class Copy>
void check_copy(size_t longest, Copy&& copy) {
    std::vector<uint8_t> source(longest + 64);
    std::iota(source.begin(), source.end(), uint8_t{1});
    for (size_t bytes = 0; bytes <= longest; ++bytes) {
        for (size_t offset : {size_t{0}, size_t{1}, size_t{8}, size_t{63}}) {
            alignas(64) uint8_t target[1024] = {};
            copy(target + 64 + offset, source.data() + offset / 2, bytes);
            for (size_t at = 0; at < sizeof target; ++at) {
                const bool inside = at >= 64 + offset && at < 64 + offset + bytes;
                const uint8_t due = inside ? source[offset / 2 + at - 64 - offset] : 0;
                ASSERT_EQ(target[at], due) << bytes << " bytes at " << offset << ", place " << at;
            }
        }
    }
}

TEST(Copy, a_few_bytes_of_every_length) {
    check_copy(64, base::copy_small);
}
TEST(Copy, past_the_caches_of_every_length) {
    check_copy(500, base::copy_nontemporal);
}

}  // namespace
}  // namespace velo::shm
