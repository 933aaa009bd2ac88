// Times of the simulated network against hand-computed ones, and what shares a link or a mailbox.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "sim_device/cluster/cluster.h"

namespace velo::cluster {
namespace {

/// Round numbers, all different, so that no two mistakes cancel.
constexpr NetworkConfig kNetwork = {
    .nic_packet_ns = 50, .link_packet_ns = 80, .nic_ns = 300, .link_ns = 20, .hop_ns = 7};
constexpr CpuConfig kCpu = {
    .send_ns = 100, .receive_ns = 40, .credit_ns = 9, .take_packets = 8, .poll_ns = 0};

Cluster make(Topology topology) {
    return Cluster({.topology = topology, .network = kNetwork, .cpu = kCpu});
}

DeviceConfig slots(uint32_t count) {
    return {.mailbox_slots = count, .faults = {}};
}

PacketStatus data(uint32_t, std::byte* payload) {
    std::memset(payload, 1, kPayloadBytes);
    return {.length = kPayloadBytes};
}

/// Sends at clock 0 and returns when the last packet is in the receiver's memory.
uint64_t arrival_of(Cluster& cluster, uint32_t from, uint32_t to, uint32_t packets) {
    ClusterDevice& device = cluster[from];
    EXPECT_EQ(device.send(device.meet(to), packets, Admission::kCredited, data), Status::kOk);
    ClusterDevice& receiver = cluster[to];
    DeviceAddr source = kNoAddr;
    for (uint32_t taken = 0;; ++taken) {
        while (receiver.peek(source) == nullptr) receiver.spend(1);
        if (taken + 1 == packets) return receiver.clock_ns();
        receiver.advance();
    }
}

TEST(Topology, hops_are_manhattan_distances_on_a_mesh_and_wrap_on_a_torus) {
    const Topology mesh = Topology::parse("mesh:8x8");
    EXPECT_EQ(mesh.nodes(), 64u);
    EXPECT_EQ(mesh.hops(0, 63), 14u);
    EXPECT_EQ(mesh.node_at(14), 63u);
    const Topology torus = Topology::parse("torus:8x8");
    EXPECT_EQ(torus.hops(0, 63), 2u);
    EXPECT_EQ(torus.hops(0, 36), 8u);
    EXPECT_EQ(Topology::parse("mesh:4x4x4").hops(0, 63), 9u);
}

TEST(Topology, routes_go_along_one_dimension_after_the_other) {
    const Topology mesh({3, 3, 1}, false);
    std::vector<uint32_t> links;
    mesh.route(0, 8, [&](uint32_t link) { links.push_back(link); });
    // Upwards in x from nodes 0 and 1, then upwards in y from nodes 2 and 5.
    EXPECT_EQ(links, (std::vector<uint32_t>{0 * 6, 1 * 6, 2 * 6 + 2, 5 * 6 + 2}));
    links.clear();
    mesh.route(8, 6, [&](uint32_t link) { links.push_back(link); });
    EXPECT_EQ(links, (std::vector<uint32_t>{8 * 6 + 1, 7 * 6 + 1}));
}

TEST(Topology, refuses_what_it_does_not_understand) {
    for (const char* text :
         {"", "mesh", "mesh:", "ring:4", "mesh:4x", "mesh:4x4x4x4", "mesh:0x4", "mesh:512x512", "mesh:4,4"}) {
        EXPECT_THROW(Topology::parse(text), base::SetupError) << text;
    }
    EXPECT_THROW((void)Topology::parse("mesh:4x4").node_at(7), base::SetupError);
}

TEST(Network, one_packet_between_two_nodes) {
    Cluster cluster = make(Topology({2, 1, 1}, false));
    for (uint32_t node : {0u, 1u}) cluster.open(node, slots(4));
    // PIO, NIC, link and router, the packet's own length once, NIC.
    EXPECT_EQ(arrival_of(cluster, 0, 1, 1), 100u + 300 + 20 + 7 + 80 + 300);
}

TEST(Network, one_packet_across_a_mesh_of_nine) {
    Cluster cluster = make(Topology({3, 3, 1}, false));
    for (uint32_t node = 0; node < 9; ++node) cluster.open(node, slots(4));
    EXPECT_EQ(arrival_of(cluster, 0, 8, 1), 100u + 300 + 4 * 27 + 80 + 300);
}

TEST(Network, a_run_comes_at_the_pace_of_its_slowest_part) {
    Cluster cluster = make(Topology({2, 1, 1}, false));
    for (uint32_t node : {0u, 1u}) cluster.open(node, slots(64));
    // The CPU's 100 ns a packet are more than the link's 80.
    EXPECT_EQ(arrival_of(cluster, 0, 1, 37), 37u * 100 + 300 + 27 + 80 + 300);
}

TEST(Network, runs_that_share_a_link_take_turns_and_use_all_of_it) {
    Cluster cluster = make(Topology({2, 1, 1}, false));
    for (uint32_t process = 0; process < 8; ++process) cluster.open(process / 4, slots(64));
    uint64_t last = 0;
    for (uint32_t process = 0; process < 4; ++process) {
        last = std::max(last, arrival_of(cluster, process, process + 4, 37));
    }
    // 148 packets of 80 ns. Times are kept in slices of 16 packets, so the sum is right to one of them.
    const uint64_t latency = 300 + 27 + 80 + 300;
    const uint64_t slice = Server::kSlicePackets * 80;
    EXPECT_GE(last, 100 + 147u * 80 + latency - slice);
    EXPECT_LE(last, 100 + 147u * 80 + latency + slice);
}

/// A CPU that writes five packets in the time in which its NIC injects one.
Cluster with_fast_cpu(uint32_t queue_packets) {
    NetworkConfig network = kNetwork;
    network.nic_queue_packets = queue_packets;
    CpuConfig cpu = kCpu;
    cpu.send_ns = 10;
    return Cluster({.topology = Topology({2, 1, 1}, false), .network = network, .cpu = cpu});
}

// The tenth packet is injected at 10 + 9 * 50 ns, and written when the one before it by the queue's length is
// injected.
TEST(NicQueue, a_cpu_waits_while_it_is_full_and_packets_come_as_if_it_had_not) {
    uint64_t unbounded_arrival_ns = 0;
    for (const uint32_t queue : {0u, 1u, 4u, 8u, 9u}) {
        Cluster cluster = with_fast_cpu(queue);
        for (uint32_t node : {0u, 1u}) cluster.open(node, slots(64));
        const uint64_t arrival_ns = arrival_of(cluster, 0, 1, 10);
        if (queue == 0) unbounded_arrival_ns = arrival_ns;
        EXPECT_EQ(arrival_ns, unbounded_arrival_ns) << queue;
        const uint64_t expected_ns = queue == 0 ? 100u : std::max<uint64_t>(100, 10 + (9 - queue) * 50);
        EXPECT_EQ(cluster[0].clock_ns(), expected_ns) << queue;
    }
}

TEST(NicQueue, processes_of_a_node_share_it_and_those_of_another_do_not) {
    Cluster cluster = with_fast_cpu(4);
    for (uint32_t process = 0; process < 4; ++process) cluster.open(process / 2, slots(64));
    EXPECT_EQ(cluster[0].send(cluster[0].meet(2), 16, Admission::kCredited, data), Status::kOk);
    const uint64_t alone_ns = cluster[0].clock_ns();
    EXPECT_EQ(cluster[3].send(cluster[3].meet(1), 16, Admission::kCredited, data), Status::kOk);
    EXPECT_EQ(cluster[3].clock_ns(), alone_ns);
    // 16 packets of the first process are before it, of which four may wait while it writes its first one.
    EXPECT_EQ(cluster[1].send(cluster[1].meet(3), 1, Admission::kCredited, data), Status::kOk);
    EXPECT_GE(cluster[1].clock_ns(), (16 - 4) * 50u);
}

TEST(Network, ways_that_share_nothing_do_not_delay_each_other) {
    Cluster cluster = make(Topology({3, 3, 1}, false));
    for (uint32_t node = 0; node < 9; ++node) cluster.open(node, slots(64));
    const uint64_t alone = arrival_of(cluster, 0, 1, 37);
    EXPECT_EQ(arrival_of(cluster, 3, 4, 37), alone);
    EXPECT_EQ(arrival_of(cluster, 2, 5, 37), alone);
    EXPECT_EQ(arrival_of(cluster, 8, 7, 37), alone);
}

TEST(Server, is_never_given_more_than_it_can_do) {
    Server server;
    std::vector<uint64_t> starts;
    for (int i = 0; i < 1000; ++i) starts.push_back(server.reserve(0, i % 2 == 0 ? 5000 : 0, 10));
    std::sort(starts.begin(), starts.end());
    for (size_t i = 0; i + 32 < starts.size(); ++i) {
        // Any 33 packets span more than one slice of 16.
        EXPECT_GE(starts[i + 32] - starts[i], 160u) << i;
    }
    EXPECT_GE(starts.back(), 9990u - 5000u);
}

TEST(BackPressure, a_full_mailbox_holds_every_process_of_the_node_until_there_is_room) {
    Cluster cluster = make(Topology({3, 1, 1}, false));
    ClusterDevice& sender = cluster.open(0, slots(4));
    ClusterDevice& bystander = cluster.open(0, slots(4));
    ClusterDevice& full = cluster.open(1, slots(4));
    ClusterDevice& idle = cluster.open(2, slots(4));
    const DeviceAddr to_full = sender.meet(full.process());
    const DeviceAddr to_idle = bystander.meet(idle.process());
    ASSERT_EQ(sender.send(to_full, 4, Admission::kGuarded, data), Status::kOk);
    ASSERT_EQ(bystander.send(to_idle, 1, Admission::kGuarded, data), Status::kOk);
    EXPECT_EQ(sender.send(to_full, 1, Admission::kGuarded, data), Status::kAgain);
    EXPECT_EQ(bystander.send(to_idle, 1, Admission::kGuarded, data), Status::kAgain);
    EXPECT_EQ(sender.counters().backpressure, 1u);
    EXPECT_EQ(bystander.counters().backpressure, 1u);
    full.advance_clock(1'000'000);
    DeviceAddr source = kNoAddr;
    ASSERT_NE(full.peek(source), nullptr);
    full.advance();
    EXPECT_EQ(bystander.send(to_idle, 1, Admission::kGuarded, data), Status::kOk);
    EXPECT_EQ(sender.send(to_full, 1, Admission::kGuarded, data), Status::kOk);
    EXPECT_EQ(full.mailbox_fill_max(), 4u);
}

TEST(Overflow, a_credited_packet_that_meets_a_full_mailbox_ends_the_run) {
    Cluster cluster = make(Topology({2, 1, 1}, false));
    ClusterDevice& sender = cluster.open(0, slots(4));
    ClusterDevice& receiver = cluster.open(1, slots(4));
    const DeviceAddr to = sender.meet(receiver.process());
    ASSERT_EQ(sender.send(to, 4, Admission::kCredited, data), Status::kOk);
    EXPECT_THROW((void)sender.send(to, 1, Admission::kCredited, data), SimulationError);
    EXPECT_EQ(receiver.counters().mailbox_overflows, 1u);
}

TEST(Faults, what_is_late_is_never_overtaken_by_what_was_sent_after_it) {
    Cluster cluster({.topology = Topology({2, 1, 1}, false),
                     .network = kNetwork,
                     .cpu = kCpu,
                     .faults = {.delay_permille = 500, .delay_ns_max = 50'000, .until_ns = UINT64_MAX}});
    for (uint32_t node : {0u, 1u}) cluster.open(node, slots(2000));
    ClusterDevice& sender = cluster[0];
    const DeviceAddr to = sender.meet(1);
    for (uint32_t i = 0; i < 1000; ++i) {
        const auto numbered = [i](uint32_t, std::byte* payload) {
            std::memcpy(payload, &i, sizeof i);
            return PacketStatus{.end_of_message = true, .length = sizeof i};
        };
        ASSERT_EQ(sender.send(to, 1, Admission::kCredited, numbered), Status::kOk);
    }
    cluster[1].advance_clock(1'000'000'000);
    DeviceAddr source = kNoAddr;
    for (uint32_t i = 0; i < 1000; ++i) {
        const Packet* packet = cluster[1].peek(source);
        ASSERT_NE(packet, nullptr);
        uint32_t number = 0;
        std::memcpy(&number, packet->payload, sizeof number);
        ASSERT_EQ(number, i);
        cluster[1].advance();
    }
}

}  // namespace
}  // namespace velo::cluster
