#include "rma/rails.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <vector>

namespace velo::rma {
namespace {

constexpr uint64_t kWait = 1000;
constexpr uint64_t kLong = 1u << 20;
constexpr auto kIn = RailDirection::kReceiving;

TEST(RailOutages, a_rail_is_out_after_as_many_failures_in_a_row_and_tried_after_its_wait) {
    RailOutages rails;
    EXPECT_TRUE(rails.clear());
    EXPECT_FALSE(rails.failed(1, 50, 2, kWait));
    EXPECT_EQ(rails.barred(50), 0u);
    EXPECT_TRUE(rails.failed(1, 100, 2, kWait));
    EXPECT_EQ(rails.barred(100), 0b10u);
    EXPECT_EQ(rails.barred(100 + kWait - 1), 0b10u);
    EXPECT_EQ(rails.retry_ns(1), 100 + kWait);
    EXPECT_EQ(rails.barred(100 + kWait), 0u);
    EXPECT_EQ(rails.out(), 0b10u) << "until it has worked";
}

TEST(RailOutages, a_success_between_them_forgets_failures) {
    RailOutages rails;
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(rails.failed(0, 0, 2, kWait));
        EXPECT_FALSE(rails.succeeded(0)) << "it was not out";
    }
    EXPECT_TRUE(rails.clear());
}

TEST(RailOutages, one_trial_at_a_time_and_each_that_fails_doubles_the_wait_up_to_64_times) {
    RailOutages rails;
    uint64_t now = 0;
    EXPECT_TRUE(rails.failed(3, now, 1, kWait));
    for (const uint64_t factor : {1, 2, 4, 8, 16, 32, 64, 64, 64}) {
        EXPECT_EQ(rails.retry_ns(3), now + factor * kWait);
        now += factor * kWait;
        EXPECT_EQ(rails.barred(now - 1), 0b1000u);
        EXPECT_EQ(rails.barred(now), 0u);
        rails.began(3);
        EXPECT_EQ(rails.barred(now + 1'000'000), 0b1000u) << "its trial has not ended";
        EXPECT_FALSE(rails.failed(3, now, 1, kWait)) << "it was out before";
    }
    now = rails.retry_ns(3);
    rails.began(3);
    EXPECT_TRUE(rails.succeeded(3));
    EXPECT_TRUE(rails.clear());
    EXPECT_TRUE(rails.failed(3, now, 1, kWait));
    EXPECT_EQ(rails.retry_ns(3), now + kWait) << "from the beginning";
}

TEST(RailOutages, operations_begun_before_the_outage_say_nothing_of_its_trial_when_they_fail) {
    RailOutages rails;
    EXPECT_TRUE(rails.failed(0, 0, 1, kWait));
    for (int i = 0; i < 7; ++i) EXPECT_FALSE(rails.failed(0, 10, 1, kWait));
    EXPECT_EQ(rails.retry_ns(0), kWait);
}

RailsSettings with(uint32_t rails, RailSettings policy = {.rule = RailRule::kLocalDynamic}) {
    return {.rails = rails, .policy = policy, .retry_ns = kWait};
}

TEST(Rails, chunks_of_a_transfer_take_the_rail_with_fewest_bytes_under_way) {
    Rails rails(with(4));
    PeerRails peer;
    RailMask assigned = 0;
    std::array<uint64_t, 4> bytes{};
    std::mt19937 random(3);
    for (int i = 0; i < 1000; ++i) {
        const uint32_t rail = rails.pick(assigned, peer, kIn, kLong, 0, 0);
        ASSERT_EQ(bytes[rail], *std::ranges::min_element(bytes));
        const uint64_t chunk = 1 + random() % 1000;
        rails.began(rail, peer, kIn, chunk);
        bytes[rail] += chunk;
    }
    EXPECT_EQ(assigned, 0b1111u);
}

TEST(Rails, idle_ones_take_turns) {
    Rails rails(with(3));
    PeerRails peer;
    std::array<int, 3> taken{};
    for (int i = 0; i < 30; ++i) {
        RailMask assigned = 0;
        ++taken[rails.pick(assigned, peer, kIn, 100, 0, 0)];
    }
    EXPECT_EQ(taken, (std::array{10, 10, 10}));
}

TEST(Rails, a_transfer_by_round_robin_keeps_its_rail) {
    Rails rails(with(4, {.rule = RailRule::kRoundRobin}));
    PeerRails peer;
    for (uint32_t transfer = 0; transfer < 8; ++transfer) {
        RailMask assigned = 0;
        for (int chunk = 0; chunk < 5; ++chunk) {
            const uint32_t rail = rails.pick(assigned, peer, kIn, kLong, 0, 0);
            ASSERT_EQ(rail, transfer % 4);
            rails.began(rail, peer, kIn, 10);
        }
    }
}

TEST(Rails, a_transfer_that_finds_none_free_takes_the_least_busy_one_and_does_not_wait) {
    Rails rails(with(2));
    PeerRails peer;
    rails.began(0, peer, kIn, 1000);
    rails.began(1, peer, kIn, 10);
    RailMask assigned = 0;
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0, 0), 1u);
    EXPECT_EQ(assigned, 0b10u);
    // The other direction is free.
    assigned = 0;
    (void)rails.pick(assigned, peer, RailDirection::kSending, kLong, 0, 0);
    EXPECT_EQ(assigned, 0b11u);
}

