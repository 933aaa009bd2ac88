// The explorer finds what it is there to find: each mistake here is made on purpose.
#include <gtest/gtest.h>

#include <string>

#include "tests/exhaustive/flowctl_worlds.h"

namespace velo::exhaustive {
namespace {

using flowctl::Plan;
using Kind = Verdict::Kind;

void expect_found(const Verdict& verdict, Kind kind, const std::string& what) {
    EXPECT_EQ(verdict.kind, kind) << verdict.what;
    EXPECT_NE(verdict.what.find(what), std::string::npos) << verdict.what;
}

Plan with_threshold(Plan plan, uint32_t threshold) {
    plan.threshold = plan.favoured_threshold = threshold;
    return plan;
}

/// FC table 1, formula (a).
uint32_t formula_a(uint32_t quota, uint32_t credit_slots) {
    return quota / credit_slots + 1;
}
/// FC table 1, formula (b).
uint32_t formula_b(uint32_t quota, uint32_t credit_slots) {
    return quota / credit_slots;
}

TEST(FormulaA, with_one_credit_slot_the_threshold_is_out_of_reach_and_the_sender_waits_for_ever) {
    for (uint32_t quota = 1; quota <= 4; ++quota) {
        const Plan plan = with_threshold(static_plan({.quota = quota, .credit_slots = 1, .piggyback = false}),
                                         formula_a(quota, 1));
        const auto work = static_cast<uint16_t>(quota + 1);
        expect_found(explore(PairWorld(pair_options(plan, work, 0))), Kind::kUnreachableGoal, "no way");
        expect_found(explore(PairWorld(pair_options(plan, kEndless, 0))), Kind::kUnreachableGoal, "no way");
    }
}

TEST(FormulaA, with_quota_100_and_one_credit_slot_the_walk_deadlocks) {
    const Plan plan = with_threshold(static_plan({.quota = 100, .piggyback = false}), formula_a(100, 1));
    MailboxWorld<2, 128>::Options options{.plan = plan};
    options.messages[0][1] = 101;
    expect_found(walk(MailboxWorld<2, 128>(options), 1, 10'000), Kind::kUnreachableGoal, "rests without");
}

TEST(FormulaB, with_quota_3_and_two_credit_slots_three_credit_packets_wait_in_two_slots) {
    const Plan plan = with_threshold(static_plan({.quota = 3, .credit_slots = 2}), formula_b(3, 2));
    expect_found(explore(PairWorld(pair_options(plan, 3, 0))), Kind::kViolation,
                 "more unread credit packets");
}

TEST(FormulaB, with_quota_3_and_two_credit_slots_the_mailbox_itself_overflows) {
    const Plan plan = with_threshold(static_plan({.quota = 3, .credit_slots = 2}), formula_b(3, 2));
    auto options = pair_options(plan, 3, 3);
    options.check_credit_region = false;
    expect_found(explore(PairWorld(options)), Kind::kViolation, "overflow: mailbox");
}

TEST(FavouredPeer, threshold_of_the_plain_quota_lets_too_many_credit_packets_wait) {
    Plan plan = favoured_pair_plan(3, 1);
    plan.favoured_threshold = plan.threshold;
    ASSERT_EQ(plan.threshold, 2u);
    expect_found(explore(PairWorld(pair_options(plan, kEndless, 0))), Kind::kViolation,
                 "more unread credit packets");
}

TEST(LostCredit, is_found) {
    auto options = pair_options(static_plan({.quota = 3}), kEndless, 0);
    options.bug = Bug::kDropCredit;
    expect_found(explore(PairWorld(options)), Kind::kViolation, "conservation");
}

TEST(PiggybackThatLeavesTheCounter, is_found) {
    auto options = pair_options(static_plan({.quota = 3}), kEndless, kEndless);
    options.bug = Bug::kReturnTwice;
    expect_found(explore(PairWorld(options)), Kind::kViolation, "conservation");
}

TEST(PiggybackOfAWaitingPacket, makes_two_processes_wait_for_each_other) {
    auto options = pair_options(static_plan({.quota = 2}), kEndless, kEndless);
    options.bug = Bug::kPiggybackEarly;
    expect_found(explore(PairWorld(options)), Kind::kUnreachableGoal, "no way");
}

TEST(EventReportedBeforeItsSlotIsFree, overflows_the_mailbox) {
    auto options = pair_options(static_plan({.quota = 2}), kEndless, 0);
    options.bug = Bug::kReportBeforeFree;
    expect_found(explore(PairWorld(options)), Kind::kViolation, "overflow: mailbox");
}

TEST(ModeNone, mailbox_smaller_than_the_job_needs_overflows) {
    const auto result = flowctl::plan({.mode = flowctl::Mode::kNone, .peers = 1, .mailbox_slots = 3});
    expect_found(explore(PairWorld(pair_options(std::get<Plan>(result), 4, 0))), Kind::kViolation,
                 "overflow: mailbox");
}

TEST(Explorer, state_limit_is_an_answer_of_its_own) {
    const Plan plan = static_plan({.quota = 2});
    expect_found(explore(PairWorld(pair_options(plan, kEndless, kEndless)), 10), Kind::kStateLimit, "limit");
}

TEST(Explorer, path_to_a_failure_is_a_shortest_one) {
    const Plan plan = with_threshold(static_plan({.quota = 3, .credit_slots = 2}), formula_b(3, 2));
    const Verdict verdict = explore(PairWorld(pair_options(plan, 3, 0)));
    // Three packets sent, delivered and polled: each poll returns a credit packet.
    EXPECT_NE(verdict.what.find("after 9 steps"), std::string::npos) << verdict.what;
}

}  // namespace
}  // namespace velo::exhaustive
