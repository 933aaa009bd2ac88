// The experiment of RAILS 5 (sim/rails.h): its network by hand and by properties, and runs of all policies.
#include "sim/rails.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/rail_worms.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {
namespace {

using Ends = std::vector<std::pair<uint32_t, double>>;

Ends run_all(WormRail& rail) {
    Ends ends;
    while (rail.next_end() != WormRail::kNever) {
        const double at = rail.next_end();
        ends.emplace_back(rail.end_next(), at);
    }
    return ends;
}

TEST(WormRail, a_worm_alone_takes_a_cycle_a_flit) {
    WormRail rail({.nodes = 4});
    rail.post(7, 0, 1, 100, 5);
    EXPECT_EQ(rail.take_begun(), std::vector<uint32_t>{7});
    EXPECT_EQ(run_all(rail), (Ends{{7, 105}}));
}

TEST(WormRail, a_bus_is_shared_by_both_ways_and_a_duplex_one_is_not) {
    for (const bool duplex : {false, true}) {
        WormRail rail({.nodes = 4, .duplex = duplex});
        rail.post(1, 0, 1, 100, 0);
        rail.post(2, 1, 0, 50, 0);
        EXPECT_EQ(run_all(rail), duplex ? (Ends{{2, 50}, {1, 100}}) : (Ends{{2, 100}, {1, 150}}));
    }
    WormRail loses({.nodes = 4, .both_ways = 0.5});
    loses.post(1, 0, 1, 100, 0);
    loses.post(2, 1, 0, 50, 0);
    EXPECT_EQ(run_all(loses), (Ends{{2, 200}, {1, 250}})) << "a quarter each, and then all";
}

TEST(WormRail, worms_to_one_node_share_its_channels_and_the_next_one_holds_its_sender) {
    WormRail rail({.nodes = 5, .duplex = true});
    rail.post(1, 0, 4, 100, 0);
    rail.post(2, 1, 4, 100, 0);
    rail.post(3, 2, 4, 100, 0);
    rail.post(4, 2, 3, 10, 0);
    EXPECT_EQ(rail.take_begun(), (std::vector<uint32_t>{1, 2}));
    EXPECT_EQ(run_all(rail), (Ends{{1, 200}, {2, 200}, {3, 300}, {4, 310}}));
}

/// 2 is bound to a half by 1's bus, so 3 gets the rest of the other bus.
TEST(WormRail, what_a_worm_cannot_use_goes_to_others) {
    WormRail rail({.nodes = 5, .duplex = true, .channels = 3});
    rail.post(1, 0, 3, 100, 0);
    rail.post(2, 1, 3, 100, 0);
    rail.post(3, 2, 4, 100, 0);
    EXPECT_EQ(rail.next_end(), 100);
    WormRail half({.nodes = 5, .channels = 3});
    half.post(1, 0, 1, 300, 0);  // buses 0, 1
    half.post(2, 2, 1, 300, 0);  // 2, 1
    half.post(3, 3, 1, 300, 0);  // 3, 1: a third of bus 1 each
    half.post(4, 4, 0, 200, 0);  // 4, 0: two thirds of bus 0
    EXPECT_DOUBLE_EQ(half.next_end(), 300);
    EXPECT_EQ(half.end_next(), 4u);
}

TEST(WormRail, posting_in_between_changes_the_rates) {
    WormRail rail({.nodes = 3, .duplex = true});
    rail.post(1, 0, 2, 100, 0);
    rail.post(2, 1, 2, 100, 50);
    EXPECT_EQ(run_all(rail), (Ends{{1, 150}, {2, 200}}));
}

RailsConfig small(RailsPolicy policy) {
    return {.policy = policy, .nodes = 8, .processes_per_node = 2, .warm_up = 20, .measured = 200};
}

constexpr RailsPolicy kNotStatic[] = {RailsPolicy::kBasic, RailsPolicy::kLocalDynamic, RailsPolicy::kDynamic,
                                      RailsPolicy::kHybrid, RailsPolicy::kShippedHybrid,
                                      RailsPolicy::kShippedDynamic};

TEST(Rails, two_runs_are_equal_and_seeds_differ) {
    for (const RailsPolicy policy : kNotStatic) {
        RailsConfig config = small(policy);
        const RailsResult first = run_rails(config);
        const RailsResult second = run_rails(config);
        EXPECT_EQ(first.trace_hash, second.trace_hash);
        EXPECT_EQ(first.latency_cycles, second.latency_cycles);
        config.seed = 2;
        EXPECT_NE(first.trace_hash, run_rails(config).trace_hash);
    }
}

TEST(Rails, a_light_load_is_accepted_by_each_policy_on_each_bus) {
    for (const bool duplex : {false, true}) {
        for (const uint32_t striping : {0u, 50u, 100u}) {
            for (const RailsPolicy policy : kNotStatic) {
                RailsConfig config = small(policy);
                config.load = 0.05;
                config.duplex = duplex;
                config.striping_percent = striping;
                const RailsResult result = run_rails(config);
                EXPECT_NEAR(result.accepted, result.offered, 0.03 * result.offered)
                    << static_cast<int>(policy) << " " << duplex << " " << striping;
                EXPECT_GT(result.messages, 250u);
            }
        }
    }
}

TEST(Rails, each_message_made_arrives_or_waits) {
    for (const RailsPolicy policy : kNotStatic) {
        for (const bool duplex : {false, true}) {
            RailsConfig config = small(policy);
            config.load = 1;
            config.warm_up = 0;
            config.duplex = duplex;
            const RailsResult result = run_rails(config);
            const double capacity = 8.0 * 4 * 200;  // in mean messages
            EXPECT_EQ(result.messages + result.waiting, result.made) << static_cast<int>(policy);
            EXPECT_NEAR(static_cast<double>(result.messages), result.accepted * capacity,
                        0.1 * result.accepted * capacity);
        }
    }
}

TEST(Rails, an_idle_network_takes_the_length_of_a_message_and_the_protocol) {
    RailsConfig config = small(RailsPolicy::kBasic);
    config.load = 0.001;
    config.measured = 20000;
    const double basic = run_rails(config).latency_cycles;
    EXPECT_NEAR(basic, 32768, 0.05 * 32768);
    config.policy = RailsPolicy::kDynamic;
    const RailsResult dynamic = run_rails(config);
    // A local RTS, RTS and CTS at a thread of 300 cycles each, and two ways.
    EXPECT_NEAR(dynamic.latency_cycles - basic, 3 * 300 + 2 * (16 + 3 * 7 + 1), 150);
    EXPECT_NEAR(dynamic.tries, 1, 0.02);
    // On four rails an RTS and a CTS each, three ABORTs and one ACK.
    EXPECT_NEAR(dynamic.controls, 12, 0.2);
    config.ask_all = false;
    EXPECT_NEAR(run_rails(config).controls, 3, 0.1);
    config.striping_percent = 100;
    EXPECT_NEAR(run_rails(config).latency_cycles, 32768 / 4 + 1000, 0.07 * 32768 / 4);
}

/// The purpose of reservation. Other policies meet data the other way.
TEST(Rails, reserved_rails_carry_data_one_way_at_a_time) {
    for (const uint32_t striping : {0u, 100u}) {
        RailsConfig config = small(RailsPolicy::kDynamic);
        config.load = 1;
        config.striping_percent = striping;
        EXPECT_EQ(run_rails(config).both_ways, 0);
        config.policy = RailsPolicy::kBasic;
        EXPECT_GT(run_rails(config).both_ways, 0.3);
        config.policy = RailsPolicy::kLocalDynamic;
        EXPECT_GT(run_rails(config).both_ways, 0.3);
    }
    RailsConfig config = small(RailsPolicy::kStatic);
    config.load = 1;
    config.rails = 5;
    EXPECT_EQ(run_rails(config).both_ways, 0);
}

/// RAILS 5.3: the most that buses which carry one way at a time can take.
TEST(Rails, half_duplex_buses_take_half) {
    for (const RailsPolicy policy : kNotStatic) {
        RailsConfig config = small(policy);
        config.load = 1;
        config.blocking = false;
        EXPECT_LT(run_rails(config).accepted, 0.5);
        config.duplex = true;
        EXPECT_LT(run_rails(config).accepted, 1);
    }
}

TEST(Rails, reservation_is_ahead_of_round_robin_where_processes_block) {
    RailsConfig config = {.policy = RailsPolicy::kDynamic, .load = 1, .warm_up = 20, .measured = 100};
    const double dynamic = run_rails(config).accepted;
    config.policy = RailsPolicy::kBasic;
    EXPECT_GT(dynamic, 1.3 * run_rails(config).accepted);
}

/// RAILS's algorithm 4 is a loop, so other messages of the node are served when it has ended.
TEST(Rails, a_message_that_asks_again_at_once_is_ahead_of_the_others_of_its_node) {
    RailsConfig config = {.policy = RailsPolicy::kDynamic, .load = 1, .warm_up = 20, .measured = 100};
    const RailsResult waits = run_rails(config);
    config.wait_percent = 0;
    const RailsResult asks = run_rails(config);
    EXPECT_GT(asks.tries, 1.5 * waits.tries);
    EXPECT_LT(asks.accepted, 0.9 * waits.accepted);
    config.policy = RailsPolicy::kBasic;
    const double basic = run_rails(config).accepted;
    EXPECT_GT(asks.accepted, 1.3 * basic);
    EXPECT_LT(asks.accepted, 1.45 * basic);
}

/// A message of one chunk leaves with its request; one of many waits for the grant.
TEST(Rails, what_ships_reserves_for_all_but_the_first_chunk) {
    RailsConfig config = small(RailsPolicy::kShippedDynamic);
    config.load = 0.001;
    config.measured = 20000;
    config.striping_percent = 100;
    const RailsResult whole = run_rails(config);
    EXPECT_NEAR(whole.latency_cycles, 32768, 0.05 * 32768);
    EXPECT_NEAR(whole.tries, 1, 0.02);
    EXPECT_NEAR(whole.controls, 3, 0.1) << "an RTS, a CTS or an ABORT, and a DONE";
    config.chunk_bytes = 4096;
    const RailsResult chunks = run_rails(config);
    EXPECT_LT(chunks.latency_cycles, 0.5 * whole.latency_cycles) << "over several rails";
    EXPECT_GT(chunks.tries, 3);
}

TEST(Rails, requests_queue_on_duplex_buses) {
    RailsConfig config = small(RailsPolicy::kDynamic);
    config.duplex = true;
    config.load = 1;
    const RailsResult result = run_rails(config);
    EXPECT_NEAR(result.tries, 1, 0.01);
    EXPECT_NEAR(result.controls, 3, 0.1);
}

TEST(Rails, hybrid_is_between_dynamic_and_basic) {
    RailsConfig config = small(RailsPolicy::kHybrid);
    const auto hash = [&](RailsPolicy policy, uint32_t short_bytes) {
        config.policy = policy;
        config.short_bytes = short_bytes;
        return run_rails(config).trace_hash;
    };
    EXPECT_EQ(hash(RailsPolicy::kHybrid, 0), hash(RailsPolicy::kDynamic, 0));
    EXPECT_EQ(hash(RailsPolicy::kHybrid, UINT32_MAX), hash(RailsPolicy::kBasic, 0));
    const uint64_t between = hash(RailsPolicy::kHybrid, 32768);
    EXPECT_NE(between, hash(RailsPolicy::kDynamic, 0));
    EXPECT_NE(between, hash(RailsPolicy::kBasic, 0));
}

TEST(Rails, what_cannot_be_run_is_refused) {
    const auto message_of = [](RailsConfig config) -> std::string {
        try {
            (void)run_rails(config);
        } catch (const base::SetupError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(message_of({.policy = RailsPolicy::kStatic, .nodes = 32, .rails = 4}),
              "--policy static: 32 nodes need 7 rails, and there are 4");
    EXPECT_NE(message_of({.nodes = 1}), "");
    EXPECT_NE(message_of({.nodes = 129}), "");
    EXPECT_NE(message_of({.rails = 65}), "");
    EXPECT_NE(message_of({.load = 0}), "");
    EXPECT_NE(message_of({.links = {.both_ways = 0}}), "");
    EXPECT_NE(message_of({.striping_percent = 101}), "");
}

}  // namespace
}  // namespace velo::sim