TEST(Rails, a_rail_whose_queue_is_full_is_passed_over_and_with_none_left_the_chunk_waits) {
    for (const uint32_t count : {1u, 2u, 3u}) {
        Rails rails(with(count, {.rule = RailRule::kRoundRobin}));
        PeerRails peer;
        RailMask assigned = 0;
        RailMask full = 0;
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t rail = rails.pick(assigned, peer, kIn, kLong, full, 0);
            ASSERT_LT(rail, count);
            ASSERT_EQ(full & rail_bit(rail), 0u);
            full |= rail_bit(rail);
        }
        EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, full, 0), Rails::kFull);
    }
}

TEST(Rails, a_transfer_with_reserved_rails_waits_rather_than_to_take_another_one) {
    Rails rails({.rails = 4, .policy = {.rule = RailRule::kLocalDynamic}});
    PeerRails peer;
    RailMask assigned = 0b0110;
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0b0010, 0, true), 2u);
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0b0110, 0, true), Rails::kFull);
    EXPECT_NE(rails.pick(assigned, peer, kIn, kLong, 0b0110, 0), Rails::kFull);
    EXPECT_EQ(assigned, 0b0110u);
    EXPECT_EQ(rails.usable(peer, 0), 0b1111u);
    for (int i = 0; i < 2; ++i) (void)rails.failed(1, peer, 0);
    EXPECT_EQ(rails.usable(peer, 0), 0b1101u);
}

TEST(Rails, a_path_that_fails_twice_is_out_for_that_peer_and_a_rail_that_fails_all_is_out_for_all) {
    Rails rails(with(2));
    std::array<PeerRails, 3> peers;
    const auto fail = [&](PeerRails& peer) { return rails.failed(1, peer, 0); };
    EXPECT_EQ(fail(peers[0]), Rails::Change::kNone);
    EXPECT_EQ(fail(peers[0]), Rails::Change::kPath);
    EXPECT_EQ(rails.out(peers[0]), 0b10u);
    EXPECT_EQ(rails.out(peers[1]), 0u);
    EXPECT_EQ(fail(peers[1]), Rails::Change::kNone);
    EXPECT_EQ(fail(peers[1]), Rails::Change::kRail);
    EXPECT_EQ(rails.out(peers[2]), 0b10u) << "it need not find that out";
    for (int i = 0; i < 10; ++i) {
        RailMask assigned = 0;
        EXPECT_EQ(rails.pick(assigned, peers[2], kIn, kLong, 0, kWait - 1), 0u);
    }
    EXPECT_EQ(rails.counters(1).failed, 4u);
}

TEST(Rails, a_path_that_fails_beside_others_that_work_does_not_take_the_rail_out) {
    Rails rails(with(2));
    std::array<PeerRails, 2> peers;
    for (int i = 0; i < 20; ++i) {
        (void)rails.failed(1, peers[0], 0);
        (void)rails.succeeded(1, peers[1], 10);
    }
    EXPECT_EQ(rails.out(peers[0]), 0b10u);
    EXPECT_EQ(rails.out(peers[1]), 0u);
}

TEST(Rails, one_chunk_tries_a_rail_again_and_brings_it_back) {
    Rails rails(with(2));
    PeerRails peer;
    RailMask assigned = 0b11;
    for (int i = 0; i < 4; ++i) (void)rails.failed(0, peer, 0);
    rails.began(1, peer, kIn, 1'000'000);
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0, kWait - 1), 1u);
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0, kWait), 0u) << "the trial";
    rails.began(0, peer, kIn, 10);
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0, kWait), 1u) << "nothing beside it";
    rails.ended(0, kIn, 10);
    EXPECT_EQ(rails.succeeded(0, peer, 10), Rails::Change::kRail);
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0, kWait), 0u);
    EXPECT_EQ(rails.out(), 0u);
}

TEST(Rails, the_only_rail_stays_in_use_longer_and_then_there_is_none) {
    Rails rails(with(1));
    PeerRails peer;
    RailMask assigned = 0;
    for (uint32_t i = 1; i <= Rails::kLastPathFailuresMax; ++i) {
        EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0, 0), 0u);
        EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 1, 0), Rails::kFull);
        EXPECT_EQ(rails.failed(0, peer, 0),
                  i == Rails::kLastPathFailuresMax ? Rails::Change::kPath : Rails::Change::kNone);
    }
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0, 0), Rails::kNone);
    EXPECT_EQ(rails.pick_for_atomic(peer, 0, 0), Rails::kNone);
    EXPECT_EQ(rails.pick(assigned, peer, kIn, kLong, 0, kWait), 0u);
}

