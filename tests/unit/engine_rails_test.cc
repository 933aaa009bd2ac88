/// Several rails between engines: every policy, rails that die and come back, and a slow receiver.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>

#include "tests/unit/remote_memory.h"

namespace velo::test {
namespace {

constexpr int kChunk = 4096;

velo_params_t rails_params(int ports, const char* rule, int retry_ms = 1) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.ports = ports;
    params.rails = kept(std::string(rule) + ",short=" + std::to_string(2 * kChunk) + ",retry=" +
                        std::to_string(retry_ms));
    params.chunk = kChunk;
    return params;
}

std::vector<uint64_t> rail_bytes(const velo_counters_t& counters) {
    return {counters.rail_bytes_0, counters.rail_bytes_1, counters.rail_bytes_2, counters.rail_bytes_3,
            counters.rail_bytes_4, counters.rail_bytes_5, counters.rail_bytes_6, counters.rail_bytes_7};
}
uint64_t rail_failures(const velo_counters_t& counters) {
    return counters.rail_failed_0 + counters.rail_failed_1 + counters.rail_failed_2 + counters.rail_failed_3 +
           counters.rail_failed_4 + counters.rail_failed_5 + counters.rail_failed_6 + counters.rail_failed_7;
}

struct Rule {
    const char* name;
    int ports;
};
class EngineRails : public testing::TestWithParam<Rule> {};

TEST_P(EngineRails, move_everything_once_both_ways) {
    const auto [rule, ports] = GetParam();
    Job job(2, rails_params(ports, rule));
    ASSERT_NE(job.ranks.back()->engine, nullptr) << job.ranks.back()->error;
    constexpr size_t kBytes = 100 * kChunk + 13;
    Memory theirs(job[1], kBytes, 4);
    std::vector<std::byte> ours(kBytes);
    velo_rma_t get = transfer(VELO_RMA_GET, theirs, 0, ours.data(), kBytes);
    velo_rma(job[0].engine, job[0].peers[1], &get);
    job.drive([&] { return job[0].done.size() == 1; });
    EXPECT_EQ(ours, theirs.bytes);
    ours = pattern(kBytes, 9);
    velo_rma_t put = transfer(VELO_RMA_PUT, theirs, 0, ours.data(), kBytes);
    velo_rma(job[0].engine, job[0].peers[1], &put);
    job.drive([&] { return job[0].done.size() == 2; });
    EXPECT_EQ(ours, theirs.bytes);
    const auto bytes = rail_bytes(job[0].counters());
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}), 2 * kBytes);
    for (size_t rail = ports; rail < bytes.size(); ++rail) EXPECT_EQ(bytes[rail], 0u);
    EXPECT_EQ(job[0].counters().rma_copied_bytes, 0u);
    const std::string name = rule;
    if (name == "static") {
        for (int rail = 0; rail < ports; ++rail) EXPECT_GT(bytes[rail], 0u) << rail;
    }
    if (name == "local_dynamic" || name == "dynamic" || name == "hybrid") {
        const auto most = *std::max_element(bytes.begin(), bytes.begin() + ports);
        const auto least = *std::min_element(bytes.begin(), bytes.begin() + ports);
        EXPECT_GT(least * 2, most) << "each carries its share";
    }
}

