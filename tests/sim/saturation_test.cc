// RDRP 4.1's traffic over the switched network: windows, throttles, and what slow nodes do to the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/saturation_run.h"
#include "sim_device/switched/becn_throttle.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {
namespace {

SaturationConfig config(TransferMethod method, uint32_t slow_nodes = 0, uint32_t slowdown = 8) {
    SaturationConfig made;
    made.network.topology = switched::SwitchedTopology::parse("dragonfly:2,4,2");
    made.network.vcs_per_class = 2;
    made.method = method;
    made.slow_nodes = slow_nodes;
    made.slowdown = slowdown;
    made.packet_times = 3000;
    made.iteration = 100;
    return made;
}

TEST(Saturation, one_seed_gives_one_trace_and_another_one_another) {
    for (const TransferMethod method : {TransferMethod::kBig, TransferMethod::kFecn, TransferMethod::kRdrp}) {
        SaturationConfig made = config(method, 2);
        made.packet_times = 600;
        const SaturationResult first = run_saturation(made);
        const SaturationResult again = run_saturation(made);
        EXPECT_EQ(first.trace_hash, again.trace_hash);
        EXPECT_EQ(first.series, again.series);
        made.network.seed = 2;
        EXPECT_NE(first.trace_hash, run_saturation(made).trace_hash);
    }
}

/// A router that takes detours readily, in a machine large enough for a slow node to spoil.
SaturationConfig spoilt(TransferMethod method, uint32_t slow_nodes) {
    SaturationConfig made = config(method, slow_nodes);
    made.network.topology = switched::SwitchedTopology::parse("dragonfly:3,6,3");
    made.network.minimal_bias_percent = 100;
    made.network.threshold_flits = 0;
    made.packet_times = 900;
    return made;
}

/// The scheduler's bound with one source: a chunk beyond a window of one.
TEST(Saturation, the_production_scheduler_holds_the_window) {
    for (const uint32_t window : {1u, 2u, 3u, 30u}) {
        SaturationConfig made = config(TransferMethod::kRdrp, 2);
        made.packet_times = 600;
        made.window = window;
        EXPECT_EQ(run_saturation(made).outstanding_max, std::max(window, 2u));
    }
}

/// A node cannot get more than its window in a round trip.
TEST(Saturation, throughput_is_bound_by_window_and_round_trip) {
    SaturationConfig made = config(TransferMethod::kRdrp);
    made.packet_times = 1500;
    made.window = 2;
    const SaturationResult two = run_saturation(made);
    EXPECT_LT(two.steady, 2 / two.latency);
    made.window = 4;
    const SaturationResult four = run_saturation(made);
    EXPECT_NEAR(four.steady / two.steady, 2, 0.4);
}

/// RDRP 4.1: slow nodes slow all others down, unless what they fetch is bound.
TEST(Saturation, slow_nodes_do_not_hold_up_others_by_rdrp) {
    const SaturationResult big = run_saturation(spoilt(TransferMethod::kBig, 7));
    const SaturationResult big_alone = run_saturation(spoilt(TransferMethod::kBig, 0));
    const SaturationResult rdrp = run_saturation(spoilt(TransferMethod::kRdrp, 7));
    const SaturationResult rdrp_alone = run_saturation(spoilt(TransferMethod::kRdrp, 0));
    EXPECT_LT(big.steady, 0.7 * big_alone.steady);
    EXPECT_GT(rdrp.fast, 0.95 * rdrp_alone.steady);
    EXPECT_GT(rdrp.steady, 1.5 * big.steady);
    EXPECT_LT(rdrp.latency, big.latency / 4);
}

TEST(Saturation, chunks_of_many_packets_are_one_big_transfer) {
    const auto latency = [](uint32_t chunk_packets) {
        SaturationConfig made = config(TransferMethod::kRdrp, 4);
        made.window = 8;
        made.chunk_packets = chunk_packets;
        return run_saturation(made).latency;
    };
    EXPECT_GT(latency(64), 2 * latency(1));
}

TEST(Saturation, requests_ride_on_data_where_there_is_any) {
    const SaturationResult r = run_saturation(config(TransferMethod::kRdrp));
    EXPECT_GT(r.bare_requests, 0u);
    EXPECT_LT(r.bare_requests, r.packets / 2);
}

/// RDRP 4.1 returns credits on data only. With few of them both nodes of a pair wait for each other.
TEST(Saturation, requests_that_need_data_stand_still_with_a_small_window) {
    SaturationConfig made = config(TransferMethod::kRdrp);
    made.bare_requests = false;
    made.window = 1;
    made.network.deadlock_slots = 200;
    try {
        (void)run_saturation(made);
        FAIL() << "nothing stood still";
    } catch (const switched::Deadlock& deadlock) {
        EXPECT_NE(std::string(deadlock.what()).find("every node waits for a request"), std::string::npos);
    }
    made.bare_requests = true;
    EXPECT_GT(run_saturation(made).steady, 0.05);
}

TEST(Saturation, fecn_throttles_and_the_aggressive_setting_more_than_it_should) {
    const auto run = [](TransferMethod method) {
        SaturationConfig made = config(method);
        made.network.vcs_per_class = 1;
        made.network.minimal_bias_percent = 100;
        made.network.threshold_flits = 0;
        made.packet_times = 2000;
        return run_saturation(made);
    };
    const SaturationResult big = run(TransferMethod::kBig);
    const SaturationResult fecn = run(TransferMethod::kFecn);
    const SaturationResult aggressive = run(TransferMethod::kFecnAggressive);
    EXPECT_EQ(big.marks, 0u);
    EXPECT_GT(fecn.marks, 1000u);
    EXPECT_GT(fecn.steady, 0.9 * big.steady);
    EXPECT_LT(aggressive.steady, 0.85 * big.steady);
    EXPECT_LT(aggressive.latency, 0.8 * fecn.latency);
}

TEST(Saturation, it_runs_over_a_fat_tree) {
    SaturationConfig made = config(TransferMethod::kRdrp);
    made.network.topology = switched::SwitchedTopology::parse("fattree:4,3");
    made.network.routing = switched::Routing::kUgal;
    made.packet_times = 600;
    EXPECT_GT(run_saturation(made).steady, 0.8);  // it has all the bandwidth that a permutation needs
}

TEST(Saturation, parameters_that_contradict_each_other_are_refused_with_a_remedy) {
    const auto message = [](auto&& change) -> std::string {
        SaturationConfig made = config(TransferMethod::kRdrp);
        change(made);
        try {
            (void)run_saturation(made);
        } catch (const base::SetupError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(message([](auto& c) { c.window = 0; }), "--window 0; give at least 1");
    EXPECT_EQ(message([](auto& c) { c.slow_nodes = 73; }), "--slow 73; give at most the 72 nodes");
    EXPECT_EQ(message([](auto& c) { c.slowdown = 0; }), "--slowdown 0; give 1 to 1000");
    EXPECT_EQ(message([](auto& c) { c.chunk_packets = 0; }), "--chunk-packets 0; give 1 to 65536");
    EXPECT_EQ(message([](auto& c) { c.iteration = 1001; }),
              "--iteration 1001; give at most a third of --packets, and at least 1");
}

TEST(BecnThrottle, the_rate_falls_linearly_with_the_counter) {
    const auto sent = [](uint32_t becns) {
        switched::BecnThrottle throttle(1000000);
        for (uint32_t i = 0; i < becns; ++i) throttle.received(true);
        uint32_t count = 0;
        for (uint32_t slot = 0; slot < 1000; ++slot) {
            throttle.tick(16);
            if (!throttle.may_send()) continue;
            throttle.sent();
            ++count;
        }
        return count;
    };
    EXPECT_EQ(sent(0), 1000u);
    EXPECT_NEAR(sent(1), 600, 1);  // counter 8 of 20
    EXPECT_NEAR(sent(2), 200, 1);
    EXPECT_EQ(sent(3), 0u);
    EXPECT_EQ(sent(9), 0u);
}

TEST(BecnThrottle, the_counter_falls_by_time_and_by_packets_without_a_mark) {
    switched::BecnThrottle throttle(4);
    throttle.received(true);
    throttle.received(false);
    EXPECT_EQ(throttle.counter(), 7u);
    throttle.tick(16);
    EXPECT_EQ(throttle.counter(), 3u);
    throttle.tick(16);
    EXPECT_EQ(throttle.counter(), 0u);
    throttle.received(false);
    EXPECT_EQ(throttle.counter(), 0u);
    switched::BecnThrottle aggressive(50);
    for (int i = 0; i < 3; ++i) aggressive.received(true);
    for (int i = 0; i < 10; ++i) aggressive.tick(16);  // 160 cycles
    EXPECT_EQ(aggressive.counter(), 17u);
}

}  // namespace
}  // namespace velo::sim