TEST(Rails, a_transfer_all_of_whose_rails_are_out_is_given_others) {
    Rails rails(with(4, {.rule = RailRule::kRoundRobin}));
    PeerRails peer;
    RailMask assigned = 0;
    const uint32_t first = rails.pick(assigned, peer, kIn, kLong, 0, 0);
    (void)rails.failed(first, peer, 0);
    (void)rails.failed(first, peer, 0);
    const uint32_t second = rails.pick(assigned, peer, kIn, kLong, 0, 0);
    EXPECT_NE(second, first);
    EXPECT_EQ(assigned, rail_bit(second));
}

TEST(Rails, atomics_to_a_peer_take_one_rail_until_none_is_under_way) {
    Rails rails(with(4));
    PeerRails peer;
    EXPECT_EQ(rails.pick_for_atomic(peer, 6, 0), 2u);
    peer.atomics = 1;
    peer.atomics_rail = 2;
    for (int i = 0; i < 2; ++i) (void)rails.failed(2, peer, 0);
    EXPECT_EQ(rails.pick_for_atomic(peer, 6, 0), Rails::kFull) << "another rail could overtake";
    peer.atomics = 0;
    EXPECT_EQ(rails.pick_for_atomic(peer, 6, 0), 3u);
    EXPECT_EQ(rails.pick_for_atomic(peer, 7, 0), 3u);
    EXPECT_EQ(rails.pick_for_atomic(peer, 8, 0), 0u);
}

TEST(Rails, static_allocation_keeps_data_on_the_rails_of_its_direction_until_one_fails) {
    const auto allocation = StaticAllocation::make(StaticRule::kOptimal, 4, 6);
    for (uint32_t own = 0; own < 6; ++own) {
        for (uint32_t other = 0; other < 6; ++other) {
            if (own == other) continue;
            RailsSettings settings = with(4);
            settings.own_column = allocation->column(own);
            Rails rails(settings);
            PeerRails peer;
            peer.column = allocation->column(other);
            for (int i = 0; i < 8; ++i) {
                RailMask in = 0;
                RailMask out = 0;
                const uint32_t get = rails.pick(in, peer, kIn, kLong, 0, 0);
                const uint32_t put = rails.pick(out, peer, RailDirection::kSending, kLong, 0, 0);
                ASSERT_NE(allocation->rails_between(other, own) & rail_bit(get), 0u);
                ASSERT_NE(allocation->rails_between(own, other) & rail_bit(put), 0u);
            }
            (void)rails.failed(0, peer, 0);
            EXPECT_TRUE(rails.is_static());
            (void)rails.failed(0, peer, 0);
            EXPECT_FALSE(rails.is_static());
            RailMask in = 0;
            (void)rails.pick(in, peer, kIn, kLong, 0, 0);
            EXPECT_EQ(in, 0b1110u);
        }
    }
}

TEST(Rails, of_a_peer_of_another_job_static_allocation_knows_nothing) {
    RailsSettings settings = with(4);
    settings.own_column = 0b0011;
    Rails rails(settings);
    PeerRails peer;
    RailMask in = 0;
    (void)rails.pick(in, peer, kIn, kLong, 0, 0);
    EXPECT_EQ(in, 0b1111u);
}

/// A rail that is picked is one that may be, and with one that works a chunk never finds none for longer than the
/// longest wait.
TEST(Rails, any_sequence_of_failures_leaves_a_working_rail_in_use) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const uint32_t count = 1 + seed % 5;
        Rails rails(with(count, {.rule = static_cast<RailRule>(seed % 3), .short_bytes = 1000}));
        std::vector<PeerRails> peers(1 + seed % 3);
        const uint32_t good = random() % count;
        uint64_t now = 0;
        uint64_t last_moved = 0;
        for (int step = 0; step < 3000; ++step) {
            now += random() % 100;
            PeerRails& peer = peers[random() % peers.size()];
            RailMask assigned = 0;
            const uint32_t rail = rails.pick(assigned, peer, kIn, random() % 2000, 0, now);
            if (rail == Rails::kNone) {
                ASSERT_LT(now - last_moved, 65 * kWait) << "seed " << seed;
                continue;
            }
            ASSERT_LT(rail, count);
            if (count > 1) {
                ASSERT_NE(assigned & rail_bit(rail), 0u);
            }
            rails.began(rail, peer, kIn, 10);
            rails.ended(rail, kIn, 10);
            if (rail == good || random() % 3 == 0) {
                (void)rails.succeeded(rail, peer, 10);
                last_moved = now;
            } else {
                (void)rails.failed(rail, peer, now);
            }
            if (count > 1) {
                ASSERT_EQ(rails.out(peer) & rail_bit(good), 0u);
            }
        }
        for (uint32_t rail = 0; rail < count; ++rail) EXPECT_EQ(rails.bytes_under_way(rail), 0u);
    }
}

}  // namespace
}  // namespace velo::rma