TEST_P(EngineRails, short_transfers_take_turns_and_atomics_stay_in_order) {
    const auto [rule, ports] = GetParam();
    Job job(2, rails_params(ports, rule));
    Memory theirs(job[1], 64 * kChunk, 4);
    std::vector<std::byte> ours(64 * kChunk);
    for (size_t i = 0; i < 64; ++i) {
        velo_rma_t get = transfer(VELO_RMA_GET, theirs, i * kChunk, ours.data() + i * kChunk, kChunk);
        velo_rma(job[0].engine, job[0].peers[1], &get);
        job.drive([&] { return job[0].done.size() == i + 1; });
    }
    EXPECT_EQ(ours, theirs.bytes);
    if (std::string(rule) != "static") {
        const auto bytes = rail_bytes(job[0].counters());
        for (int rail = 0; rail < ports; ++rail) EXPECT_EQ(bytes[rail], 64u / ports * kChunk) << rail;
    }
    job[0].done.clear();
    Memory counter(job[1], 64, 1);
    std::memset(counter.bytes.data(), 0, 64);
    constexpr size_t kAtomics = 500;
    std::vector<velo_rma_t> adds(kAtomics);
    std::vector<uint64_t> before(kAtomics);
    for (size_t i = 0; i < kAtomics; ++i) {
        adds[i] = transfer(VELO_RMA_ATOMIC, counter, 0, reinterpret_cast<std::byte*>(&before[i]), 8);
        adds[i].atomic = VELO_ATOMIC_ADD;
        adds[i].width = 8;
        adds[i].operand = 1;
        velo_rma(job[0].engine, job[0].peers[1], &adds[i]);
    }
    job.drive([&] { return job[0].done.size() == kAtomics; });
    for (size_t i = 0; i < kAtomics; ++i) ASSERT_EQ(before[i], i);
}

INSTANTIATE_TEST_SUITE_P(Rules, EngineRails,
                         testing::Values(Rule{"static", 2}, Rule{"static", 4}, Rule{"static", 8},
                                         Rule{"round_robin", 2}, Rule{"round_robin", 4},
                                         Rule{"round_robin", 8}, Rule{"local_dynamic", 2},
                                         Rule{"local_dynamic", 4}, Rule{"local_dynamic", 8},
                                         Rule{"dynamic", 2}, Rule{"dynamic", 4}, Rule{"dynamic", 8},
                                         Rule{"hybrid", 2}, Rule{"hybrid", 4}, Rule{"hybrid", 8}),
                         [](const auto& info) {
                             return std::string(info.param.name) + std::to_string(info.param.ports);
                         });

TEST(EngineRailsOfNodes, static_puts_data_on_rails_on_which_its_node_sends) {
    constexpr uint32_t kRanks = 6;
    Job job(kRanks, rails_params(4, "static"));
    // Figure 4 of RAILS: four rails, six nodes, two senders a column.
    const std::vector<std::set<int>> sends = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
    for (uint32_t to = 0; to < kRanks; ++to) {
        for (uint32_t from = 0; from < kRanks; ++from) {
            if (from == to) continue;
            const auto before = rail_bytes(job[to].counters());
            Memory source(job[from], 64 * kChunk, from);
            std::vector<std::byte> ours(source.bytes.size());
            velo_rma_t get = transfer(VELO_RMA_GET, source, 0, ours.data(), ours.size());
            job[to].done.clear();
            velo_rma(job[to].engine, job[to].peers[from], &get);
            job.drive([&] { return job[to].done.size() == 1; });
            ASSERT_EQ(ours, source.bytes);
            const auto after = rail_bytes(job[to].counters());
            for (int rail = 0; rail < 4; ++rail) {
                const bool allowed = sends[from].contains(rail) && !sends[to].contains(rail);
                EXPECT_EQ(after[rail] != before[rail], allowed) << from << " to " << to << " by " << rail;
            }
        }
    }
}

TEST(EngineRailsOfNodes, static_with_too_few_rails_is_refused_and_both_numbers_named) {
    Rank rank(rails_params(4, "static"), 0, 7);
    EXPECT_EQ(rank.engine, nullptr);
    for (const char* part :
         {"btl_velo_rails=static", "at most 6 nodes", "4 rails", "has 7", "btl_velo_ports=5"})
        EXPECT_NE(rank.error.find(part), std::string::npos) << rank.error;
    Rank wrong(rails_params(4, "fastest"), 0, 2);
    EXPECT_EQ(wrong.engine, nullptr);
    EXPECT_NE(wrong.error.find("btl_velo_rails=fastest is not one of static, round_robin"),
              std::string::npos);
}

