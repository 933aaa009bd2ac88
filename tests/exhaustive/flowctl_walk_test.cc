// Flow control on random paths of cases too large to explore: 3 to 8 processes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

#include "tests/exhaustive/flowctl_worlds.h"

namespace velo::exhaustive {
namespace {

constexpr uint64_t kSeedDefault = 20;
constexpr uint64_t kStepsMax = 200'000;

/// VELO_SEED repeats one seed only, which is what a failure prints.
struct Seeds {
    uint64_t first = kSeedDefault;
    uint64_t count = 0;
};

Seeds seeds(uint64_t count) {
    if (const char* text = std::getenv("VELO_SEED")) return {std::strtoull(text, nullptr, 0), 1};
    return {kSeedDefault, count};
}

/// Everything about the world but its number of processes and its mode comes from the seed.
template <uint32_t kProcesses>
Verdict walk_world(uint64_t seed, flowctl::Mode mode) {
    using World = MailboxWorld<kProcesses, 128>;
    Random random(~seed);
    const uint32_t credit_slots = 1 + random.below(3);
    const uint32_t peers = kProcesses - 1;
    flowctl::Config config = config_of(mode, {.peers = peers,
                                              .quota = credit_slots + random.below(6),
                                              .credit_slots = credit_slots,
                                              .excess = random.below(peers),
                                              .piggyback = random.below(4) != 0});
    if (mode != flowctl::Mode::kStatic) {
        config.stealing = flowctl::kStealingNames[random.below(flowctl::kStealingNames.size())].first;
        config.growth = random.below(2) == 0 ? flowctl::Growth::kLinear : flowctl::Growth::kExponential;
        config.growing_start = 1 + random.below(4);
        config.growing_step = 1 + random.below(4);
        if (random.below(3) == 0) config.sender_slots_max = credit_slots + 4 + random.below(8);
        const bool by_contact = mode == flowctl::Mode::kDynamic && config.stealing != flowctl::Stealing::kPaper;
        if (by_contact && random.below(2) == 0) {
            config.contact_slots = 1 + random.below(4);
            config.mailbox_slots += config.contact_slots;
        }
    }
    typename World::Options options{.plan = plan_of(config)};
    if (mode == flowctl::Mode::kStatic && random.below(4) == 0) {
        options.plan.return_max = options.plan.favoured_threshold;
    }
    options.message_packets = static_cast<uint8_t>(1 + random.below(5));
    options.short_every = static_cast<uint8_t>(random.below(4));
    options.batched_reports = random.below(2) != 0;
    // A merged return may be larger than a lowered return_max allows.
    options.refusals = options.plan.return_max == flowctl::kReturnMax && random.below(2) != 0;
    const uint32_t messages_max = 1 + random.below(8);
    for (uint32_t from = 0; from < kProcesses; ++from) {
        for (uint32_t to = 0; to < kProcesses; ++to) {
            if (from != to)
                options.messages[from][to] = static_cast<uint16_t>(random.below(messages_max + 1));
        }
    }
    return walk(World(options), seed, kStepsMax);
}

template <uint32_t kProcesses>
void expect_walks_end(uint64_t count, flowctl::Mode mode = flowctl::Mode::kStatic) {
    const auto [first, runs] = seeds(count);
    uint64_t steps = 0;
    for (uint64_t seed = first; seed < first + runs; ++seed) {
        const Verdict verdict = walk_world<kProcesses>(seed, mode);
        ASSERT_TRUE(verdict.holds()) << "VELO_SEED=" << seed << ": " << verdict.what;
        steps += verdict.steps;
    }
    EXPECT_GE(steps, 10 * runs) << "the walks did next to nothing";
}

TEST(StaticWalk, three_processes_send_and_read_everything) {
    expect_walks_end<3>(300);
}
TEST(StaticWalk, five_processes_send_and_read_everything) {
    expect_walks_end<5>(100);
}
TEST(StaticWalk, eight_processes_send_and_read_everything) {
    expect_walks_end<8>(40);
}

TEST(DynamicWalk, three_to_eight_processes_send_and_read_everything) {
    expect_walks_end<3>(600, flowctl::Mode::kDynamic);
    expect_walks_end<5>(300, flowctl::Mode::kDynamic);
    expect_walks_end<8>(100, flowctl::Mode::kDynamic);
}

TEST(GrowingWalk, three_to_eight_processes_send_and_read_everything) {
    expect_walks_end<3>(300, flowctl::Mode::kGrowing);
    expect_walks_end<5>(100, flowctl::Mode::kGrowing);
    expect_walks_end<8>(40, flowctl::Mode::kGrowing);
}

TEST(StaticWalk, one_seed_gives_one_walk) {
    for (const flowctl::Mode mode : {flowctl::Mode::kStatic, flowctl::Mode::kDynamic}) {
        EXPECT_EQ(walk_world<5>(7, mode).steps, walk_world<5>(7, mode).steps);
        EXPECT_NE(walk_world<5>(7, mode).steps, walk_world<5>(8, mode).steps);
    }
}

TEST(StaticWalk, lost_credit_is_found_and_its_seed_named) {
    MailboxWorld<4, 128>::Options options{.plan = static_plan({.peers = 3, .quota = 4})};
    options.messages[0][1] = options.messages[2][1] = 20;
    options.bug = Bug::kDropCredit;
    const Verdict verdict = walk(MailboxWorld<4, 128>(options), 99, kStepsMax);
    EXPECT_EQ(verdict.kind, Verdict::Kind::kViolation);
    EXPECT_NE(verdict.what.find("seed 99"), std::string::npos) << verdict.what;
}

}  // namespace
}  // namespace velo::exhaustive
