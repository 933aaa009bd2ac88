// The network with back-pressure: ways, buffers, credits, saturation, deadlocks.
#include "sim_device/switched/switched_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "velo/os/shared_segment.h"

namespace velo::switched {
namespace {

SwitchedConfig config(const char* topology, Routing routing) {
    SwitchedConfig made;
    made.topology = SwitchedTopology::parse(topology);
    made.routing = routing;
    return made;
}

NodePacket packet(uint32_t source, uint32_t target, uint32_t flits = 16, uint32_t tag = 0) {
    return {.source = static_cast<uint16_t>(source),
            .target = static_cast<uint16_t>(target),
            .flits = static_cast<uint8_t>(flits),
            .tag = tag};
}

/// Each node sends to node + `shift`, as fast as its NIC takes packets, for `slots`; then all must arrive.
class Shifted {
  public:
    Shifted(const SwitchedConfig& config, uint32_t shift)
        : network_(config), shift_(shift), sent_(network_.nodes()) {}

    void run(uint32_t slots) {
        for (uint32_t slot = 0; slot < slots; ++slot) {
            for (uint32_t node = 0; node < network_.nodes(); ++node) {
                if (!network_.can_send(node)) continue;
                const uint32_t flits = node % 3 == 0 && sent_[node].size() % 4 == 0 ? 1 : 16;
                network_.send(
                    packet(node, target_of(node), flits, static_cast<uint32_t>(sent_[node].size())));
                sent_[node].push_back(0);
            }
            step();
        }
    }
    void drain() {
        while (network_.packets() != 0) step();
    }
    void step() {
        network_.step();
        for (const NodePacket& got : network_.taken()) {
            ASSERT_EQ(got.target, target_of(got.source));
            ASSERT_LT(got.tag, sent_[got.source].size());
            ++sent_[got.source][got.tag];
            ++taken_;
            flits_ += got.flits;
        }
    }
    void expect_each_once() const {
        for (const auto& of_node : sent_)
            for (const uint8_t times : of_node) ASSERT_EQ(times, 1);
    }
    [[nodiscard]] uint32_t target_of(uint32_t node) const { return (node + shift_) % network_.nodes(); }
    [[nodiscard]] SwitchedNetwork& network() { return network_; }
    [[nodiscard]] uint64_t taken() const { return taken_; }
    [[nodiscard]] uint64_t flits() const { return flits_; }