/// Faults of ports, for each of them what is expected of a job over several.
struct Death {
    const char* name;
    const char* faults;
    int ports;
    bool lines;
};
class EngineRailDeaths : public testing::TestWithParam<Death> {};

TEST_P(EngineRailDeaths, lose_nothing_and_repeat_no_atomic) {
    const Death& death = GetParam();
    for (const char* rule : {"static", "round_robin", "local_dynamic", "dynamic", "hybrid"}) {
        SCOPED_TRACE(rule);
        if (death.ports == 1 && rule == std::string("static")) continue;  // joins one node only
        velo_params_t params = rails_params(death.ports, rule);
        params.faults = death.faults;
        Job job(2, params);
        constexpr size_t kBytes = 40 * kChunk + 5;
        Memory theirs(job[1], kBytes, 4);
        Memory counter(job[1], 64, 1);
        std::memset(counter.bytes.data(), 0, 64);
        uint64_t added = 0;
        for (uint32_t round = 0; round < 30; ++round) {
            std::vector<std::byte> ours(kBytes);
            std::vector<velo_rma_t> ops;
            std::array<uint64_t, 4> before{};
            ops.reserve(8);
            ops.push_back(transfer(VELO_RMA_GET, theirs, 0, ours.data(), kBytes));
            for (uint64_t& old : before) {
                ops.push_back(transfer(VELO_RMA_ATOMIC, counter, 0, reinterpret_cast<std::byte*>(&old), 8));
                ops.back().atomic = VELO_ATOMIC_ADD;
                ops.back().width = 8;
                ops.back().operand = 1;
            }
            job[0].done.clear();
            for (velo_rma_t& op : ops) velo_rma(job[0].engine, job[0].peers[1], &op);
            job.drive([&] { return job[0].done.size() == ops.size(); });
            for (const auto& [op, status] : job[0].done) ASSERT_EQ(status, VELO_OK);
            ASSERT_EQ(ours, theirs.bytes);
            for (const uint64_t old : before) ASSERT_EQ(old, added++) << "in order, and each once";
            const auto data = pattern(kBytes, round + 10);
            ours = data;
            velo_rma_t put = transfer(VELO_RMA_PUT, theirs, 0, ours.data(), kBytes);
            job[0].done.clear();
            velo_rma(job[0].engine, job[0].peers[1], &put);
            job.drive([&] { return !job[0].done.empty(); });
            ASSERT_EQ(theirs.bytes, data);
        }
        const velo_counters_t counters = job[0].counters();
        EXPECT_EQ(counters.rma_failed, 0u);
        EXPECT_TRUE(job[0].failures.empty());
        EXPECT_GT(rail_failures(counters), 0u);
        EXPECT_EQ(!job[0].log.empty(), death.lines) << (job[0].log.empty() ? "" : job[0].log[0]);
        EXPECT_FALSE(velo_busy(job[0].engine));
    }
}

INSTANTIATE_TEST_SUITE_P(Faults, EngineRailDeaths,
                         testing::Values(Death{"one_of_2_from_the_first", "port_down=0:0", 2, true},
                                         Death{"one_of_2_from_the_second", "port_down=1:1", 2, true},
                                         Death{"one_of_2_in_mid_stream", "port_down=1:100", 2, true},
                                         Death{"one_of_4", "port_down=2:7", 4, true},
                                         Death{"the_only_one", "port_down=0:20", 1, true},
                                         Death{"all_again_and_again", "seed=3,port_flap=0.05:200us", 4, true},
                                         Death{"one_of_8_late", "port_down=5:30,rma_late=0.1:20us", 8, true}),
                         [](const auto& info) { return info.param.name; });

