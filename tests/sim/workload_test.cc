// Workloads whose partners or senders change: what they send to whom, and what is timed.
#include "sim/workload.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "sim/process.h"
#include "sim/simulation.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {
namespace {

using flowctl::Mode;

/// Messages that each rank sends to each other one; all receivers wait for exactly those.
std::map<std::pair<uint32_t, uint32_t>, uint32_t> traffic(const Workload& workload) {
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> sent;
    std::vector<uint64_t> receives(workload.config().processes);
    std::vector<uint64_t> arrives(workload.config().processes);
    for (uint32_t rank = 0; rank < workload.config().processes; ++rank) {
        for (uint32_t phase = 0; phase < workload.phases(); ++phase) {
            const Part part = workload.part(rank, phase);
            receives[rank] += part.receives;
            for (uint32_t i = 0; i < part.sends; ++i) {
                const uint32_t to = workload.destination(rank, phase, i);
                EXPECT_NE(to, rank);
                EXPECT_LT(to, workload.config().processes);
                ++sent[{rank, to}];
                ++arrives[to];
            }
        }
    }
    EXPECT_EQ(receives, arrives);
    return sent;
}

SimulationConfig job(WorkloadConfig workload, Mode mode = Mode::kDynamic) {
    SimulationConfig config;
    config.cluster.topology = cluster::Topology({2, 2, 1}, false);
    config.workload = std::move(workload);
    config.flow.mode = mode;
    config.flow.slots_per_peer = 8;
    config.processes_per_node = 4;
    config.shared_memory = false;
    return config;
}

std::string error_of(const WorkloadConfig& config) {
    try {
        (void)make_workload(config);
    } catch (const base::SetupError& error) {
        return error.what();
    }
    return "";
}

TEST(NewPartner, sends_so_many_messages_to_a_partner_and_then_goes_on_to_another_one) {
    const auto workload =
        make_workload({.name = "new_partner", .processes = 9, .iterations = 40, .messages = 3});
    std::set<uint32_t> partners_of_0;
    for (uint32_t rank = 0; rank < 9; ++rank) {
        for (uint32_t phase = 0; phase < 40; ++phase) {
            EXPECT_EQ(workload->part(rank, phase).sends, 3u);
            const uint32_t partner = workload->destination(rank, phase, 0);
            EXPECT_EQ(workload->destination(rank, phase, 2), partner);
            if (phase != 0) {
                EXPECT_NE(partner, workload->destination(rank, phase - 1, 0));
            }
            if (rank == 0) partners_of_0.insert(partner);
        }
    }
    EXPECT_EQ(partners_of_0.size(), 8u) << "forty choices of eight";
    uint32_t messages = 0;
    for (const auto& [pair, count] : traffic(*workload)) messages += count;
    EXPECT_EQ(messages, 9u * 40 * 3);
}

TEST(NewPartner, two_processes_have_each_other) {
    const auto sent =
        traffic(*make_workload({.name = "new_partner", .processes = 2, .iterations = 5, .messages = 2}));
    EXPECT_EQ(sent.at({0, 1}), 10u);
    EXPECT_EQ(sent.at({1, 0}), 10u);
}

TEST(NewPartner, the_seed_decides_on_partners) {
    WorkloadConfig config = {.name = "new_partner", .processes = 16, .iterations = 10, .seed = 5};
    const auto first = traffic(*make_workload(config));
    EXPECT_EQ(traffic(*make_workload(config)), first);
    config.seed = 6;
    EXPECT_NE(traffic(*make_workload(config)), first);
}

TEST(Bursts, a_pause_comes_before_each_and_is_not_timed) {
    WorkloadConfig config = {
        .name = "bursts", .processes = 8, .iterations = 30, .messages = 4, .idle_ns = 1'000'000};
    const auto workload = make_workload(config);
    uint64_t idle_ns = 0;
    for (uint32_t rank = 0; rank < 8; ++rank) {
        for (uint32_t phase = 0; phase < 30; ++phase) {
            EXPECT_LE(workload->idle_ns(rank, phase), 2'000'000u);
            idle_ns += workload->idle_ns(rank, phase);
        }
        EXPECT_EQ(workload->idle_ns(rank, 30), 0u);
    }
    EXPECT_NEAR(static_cast<double>(idle_ns) / (8 * 30), 1e6, 1e5);
    const Result result = Simulation(job(config, Mode::kNone)).run();
    EXPECT_EQ(result.messages, 8u * 30 * 4);
    EXPECT_GT(result.time_ns, 30u * 500'000);
    // Four messages of 37 packets, and whatever the process takes of others meanwhile.
    EXPECT_GE(result.time_us, 4 * 37 * 1.248);
    EXPECT_LE(result.time_us, 600);
}

TEST(HotThenAll, an_eighth_exchanges_and_then_all) {
    const auto workload =
        make_workload({.name = "hot_then_all", .processes = 16, .iterations = 5, .warmup = 7});
    EXPECT_EQ(workload->phases(), 12u);
    const auto sent = traffic(*workload);
    EXPECT_EQ(sent.at({0, 1}), 12u);
    EXPECT_EQ(sent.at({0, 2}), 5u);
    EXPECT_EQ(sent.at({15, 14}), 5u);
    EXPECT_EQ(make_workload({.name = "hot_then_all", .processes = 16, .iterations = 5})->phases(), 10u);
}

TEST(HotThenAll, says_how_many_alltoalls_it_takes_to_adapt) {
    const WorkloadConfig config = {.name = "hot_then_all", .processes = 16, .iterations = 12};
    const Result none = Simulation(job(config, Mode::kNone)).run();
    ASSERT_TRUE(none.adapted_after);
    EXPECT_EQ(*none.adapted_after, 0u) << "there is nothing to adapt";
    SimulationConfig slow_at_first = job(config, Mode::kNone);
    slow_at_first.cluster.faults = {
        .stall_permille = 100, .stall_ns_max = 1'000'000, .until_ns = none.time_ns / 2};
    const Result late = Simulation(slow_at_first).run();
    ASSERT_TRUE(late.adapted_after);
    EXPECT_GE(*late.adapted_after, 1u);
    EXPECT_LE(*late.adapted_after, 6u);
    EXPECT_FALSE(Simulation(job({.name = "alltoall", .processes = 8})).run().adapted_after);
}

TEST(Incast, all_send_to_a_root_that_rotates) {
    const auto workload = make_workload({.name = "incast", .processes = 5, .iterations = 7});
    for (uint32_t phase = 0; phase < 7; ++phase) {
        const uint32_t root = phase % 5;
        EXPECT_EQ(workload->part(root, phase).receives, 4u);
        EXPECT_EQ(workload->part(root, phase).sends, 0u);
        for (uint32_t rank = 0; rank < 5; ++rank) {
            if (rank != root) {
                EXPECT_EQ(workload->destination(rank, phase, 0), root);
            }
        }
    }
    const auto sent = traffic(*workload);
    EXPECT_EQ(sent.at({4, 0}), 2u);
    EXPECT_EQ(sent.at({4, 2}), 1u);
}

TEST(ChangingWorkloads, every_mode_completes_and_a_seed_gives_one_trace) {
    for (const char* name : {"new_partner", "bursts", "hot_then_all", "incast"}) {
        for (const auto& [mode, mode_name] : flowctl::kModeNames) {
            const SimulationConfig config = job({.name = name, .processes = 12, .iterations = 6}, mode);
            const Result first = Simulation(config).run();
            EXPECT_EQ(Simulation(config).run().trace_hash, first.trace_hash) << name << ' ' << mode_name;
            EXPECT_NE(first.messages, 0u);
        }
    }
}

TEST(ChangingWorkloads, refuse_what_they_cannot_do) {
    EXPECT_NE(error_of({.name = "new_partner", .processes = 1}).find("at least 2"), std::string::npos);
    EXPECT_NE(error_of({.name = "incast", .processes = 1}).find("at least 2"), std::string::npos);
    EXPECT_NE(error_of({.name = "hot_then_all", .processes = 4, .active = 5}).find("an eighth"),
              std::string::npos);
}

}  // namespace
}  // namespace velo::sim