  private:
    SwitchedNetwork network_;
    uint32_t shift_;
    std::vector<std::vector<uint8_t>> sent_;  ///< times that it was taken, by node and packet
    uint64_t taken_ = 0;
    uint64_t flits_ = 0;
};

struct Case {
    const char* topology;
    Routing routing;
};
class EachNetwork : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    All, EachNetwork,
    testing::Values(Case{"dragonfly:2,4,2", Routing::kMinimal}, Case{"dragonfly:2,4,2", Routing::kUgal},
                    Case{"dragonfly:2,4,2", Routing::kPar}, Case{"dragonfly:3,2,1", Routing::kPar},
                    Case{"dragonfly:1,1,1", Routing::kPar}, Case{"fattree:2,4", Routing::kMinimal},
                    Case{"fattree:4,3", Routing::kUgal}, Case{"fattree:3,1", Routing::kPar}));

TEST(SwitchedTopology, sizes_are_those_of_the_papers) {
    const SwitchedTopology dragonfly = SwitchedTopology::parse("dragonfly:6,12,6");
    EXPECT_EQ(dragonfly.nodes(), 5256u);
    EXPECT_EQ(dragonfly.routers(), 876u);
    EXPECT_EQ(dragonfly.groups(), 73u);
    EXPECT_EQ(dragonfly.ports(), 23u);
    const SwitchedTopology tree = SwitchedTopology::parse("fattree:4,3");
    EXPECT_EQ(tree.nodes(), 64u);
    EXPECT_EQ(tree.routers(), 48u);
}

TEST(SwitchedTopology, consecutive_links_join_each_pair_of_groups_once) {
    const SwitchedTopology topology = SwitchedTopology::parse("dragonfly:2,4,2");
    std::vector<std::vector<uint32_t>> links(topology.groups(), std::vector<uint32_t>(topology.groups()));
    for (uint32_t router = 0; router < topology.routers(); ++router) {
        for (uint32_t port = 0; port < topology.ports(); ++port) {
            const Link& link = topology.link(router, port);
            if (link.kind == LinkKind::kTerminal) continue;
            const Link& back = topology.link(link.peer, link.port);
            EXPECT_EQ(back.peer, router);
            EXPECT_EQ(back.port, port);
            if (link.kind == LinkKind::kGlobal)
                ++links[topology.group_of(router)][topology.group_of(link.peer)];
        }
    }
    for (uint32_t group = 0; group < topology.groups(); ++group)
        for (uint32_t other = 0; other < topology.groups(); ++other)
            EXPECT_EQ(links[group][other], group == other ? 0u : 1u);
    // Link 0 of group 3 is of its first router and leads to group 4.
    EXPECT_EQ(topology.group_of(topology.link(12, 5).peer), 4u);
}

TEST(SwitchedTopology, what_is_not_understood_is_named_with_its_remedy) {
    const auto message = [](const char* text) -> std::string {
        try {
            (void)SwitchedTopology::parse(text);
        } catch (const base::SetupError& error) {
            return error.what();
        }
        return "";
    };
    for (const char* text : {"", "dragonfly", "dragonfly:1,2", "dragonfly:1,2,3,4", "dragonfly:1,2,x",
                             "mesh:4x4", "fattree:4", "fattree:4,3,2", "dragonfly:-1,2,3"}) {
        EXPECT_NE(message(text).find(std::string("'") + text + "' is not understood; give dragonfly:p,a,h"),
                  std::string::npos)
            << text << ": " << message(text);
    }
    EXPECT_NE(message("dragonfly:0,4,2").find("has 0; each number is from 1"), std::string::npos);
    EXPECT_NE(message("dragonfly:30,30,30").find("89 ports (p + a - 1 + h); give at most 64"),
              std::string::npos);
    EXPECT_NE(message("dragonfly:16,32,16").find("262656 nodes"), std::string::npos);
    EXPECT_NE(message("fattree:33,2").find("66 ports (2 k); give at most 64"), std::string::npos);
    EXPECT_NE(message("fattree:4,9").find("more than 65536 nodes"), std::string::npos);
    EXPECT_NE(message("fattree:1,20").find("16 levels"), std::string::npos);
}

TEST(SwitchedNetwork, parameters_that_contradict_each_other_are_refused) {
    SwitchedConfig bad = config("dragonfly:2,4,2", Routing::kPar);
    bad.buffer_flits = 15;
    EXPECT_THROW(SwitchedNetwork{bad}, base::SetupError);
    bad.buffer_flits = 256;
    bad.vcs_per_class = 5;
    EXPECT_THROW(SwitchedNetwork{bad}, base::SetupError);
    bad.vcs_per_class = 1;
    bad.speedup_permille = 999;
    EXPECT_THROW(SwitchedNetwork{bad}, base::SetupError);
}

TEST_P(EachNetwork, every_pair_of_nodes_is_joined) {
    SwitchedNetwork network(config(GetParam().topology, GetParam().routing));
    uint64_t taken = 0;
    for (uint32_t shift = 0; shift < network.nodes(); ++shift) {
        for (uint32_t node = 0; node < network.nodes(); ++node)
            network.send(packet(node, (node + shift) % network.nodes(), 16, shift));
        while (network.packets() != 0) {
            network.step();
            for (const NodePacket& got : network.taken()) {
                ASSERT_EQ(got.target, (got.source + shift) % network.nodes());
                ASSERT_EQ(got.tag, shift);
                ++taken;
            }
        }
    }
    EXPECT_EQ(taken, uint64_t{network.nodes()} * network.nodes());
    EXPECT_EQ(network.audit(), "");
}

TEST_P(EachNetwork, each_packet_arrives_once_and_no_buffer_or_credit_is_exceeded) {
    SwitchedConfig made = config(GetParam().topology, GetParam().routing);
    made.buffer_flits = 32;
    made.ejection_flits = 32;
    Shifted run(made, made.topology.nodes() / 2 + 1);
    for (uint32_t node = 0; node < run.network().nodes(); node += 5) run.network().set_sink_interval(node, 4);
    for (uint32_t i = 0; i < 20; ++i) {
        run.run(20);
        ASSERT_EQ(run.network().audit(), "");
    }
    EXPECT_LE(run.network().buffer_fill_max(), 32u);
    run.drain();
    run.expect_each_once();
    EXPECT_EQ(run.network().audit(), "");
    EXPECT_GT(run.taken(), 300u);
}

TEST_P(EachNetwork, one_seed_gives_one_trace) {
    const auto hash = [&](uint64_t seed) {
        SwitchedConfig made = config(GetParam().topology, GetParam().routing);
        made.seed = seed;
        made.fecn_percent = 100;
        Shifted run(made, made.topology.nodes() / 2 + 1);
        run.network().set_sink_interval(0, 8);
        run.run(300);
        return run.network().trace_hash();
    };
    EXPECT_EQ(hash(1), hash(1));
    if (GetParam().routing == Routing::kPar && std::string(GetParam().topology) == "dragonfly:2,4,2") {
        EXPECT_NE(hash(1), hash(2));
    }
}

/// Slots of a packet that meets no other: a slot for each link, a further one for a global link of 10 cycles.
TEST(SwitchedNetwork, a_lone_packet_takes_the_time_of_its_links) {
    SwitchedNetwork network(config("dragonfly:2,4,2", Routing::kPar));
    const auto slots = [&](uint32_t from, uint32_t to) {
        network.send(packet(from, to));
        for (;;) {
            network.step();
            if (!network.taken().empty()) return network.taken().front().slots;
        }
    };
    EXPECT_EQ(slots(0, 1), 3u);   // injected in slot 1, crosses in 2, arrives in 3
    EXPECT_EQ(slots(0, 2), 4u);   // a local link
    EXPECT_EQ(slots(0, 14), 5u);  // a global one: link 0 of group 0 leads to router 7, the back of link 7
    EXPECT_EQ(slots(0, 8), 6u);   // and a local one behind it
}

TEST(SwitchedNetwork, a_slow_node_takes_its_share_and_no_more) {
    SwitchedConfig made = config("dragonfly:2,4,2", Routing::kMinimal);
    SwitchedNetwork network(made);
    network.set_sink_interval(1, 8);
    uint64_t taken = 0;
    for (uint32_t slot = 0; slot < 808; ++slot) {
        if (network.can_send(0)) network.send(packet(0, 1));
        network.step();
        taken += network.taken().size();
    }
    EXPECT_GE(taken, 100u);
    EXPECT_LE(taken, 101u);
}

TEST(SwitchedNetwork, short_packets_take_their_share_of_a_link) {
    SwitchedConfig made = config("dragonfly:2,4,2", Routing::kMinimal);
    made.nic_queue_packets = 64;
    SwitchedNetwork network(made);
    uint64_t taken = 0;
    for (uint32_t slot = 0; slot < 100; ++slot) {
        while (network.can_send(0)) network.send(packet(0, 2, 4));
        network.step();
        taken += network.taken().size();
    }
    // The crossbar takes a packet of an input a pass: 2.4 a slot, and the link would take 4.
    EXPECT_NEAR(static_cast<double>(taken), 240, 12);
}

/// The tree that a slow node makes: its router's buffers fill, then those that lead to it, then NICs wait.
TEST(SwitchedNetwork, a_slow_node_holds_up_packets_to_others) {
    const auto flits_to_fast_node = [](uint32_t interval) {
        SwitchedConfig made = config("dragonfly:2,4,2", Routing::kMinimal);
        SwitchedNetwork network(made);
        network.set_sink_interval(0, interval);
        uint64_t fast = 0;
        uint32_t upstream = 0;
        for (uint32_t slot = 0; slot < 4000; ++slot) {
            // Nodes of other groups alternate between the slow node 0 and its neighbour.
            for (uint32_t node = 8; node < 24; ++node)
                if (network.can_send(node)) network.send(packet(node, (node + slot) % 16 == 0 ? 1 : 0));
            network.step();
            for (const NodePacket& got : network.taken()) fast += got.target == 1;
            if (slot == 3999) {
                for (uint32_t router = 4; router < 12; ++router) upstream += network.buffered_flits(router);
                EXPECT_EQ(network.audit(), "");
            }
        }
        return std::pair{fast, upstream};
    };
    const auto [alone, fill_alone] = flits_to_fast_node(1);
    const auto [beside, fill_beside] = flits_to_fast_node(64);
    EXPECT_GT(alone, 100u);
    EXPECT_LT(beside, alone / 5);
    EXPECT_GT(fill_beside, 2000u);
    EXPECT_GE(fill_beside, fill_alone);
}

TEST(SwitchedNetwork, a_nic_that_meets_back_pressure_refuses_packets) {
    SwitchedConfig made = config("dragonfly:2,4,2", Routing::kMinimal);
    SwitchedNetwork network(made);
    network.set_sink_interval(1, 1000);
    uint32_t sent = 0;
    for (uint32_t slot = 0; slot < 900; ++slot) {
        if (network.can_send(0)) {
            network.send(packet(0, 1));
            ++sent;
        }
        network.step();
    }
    // One was taken; 16 wait in the ejection buffer, 4 x 16 in the router's VCs, 4 in the NIC.
    EXPECT_EQ(sent, 1u + 16 + 4 * 16 + 4);
    EXPECT_FALSE(network.can_send(0));
    EXPECT_EQ(network.audit(), "");
}

uint64_t detours(Routing routing, uint32_t bias_percent) {
    SwitchedConfig made = config("dragonfly:2,4,2", routing);
    made.minimal_bias_percent = bias_percent;
    made.threshold_flits = 0;
    Shifted run(made, 8);  // all nodes of a group to the next one: its one link is far too little
    run.run(500);
    return run.network().detours();
}

TEST(SwitchedNetwork, minimal_takes_no_detours_and_par_more_than_ugal) {
    EXPECT_EQ(detours(Routing::kMinimal, 100), 0u);
    EXPECT_GT(detours(Routing::kUgal, 100), 1000u);
    EXPECT_GT(detours(Routing::kPar, 100), detours(Routing::kUgal, 100));
    EXPECT_LT(detours(Routing::kPar, 200), detours(Routing::kPar, 100));
}

TEST(SwitchedNetwork, detours_carry_what_one_link_cannot) {
    const auto flits = [](Routing routing) {
        Shifted run(config("dragonfly:2,4,2", routing), 8);
        run.run(1000);
        return run.flits();
    };
    EXPECT_GT(flits(Routing::kPar), 2 * flits(Routing::kMinimal));
}

TEST(SwitchedNetwork, fecn_marks_where_buffers_are_more_than_half_full) {
    const auto marks = [](uint32_t percent, uint32_t interval) {
        SwitchedConfig made = config("dragonfly:2,4,2", Routing::kPar);
        made.fecn_percent = percent;
        SwitchedNetwork network(made);
        network.set_sink_interval(1, interval);
        uint64_t seen = 0;
        for (uint32_t slot = 0; slot < 2000; ++slot) {
            if (network.can_send(0)) network.send(packet(0, 1));
            network.step();
            for (const NodePacket& got : network.taken()) seen += got.fecn;
        }
        EXPECT_LE(seen, network.marks());
        return network.marks();
    };
    EXPECT_EQ(marks(0, 8), 0u);
    EXPECT_EQ(marks(100, 1), 0u);
    // One credit comes back at a time: each packet finds 15 of 16 in use, and is marked with 7/8.
    EXPECT_NEAR(static_cast<double>(marks(100, 8)), 240 * 7 / 8.0, 25);
    EXPECT_GT(marks(200, 8), marks(100, 8));
}

TEST(SwitchedNetwork, without_classes_packets_wait_in_a_circle_and_the_report_says_so) {
    SwitchedConfig made = config("dragonfly:2,4,2", Routing::kPar);
    made.minimal_bias_percent = 0;  // a detour whenever a packet waits
    made.threshold_flits = 0;
    made.buffer_flits = 16;
    made.ejection_flits = 16;
    made.deadlock_slots = 500;
    const auto run = [&](bool classes) -> std::string {
        made.vc_classes = classes;
        Shifted shifted(made, 8);
        try {
            shifted.run(4000);
            shifted.drain();
        } catch (const Deadlock& deadlock) {
            EXPECT_EQ(shifted.network().audit(), "");
            return deadlock.what();
        }
        shifted.expect_each_once();
        return "";
    };
    EXPECT_EQ(run(true), "");
    const std::string report = run(false);
    EXPECT_NE(report.find("nothing has moved for 500 slots"), std::string::npos) << report;
    EXPECT_NE(report.find("waits for port"), std::string::npos) << report;
    EXPECT_NE(report.find("in a circle"), std::string::npos) << report;
}

TEST(SwitchedNetwork, an_idle_network_is_no_deadlock) {
    SwitchedConfig made = config("fattree:2,3", Routing::kUgal);
    made.deadlock_slots = 10;
    SwitchedNetwork network(made);
    for (uint32_t slot = 0; slot < 100; ++slot) network.step();
    network.send(packet(0, 7));
    for (uint32_t slot = 0; slot < 100; ++slot) network.step();
    EXPECT_EQ(network.packets(), 0u);
}

}  // namespace
}  // namespace velo::switched
