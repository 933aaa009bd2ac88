// FC 6 can be read in more than one way. The readings that velo does not take deadlock or overflow, and
// the explorer finds each (docs/flow-control.md). flowctl_dynamic_test.cc finds nothing against the ones that
// it takes.
#include <gtest/gtest.h>

#include <string>

#include "tests/exhaustive/flowctl_worlds.h"
#include "tests/exhaustive/paper_model.h"

namespace velo::exhaustive {
namespace {

using Kind = Verdict::Kind;
using Reading = Interpretation;

const std::string kDeadlock = "no way to reach goals";
const std::string kCreditRegion = "overflow: more unread credit packets than credit slots";
const std::string kMailbox = "overflow: mailbox";

void expect_found(const Verdict& verdict, const std::string& what) {
    EXPECT_FALSE(verdict.holds());
    EXPECT_NE(verdict.kind, Kind::kStateLimit);
    EXPECT_NE(verdict.what.find(what), std::string::npos) << verdict.what;
}

/// The model reads the paper so while this lives.
class Reads {
  public:
    explicit Reads(const Reading& reading) { PaperModel::read = reading; }
    ~Reads() { PaperModel::read = {}; }
    Reads(const Reads&) = delete;
    Reads& operator=(const Reads&) = delete;
};

/// Two processes that send each other messages without end.
Verdict explore_pair(const Reading& reading, const Shares& shares) {
    const Reads reads(reading);
    using World = MailboxWorld<2, 16, PaperModel>;
    World::Options options{.plan = dynamic_plan(shares)};
    options.messages[0][1] = options.messages[1][0] = kEndless;
    options.direct = true;
    options.check_invariants = false;
    return explore(World(options));
}

/// Two senders that steal from each other at a third process.
Verdict explore_thieves(const Reading& reading) {
    const Reads reads(reading);
    using World = MailboxWorld<3, 16, PaperModel>;
    World::Options options{
        .plan = dynamic_plan({.peers = 2, .quota = 2, .credit_slots = 1, .piggyback = false})};
    options.messages[0][2] = options.messages[1][2] = 6;
    options.direct = true;
    options.check_invariants = false;
    return explore(World(options));
}

/// Two senders that steal from each other and get messages back, in which credits are piggybacked: random
/// walks, until one finds something.
Verdict walk_thieves(const Reading& reading, const Shares& shares, uint64_t seeds) {
    const Reads reads(reading);
    using World = MailboxWorld<3, 64, PaperModel>;
    World::Options options{.plan = dynamic_plan(shares)};
    for (const uint32_t sender : {0u, 1u}) options.messages[sender][2] = options.messages[2][sender] = 60;
    options.check_invariants = false;
    for (uint64_t seed = 1; seed < seeds; ++seed) {
        if (const Verdict verdict = walk(World(options), seed, 200'000); !verdict.holds()) return verdict;
    }
    return walk(World(options), seeds, 200'000);
}

constexpr Shares kFour{.peers = 2, .quota = 4, .credit_slots = 1};
constexpr Shares kSix{.peers = 2, .quota = 6, .credit_slots = 1};

TEST(RightReading, holds_where_the_others_fail) {
    EXPECT_TRUE(explore_thieves(Reading{}).holds());
    EXPECT_TRUE(explore_pair(Reading{}, {.quota = 4, .credit_slots = 1}).holds());
    EXPECT_TRUE(walk_thieves(Reading{}, kFour, 500).holds());
    EXPECT_TRUE(walk_thieves(Reading{}, kSix, 500).holds());
}

TEST(ShortOfSlots, the_computed_threshold_in_the_fifo_is_never_reached) {
    expect_found(explore_thieves(Reading{.short_of_slots = Reading::ShortOfSlots::kComputed}), kDeadlock);
}

TEST(RegularWay, a_test_for_equality_misses_a_threshold_that_the_blocked_flow_has_passed) {
    expect_found(explore_thieves(Reading{.reached = Reading::Reached::kExactly}), kDeadlock);
}

TEST(BlockedFlow, a_credit_returned_without_taking_the_head_off_fills_the_credit_region) {
    expect_found(explore_thieves(Reading{.blocked_one = Reading::BlockedOne::kUncount}), kCreditRegion);
    expect_found(explore_thieves(Reading{.blocked_one = Reading::BlockedOne::kNothing}), kCreditRegion);
}

// The FIFO's loss by then is less than a response gives up, which is taken for a peer's mistake.
TEST(BlockedFlow, forgetting_retrieved_packets_when_nothing_is_returned_breaks_the_response) {
    const std::string what = "an honest peer was found to break the protocol";
    expect_found(explore_thieves(Reading{.blocked_none = Reading::BlockedNone::kResetComputed}), what);
    expect_found(explore_thieves(Reading{.blocked_none = Reading::BlockedNone::kResetOne}), what);
}

TEST(CompulsoryResponse, thresholds_that_stay_as_they_were_are_never_reached) {
    expect_found(explore_thieves(Reading{.response = Reading::Response::kUntouched}), kDeadlock);
}

TEST(Unblocking, without_a_test_of_the_threshold_waits_for_a_packet_that_never_comes) {
    expect_found(explore_thieves(Reading{.test_after_unblocking = false}), kDeadlock);
}

TEST(PiggybackingWay, forgetting_what_is_beyond_the_threshold_loses_credits_for_ever) {
    const Verdict verdict =
        explore_pair(Reading{.overshoot = Reading::Overshoot::kReset}, {.quota = 4, .credit_slots = 1});
    expect_found(verdict, kDeadlock);
}

TEST(PiggybackingWay, an_excess_that_raises_no_threshold_fills_the_credit_region) {
    expect_found(walk_thieves(Reading{.excess = Reading::Excess::kIgnore}, kSix, 500), kCreditRegion);
}

TEST(PiggybackingWay, a_credit_for_a_slot_that_is_not_there_fills_the_mailbox) {
    expect_found(walk_thieves(Reading{.at_least_one = true}, kFour, 500), kMailbox);
}

TEST(PiggybackingWay, more_credits_than_slots_are_available_fill_the_mailbox) {
    expect_found(walk_thieves(Reading{.piggyback_unavailable = true}, kFour, 500), kMailbox);
}

TEST(InitialThresholds, of_one_are_too_low_for_more_static_slots_than_credit_slots) {
    using World = MailboxWorld<2, 16, PaperModel>;
    World::Options options{.plan = dynamic_plan({.quota = 4, .credit_slots = 1, .piggyback = false})};
    options.plan.quota = 2;
    options.messages[0][1] = kEndless;
    options.direct = true;
    options.check_invariants = false;
    expect_found(explore(World(options)), kCreditRegion);
}

TEST(PiggybackThatOvertakesAReturn, fills_the_credit_region) {
    PairWorld::Options options{.plan = dynamic_plan({.quota = 2, .credit_slots = 1})};
    options.messages[0][1] = options.messages[1][0] = 3;
    options.message_packets = 2;
    options.refusals = true;
    options.bug = Bug::kPiggybackOvertakes;
    expect_found(explore(PairWorld(options)), kCreditRegion);
}

}  // namespace
}  // namespace velo::exhaustive