TEST(EngineRailDeath, at_one_of_two_copies_nothing_and_says_so) {
    velo_params_t params = rails_params(2, "hybrid", 1000);
    params.faults = "port_down=1:5";
    Job job(2, params);
    Memory theirs(job[1], 1'000'000, 4);
    std::vector<std::byte> ours(theirs.bytes.size());
    velo_rma_t get = transfer(VELO_RMA_GET, theirs, 0, ours.data(), ours.size());
    velo_rma(job[0].engine, job[0].peers[1], &get);
    job.drive([&] { return !job[0].done.empty(); });
    EXPECT_EQ(ours, theirs.bytes);
    const velo_counters_t counters = job[0].counters();
    EXPECT_EQ(counters.rma_copied_bytes, 0u);
    EXPECT_EQ(counters.rail_bytes_1, 5u * kChunk);
    EXPECT_GT(counters.rma_repeated, 0u);
    EXPECT_LE(counters.rma_repeated, 8u) << "no more than were under way";
    EXPECT_GE(counters.rail_outages, 1u);
    ASSERT_GE(job[0].log.size(), 1u);
    EXPECT_NE(job[0].log[0].find("rail 1"), std::string::npos) << job[0].log[0];
    EXPECT_NE(job[0].log[0].find("tried again in 1 s"), std::string::npos) << job[0].log[0];
}

