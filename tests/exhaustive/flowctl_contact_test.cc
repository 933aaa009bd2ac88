// Peers that own no slot until the first contact, and close their links at any time: no overflow, nothing lost,
// and every flow goes on, in every interleaving of small cases.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "tests/exhaustive/flowctl_worlds.h"

namespace velo::exhaustive {
namespace {

using flowctl::Plan;

/// A mailbox of `contact_slots` and `shared_slots`, out of which links to peers are opened.
Plan contact_plan(uint32_t peers, uint32_t contact_slots, uint32_t shared_slots, uint32_t credit_slots,
                  bool piggyback, flowctl::Stealing stealing) {
    return plan_of({.mode = flowctl::Mode::kDynamic,
                    .peers = peers,
                    .mailbox_slots = contact_slots + shared_slots,
                    .credit_slots = credit_slots,
                    .piggyback = piggyback,
                    .stealing = stealing,
                    .contact_slots = contact_slots});
}

struct Case {
    uint32_t shared_slots;
    uint32_t credit_slots;
    bool piggyback;
    bool refusals;
    uint8_t closings;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
    const Case& at = info.param;
    return "slots" + std::to_string(at.shared_slots) + "_credit_slots" + std::to_string(at.credit_slots) +
           (at.piggyback ? "_piggyback" : "") + (at.refusals ? "_delayed" : "") + "_closings" +
           std::to_string(at.closings);
}

class ContactPair : public ::testing::TestWithParam<Case> {
  protected:
    /// (Unless stealing is the paper's, messages are counted, so endless ones have no end of states.)
    [[nodiscard]] static Verdict explore_pair(uint16_t there, uint16_t back, uint8_t message_packets,
                                              flowctl::Stealing stealing = flowctl::Stealing::kPaper) {
        const Case& given = GetParam();
        auto options = pair_options(
            contact_plan(1, 1, given.shared_slots, given.credit_slots, given.piggyback, stealing), there,
            back, message_packets);
        options.refusals = given.refusals;
        options.closings = given.closings;
        options.direct = true;
        return explore(PairWorld(options));
    }
};

TEST_P(ContactPair, endless_messages_one_way_and_both_ways_always_go_on) {
    expect_holds(explore_pair(kEndless, 0, 1), 10);
    expect_holds(explore_pair(kEndless, kEndless, 1), 50);
}

TEST_P(ContactPair, finite_work_both_ways_ends) {
    expect_holds(explore_pair(3, 2, 2), 50);
    expect_holds(explore_pair(2, 2, 2, flowctl::Stealing::kTurns), 50);
}

INSTANTIATE_TEST_SUITE_P(Small, ContactPair,
                         ::testing::Values(Case{2, 1, true, false, 0}, Case{2, 1, false, false, 1},
                                           Case{2, 1, true, false, 1}, Case{3, 1, true, false, 1},
                                           Case{3, 1, true, true, 1}, Case{4, 2, true, false, 1}),
                         case_name);
// Minutes: by make check, and by ./check --long.
INSTANTIATE_TEST_SUITE_P(Long, ContactPair,
                         ::testing::Values(Case{4, 1, true, false, 2}, Case{3, 1, true, true, 2},
                                           Case{5, 2, true, true, 1}),
                         case_name);

// The opening brings what the first message lacks.
TEST(ContactPairLong, messages_of_more_packets_than_static_slots_go_on) {
    for (const uint32_t shared_slots : {5u, 8u}) {
        for (const bool piggyback : {false, true}) {
            auto options = pair_options(contact_plan(1, 1, shared_slots, 1, piggyback, flowctl::Stealing::kTurns),
                                        shared_slots == 5 ? 1 : 3, shared_slots == 5 ? 1 : 0, 4);
            options.closings = shared_slots == 5 ? 1 : 0;
            options.direct = true;
            expect_holds(explore(PairWorld(options)), 100);
        }
    }
}

/// Two senders, and slots for one of them at a time.
TrioWorld::Options crowded_options(uint32_t contact_slots, uint32_t shared_slots) {
    TrioWorld::Options options{
        .plan = contact_plan(2, contact_slots, shared_slots, 1, true, flowctl::Stealing::kTurns)};
    options.direct = true;
    return options;
}

TEST(ContactTrio, who_finds_no_slots_goes_on_without) {
    for (const uint32_t shared_slots : {2u, 3u}) {
        auto options = crowded_options(1, shared_slots);
        options.messages[0][2] = options.messages[1][2] = 4;
        options.messages[2][0] = 1;
        expect_holds(explore(TrioWorld(options)), 500);
    }
}

TEST(ContactTrio, slots_of_who_has_left_go_to_the_other) {
    auto options = crowded_options(1, 2);
    options.messages[0][2] = options.messages[1][2] = 3;
    options.closings = 1;
    expect_holds(explore(TrioWorld(options)), 500);
}

// A turn's credits that ride in a message must not overtake the opening, which may wait for a contact slot.
TEST(ContactTrio, longer_messages_take_turns) {
    auto options = crowded_options(1, 6);
    options.message_packets = 2;
    options.messages[0][2] = options.messages[2][0] = 2;
    options.messages[1][2] = 1;
    expect_holds(explore(TrioWorld(options)), 500);
}

TEST(ContactTrioFull, all_three_share_two_contact_slots) {
    auto options = crowded_options(2, 4);
    options.messages[0][2] = 2;
    options.messages[1][2] = options.messages[2][0] = 1;
    options.closings = 1;
    expect_holds(explore(TrioWorld(options)), 5'000);
}

// Every control packet is refused at first, body packets are taken in runs, and links close: in any order.
TEST(ContactRefusalsFull, runs_and_refused_packets_keep_every_bound) {
    for (const uint32_t shared_slots : {4u, 6u}) {
        auto options = pair_options(contact_plan(1, 1, shared_slots, 1, true, flowctl::Stealing::kTurns), 2, 1, 3);
        options.closings = 1;
        options.runs = true;
        options.refusals = true;
        options.direct = true;
        expect_holds(explore(PairWorld(options)), 1'000);
    }
}

TEST(ContactRefusals, runs_in_a_mailbox_keep_every_bound) {
    auto options = pair_options(contact_plan(1, 1, 6, 1, true, flowctl::Stealing::kTurns), 2, 0, 4);
    options.closings = 1;
    options.runs = true;
    expect_holds(explore(PairWorld(options)), 500);
}

TEST(ContactRefusals, of_three_processes_that_close_keep_every_bound) {
    auto options = crowded_options(1, 4);
    options.messages[0][2] = options.messages[1][2] = 1;
    options.messages[2][0] = 1;
    options.closings = 1;
    options.refusals = true;
    expect_holds(explore(TrioWorld(options)), 5'000);
}

TEST(ContactStraysFull, come_to_rest) {
    for (const bool refusals : {false, true}) {
        auto options = pair_options(contact_plan(1, 2, 4, 1, true, flowctl::Stealing::kTurns), 2, 1);
        options.closings = 1;
        options.strays = 1;
        options.refusals = refusals;
        options.direct = true;
        options.check_invariants = false;
        expect_holds(explore(PairWorld(options)), 500);
    }
}

TEST(ContactMistake, a_run_that_is_booked_late_is_found_out) {
    auto options = pair_options(contact_plan(1, 1, 6, 1, true, flowctl::Stealing::kTurns), 2, 0, 4);
    options.closings = 1;
    options.direct = true;
    options.bug = Bug::kRunLate;
    EXPECT_FALSE(explore(PairWorld(options)).holds());
}

// The peer would take the opening for one of the link that it has closed.
TEST(ContactMistake, an_opening_that_overtakes_the_answer_to_a_close_is_found_out) {
    auto options = pair_options(contact_plan(1, 2, 4, 1, true, flowctl::Stealing::kTurns), 2, 2);
    options.closings = 1;
    options.refusals = true;
    options.direct = true;
    options.bug = Bug::kOpenOvertakes;
    EXPECT_FALSE(explore(PairWorld(options)).holds());
}

TEST(ContactMistake, slots_taken_back_before_the_answer_are_found_out) {
    auto options = pair_options(contact_plan(1, 1, 4, 1, true, flowctl::Stealing::kPaper), 4, 0);
    options.closings = 1;
    options.direct = true;
    options.bug = Bug::kForgetsAtOnce;
    EXPECT_FALSE(explore(PairWorld(options)).holds());
}

}  // namespace
}  // namespace velo::exhaustive
