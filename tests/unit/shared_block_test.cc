/// Blocks moved from both ends: who claims what, how far cores are apart, and the copies.
#include "velo/wire/shared_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "velo/base/copy.h"
#include "velo/shm/distance.h"
#include "velo/wire/engine_wire.h"

namespace velo::shm {
namespace {

using base::BlockPart;
using base::ClaimWord;
using base::ReaderBlock;
using base::SharedBlock;

TEST(SharedBlock, is_cut_into_chunks_of_which_the_last_one_may_be_shorter) {
    constexpr uint32_t kKiB = 1024;
    const auto chunk_bytes = [](uint32_t bytes) {
        ClaimWord word{0};
        return SharedBlock(bytes, 0).claim_front(word).bytes;
    };
    EXPECT_EQ(chunk_bytes(1), 1u);
    EXPECT_EQ(chunk_bytes(32 * kKiB), 16 * kKiB);
    EXPECT_EQ(chunk_bytes(32 * kKiB + 1), 32 * kKiB);
    EXPECT_EQ(chunk_bytes(128 * kKiB + 1), 64 * kKiB);
    EXPECT_EQ(chunk_bytes(512 * kKiB + 1), 128 * kKiB);
    EXPECT_EQ(chunk_bytes(1024 * kKiB + 1), 256 * kKiB);
    for (const uint32_t bytes : {1u, 20'000u, 33'000u, 600'000u, 8u << 20, 64u << 20, UINT32_MAX}) {
        ClaimWord word{0};
        const SharedBlock block(bytes, 0);
        uint32_t chunks = 0;
        uint64_t end = 0;
        for (BlockPart part; (part = block.claim_front(word)).bytes != 0; ++chunks) {
            ASSERT_EQ(part.offset, end);
            end += part.bytes;
        }
        EXPECT_EQ(end, bytes);
        EXPECT_EQ(chunks, block.chunks(bytes));
        EXPECT_EQ(block.chunks(0), 0u);
        EXPECT_EQ(block.chunks(1), 1u);
    }
}

TEST(SharedBlock, takes_as_many_chunks_as_there_is_room_for_and_at_least_one) {
    constexpr uint32_t kChunk = 32u << 10;
    constexpr uint32_t kBytes = 4 * kChunk - 5;
    for (const auto& [room, chunks] :
         {std::pair{0u, 1u}, {kChunk - 1, 1u}, {2 * kChunk, 2u}, {3 * kChunk - 1, 2u}, {UINT32_MAX, 4u}}) {
        ClaimWord word;
        ReaderBlock reader;
        reader.open(word, kBytes);
        const BlockPart front = SharedBlock(kBytes, reader.generation()).claim_front(word, room);
        EXPECT_EQ(front.offset, 0u);
        EXPECT_EQ(front.bytes, std::min(chunks * kChunk, kBytes));
        reader.open(word, kBytes);
        const BlockPart back = reader.claim_back(word, room);
        EXPECT_EQ(back.offset, (4 - chunks) * kChunk);
        EXPECT_EQ(back.offset + back.bytes, kBytes);
    }
}

TEST(SharedBlock, both_ends_at_once_share_out_every_byte_once) {
    constexpr uint32_t kBytes = UINT32_MAX;
    ClaimWord word;
    ReaderBlock reader;
    reader.open(word, kBytes);
    std::vector<BlockPart> owned;
    std::thread owner([&, block = SharedBlock(kBytes, reader.generation())] {
        for (BlockPart part; (part = block.claim_front(word)).bytes != 0;) owned.push_back(part);
    });
    std::vector<BlockPart> parts;
    for (BlockPart part; (part = reader.claim_back(word)).bytes != 0;) parts.push_back(part);
    owner.join();
    uint64_t own_bytes = 0;
    for (const BlockPart part : parts) own_bytes += part.bytes;
    EXPECT_TRUE(reader.close(word, true));
    reader.end(own_bytes);
    EXPECT_EQ(reader.due_bytes(), kBytes - own_bytes);
    parts.insert(parts.end(), owned.rbegin(), owned.rend());
    uint64_t begin = kBytes;
    for (const BlockPart part : parts) {
        ASSERT_EQ(uint64_t{part.offset} + part.bytes, begin);
        begin = part.offset;
    }
    EXPECT_EQ(begin, 0u);
}

TEST(SharedBlock, an_owner_that_comes_late_finds_nothing) {
    constexpr uint32_t kBytes = 100'000;
    ClaimWord word;
    ReaderBlock reader;
    reader.open(word, kBytes);
    const SharedBlock first(kBytes, reader.generation());
    ASSERT_NE(first.claim_front(word).bytes, 0u);
    EXPECT_TRUE(reader.close(word, false));
    EXPECT_EQ(first.claim_front(word).bytes, 0u) << "after the end";
    reader.open(word, kBytes);
    EXPECT_EQ(first.claim_front(word).bytes, 0u) << "when the item serves another block";
    const BlockPart part = SharedBlock(kBytes, reader.generation()).claim_front(word);
    EXPECT_EQ(part.offset, 0u);
    EXPECT_NE(part.bytes, 0u);
}

TEST(SharedBlock, parts_that_cannot_be_change_nothing) {
    ClaimWord word;
    ReaderBlock reader;
    reader.open(word, 1000);
    for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{0, 0},
                                        {0, 1001},
                                        {1000, 1},
                                        {1001, 1},
                                        {999, 2},
                                        {UINT64_MAX, 2},
                                        {1, UINT64_MAX},
                                        {uint64_t{1} << 32, 1}}) {
        EXPECT_FALSE(reader.end_part(offset, bytes)) << offset << ' ' << bytes;
    }
    EXPECT_EQ(reader.ended_bytes(), 0u);
    EXPECT_TRUE(reader.end_part(400, 600));
    EXPECT_FALSE(reader.end_part(0, 401)) << "more than is left";
    EXPECT_EQ(reader.left_bytes(), 400u);
    reader.end(UINT64_MAX);
    EXPECT_EQ(reader.ended_bytes(), 1000u);
    EXPECT_EQ(reader.due_bytes(), 0u);
}

/// No word makes a part of bytes that the block does not have, and closing it says whether the claims add up.
TEST(SharedBlock, any_word_at_all) {
    constexpr uint32_t kChunk = 32u << 10;
    constexpr uint32_t kBytes = 4 * kChunk - 5;
    const auto in_block = [](BlockPart part) { return uint64_t{part.offset} + part.bytes <= kBytes; };
    for (uint32_t own = 0; own <= 4; ++own) {
        for (const uint64_t generation : {0u, 1u, 2u, 0xffffu}) {
            for (const uint64_t front : {0u, 1u, 2u, 3u, 4u, 5u, 0x7fffffu, 0xfffffeu, 0xffffffu}) {
                for (const uint64_t back : {0u, 1u, 2u, 3u, 4u, 5u, 0x7fffffu, 0xfffffeu, 0xffffffu}) {
                    ClaimWord word;
                    ReaderBlock reader;
                    reader.open(word, kBytes);
                    for (uint32_t i = 0; i < own; ++i) reader.claim_back(word);
                    const uint64_t value = generation << 48 | back << 24 | front;
                    const bool fits = generation == 1 && back == own && front + back <= 4;
                    const bool some = generation == 1 && front + back < 4;
                    word.word = value;
                    EXPECT_EQ(reader.intact(word), fits);
                    for (const uint32_t room : {0u, UINT32_MAX}) {
                        const BlockPart owned = SharedBlock(kBytes, 1).claim_front(word, room);
                        EXPECT_EQ(owned.bytes != 0, some);
                        EXPECT_TRUE(in_block(owned));
                        word.word = value;
                        ReaderBlock copy = reader;
                        const BlockPart part = copy.claim_back(word, room);
                        EXPECT_EQ(part.bytes != 0, some);
                        EXPECT_TRUE(in_block(part));
                        word.word = value;
                    }
                    ReaderBlock copy = reader;
                    EXPECT_EQ(copy.close(word, false), fits);
                    EXPECT_LE(copy.due_bytes(), kBytes);
                    copy.write_off();
                    EXPECT_EQ(copy.due_bytes(), 0u);
                    EXPECT_EQ(SharedBlock(kBytes, 1).claim_front(word).bytes, 0u);
                    word.word = value;
                    EXPECT_EQ(reader.close(word, true), fits && front + back == 4);
                    EXPECT_LE(reader.due_bytes(), kBytes);
                }
            }
        }
    }
}

TEST(Distance, follows_what_is_measured_and_is_not_fooled_by_one_interruption) {
    Distance distance;
    EXPECT_EQ(distance.ns(), 0u);
    EXPECT_FALSE(Distance::far(distance.ns(), false)) << "unknown counts as near";
    for (int i = 0; i < 10; ++i) distance.add(40);
    EXPECT_EQ(distance.ns(), 40u);
    distance.add(100'000);
    EXPECT_FALSE(Distance::far(distance.ns(), false));
    for (int i = 0; i < 4; ++i) distance.add(300);
    EXPECT_TRUE(Distance::far(distance.ns(), false));
    distance.add(20);
    EXPECT_TRUE(Distance::far(distance.ns(), true)) << "a line that happened to be here";
    distance.add(40);
    EXPECT_FALSE(Distance::far(distance.ns(), true));
}

TEST(Distance, near_cores_on_a_busy_memory_are_not_far) {
    // As they were read while windows of 1 MiB went by.
    Distance distance;
    for (const uint32_t ns : {98, 96, 168, 126, 46, 172, 74, 48, 22, 24, 108, 136, 124, 82, 64, 42}) distance.add(ns);
    for (const uint32_t ns : {118, 224, 66, 64, 26, 64, 82, 80, 70, 134, 78, 66, 22, 164, 68, 102, 42, 132, 40, 42}) {
        distance.add(ns);
        EXPECT_FALSE(Distance::far(distance.ns(), false)) << ns;
    }
}

TEST(Distance, a_measurement_uses_other_lines_each_time_and_no_two_of_a_pair) {
    std::set<std::array<uint8_t, kProbesUsed>> orders;
    for (uint64_t number = 1; number <= 1000; ++number) {
        const auto order = probe_order(number);
        std::set<uint8_t> pairs;
        for (const uint8_t line : order) {
            ASSERT_LT(line, kProbeLines);
            pairs.insert(line / 2);
        }
        ASSERT_EQ(pairs.size(), kProbesUsed) << number;
        orders.insert(order);
    }
    EXPECT_GT(orders.size(), 200u);
}

TEST(Distance, a_writer_that_has_gone_on_is_noticed) {
    Probe probe{};
    write_probe(probe, 1);
    EXPECT_EQ(read_probe(probe, 1).number, 1u);
    EXPECT_GE(read_probe(probe, 1).ns, 1u);
    write_probe(probe, 2);
    write_probe(probe, 3);
    const uint64_t passed = read_probe(probe, 2).number;
    EXPECT_TRUE(passed == 2 || passed == 3) << passed;
    EXPECT_EQ(read_probe(probe, 3).number, 3u);
}

TEST(MeasurePlan, marks_some_of_many_and_what_is_asked_for) {
    MeasurePlan plan;
    uint32_t bodies = 0, requests = 0;
    for (int i = 0; i < 1280; ++i) bodies += plan.body() ? 1 : 0;
    for (int i = 0; i < 320; ++i) requests += plan.request() ? 1 : 0;
    EXPECT_EQ(bodies, 3u + 10u);
    EXPECT_EQ(requests, 3u + 10u);
    EXPECT_TRUE(plan.request());
    EXPECT_FALSE(plan.request());
    plan.soon();
    EXPECT_TRUE(plan.request());
    EXPECT_FALSE(plan.request());
}

TEST(MeasurePlan, a_time_that_contradicts_is_followed_by_others_until_one_agrees) {
    // As a producer uses it, of cores that move. The consumer answers a request late, or at once.
    for (const int late : {0, 3}) {
        MeasurePlan plan;
        Distance distance;
        bool far = false;
        std::vector<uint64_t> marked;
        uint32_t last_ns = 0;
        uint64_t measured = 0;
        const auto requests_until = [&](uint32_t ns, bool wanted) {
            for (int i = 0; i < 1000; ++i) {
                if (plan.waits()) {
                    far = Distance::far(distance.ns(), far);
                    plan.heard(measured, Distance::far(last_ns, far) != far);
                }
                if (plan.request()) marked.push_back(plan.begin());
                if (marked.size() > static_cast<size_t>(late)) {
                    distance.add(last_ns = ns);
                    measured = marked.front();
                    marked.erase(marked.begin());
                }
                if (far == wanted) return i;
            }
            return 1000;
        };
        for (int i = 0; i < 200; ++i) requests_until(30, false);
        EXPECT_LE(requests_until(250, true), late == 0 ? 40 : 250);
        for (int i = 0; i < 200; ++i) requests_until(250, true);
        EXPECT_LE(requests_until(30, false), late == 0 ? 40 : 250);
    }
}

TEST(Distance, between_near_and_far_cores_stay_what_they_were) {
    constexpr uint32_t kBetween = (Distance::kNearNs + Distance::kFarNs) / 2;
    EXPECT_FALSE(Distance::far(kBetween, false));
    EXPECT_TRUE(Distance::far(kBetween, true));
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
