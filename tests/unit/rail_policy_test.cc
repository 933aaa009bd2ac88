#include "rma/rail_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <utility>
#include <vector>

namespace velo::rma {
namespace {

constexpr uint64_t kLong = 1u << 20;

RailPolicy round_robin() {
    return RailPolicy({.rule = RailRule::kRoundRobin});
}
RailPolicy local_dynamic(uint32_t striping_percent, uint64_t fragment_bytes_min = 1) {
    return RailPolicy({.rule = RailRule::kLocalDynamic,
                       .striping_percent = striping_percent,
                       .fragment_bytes_min = fragment_bytes_min});
}

TEST(RailSet, a_rail_is_free_when_all_that_it_has_begun_has_ended) {
    RailSet rails(3);
    EXPECT_EQ(rails.free(), 0b111u);
    rails.begin(1, RailDirection::kSending, 10);
    rails.begin(1, RailDirection::kSending, 20);
    rails.begin(2, RailDirection::kReceiving, 5);
    EXPECT_EQ(rails.free(), 0b001u);
    EXPECT_EQ(rails.busy(RailDirection::kSending), 0b010u);
    EXPECT_EQ(rails.busy(RailDirection::kReceiving), 0b100u);
    EXPECT_EQ(rails.bytes_under_way(1), 30u);
    rails.end(1, RailDirection::kSending, 10);
    EXPECT_EQ(rails.free(), 0b001u);
    EXPECT_EQ(rails.bytes_under_way(1), 20u);
    rails.end(1, RailDirection::kSending, 20);
    rails.end(2, RailDirection::kReceiving, 5);
    EXPECT_EQ(rails.free(), 0b111u);
    EXPECT_EQ(rails.bytes_under_way(1), 0u);
}

TEST(RailSet, a_rail_that_failed_is_free_again_when_it_is_live_and_its_operations_have_ended) {
    RailSet rails(2);
    rails.begin(0, RailDirection::kReceiving, 10);
    rails.failed(0);
    EXPECT_EQ(rails.live(), 0b10u);
    rails.revived(0);
    EXPECT_EQ(rails.live(), 0b11u);
    EXPECT_EQ(rails.free(), 0b10u) << "its operation has not ended";
    rails.failed(0);
    rails.end(0, RailDirection::kReceiving, 10);
    EXPECT_EQ(rails.free(), 0b10u);
    rails.revived(0);
    EXPECT_EQ(rails.free(), 0b11u);
}

TEST(RailSet, all_64_rails_are_there) {
    EXPECT_EQ(RailSet(kRailsMax).live(), ~RailMask{0});
    EXPECT_EQ(RailSet(1).live(), 1u);
}

TEST(RailSetDeathTest, what_was_not_begun_does_not_end) {
    RailSet rails(2);
    rails.begin(0, RailDirection::kSending, 10);
    EXPECT_DEATH(rails.end(0, RailDirection::kReceiving, 10), "has not begun");
    EXPECT_DEATH(rails.end(0, RailDirection::kSending, 11), "has not begun");
    EXPECT_DEATH(rails.end(1, RailDirection::kSending, 0), "has not begun");
    EXPECT_DEATH(rails.begin(2, RailDirection::kSending, 0), "rail 2 of 2");
    rails.failed(1);
    EXPECT_DEATH(rails.begin(1, RailDirection::kSending, 0), "after its failure");
}

TEST(RailPolicy, round_robin_takes_the_next_live_rail_whoever_is_busy) {
    RailSet rails(4);
    RailPolicy policy = round_robin();
    rails.begin(1, RailDirection::kSending, 1);
    for (const RailMask expected : {0b0001, 0b0010, 0b0100, 0b1000, 0b0001, 0b0010}) {
        EXPECT_EQ(policy.choose(rails, kLong), expected);
    }
    rails.failed(2);
    for (const RailMask expected : {0b1000, 0b0001, 0b0010, 0b1000}) {
        EXPECT_EQ(policy.choose(rails, kLong), expected);
    }
    for (uint32_t rail = 0; rail < 4; ++rail) rails.failed(rail);
    EXPECT_EQ(policy.choose(rails, kLong), 0u);
    RailPolicy of_64 = round_robin();
    for (uint32_t i = 0; i < 2 * kRailsMax + 1; ++i) {
        EXPECT_EQ(of_64.choose(RailSet(kRailsMax), kLong), RailMask{1} << i % kRailsMax);
    }
}

TEST(RailPolicy, local_dynamic_takes_its_part_of_the_free_rails_rounded_up) {
    for (uint32_t count = 1; count <= kRailsMax; ++count) {
        for (uint32_t percent = 0; percent <= 100; ++percent) {
            RailPolicy policy = local_dynamic(percent);
            int expected = 1;
            while (expected * 100u < count * percent) ++expected;
            ASSERT_EQ(std::popcount(policy.choose(RailSet(count), kLong)), expected)
                << count << " " << percent;
        }
    }
}

TEST(RailPolicy, local_dynamic_begins_behind_the_last_rail_taken) {
    RailSet rails(5);
    RailPolicy policy = local_dynamic(40);
    for (const RailMask expected : {0b00011, 0b01100, 0b10001, 0b00110}) {
        EXPECT_EQ(policy.choose(rails, kLong), expected);
    }
    rails.begin(3, RailDirection::kReceiving, 1);
    EXPECT_EQ(policy.choose(rails, kLong), 0b10001u) << "2 of 4, without the one that receives";
}

TEST(RailPolicy, none_is_free_and_nothing_changes) {
    RailSet rails(3);
    RailPolicy policy = local_dynamic(0);
    EXPECT_EQ(policy.choose(rails, kLong), 0b001u);
    for (uint32_t rail = 0; rail < 3; ++rail) rails.begin(rail, RailDirection::kSending, 1);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(policy.choose(rails, kLong), 0u);
    for (uint32_t rail = 0; rail < 3; ++rail) rails.end(rail, RailDirection::kSending, 1);
    EXPECT_EQ(policy.choose(rails, kLong), 0b010u);
}

TEST(RailPolicy, no_fragment_is_shorter_than_the_least_one_unless_the_transfer_is) {
    const RailSet rails(8);
    for (uint64_t bytes = 0; bytes <= 1000; ++bytes) {
        RailPolicy policy = local_dynamic(100, 100);
        const auto count = static_cast<uint32_t>(std::popcount(policy.choose(rails, bytes)));
        ASSERT_EQ(count, bytes < 200 ? 1 : bytes >= 800 ? 8 : bytes / 100);
        uint64_t offset = 0;
        for (uint32_t i = 0; i < count; ++i) {
            const RailFragment fragment = rail_fragment(bytes, count, i);
            ASSERT_EQ(fragment.offset, offset);
            ASSERT_GE(fragment.bytes, std::min<uint64_t>(bytes, 100));
            ASSERT_LE(fragment.bytes, bytes / count + 1);
            offset += fragment.bytes;
        }
        ASSERT_EQ(offset, bytes);
    }
    EXPECT_EQ(rail_fragment(UINT64_MAX, 64, 63).offset + rail_fragment(UINT64_MAX, 64, 63).bytes, UINT64_MAX);
}

TEST(RailPolicy, hybrid_sends_short_transfers_at_once_and_queues_long_ones) {
    RailSet rails(2);
    RailPolicy policy({.rule = RailRule::kHybrid, .short_bytes = 1000});
    rails.begin(0, RailDirection::kSending, 1);
    EXPECT_EQ(policy.choose(rails, 999), 0b01u);
    EXPECT_EQ(policy.choose(rails, 1000), 0b10u) << "the one that is free";
    rails.begin(1, RailDirection::kSending, 1);
    EXPECT_EQ(policy.choose(rails, 1000), 0u);
    EXPECT_EQ(policy.choose(rails, 999), 0b10u) << "long ones do not move the pointer of short ones";
    EXPECT_EQ(policy.choose(rails, 999), 0b01u);
    RailPolicy other({.rule = RailRule::kHybrid, .long_rule = RailRule::kRoundRobin, .short_bytes = 1000});
    EXPECT_EQ(other.choose(rails, 1000), 0b01u);
    EXPECT_EQ(other.choose(rails, 999), 0b10u) << "one pointer for all that round robin takes";
}

TEST(RailPolicyDeathTest, settings_that_mean_nothing) {
    EXPECT_DEATH(local_dynamic(101), "101 percent");
    EXPECT_DEATH(local_dynamic(100, 0), "no bytes");
    EXPECT_DEATH(RailPolicy({.long_rule = RailRule::kHybrid}), "long transfers");
}

/// Transfers begin and end, and rails fail and come back, in any order.
TEST(RailPolicy, rails_taken_are_live_and_with_local_dynamic_free_and_all_are_used) {
    struct Fragment {
        uint32_t rail;
        RailDirection direction;
        uint64_t bytes;
    };
    for (uint32_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const uint32_t count = 1 + random() % (seed % 10 == 0 ? kRailsMax : 8);
        const RailRule rule = seed % 2 == 0 ? RailRule::kLocalDynamic : RailRule::kRoundRobin;
        RailSet rails(count);
        const auto percent = static_cast<uint32_t>(random() % 101);
        RailPolicy policy({.rule = rule, .striping_percent = percent, .fragment_bytes_min = 10});
        std::vector<Fragment> under_way;
        RailMask used = 0;
        for (int step = 0; step < 3000; ++step) {
            const uint32_t rail = random() % count;
            if (random() % 20 == 0)
                (rails.live() >> rail & 1) != 0 ? rails.failed(rail) : rails.revived(rail);
            const uint64_t bytes = random() % 100;
            const RailMask possible = rule == RailRule::kLocalDynamic ? rails.free() : rails.live();
            const RailMask taken = policy.choose(rails, bytes);
            ASSERT_EQ(taken & ~possible, 0u);
            ASSERT_EQ(taken == 0, possible == 0);
            used |= taken;
            const auto direction = random() % 2 == 0 ? RailDirection::kSending : RailDirection::kReceiving;
            const auto fragments = static_cast<uint32_t>(std::popcount(taken));
            uint32_t i = 0;
            for (RailMask rest = taken; rest != 0; rest &= rest - 1, ++i) {
                under_way.push_back({static_cast<uint32_t>(std::countr_zero(rest)), direction,
                                     rail_fragment(bytes, fragments, i).bytes});
                rails.begin(under_way.back().rail, direction, under_way.back().bytes);
            }
            while (!under_way.empty() && random() % 3 != 0) {
                std::swap(under_way[random() % under_way.size()], under_way.back());
                rails.end(under_way.back().rail, under_way.back().direction, under_way.back().bytes);
                under_way.pop_back();
            }
            std::array<uint64_t, kRailsMax> bytes_of{};
            RailMask busy = 0;
            for (const Fragment& fragment : under_way) {
                bytes_of[fragment.rail] += fragment.bytes;
                busy |= RailMask{1} << fragment.rail;
            }
            for (uint32_t each = 0; each < count; ++each)
                ASSERT_EQ(rails.bytes_under_way(each), bytes_of[each]);
            ASSERT_EQ(rails.free(), rails.live() & ~busy);
        }
        EXPECT_EQ(std::popcount(used), static_cast<int>(count));
    }
}

}  // namespace
}  // namespace velo::rma
