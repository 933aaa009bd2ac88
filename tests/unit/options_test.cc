/// Bad parameters end in a sentence that names the parameter, the value and the remedy.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/unit/option_errors.h"

namespace velo {
namespace {

TEST(Options, defaults_are_accepted) {
    EXPECT_EQ(error_of(defaults()), "");
}

uint32_t ring_bytes(base::Locality locality, uint32_t local_size, int parameter = 0) {
    velo_params_t params = defaults();
    params.ring_bytes = parameter;
    return make_options(params, rank_of(0, local_size), {}, locality).on_node.geometry.body_bytes;
}

TEST(Options, rings_are_as_deep_as_the_caches_let_them_be) {
    constexpr uint32_t kKi = 1024;
    constexpr uint32_t kMi = kKi * kKi;
    const auto caches = [](uint64_t l2, uint64_t l3, uint32_t cpus) {
        base::Locality locality;
        locality.l2_bytes = l2;
        locality.l3_bytes = l3;
        locality.l3_cpus = cpus;
        return locality;
    };
    EXPECT_EQ(ring_bytes({}, 2), 2 * kMi);
    EXPECT_EQ(ring_bytes(caches(8 * kMi, 0, 0), 2), 2 * kMi) << "without an L3, what is known says nothing";
    EXPECT_EQ(ring_bytes(caches(kMi, 32 * kMi, 2), 2), 2 * kMi);
    EXPECT_EQ(ring_bytes(caches(256 * kKi, 32 * kMi, 2), 2), 512 * kKi) << "twice the L2";
    EXPECT_EQ(ring_bytes(caches(1280 * kKi, 48 * kMi, 64), 2), 2 * kMi) << "a power of two";
    EXPECT_EQ(ring_bytes(caches(4 * kMi, 8 * kMi, 8), 2), 4 * kMi) << "two processes share the L3";
    EXPECT_EQ(ring_bytes(caches(4 * kMi, 8 * kMi, 1), 2), 8 * kMi) << "each has one of its own";
    EXPECT_EQ(ring_bytes(caches(64 * kMi, 4096ull * kMi, 2), 2), 16 * kMi) << "the largest that there is";
    EXPECT_EQ(ring_bytes(caches(kMi, 32 * kMi, 2), 3), 2 * kMi) << "two peers, four times the L2 in all";
    EXPECT_EQ(ring_bytes(caches(kMi, 32 * kMi, 2), 5), kMi) << "four peers";
    EXPECT_EQ(ring_bytes(caches(kMi, 32 * kMi, 32), 32), 128 * kKi) << "never less";
    EXPECT_EQ(ring_bytes(caches(1, 1, 1), 2), 128 * kKi);
    EXPECT_EQ(ring_bytes(caches(kMi, 32 * kMi, 2), 2, 262144), 256 * kKi)
        << "the parameter has the last word";
}

TEST(Options, a_mailbox_of_more_slots_than_can_be_counted_is_refused) {
    velo_params_t params = defaults();
    params.ranks_per_node = 2;
    params.flow_control = "none";
    params.slots = 65535;
    expect_names(error_of(params, 70000), {"btl_velo_slots=65535", "69998 senders", "btl_velo_mailbox_bytes"});
    params.slots = 58;
    EXPECT_EQ(error_of(params, 70000), "");
}

TEST(Options, rings_are_placed_where_there_is_a_choice_and_the_user_made_none) {
    base::Locality locality;
    const auto placed = [&] {
        return make_options(defaults(), rank_of(0, 2), {}, locality).on_node.place_rings;
    };
    EXPECT_FALSE(placed()) << "nothing is known";
    locality.numa_nodes = 1;
    EXPECT_FALSE(placed());
    locality.numa_nodes = 2;
    EXPECT_TRUE(placed());
    locality.user_policy = true;
    EXPECT_FALSE(placed());
}

TEST(Options, ranks_share_CPUs_where_there_are_more_of_them) {
    base::Locality locality;
    const auto shares = [&](uint32_t ranks) {
        return make_options(defaults(), rank_of(0, ranks), {}, locality).shares_cpus;
    };
    EXPECT_FALSE(shares(64)) << "the number of CPUs is not known";
    locality.cpus = 4;
    EXPECT_FALSE(shares(4));
    EXPECT_TRUE(shares(5));
}

TEST(Options, locality_is_found_as_the_parameter_says) {
    std::string why;
    velo_params_t params = defaults();
    using Source = base::Locality::Source;
    EXPECT_EQ(find_locality(params, nullptr, why).source, Source::kKernel);
    const base::TopologyPtr topology = base::load_topology(why);
    EXPECT_EQ(find_locality(params, topology.get(), why).source, Source::kHwloc);
    params.locality = "hwloc";
    EXPECT_EQ(find_locality(params, nullptr, why).source, Source::kHwloc);
    EXPECT_EQ(why, "");
    params.locality = "none";
    EXPECT_EQ(find_locality(params, topology.get(), why).source, Source::kNone);
    EXPECT_EQ(find_locality(params, topology.get(), why).numa_nodes, 0u);
    for (const char* word : {"numa", static_cast<const char*>(nullptr)}) {
        params.locality = word;
        EXPECT_THROW((void)find_locality(params, nullptr, why), base::SetupError);
    }
}

TEST(Options, where_hwloc_fails_the_kernel_is_asked_and_the_reason_told) {
    setenv("HWLOC_XMLFILE", "/nonexistent", 1);
    setenv("HWLOC_COMPONENTS", "xml,stop", 1);
    std::string why;
    velo_params_t params = defaults();
    params.locality = "hwloc";
    const base::Locality found = find_locality(params, nullptr, why);
    unsetenv("HWLOC_XMLFILE");
    unsetenv("HWLOC_COMPONENTS");
    EXPECT_EQ(found.source, base::Locality::Source::kKernel);
    EXPECT_NE(why.find("hwloc_topology_"), std::string::npos) << why;
}

TEST(Options, a_text_that_is_set_to_nothing_is_an_empty_text) {
    for (const char* velo_params_t::*text :
         {&velo_params_t::flow_control, &velo_params_t::single_copy}) {
        velo_params_t params = defaults();
        params.ranks_per_node = 1;
        params.*text = nullptr;
        expect_names(error_of(params), {"btl_velo_", "= is not"});
    }
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.faults = nullptr;
    EXPECT_EQ(error_of(params), "");
}

TEST(Options, messages_that_are_too_long_for_the_device_are_refused) {
    velo_params_t params = defaults();
    params.device_message_bytes_max = 1u << 30;
    EXPECT_EQ(error_of(params), "") << "there is no device";
    params.ranks_per_node = 1;
    expect_names(error_of(params), {"1073741824", "16777216", "btl_velo_max_send_size"});
}

TEST(Options, unknown_words_are_refused_with_the_known_ones) {
    // A device is used, or none.
    for (const int ranks_per_node : {1, 0}) {
        const auto refused = [&](auto parameter, const char* word, std::initializer_list<const char*> names) {
            velo_params_t params = defaults();
            params.ranks_per_node = ranks_per_node;
            params.*parameter = word;
            expect_names(error_of(params), names);
        };
        using P = velo_params_t;
        refused(&P::flow_control, "statik", {"btl_velo_flow_control", "statik", "none", "static"});
        refused(&P::single_copy, "xpmem", {"btl_velo_single_copy", "xpmem", "cma", "none"});
        refused(&P::block_way, "kernel", {"btl_velo_block_way", "kernel", "measured", "ring", "nontemporal", "direct"});
    }
}

TEST(Options, the_window_holds_a_chunk_at_least_and_eight_if_nothing_is_said) {
    velo_params_t params = defaults();
    params.chunk = 65536;
    const auto expect_window = [&](int given, uint64_t bytes, uint32_t chunks) {
        params.window_bytes = given;
        const EngineOptions options = make_options(params, {}, {}, {});
        EXPECT_EQ(options.window.bytes, bytes);
        EXPECT_EQ(options.window.chunks, chunks) << given;
    };
    expect_window(0, 8u * 65536, 8);
    expect_window(65536, 65536, 8);
    expect_window(20 * 65536, 20u * 65536, 20);
    expect_window(1 << 30, 1u << 30, 256);
    params.window_bytes = 65535;
    expect_names(error_of(params), {"btl_velo_window_bytes=65535", "btl_velo_chunk=65536"});
}

TEST(Options, the_window_is_what_an_emulated_network_holds_unless_something_else_is_said) {
    const auto expect_window = [](int64_t buffer, uint32_t chunk_bytes, uint64_t window_bytes, auto&& change) {
        velo_params_t params = defaults();
        const std::string emulate = "link=40,buffer=" + std::to_string(buffer);
        params.emulate = emulate.c_str();
        change(params);
        const EngineOptions options = make_options(params, {}, {}, {});
        EXPECT_EQ(options.window.chunk_bytes, chunk_bytes) << buffer;
        EXPECT_EQ(options.window.bytes, window_bytes) << buffer;
        EXPECT_EQ(options.rails.policy.fragment_bytes_min, chunk_bytes) << buffer;
    };
    const auto nothing = [](velo_params_t&) {};
    expect_window(262144, 32768, 262144, nothing);
    expect_window(1024, 4096, 4096, nothing);
    expect_window(16384, 4096, 16384, nothing);
    expect_window(1 << 30, 262144, 8 * 262144, nothing);
    expect_window(262144, 262144, 8 * 262144, [](velo_params_t& params) { params.emulate = ""; });
    expect_window(262144, 262144, 1 << 20, [](velo_params_t& params) { params.window_bytes = 1 << 20; });
    expect_window(262144, 8192, 8 * 8192, [](velo_params_t& params) { params.chunk = 8192; });
}

TEST(Options, a_mailbox_too_small_for_the_job_is_refused_with_the_smallest_that_would_do) {
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.flow_control = "static";
    params.mailbox_bytes = 27 * 64;
    // Seven senders, two credit slots and as many data slots each (FC equation 2).
    expect_names(error_of(params), {"27 slots", "btl_velo_mailbox_bytes=1792", "btl_velo_slots=4"});
    params.mailbox_bytes = 28 * 64;
    EXPECT_EQ(error_of(params), "");
    params.mailbox_bytes = 0;
    params.slots = 3;
    expect_names(error_of(params), {"21 slots", "btl_velo_mailbox_bytes=1792", "btl_velo_slots=4"});
    params.slots = 4;
    EXPECT_EQ(error_of(params), "");
    for (const int bytes : {1, 63}) {
        params.mailbox_bytes = bytes;
        expect_names(error_of(params), {("btl_velo_mailbox_bytes=" + std::to_string(bytes)).c_str(), "64 bytes"});
    }
}

TEST(Options, under_dynamic_a_mailbox_may_be_too_small_for_all_senders_at_a_time) {
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.flow_control = "dynamic";
    params.mailbox_bytes = 5 * 64;
    EXPECT_EQ(error_of(params), "");
    // One contact slot, and four of one peer.
    params.mailbox_bytes = 4 * 64;
    expect_names(error_of(params),
                 {"4 slots", "1 contact slots", "btl_velo_slots=1", "btl_velo_mailbox_bytes=320"});
    params.mailbox_bytes = 27 * 64;
    EXPECT_EQ(error_of(params), "");
    Tuning paper;
    paper.flow.stealing = flowctl::Stealing::kPaper;
    expect_names(error_of(params, 8, 0, paper), {"27", "28", "btl_velo_mailbox_bytes=1792"});
}

uint32_t slots_of(const velo_params_t& params, uint32_t ranks, bool network = false, const Tuning& tuning = {}) {
    velo_params_t at_nodes = params;
    at_nodes.ranks_per_node = 1;
    if (network) at_nodes.device = "ofi";
    const EngineOptions options = make_options(at_nodes, rank_of(0, ranks), {}, {}, tuning);
    EXPECT_EQ(options.device.mailbox_slots, options.plan.mailbox_slots);
    return options.plan.mailbox_slots;
}

TEST(Options, slots_are_those_of_each_sender_in_every_mode_at_every_value) {
    velo_params_t params = defaults();
    for (const char* mode : {"none", "hardware", "static", "growing", "dynamic"}) {
        params.flow_control = mode;
        for (const auto& [stealing, name] : flowctl::kStealingNames) {
            Tuning tuning;
            tuning.flow.stealing = stealing;
            for (const int slots : {5, 8, 16, 57, 58, 59, 64, 4096, 65535}) {
                params.slots = slots;
                for (const uint32_t ranks : {2u, 4u, 200u}) {
                    for (const bool network : {false, true}) {
                        EXPECT_EQ(slots_of(params, ranks, network, tuning), (ranks - 1) * static_cast<uint32_t>(slots))
                            << mode << ", " << name;
                    }
                }
            }
        }
    }
}

TEST(Options, without_a_size_a_mailbox_is_what_its_mode_does_well_with) {
    velo_params_t params = defaults();
    EXPECT_EQ(slots_of(params, 2), 4096u) << "256 KiB";
    EXPECT_EQ(slots_of(params, 71), 4096u);
    EXPECT_EQ(slots_of(params, 72), 71u * 58);
    EXPECT_EQ(slots_of(params, 1000), 999u * 58);
    EXPECT_EQ(slots_of(params, 20'000), 65536u) << "4 MiB";
    EXPECT_EQ(slots_of(params, 2, true), 16384u) << "1 MiB";
    const Tuning all_own{.contact_slots_max = 0};
    EXPECT_EQ(slots_of(params, 2, false, all_own), 58u);
    EXPECT_EQ(slots_of(params, 20'000, false, all_own), 19'999u * 58);
    for (const char* mode : {"static", "growing", "hardware"}) {
        params.flow_control = mode;
        EXPECT_EQ(slots_of(params, 2), 58u);
        EXPECT_EQ(slots_of(params, 20'000), 19'999u * 58);
    }
    params.flow_control = "none";
    EXPECT_EQ(slots_of(params, 2), 4096u);
    EXPECT_EQ(slots_of(params, 1000), 999u * 58);
}

TEST(Options, bytes_bound_a_mailbox_and_do_not_enlarge_it) {
    velo_params_t params = defaults();
    params.mailbox_bytes = 100 * 64 + 63;
    for (const char* mode : {"none", "hardware", "static", "growing", "dynamic"}) {
        params.flow_control = mode;
        EXPECT_EQ(slots_of(params, 8), 100u) << mode;
    }
    params.mailbox_bytes = 8 << 20;
    EXPECT_EQ(slots_of(params, 2), 4096u);
    EXPECT_EQ(slots_of(params, 1000), 999u * 58);
    EXPECT_EQ(slots_of(params, 20'000), 131072u);
}

TEST(Options, slots_that_do_not_fit_the_bytes_contradict_them) {
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.slots = 20;
    params.mailbox_bytes = 140 * 64 - 1;
    expect_names(error_of(params), {"btl_velo_slots=20", "8960 bytes", "7 senders", "btl_velo_mailbox_bytes=8959"});
    params.mailbox_bytes = 140 * 64;
    EXPECT_EQ(error_of(params), "");
    EXPECT_EQ(slots_of(params, 8), 140u);
    params.mailbox_bytes = 1 << 30;
    EXPECT_EQ(slots_of(params, 8), 140u);
}

TEST(Options, rings_are_powers_of_two_and_hold_the_longest_message_twice) {
    velo_params_t params = defaults();
    params.ring_bytes = 100'000;
    expect_names(error_of(params), {"btl_velo_ring_bytes=100000", "65536", "131072"});
    params.ring_bytes = 8192;
    expect_names(error_of(params), {"btl_velo_ring_bytes=8192", "16384 to 16777216"});
    params.ring_bytes = 32768;
    params.on_node_message_bytes_max = 32768;
    expect_names(error_of(params), {"btl_velo_ring_bytes", "32768"});
}

TEST(Options, rings_are_shorter_among_many) {
    const auto lines = [](uint32_t ranks) {
        return make_options(defaults(), rank_of(0, ranks), {}).on_node.geometry.lines;
    };
    EXPECT_EQ(lines(2), 256u);
    EXPECT_EQ(lines(16), 256u);
    EXPECT_EQ(lines(17), 128u);
}

TEST(Options, ranks_are_grouped_into_nodes_by_number) {
    velo_params_t params = defaults();
    params.ranks_per_node = 3;
    const EngineOptions options = make_options(params, rank_of(7, 8), {});
    EXPECT_EQ(options.device.node, 2);
    EXPECT_EQ(options.device.vpid, 1);
    EXPECT_TRUE(options.device_used);
    // The smallest node has two ranks, so its ranks have six senders elsewhere: all plan for six.
    EXPECT_EQ(options.plan.peers, 6u);
    EXPECT_EQ(make_options(params, rank_of(0, 8), {}).plan.peers, 6u);
}

TEST(Options, a_job_of_several_hosts_has_the_network_and_a_node_is_a_host) {
    const EngineOptions options = make_options(defaults(), rank_of_hosts(7, 8, 2, 3), {});
    EXPECT_TRUE(options.device_used);
    EXPECT_TRUE(options.network_used);
    EXPECT_FALSE(options.network_wanted) << "without one velo is good for the ranks of a host";
    EXPECT_EQ(options.node, 4u);
    EXPECT_EQ(options.device.vpid, 7) << "names over a network are those of ranks";
    EXPECT_EQ(options.plan.peers, 5u) << "those of the smallest host have five senders elsewhere";
    EXPECT_EQ(options.device.peers_max, 5u);
    EXPECT_EQ(make_options(defaults(), rank_of_hosts(0, 8, 2, 3), {}).plan.peers, 5u) << "at every rank";
}

EngineOptions over_a_network(int ports, const char* rule, uint32_t hosts) {
    velo_params_t params = defaults();
    params.device = "ofi";
    params.ports = ports;
    params.rails = rule;
    velo_identity_t identity = rank_of_hosts(1, 8, hosts, 2);
    identity.host = 1;
    return make_options(params, identity, {});
}

TEST(Options, a_network_has_as_many_rails_as_its_device) {
    EngineOptions options = over_a_network(4, "hybrid", 2);
    EXPECT_TRUE(options.network_used);
    EXPECT_EQ(options.rails.rails, 4u);
    EXPECT_TRUE(options.have_rails(2));
    EXPECT_EQ(options.rails.rails, 2u);
    EXPECT_EQ(options.rails.own_column, 0u);
    EXPECT_EQ(over_a_network(1, "hybrid", 2).rails.rails, 1u);
}

TEST(Options, static_rails_over_a_network_need_their_number) {
    EXPECT_EQ(over_a_network(1, "static", 2).rails.own_column, 0u) << "one rail needs no rule";
    EngineOptions options = over_a_network(4, "static", 4);
    ASSERT_TRUE(options.static_rails.has_value());
    EXPECT_EQ(options.static_rails->rails(), 4u);
    EXPECT_TRUE(options.have_rails(4));
    EXPECT_NE(options.rails.own_column, 0u);
    EXPECT_FALSE(options.have_rails(3));
    EXPECT_EQ(options.rails.own_column, 0u);
    EXPECT_EQ(options.static_column(2), 0u);
}

TEST(Options, rails_are_reserved_by_the_rule_dynamic_only) {
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.ports = 4;
    for (const char* rule : {"static,wait=7", "round_robin,wait=7", "local_dynamic,wait=7", "hybrid,wait=7"}) {
        params.rails = rule;
        EXPECT_EQ(make_options(params, rank_of(0, 2), {}).rails.reserve_ns, 0u) << rule;
    }
    params.rails = "dynamic,wait=7";
    EXPECT_EQ(make_options(params, rank_of(0, 2), {}).rails.reserve_ns, 7'000'000u);
}

TEST(Options, nodes_of_jobs_that_meet_over_a_network_are_far_apart) {
    std::vector<uint16_t> first;
    for (const uint64_t launcher : {0x1234ull, 0xffffull}) {
        for (uint64_t job = 1; job <= 16; ++job) {
            velo_identity_t identity = rank_of_hosts(0, 8, 2, 4);
            identity.host = 0;
            identity.job = launcher << 16 | job;
            const EngineOptions options = make_options(defaults(), identity, {});
            identity.rank = 256;
            identity.job_size = 512;
            const uint16_t second = make_options(defaults(), identity, {}).device.node;
            EXPECT_EQ(second, static_cast<uint16_t>(options.device.node + 1));
            EXPECT_EQ(options.device.vpid, 0);
            EXPECT_EQ(options.node, 0u);
            first.push_back(options.device.node);
        }
        std::ranges::sort(first);
        for (size_t i = 1; i < first.size(); ++i) EXPECT_GE(first[i] - first[i - 1], 2000);
        first.clear();
    }
}

TEST(Options, the_user_says_which_device) {
    velo_params_t params = defaults();
    params.device = "ofi";
    const EngineOptions asked = make_options(params, rank_of(0, 8), {});
    EXPECT_TRUE(asked.network_used && asked.network_wanted && asked.device_used);
    EXPECT_EQ(asked.plan.peers, 7u) << "any of the job may turn out to be reached through it";
    params.ranks_per_node = 2;
    EXPECT_TRUE(make_options(params, rank_of(0, 8), {}).network_used);
    EXPECT_EQ(make_options(params, rank_of(5, 8), {}).node, 2u);
    velo_identity_t spawner = rank_of(0, 8);
    spawner.more_hosts = true;
    EXPECT_TRUE(make_options(defaults(), spawner, {}).network_used) << "a job that it starts may be on another host";
    velo_params_t emulates = defaults();
    emulates.ranks_per_node = 2;
    EXPECT_FALSE(make_options(emulates, spawner, {}).network_used);
    params.device = "sim";
    EXPECT_FALSE(make_options(params, rank_of(0, 8), {}).network_used);
    EXPECT_TRUE(make_options(params, rank_of(0, 8), {}).device_used);
    const EngineOptions two_hosts = make_options(params, rank_of_hosts(0, 8, 2, 4), {});
    EXPECT_FALSE(two_hosts.network_used);
    expect_names(two_hosts.no_network, {"btl_velo_device=sim", "shares memory"});
    params.device = "infiniband";
    expect_names(error_of(params), {"btl_velo_device=infiniband", "auto", "ofi", "sim"});
}

TEST(Options, one_node_needs_no_device) {
    velo_params_t params = defaults();
    EXPECT_FALSE(make_options(params, rank_of(0, 8), {}).device_used);
    params.ranks_per_node = 8;
    EXPECT_FALSE(make_options(params, rank_of(0, 8), {}).device_used);
}

}  // namespace
}  // namespace velo
