// Static flow control keeps conservation, the mailbox and progress in every interleaving of small cases.
// Suites and instances whose name has "Full" are left out where time is short (sanitizers).
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tests/exhaustive/flowctl_worlds.h"

namespace velo::exhaustive {
namespace {

using flowctl::Plan;

struct Case {
    uint32_t quota;
    uint32_t credit_slots;
    bool piggyback;
    bool batched_reports;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
    return "quota" + std::to_string(info.param.quota) + "_credit_slots" +
           std::to_string(info.param.credit_slots) + (info.param.piggyback ? "_piggyback" : "") +
           (info.param.batched_reports ? "_batched" : "");
}

/// Every case that equation 2 allows.
std::vector<Case> cases(uint32_t quota_min, uint32_t quota_max, uint32_t credit_slots_max) {
    std::vector<Case> all;
    for (uint32_t quota = quota_min; quota <= quota_max; ++quota) {
        for (uint32_t credit_slots = 1; credit_slots <= std::min(quota, credit_slots_max); ++credit_slots) {
            for (const bool piggyback : {false, true}) {
                for (const bool batched : {false, true})
                    all.push_back({quota, credit_slots, piggyback, batched});
            }
        }
    }
    return all;
}

class StaticPair : public ::testing::TestWithParam<Case> {
  protected:
    [[nodiscard]] static Verdict explore_pair(uint16_t there, uint16_t back, uint8_t message_packets) {
        const auto [quota, credit_slots, piggyback, batched_reports] = GetParam();
        const Plan plan = static_plan({.quota = quota, .credit_slots = credit_slots, .piggyback = piggyback});
        auto options = pair_options(plan, there, back, message_packets);
        options.batched_reports = batched_reports;
        return explore(PairWorld(options));
    }
};

TEST_P(StaticPair, endless_stream_one_way_always_goes_on) {
    expect_holds(explore_pair(kEndless, 0, 1), 5);
}

TEST_P(StaticPair, endless_messages_both_ways_always_go_on) {
    expect_holds(explore_pair(kEndless, kEndless, 1), 25);
}

TEST_P(StaticPair, endless_messages_of_two_packets_both_ways_always_go_on) {
    expect_holds(explore_pair(kEndless, kEndless, 2), 50);
}

TEST_P(StaticPair, finite_work_both_ways_ends) {
    expect_holds(explore_pair(3, 1, 2), 50);
}

INSTANTIATE_TEST_SUITE_P(Small, StaticPair, ::testing::ValuesIn(cases(1, 3, 3)), case_name);
INSTANTIATE_TEST_SUITE_P(Full, StaticPair, ::testing::ValuesIn(cases(4, 5, 3)), case_name);

class StaticFavouredPair : public ::testing::TestWithParam<Case> {};

TEST_P(StaticFavouredPair, sender_that_was_not_told_of_its_extra_slot_keeps_every_bound) {
    const auto [quota, credit_slots, piggyback, batched_reports] = GetParam();
    Plan plan = favoured_pair_plan(quota, credit_slots);
    plan.piggyback = piggyback;
    for (const auto& [there, back] : {std::pair{kEndless, uint16_t{0}}, {kEndless, kEndless}, {4, 2}}) {
        auto options = pair_options(plan, there, back);
        options.batched_reports = batched_reports;
        expect_holds(explore(PairWorld(options)), 10);
    }
}

INSTANTIATE_TEST_SUITE_P(Small, StaticFavouredPair, ::testing::ValuesIn(cases(1, 2, 2)), case_name);
INSTANTIATE_TEST_SUITE_P(Full, StaticFavouredPair, ::testing::ValuesIn(cases(3, 4, 3)), case_name);

TEST(StaticReturnMax, what_a_full_return_leaves_behind_neither_stalls_nor_overflows) {
    for (const uint32_t credit_slots : {1u, 2u}) {
        Plan plan = static_plan({.quota = 4, .credit_slots = credit_slots, .piggyback = false});
        plan.return_max = plan.threshold;
        auto options = pair_options(plan, kEndless, kEndless);
        options.batched_reports = true;
        expect_holds(explore(PairWorld(options)), 25);
        expect_holds(explore(PairWorld(pair_options(plan, 7, 0))), 25);
    }
}

TEST(StaticPair, returns_that_wait_for_the_device_and_merge_keep_every_bound) {
    for (uint32_t quota = 1; quota <= 4; ++quota) {
        for (uint32_t credit_slots = 1; credit_slots <= std::min(quota, 2u); ++credit_slots) {
            const Plan plan = static_plan({.quota = quota, .credit_slots = credit_slots});
            for (const auto& [there, back] : {std::pair{kEndless, kEndless}, {4, 2}}) {
                auto options = pair_options(plan, there, back);
                options.refusals = true;
                expect_holds(explore(PairWorld(options)), 25);
            }
        }
    }
}

TEST(StaticPair, message_of_more_packets_than_the_quota_arrives) {
    expect_holds(explore(PairWorld(pair_options(static_plan({.quota = 2, .credit_slots = 1}), 3, 3, 3))),
                 1000);
}

TEST(StaticPairFull, quota_6_and_three_credit_slots_both_ways_go_on) {
    expect_holds(
        explore(PairWorld(pair_options(static_plan({.quota = 6, .credit_slots = 3}), kEndless, kEndless))),
        100'000);
}

using Flows = std::initializer_list<std::pair<uint32_t, uint32_t>>;

Verdict explore_trio(const Shares& shares, Flows flows, uint16_t messages) {
    TrioWorld::Options options{.plan = static_plan(shares)};
    for (const auto& [from, to] : flows) options.messages[from][to] = messages;
    return explore(TrioWorld(options));
}

const Flows kInto2 = {{0, 2}, {1, 2}};
const Flows kRing = {{0, 1}, {1, 2}, {2, 0}};
const Flows kThrough2 = {{0, 2}, {1, 2}, {2, 0}, {2, 1}};
const Flows kAllToAll = {{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}};

TEST(StaticTrio, two_senders_share_one_mailbox) {
    expect_holds(explore_trio({.peers = 2, .quota = 2, .credit_slots = 1}, kInto2, kEndless), 100);
    expect_holds(explore_trio({.peers = 2, .quota = 3, .credit_slots = 2}, kInto2, kEndless), 100);
}

TEST(StaticTrio, favoured_and_plain_sender_share_one_mailbox) {
    const Shares shares{.peers = 2, .quota = 2, .credit_slots = 2, .excess = 1};
    ASSERT_EQ(static_plan(shares).excess_peers, 1u);
    expect_holds(explore_trio(shares, kInto2, kEndless), 100);
}

TEST(StaticTrio, ring_of_messages_goes_on) {
    expect_holds(explore_trio({.peers = 2, .quota = 1, .credit_slots = 1}, kRing, kEndless), 100);
}

TEST(StaticTrio, process_between_two_keeps_both_pairs_going) {
    expect_holds(explore_trio({.peers = 2, .quota = 1, .credit_slots = 1, .excess = 1}, kThrough2, kEndless),
                 1000);
    expect_holds(explore_trio({.peers = 2, .quota = 2, .credit_slots = 1}, kThrough2, 2), 1000);
}

TEST(StaticTrioFull, process_between_two_keeps_both_pairs_going) {
    expect_holds(explore_trio({.peers = 2, .quota = 2, .credit_slots = 1}, kThrough2, kEndless), 10'000);
}

TEST(StaticTrioFull, all_to_all_goes_on) {
    expect_holds(explore_trio({.peers = 2, .quota = 1, .credit_slots = 1}, kAllToAll, kEndless), 10'000);
    expect_holds(explore_trio({.peers = 2, .quota = 1, .credit_slots = 1, .excess = 1}, kAllToAll, kEndless),
                 100'000);
}

TEST(StaticTrioFull, all_to_all_ends) {
    expect_holds(explore_trio({.peers = 2, .quota = 1, .credit_slots = 1}, kAllToAll, 1), 10'000);
    expect_holds(explore_trio({.peers = 2, .quota = 2, .credit_slots = 2, .excess = 1}, kAllToAll, 1),
                 10'000);
}

TEST(ModeNone, mailbox_as_large_as_the_job_needs_never_overflows) {
    const auto result = flowctl::plan({.mode = flowctl::Mode::kNone, .peers = 1, .mailbox_slots = 4});
    const auto verdict = explore(PairWorld(pair_options(std::get<Plan>(result), 4, 4)));
    expect_holds(verdict, 100);
}

}  // namespace
}  // namespace velo::exhaustive