TEST(EngineRailDeath, is_named_in_a_report_of_what_waits) {
    velo_params_t params = rails_params(2, "hybrid", 60'000);
    params.stall_report = "1";
    params.faults = "port_down=1:0,rma_late=1:1200ms";
    Job job(2, params);
    Memory theirs(job[1], 3 * kChunk, 4);
    std::vector<std::byte> ours(theirs.bytes.size());
    velo_rma_t get = transfer(VELO_RMA_GET, theirs, 0, ours.data(), ours.size());
    velo_rma(job[0].engine, job[0].peers[1], &get);
    const auto said = [&](const char* what) {
        return std::ranges::any_of(job[0].log,
                                   [&](const std::string& line) { return line.find(what) != std::string::npos; });
    };
    for (int i = 0; i < 20'000 && job[0].done.empty(); ++i) {
        usleep(1000);
        velo_progress(job[0].engine);
        velo_progress(job[1].engine);
    }
    EXPECT_TRUE(said("rail 0: ")) << (job[0].log.empty() ? "" : job[0].log.back());
    EXPECT_TRUE(said("operations on it, ")) << (job[0].log.empty() ? "" : job[0].log.back());
    EXPECT_EQ(ours, theirs.bytes);
}

TEST(EngineRailDeath, at_the_owners_end_only_is_got_around) {
    velo_params_t params = rails_params(2, "hybrid");
    // The faults of one rank: its second port is down from its first operation on.
    std::vector<std::unique_ptr<Rank>> ranks;
    ranks.push_back(std::make_unique<Rank>(params, 0, 2));
    params.faults = "port_down=1:0";
    ranks.push_back(std::make_unique<Rank>(params, 1, 2));
    Rank& getter = *ranks[0];
    Rank& owner = *ranks[1];
    velo_peer_t* peer = Job::connect(getter, owner);
    Job::connect(owner, getter);
    Memory theirs(owner, 50 * kChunk, 4);
    std::vector<std::byte> ours(theirs.bytes.size());
    velo_progress(owner.engine);
    velo_rma_t get = transfer(VELO_RMA_GET, theirs, 0, ours.data(), ours.size());
    velo_rma(getter.engine, peer, &get);
    for (int i = 0; i < 1'000'000 && getter.done.empty(); ++i) {
        velo_progress(getter.engine);
        velo_progress(owner.engine);
    }
    ASSERT_EQ(getter.done.size(), 1u);
    EXPECT_EQ(ours, theirs.bytes);
    EXPECT_EQ(getter.counters().rail_bytes_1, 0u);
    EXPECT_EQ(getter.counters().rma_copied_bytes, 0u);
    EXPECT_GE(getter.counters().rail_failed_1, 2u);
}

TEST(EngineRailDeath, of_a_rail_that_comes_back_lasts_until_it_is_tried) {
    velo_params_t params = rails_params(2, "hybrid");
    params.faults = "seed=5,port_flap=0.01:100us";
    Job job(2, params);
    Memory theirs(job[1], 100 * kChunk, 4);
    for (int round = 0; round < 100'000 && job[0].counters().rail_returns < 20; ++round) {
        std::vector<std::byte> ours(theirs.bytes.size());
        velo_rma_t get = transfer(VELO_RMA_GET, theirs, 0, ours.data(), ours.size());
        job[0].done.clear();
        velo_rma(job[0].engine, job[0].peers[1], &get);
        job.drive([&] { return !job[0].done.empty(); });
        ASSERT_EQ(ours, theirs.bytes);
    }
    EXPECT_GE(job[0].counters().rail_returns, 20u);
    EXPECT_LE(job[0].log.size(), 9u) << "lines about rails have a bound";
}

/// VELO_TEST_DEATHS sets how many.
class EngineRailDeathsOf : public testing::TestWithParam<const char*> {};

TEST_P(EngineRailDeathsOf, thousands_of_them_lose_nothing) {
    const char* given = std::getenv("VELO_TEST_DEATHS");
    const uint64_t deaths = given != nullptr ? std::strtoull(given, nullptr, 10) : 2000;
    velo_params_t params = rails_params(4, GetParam());
    params.faults = "seed=11,port_flap=0.005:10us";
    Job job(3, params);
    std::mt19937 random(4);
    constexpr size_t kBytes = 64 * kChunk;
    std::vector<Memory> theirs;
    for (size_t rank = 1; rank < 3; ++rank)
        theirs.emplace_back(job[rank], kBytes, static_cast<uint32_t>(rank));
    uint64_t rounds = 0;
    uint64_t moved = 0;
    while (rail_failures(job[0].counters()) < deaths) {
        std::vector<std::vector<std::byte>> ours;
        std::vector<velo_rma_t> ops;
        std::vector<size_t> offsets;
        ours.reserve(6);
        ops.reserve(6);
        job[0].done.clear();
        for (size_t i = 0; i < 6; ++i) {
            const size_t bytes = 1 + random() % kBytes;
            offsets.push_back(random() % (kBytes - bytes + 1));
            ours.emplace_back(bytes);
            ops.push_back(transfer(VELO_RMA_GET, theirs[i % 2], offsets[i], ours[i].data(), bytes));
            moved += bytes;
        }
        for (size_t i = 0; i < 6; ++i) velo_rma(job[0].engine, job[0].peers[1 + i % 2], &ops[i]);
        job.drive([&] { return job[0].done.size() == 6; });
        for (size_t i = 0; i < 6; ++i) {
            ASSERT_EQ(std::memcmp(ours[i].data(), theirs[i % 2].bytes.data() + offsets[i], ours[i].size()),
                      0);
        }
        ++rounds;
        ASSERT_TRUE(job[0].failures.empty());
    }
    const velo_counters_t counters = job[0].counters();
    EXPECT_EQ(counters.rma_failed, 0u);
    EXPECT_EQ(counters.rma_get_bytes + counters.rma_copied_bytes, moved) << "each byte counted once";
    std::printf(
        "%llu rounds, %llu failed operations, %llu outages, %llu returns, %llu of %llu bytes in messages\n",
        static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(rail_failures(counters)),
        static_cast<unsigned long long>(counters.rail_outages),
        static_cast<unsigned long long>(counters.rail_returns),
        static_cast<unsigned long long>(counters.rma_copied_bytes), static_cast<unsigned long long>(moved));
}

INSTANTIATE_TEST_SUITE_P(Rules, EngineRailDeathsOf, testing::Values("hybrid", "dynamic"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace velo::test
