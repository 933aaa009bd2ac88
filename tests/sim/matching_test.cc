/// Whole engines that match, on the simulated cluster: order, contents, budgets and an end, under little
/// memory and under faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "sim/matching_run.h"
#include "tests/exhaustive/explorer.h"

namespace velo::sim {
namespace {

using exhaustive::Random;

constexpr uint64_t kRecord = 64;
constexpr uint64_t kCell = 256;

MatchingConfig cluster_of(uint32_t processes) {
    MatchingConfig config;
    config.processes = processes;
    uint32_t side = 1;
    while (side * side * side < processes) ++side;
    config.cluster.topology = cluster::Topology::parse("mesh:" + std::to_string(side) + "x" +
                                                       std::to_string(side) + "x" + std::to_string(side));
    config.cluster.cpu = {.send_ns = 100, .receive_ns = 80, .credit_ns = 20};
    config.flow.mode = flowctl::Mode::kDynamic;
    return config;
}

TEST(Matching, with_memory_for_all_nothing_is_refused) {
    MatchingConfig config = cluster_of(8);
    config.unexpected_records = 16 << 20;
    config.unexpected_bytes = 64 << 20;
    const MatchingResult result = run_matching(config, *make_killer(8, 100, 200));
    EXPECT_EQ(result.messages, 700u);
    EXPECT_EQ(result.requests + result.eager, result.messages);
    EXPECT_EQ(result.refused, 0u);
}

/// MEM 5.1 with any memory from none on. Two requests a message, an offer, and a full pass now and then.
TEST(Matching, the_killer_ends_with_any_memory) {
    for (const uint32_t bytes : {0u, 8u, 1000u, 100'000u}) {
        for (const uint32_t records : {0u, 1u, 40u}) {
            for (const uint32_t granted : {0u, 4u}) {
                MatchingConfig config = cluster_of(9);
                config.unexpected_records = records * kRecord;
                config.unexpected_bytes = records * kCell;
                config.unexpected_granted = granted;
                const MatchingResult result = run_matching(config, *make_killer(9, 20, bytes));
                EXPECT_EQ(result.messages, 160u);
                EXPECT_LE(result.requests, 3 * result.messages)
                    << bytes << " bytes, " << records << " records";
                EXPECT_LE(result.records_hwm, records * kRecord);
            }
        }
    }
}

TEST(Matching, a_thousand_senders_take_two_requests_a_message) {
    MatchingConfig config = cluster_of(1024);
    config.unexpected_records = 1023 * 20 / 100 * kRecord;
    const MatchingResult result = run_matching(config, *make_killer(1024, 20, 8));
    EXPECT_EQ(result.messages, 1023u * 20u);
    EXPECT_LE(result.requests, result.messages * 5 / 2);
    EXPECT_LE(result.offers, result.messages * 3 / 2);
    EXPECT_LE(result.slowest_sender_ns, result.time_ns);
}

TEST(Matching, all_to_all_ends_with_a_hundredth_of_the_memory) {
    MatchingConfig config = cluster_of(32);
    config.unexpected_records = 31 * 20 / 100 * kRecord;
    config.unexpected_bytes = 31 * 20 / 100 * kCell;
    const MatchingResult result = run_matching(config, *make_all_to_all(32, 20, 200));
    EXPECT_EQ(result.messages, 32u * 31u * 20u);
    EXPECT_LE(result.records_hwm, config.unexpected_records);
}

TEST(Matching, the_same_seed_gives_the_same_run) {
    MatchingConfig config = cluster_of(9);
    config.cluster.cpu.jitter_permille = 200;
    config.unexpected_records = 10 * kRecord;
    const auto killer = make_killer(9, 20, 100);
    const MatchingResult one = run_matching(config, *killer);
    EXPECT_EQ(run_matching(config, *killer).trace_hash, one.trace_hash);
    config.cluster.seed = 2;
    EXPECT_NE(run_matching(config, *killer).trace_hash, one.trace_hash);
}

/// Messages of all lengths in any order, some synchronous; receives that name a source or not, some behind a
/// probe.
class Drawn final : public MatchingProgram {
  public:
    Drawn(Random& random, uint32_t processes)
        : sends_(processes), receives_(processes), at_once_(1 + random.below(8)), computes_(processes) {
        const std::vector<uint32_t> lengths = {0, 4, 24, 25, 500, 3000, 20'000, 200'000};
        const uint32_t messages = 20 + random.below(100);
        for (uint32_t i = 0; i < messages * processes; ++i) {
            const uint32_t from = random.below(processes);
            const uint32_t to = random.below(processes);
            const auto tag = static_cast<int32_t>(1 + random.below(4));
            const uint32_t length = lengths[random.below(random.below(4) == 0 ? 8 : 5)];
            sends_[from].push_back(
                {.to = to, .tag = tag, .bytes = length, .synchronous = random.below(8) == 0});
            // Odd tags name their source.
            const int32_t source = tag % 2 != 0 ? static_cast<int32_t>(from) : match::kAnySource;
            auto& receives = receives_[to];
            receives.push_back({.source = source, .tag = tag, .probed = random.below(6) == 0});
            std::swap(receives.back(), receives[random.below(static_cast<uint32_t>(receives.size()))]);
        }
        for (uint64_t& ns : computes_) ns = random.below(2) == 0 ? 0 : random.below(2'000'000);
    }
    [[nodiscard]] uint32_t sends(uint32_t rank) const override {
        return static_cast<uint32_t>(sends_[rank].size());
    }
    [[nodiscard]] uint32_t receives(uint32_t rank) const override {
        return static_cast<uint32_t>(receives_[rank].size());
    }
    [[nodiscard]] Send send(uint32_t rank, uint32_t i) const override { return sends_[rank][i]; }
    [[nodiscard]] Receive receive(uint32_t rank, uint32_t i) const override { return receives_[rank][i]; }
    [[nodiscard]] uint32_t receives_at_once() const override { return at_once_; }
    [[nodiscard]] uint64_t computes_ns(uint32_t rank) const override { return computes_[rank]; }

  private:
    std::vector<std::vector<Send>> sends_;
    std::vector<std::vector<Receive>> receives_;
    uint32_t at_once_;
    std::vector<uint64_t> computes_;
};

TEST(Matching, drawn_programs_end_in_order_under_faults_and_any_budget) {
    MatchingResult sums;
    const char* const seeds = std::getenv("VELO_MATCHING_SEEDS");  // for a longer run by hand
    for (uint64_t seed = 1; seed <= (seeds == nullptr ? 60 : std::strtoull(seeds, nullptr, 0)); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Random random(seed);
        const uint32_t processes = 2 + random.below(6);
        const Drawn program(random, processes);
        MatchingConfig config = cluster_of(processes);
        config.cluster.seed = seed;
        config.cluster.cpu.jitter_permille = 200;
        config.processes_per_node = 1 + random.below(3);
        config.message_bytes_max = random.below(2) == 0 ? 1000 : 4096;
        constexpr flowctl::Mode kModes[] = {flowctl::Mode::kDynamic, flowctl::Mode::kStatic,
                                            flowctl::Mode::kGrowing};
        config.flow.mode = kModes[random.below(3)];
        config.flow.slots_per_peer = 12 + random.below(50);
        config.flow.credit_slots = 1 + random.below(4);
        const uint32_t records = random.below(3) == 0 ? 0 : 1u << random.below(10);
        config.unexpected_records = records * kRecord;
        config.unexpected_bytes = random.below(2) == 0 ? 0 : records * kCell;
        config.unexpected_granted = random.below(2) == 0 ? 0 : 1u << random.below(8);
        if (random.below(2) == 0) {
            config.cluster.faults = {.delay_permille = random.below(100),
                                     .delay_ns_max = 50'000,
                                     .stall_permille = random.below(50),
                                     .stall_ns_max = 100'000,
                                     .until_ns = 20'000'000};
        }
        MatchingResult result;
        try {
            result = run_matching(config, program);
        } catch (const std::exception& error) {
            FAIL() << error.what();
        }
        sums.eager += result.eager;
        sums.refused += result.refused;
        sums.requests += result.requests;
    }
    // Each way has been taken.
    EXPECT_GT(sums.eager, 500u);
    EXPECT_GT(sums.requests, 500u);
    EXPECT_GT(sums.refused, 500u);
}

}  // namespace
}  // namespace velo::sim
