// Dynamic and growing flow control keep conservation, both regions of the mailbox, progress, the floor and
// one response for each request, in every interleaving of small cases.
#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "tests/exhaustive/flowctl_dynamic_worlds.h"

namespace velo::exhaustive {
namespace {

using flowctl::Plan;
using flowctl::Stealing;

/// One peer has the mailbox to itself: thresholds, piggybacking and what is short, without stealing.
class DynamicPair : public ::testing::TestWithParam<Case> {
  protected:
    [[nodiscard]] static Verdict explore_pair(uint16_t there, uint16_t back, uint8_t message_packets) {
        const Case& given = GetParam();
        const Plan plan = dynamic_plan(
            {.quota = given.data_slots, .credit_slots = given.credit_slots, .piggyback = given.piggyback});
        auto options = pair_options(plan, there, back, message_packets);
        options.batched_reports = given.batched_reports;
        options.refusals = given.refusals;
        options.direct = given.data_slots > 2;
        return explore(PairWorld(options));
    }
};

TEST_P(DynamicPair, endless_messages_one_way_and_both_ways_always_go_on) {
    expect_holds(explore_pair(kEndless, 0, 1), 5);
    expect_holds(explore_pair(kEndless, kEndless, 1), 25);
}

TEST_P(DynamicPair, finite_work_both_ways_ends) {
    expect_holds(explore_pair(3, 2, 2), 50);
}

INSTANTIATE_TEST_SUITE_P(Small, DynamicPair, ::testing::ValuesIn(cases(1, 2)), case_name);
INSTANTIATE_TEST_SUITE_P(FullThree, DynamicPair, ::testing::ValuesIn(cases(3, 3)), case_name);
INSTANTIATE_TEST_SUITE_P(Full, DynamicPair, ::testing::ValuesIn(cases(4, 4, false)), case_name);

// The senders steal from each other, so requests and responses are under way.
TEST(DynamicTrio, two_senders_that_steal_from_each_other_always_go_on) {
    const Shares shares{.peers = 2, .quota = 2, .credit_slots = 1, .piggyback = false};
    expect_holds(explore_trio({shares}, kInto2, kEndless), 10'000);
}

TEST(DynamicTrio, two_senders_that_steal_from_each_other_end) {
    for (const uint32_t credit_slots : {1u, 2u}) {
        const Shares shares{.peers = 2, .quota = 3, .credit_slots = credit_slots, .piggyback = false};
        expect_holds(explore_trio({shares}, kInto2, 8), 1'000);
    }
}

TEST(DynamicTrio, one_sender_takes_what_the_other_does_not_use) {
    for (const uint32_t credit_slots : {1u, 2u}) {
        const Shares shares{.peers = 2, .quota = 3, .credit_slots = credit_slots, .piggyback = true};
        expect_holds(explore_trio({shares}, {{0, 2}, {2, 0}}, kEndless), 500);
        expect_holds(explore_trio({shares, Stealing::kPaper, true}, {{0, 2}}, kEndless), 100);
    }
}

TEST(DynamicTrio, finite_work_ends_with_every_floor_restored) {
    for (const Stealing stealing : {Stealing::kPaper, Stealing::kTurns}) {
        for (const uint32_t slots : {1u, 2u}) {
            const Shares shares{.peers = 2, .quota = slots, .credit_slots = 1, .piggyback = true};
            expect_holds(explore_trio({shares, stealing}, kThrough2, 2), 400);
        }
    }
}

// A process may owe a response to a peer that it has a request for, and the device refuses both.
TEST(DynamicTrioFull, requests_and_responses_that_are_refused_keep_every_bound) {
    const Shares shares{.peers = 2, .quota = 2, .credit_slots = 1, .piggyback = false};
    expect_holds(explore_trio({shares, Stealing::kPaper, true}, kThrough2, 4), 5'000);
}

// Body packets are taken ahead of their end, and refused control packets leave at any time.
TEST(RunsFull, taken_ahead_keep_every_bound_under_all_modes) {
    for (const uint32_t quota : {2u, 3u}) {
        const Shares shares{.quota = quota, .credit_slots = 1, .piggyback = true};
        for (const Plan& plan :
             {static_plan(shares), dynamic_plan(shares), growing_plan(shares, flowctl::Growth::kLinear)}) {
            auto options = pair_options(plan, 2, 2, 3);
            options.runs = true;
            options.refusals = true;
            expect_holds(explore(PairWorld(options)), 100);
        }
    }
}

TEST(DynamicTrioFull, process_between_two_keeps_both_pairs_going) {
    const Shares shares{.peers = 2, .quota = 2, .credit_slots = 1, .piggyback = true};
    expect_holds(explore_trio({shares}, kThrough2, 5), 5'000);
}

TEST(DynamicTrioFull, idle_senders_only_are_stolen_from) {
    const Shares shares{.peers = 2, .quota = 2, .credit_slots = 1, .piggyback = false};
    expect_holds(explore_trio({shares, Stealing::kTurns}, kInto2, 6), 500);
}

class GrowingPair : public ::testing::TestWithParam<Case> {};

TEST_P(GrowingPair, shares_that_grow_at_any_time_keep_every_bound) {
    const Case& given = GetParam();
    for (const flowctl::Growth growth : {flowctl::Growth::kLinear, flowctl::Growth::kExponential}) {
        const Plan plan = growing_plan(
            {.quota = given.data_slots, .credit_slots = given.credit_slots, .piggyback = given.piggyback},
            growth);
        for (const auto& [there, back] : {std::pair{kEndless, uint16_t{0}}, {kEndless, kEndless}, {4, 2}}) {
            auto options = pair_options(plan, there, back);
            options.batched_reports = given.batched_reports;
            options.refusals = given.refusals;
            options.direct = given.data_slots > 2;
            expect_holds(explore(PairWorld(options)), 5);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Small, GrowingPair, ::testing::ValuesIn(cases(1, 2)), case_name);
INSTANTIATE_TEST_SUITE_P(FullThree, GrowingPair, ::testing::ValuesIn(cases(3, 3)), case_name);
INSTANTIATE_TEST_SUITE_P(Full, GrowingPair, ::testing::ValuesIn(cases(4, 4)), case_name);

TEST(HardwareMode, a_full_mailbox_holds_the_wire_and_everything_arrives) {
    const auto result = flowctl::plan({.mode = flowctl::Mode::kHardware, .peers = 2, .mailbox_slots = 2});
    TrioWorld::Options options{.plan = std::get<Plan>(result)};
    options.messages[0][2] = options.messages[1][2] = 3;
    options.messages[2][0] = 2;
    expect_holds(explore(TrioWorld(options)), 500);
}

}  // namespace
}  // namespace velo::exhaustive
