// Runs of the simulated cluster: what flow control guarantees there, and that a run can be repeated.
#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <string>

#include "sim/at_rest.h"
#include "sim/process.h"

namespace velo::sim {
namespace {

using flowctl::Mode;

SimulationConfig alltoall(uint32_t processes, Mode mode, uint32_t slots = 58) {
    SimulationConfig config;
    config.cluster.topology = cluster::Topology({4, 4, 1}, false);
    config.workload = {.name = "alltoall", .processes = processes};
    config.flow.mode = mode;
    config.flow.slots_per_peer = slots;
    config.processes_per_node = 4;
    return config;
}

SimulationConfig pingpong(uint32_t credit_slots, uint32_t slots) {
    SimulationConfig config;
    config.cluster.topology = cluster::Topology({8, 8, 1}, false);
    config.workload = {.name = "multi_pingpong", .processes = 8, .iterations = 40};
    config.flow.mode = Mode::kStatic;
    config.flow.peers = 4;
    config.flow.slots_per_peer = slots;
    config.flow.credit_slots = credit_slots;
    config.flow.piggyback = false;
    return config;
}

Result run(const SimulationConfig& config) {
    return Simulation(config).run();
}

/// Modes that this build's plans allow, each with the default sizes.
std::vector<Mode> modes() {
    std::vector<Mode> found;
    for (const auto& [mode, name] : flowctl::kModeNames) {
        if (std::holds_alternative<flowctl::Plan>(flowctl::plan({.mode = mode, .peers = 8})))
            found.push_back(mode);
    }
    return found;
}

SimulationConfig soak(Mode mode, uint64_t seed) {
    SimulationConfig config = alltoall(24, mode, 6 + static_cast<uint32_t>(seed % 40));
    config.workload = {.name = "random", .processes = 24, .bytes = 3000, .messages = 60, .seed = seed};
    config.flow.piggyback = seed % 2 == 0;
    config.host.window = 1 + static_cast<uint32_t>(seed % 5);
    config.cluster.cpu.take_packets = 1 + static_cast<uint32_t>(seed % 7);
    config.cluster.seed = seed;
    config.cluster.faults = {.delay_permille = 100,
                             .delay_ns_max = 300'000,
                             .stall_permille = 30,
                             .stall_ns_max = 2'000'000,
                             .until_ns = 4'000'000};
    return config;
}

TEST(Simulation, one_seed_gives_one_trace_and_another_seed_another) {
    const Result first = run(soak(Mode::kStatic, 7));
    const Result second = run(soak(Mode::kStatic, 7));
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.time_ns, second.time_ns);
    SimulationConfig other = soak(Mode::kStatic, 7);
    other.cluster.seed = other.workload.seed = 8;
    EXPECT_NE(run(other).trace_hash, first.trace_hash);
}

// Order and contents of every message are checked by the processes themselves, which throw.
TEST(Simulation, every_mode_delivers_everything_in_order_under_faults) {
    for (const Mode mode : modes()) {
        for (uint64_t seed = 1; seed <= 12; ++seed) {
            SCOPED_TRACE(std::string(to_string(mode)) + ", seed " + std::to_string(seed));
            Simulation simulation(soak(mode, seed));
            Result result;
            ASSERT_NO_THROW(result = simulation.run());
            uint64_t received = 0;
            uint64_t packets = 0;
            for (uint32_t rank = 0; rank < 24; ++rank) {
                const Process& process = simulation.process(rank);
                received += process.packets()->counters().messages_received;
                packets += process.device().counters().packets_received;
            }
            EXPECT_EQ(result.messages, received);
            EXPECT_EQ(result.messages + result.messages_on_node, 24u * 60);
            EXPECT_EQ(result.packets, packets) << "packets are left in a mailbox";
            EXPECT_EQ(result.malformed, 0u);
        }
    }
}

// FC 5.2: what all senders hold, and what the receivers have not returned, is the data region.
TEST(Simulation, credits_are_all_there_at_the_end_of_a_static_run) {
    Simulation simulation(alltoall(32, Mode::kStatic, 16));
    simulation.run();
    const uint32_t quota = simulation.plan().quota;
    for (uint32_t a = 0; a < 32; ++a) {
        const Process& process = simulation.process(a);
        for (DeviceAddr peer = 0; peer < process.device().peers(); ++peer) {
            Process& other = simulation.process(process.device().process_of(peer));
            const DeviceAddr back = other.device().meet(a);
            EXPECT_EQ(process.packets()->flow().credits(peer) + other.packets()->flow().retrieved(back), quota);
            EXPECT_TRUE(process.packets()->flow().check_invariants(peer));
        }
    }
}

TEST(Simulation, without_flow_control_there_are_no_credits_and_no_delays) {
    const Result result = run(alltoall(32, Mode::kNone));
    EXPECT_EQ(result.messages, 32u * 28);
    EXPECT_EQ(result.messages_on_node, 32u * 3);
    EXPECT_EQ(result.packets, 32u * 28 * 37);
    EXPECT_EQ(result.messages_delayed + result.credit_packets + result.control_packets, 0u);
    EXPECT_EQ(result.backpressure, 0u);
}

// FC figures 5 and 7: the first size at which not every message is delayed has a data region of 37 slots.
TEST(Simulation, static_delays_end_where_the_paper_says) {
    for (uint32_t credit_slots = 1; credit_slots <= 5; ++credit_slots) {
        SCOPED_TRACE(credit_slots);
        const uint32_t break_even = 37 + credit_slots;
        const uint32_t none_from = flowctl::slots_without_stall(37, credit_slots);
        const Result below = run(pingpong(credit_slots, break_even - 1));
        EXPECT_EQ(below.messages_delayed, below.messages);
        const Result at = run(pingpong(credit_slots, break_even));
        EXPECT_LT(at.messages_delayed, at.messages);
        EXPECT_GT(at.messages_delayed, 0u);
        EXPECT_EQ(run(pingpong(credit_slots, none_from)).messages_delayed, 0u);
        EXPECT_EQ(run(pingpong(credit_slots, none_from + 9)).messages_delayed, 0u);
    }
}

TEST(Simulation, credits_that_ride_along_save_credit_packets) {
    SimulationConfig config = pingpong(2, 58);
    const Result apart = run(config);
    EXPECT_EQ(apart.credits_piggybacked, 0u);
    config.flow.piggyback = true;
    const Result riding = run(config);
    EXPECT_GT(riding.credits_piggybacked, 0u);
    EXPECT_LT(riding.credit_packets, apart.credit_packets);
}

TEST(Simulation, processes_of_one_node_use_no_credits) {
    SimulationConfig config = alltoall(16, Mode::kStatic);
    config.processes_per_node = 16;
    const Result shared = run(config);
    EXPECT_EQ(shared.packets, 0u);
    EXPECT_EQ(shared.messages_on_node, 16u * 15);
    config.shared_memory = false;
    EXPECT_EQ(run(config).messages, 16u * 15);
}

TEST(Simulation, ranks_that_are_not_active_only_wait_in_the_barrier) {
    SimulationConfig config = alltoall(32, Mode::kStatic);
    config.workload.active = 8;
    config.workload.iterations = 3;
    Simulation simulation(config);
    Result result = simulation.run();
    EXPECT_EQ(result.messages + result.messages_on_node, 3u * 8 * 7);
    EXPECT_EQ(simulation.process(31).device().peers(), 0u);
    EXPECT_EQ(simulation.process(31).packets(), nullptr) << "who does not communicate has no tables";
    config.workload.barrier = true;
    result = run(config);
    EXPECT_EQ(result.messages + result.messages_on_node, 3u * 8 * 7 + 3u * 32 * 5);
}

TEST(Simulation, phases_and_scatterv_send_what_they_should) {
    SimulationConfig config = alltoall(32, Mode::kStatic, 8);
    config.workload.name = "phases";
    config.workload.steps = {32, 8, 16};
    config.workload.iterations = 2;
    Result result = run(config);
    EXPECT_EQ(result.messages + result.messages_on_node, 2u * (32 * 31 + 8 * 7 + 16 * 15) + 3u * 32 * 5)
        << "a barrier a step";
    config.workload.barrier = true;
    result = run(config);
    EXPECT_EQ(result.messages + result.messages_on_node, 2u * (32 * 31 + 8 * 7 + 16 * 15) + 6u * 32 * 5);
    config.workload.barrier = false;
    config.workload.name = "scatterv";
    config.workload.iterations = 64;
    config.workload.repetitions = 4;
    result = run(config);
    EXPECT_EQ(result.messages + result.messages_on_node, 64u * 31);
}

// FC 7.1: the same credits and waits, whatever of flow control's packets is free.
TEST(Simulation, what_flow_control_costs_can_be_taken_apart) {
    SimulationConfig config = pingpong(2, 8);
    const Result total = run(config);
    config.cluster.cpu.control_free = true;
    const Result no_cpu = run(config);
    config.cluster.network.control_free = true;
    const Result stalls = run(config);
    config.flow.mode = Mode::kNone;
    const Result none = run(config);
    EXPECT_LT(no_cpu.time_ns, total.time_ns);
    EXPECT_LT(none.time_ns, stalls.time_ns);
    EXPECT_EQ(stalls.credit_packets, total.credit_packets);
    EXPECT_EQ(stalls.messages_delayed, total.messages_delayed);
}

// Every rank is root once, whatever the shape of the tree, and every rank receives what the pattern has for
// it.
TEST(Simulation, collectives_of_any_size_end_and_send_what_they_should) {
    for (const uint32_t processes : {2u, 3u, 7u, 12u, 16u}) {
        for (const char* name : {"reduce", "bcast", "gather", "scatter", "sendrecv", "alltoallv"}) {
            SimulationConfig config = alltoall(processes, Mode::kStatic, 6);
            config.workload.name = name;
            config.workload.iterations = processes;
            const Result result = run(config);
            const uint32_t each = name == std::string("sendrecv")    ? processes
                                  : name == std::string("alltoallv") ? processes * (processes - 1)
                                                                     : processes - 1;
            EXPECT_EQ(result.messages + result.messages_on_node, processes * each) << name << processes;
        }
    }
}

TEST(Simulation, jitter_changes_times_and_keeps_every_promise) {
    SimulationConfig config = alltoall(24, Mode::kStatic, 8);
    config.cluster.cpu.jitter_permille = 300;
    const Result first = run(config);
    EXPECT_EQ(run(config).trace_hash, first.trace_hash);
    config.cluster.seed = 2;
    const Result second = run(config);
    EXPECT_NE(second.trace_hash, first.trace_hash);
    EXPECT_EQ(second.messages, first.messages);
}

TEST(Simulation, credits_are_seen_at_the_end_of_each_phase) {
    SimulationConfig config = alltoall(8, Mode::kStatic);
    config.workload.iterations = 5;
    Simulation simulation(config);
    uint32_t ends = 0;
    simulation.on_phase_end([&](Process& process, uint32_t phase) {
        if (process.rank() == 3) {
            EXPECT_EQ(phase, ends++);
        }
    });
    simulation.run();
    EXPECT_EQ(ends, 5u);
}

TEST(Simulation, what_can_not_be_carried_out_is_refused_with_a_remedy) {
    const auto error_of = [](const SimulationConfig& config) -> std::string {
        try {
            (void)run(config);
        } catch (const std::exception& error) {
            return error.what();
        }
        return "";
    };
    SimulationConfig config = alltoall(65, Mode::kStatic);
    EXPECT_NE(error_of(config).find("larger --topology"), std::string::npos);
    config = alltoall(32, Mode::kStatic, 3);
    EXPECT_NE(error_of(config).find("slots_per_peer"), std::string::npos);
    config = alltoall(32, Mode::kStatic);
    config.workload.name = "alltoone";
    EXPECT_NE(error_of(config).find("multi_pingpong"), std::string::npos);
    config = alltoall(32, Mode::kStatic);
    config.flow.peers = 5;
    EXPECT_NE(error_of(config).find("raise --peers"), std::string::npos);
    config = alltoall(32, Mode::kStatic);
    config.workload.active = 33;
    EXPECT_NE(error_of(config).find("--active"), std::string::npos);
}

// 37 packets from each of 63 senders at once under guarded sends: IBFC 4.1's hardware flow control, on a
// mailbox that is much too small. Runs where the plan knows the mode, and on a mailbox of that size below
// `none`.
TEST(Simulation, a_small_mailbox_without_credits_is_guarded_by_back_pressure) {
    SimulationConfig config = alltoall(32, Mode::kNone);
    config.flow.mailbox_slots = 40;
    config.bounded_without_credits = true;
    const Result result = run(config);
    EXPECT_GT(result.backpressure, 0u);
    EXPECT_LE(result.mailbox_fill_max, 40u);
    EXPECT_EQ(result.messages, 32u * 28);
}

/// Rank 0 sends to rank 1, which sends nothing, and has slots for a part of a message only.
SimulationConfig one_way(uint32_t messages) {
    SimulationConfig config = alltoall(2, Mode::kDynamic);
    config.workload = {.name = "scatterv", .processes = 2, .iterations = messages, .repetitions = messages};
    config.processes_per_node = 1;
    config.flow.mailbox_slots = 24;
    config.contact_slots_max = 1;
    return config;
}

/// The simulator hands out its flow control for reading. A test may act for the owner.
flowctl::FlowControl& flow_of(Simulation& simulation, uint32_t rank) {
    return const_cast<flowctl::FlowControl&>(simulation.process(rank).packets()->flow());
}

// The sender waits for credits when its link closes, and nothing else arrives: the rest goes by contact
// slots.
TEST(Simulation, a_link_that_closes_wakes_a_sender_that_waits_for_its_credits) {
    Simulation simulation(one_way(12));
    uint32_t closes = 0;
    simulation.on_phase_end([&](Process& process, uint32_t) {
        if (process.rank() != 1 || flow_of(simulation, 1).link(0) != flowctl::LinkState::kOpen) return;
        flow_of(simulation, 1).close(0);
        ++closes;
    });
    Result result;
    ASSERT_NO_THROW(result = simulation.run());
    EXPECT_GT(closes, 0u);
    EXPECT_EQ(result.closes, closes);
    EXPECT_EQ(result.messages, 12u);
}

// A process that sends is ready when all but the queue's packets are injected, or at once.
TEST(Simulation, a_cpu_runs_ahead_of_its_nic_by_the_queue_only) {
    SimulationConfig config = one_way(20);
    config.flow.mode = Mode::kNone;
    config.cluster.cpu.send_ns = 10;
    config.host.turn_ns = config.host.message_ns = 0;
    const auto ready_ns = [&](uint32_t queue_packets) {
        config.cluster.network.nic_queue_packets = queue_packets;
        Simulation simulation(config);
        simulation.run();
        return simulation.process(0).device().clock_ns();
    };
    constexpr uint64_t kPackets = 20 * 37;
    EXPECT_LT(ready_ns(0), kPackets * 20);
    EXPECT_GE(ready_ns(8), (kPackets - 9) * 80);
    EXPECT_LE(ready_ns(8), (kPackets + 9) * 80);
}

TEST(AtRest, a_job_that_has_ended_is_at_rest_in_every_mode) {
    for (const Mode mode : modes()) {
        Simulation simulation(soak(mode, 3));
        ASSERT_NO_THROW(simulation.run()) << to_string(mode);
        EXPECT_EQ(first_unrest(simulation), "") << to_string(mode);
    }
}

TEST(AtRest, a_pair_that_is_left_half_closed_is_found) {
    Simulation simulation(one_way(2));
    simulation.run();
    flowctl::FlowControl& flow = flow_of(simulation, 1);
    flow.close(0);
    EXPECT_NE(first_unrest(simulation).find("process 1 has a control packet that has not left, to process 0"),
              std::string::npos)
        << first_unrest(simulation);
    flowctl::FlowControl::Control control;
    ASSERT_TRUE(flow.next_control(0, control));
    flow.control_left(0, control);
    EXPECT_NE(first_unrest(simulation).find("half closed: open at the first, closing at the second"),
              std::string::npos)
        << first_unrest(simulation);
}

TEST(AtRest, credits_that_one_side_has_lost_are_found) {
    Simulation simulation(one_way(2));
    simulation.run();
    flow_of(simulation, 0).packets_sent(0, 1);
    EXPECT_NE(first_unrest(simulation).find("process 0 holds"), std::string::npos)
        << first_unrest(simulation);
}

double alltoall_us(Mode mode, uint32_t active, uint32_t slots) {
    SimulationConfig config = alltoall(64, mode, slots);
    config.shared_memory = false;
    config.workload.active = active;
    config.workload.iterations = 12;
    return run(config).time_us;
}

// FC figures 10 and 15.
TEST(DynamicSharing, a_quarter_of_active_senders_waits_less_than_under_static) {
    const double none = alltoall_us(Mode::kNone, 16, 16);
    const double static_over = alltoall_us(Mode::kStatic, 16, 16) - none;
    const double dynamic_over = alltoall_us(Mode::kDynamic, 16, 16) - none;
    EXPECT_GT(static_over, 0.05 * none);
    EXPECT_LT(dynamic_over, 0.75 * static_over);
}

TEST(DynamicSharing, with_all_active_and_few_slots_it_costs_at_most_a_tenth_more_than_static) {
    for (const uint32_t slots : {8u, 12u, 16u}) {
        EXPECT_LE(alltoall_us(Mode::kDynamic, 64, slots), 1.1 * alltoall_us(Mode::kStatic, 64, slots))
            << slots;
    }
}

}  // namespace
}  // namespace velo::sim
