// Reservation of rails (rma/rail_reservation.h): in every interleaving of small cases data moves only between
// rails that are set aside for each other, every transfer ends, no rail stays reserved, and no weakly fair
// schedule goes on without a transfer. Processes give up, and nodes and rails die, at every point. Readings
// of RAILS 4 that are unsafe are found to be so.
#include "rma/rail_reservation.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/exhaustive/fair_explorer.h"
#include "tests/exhaustive/paper_rail.h"
#include "tests/exhaustive/rail_world.h"

namespace velo::exhaustive {
namespace {

using rma::DuplexRail;
using rma::HalfDuplexRail;
using Transfers = std::vector<std::vector<uint8_t>>;

const Transfers kPair = {{1}, {0}};
const Transfers kPairTwice = {{1, 1}, {0, 0}};
const Transfers kRing = {{1}, {2}, {0}};
const Transfers kRingTwice = {{1, 1}, {2, 2}, {0, 0}};
const Transfers kStar = {{1}, {0}, {0}};
const Transfers kAll = {{1, 2}, {2, 0}, {0, 1}};

template <typename Rail, typename Make>
FairVerdict explore_rails(const RailWorldOptions& options, Make make) {
    const RailWorld<Rail, Make> world(options, make);
    FairVerdict verdict = FairExplorer(world).run();
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::printf("%s: %s\n", test->name(), verdict.text().substr(0, 300).c_str());
    return verdict;
}

void half_duplex_holds(const RailWorldOptions& options, int32_t counter_max) {
    const FairVerdict verdict = explore_rails<HalfDuplexRail>(
        options, [=](uint32_t node) { return HalfDuplexRail(node, counter_max); });
    EXPECT_TRUE(verdict.holds()) << verdict.text();
    EXPECT_GT(verdict.states, 40u);
}

void duplex_holds(const RailWorldOptions& options, uint32_t queue_max) {
    const FairVerdict verdict =
        explore_rails<DuplexRail<2>>(options, [=](uint32_t) { return DuplexRail<2>(queue_max); });
    EXPECT_TRUE(verdict.holds()) << verdict.text();
    EXPECT_GT(verdict.states, 40u);
}

FairVerdict explore_paper(const RailWorldOptions& options, const Reading& reading, int32_t counter_max = 2) {
    return explore_rails<PaperRail>(options,
                                    [=](uint32_t node) { return PaperRail(node, counter_max, reading); });
}

TEST(HalfDuplexRails, pair_ring_and_star_hold_up_to_the_bounds_of_the_counter) {
    for (const int32_t counter_max : {1, 2, 4}) {
        half_duplex_holds({.transfers = kPairTwice}, counter_max);
        half_duplex_holds({.transfers = kRing}, counter_max);
        half_duplex_holds({.transfers = kStar}, counter_max);
        half_duplex_holds({.transfers = kRing, .any_order = true}, counter_max);
    }
    half_duplex_holds({.transfers = kRingTwice}, 2);
    half_duplex_holds({.transfers = kAll}, 2);
}

/// Ends of transfers as velo has them.
TEST(HalfDuplexRails, the_requester_may_end_the_transfer) {
    half_duplex_holds({.transfers = kPairTwice, .any_order = true, .requester_ends = true, .rail_deaths = 1},
                      1);
    half_duplex_holds({.transfers = kRingTwice, .requester_ends = true}, 1);
    half_duplex_holds({.transfers = kStar, .requester_ends = true, .aborts = 1, .node_deaths = 1}, 1);
}

TEST(HalfDuplexRails, a_process_may_give_up_at_any_point) {
    half_duplex_holds({.transfers = kPairTwice, .any_order = true, .aborts = 2}, 2);
    half_duplex_holds({.transfers = kRing, .any_order = true, .aborts = 1}, 2);
    half_duplex_holds({.transfers = kAll, .aborts = 1}, 1);
}

TEST(HalfDuplexRails, a_node_may_die_at_any_point) {
    half_duplex_holds({.transfers = kRing, .aborts = 1, .node_deaths = 1}, 1);
    half_duplex_holds({.transfers = kStar, .any_order = true, .aborts = 1, .node_deaths = 1}, 1);
}

TEST(HalfDuplexRails, a_rail_may_die_and_come_back_at_any_point) {
    half_duplex_holds({.transfers = kPairTwice, .any_order = true, .rail_deaths = 1}, 1);
    half_duplex_holds(
        {.transfers = kPair, .any_order = true, .aborts = 1, .node_deaths = 1, .rail_deaths = 1}, 1);
    half_duplex_holds({.transfers = kRing, .aborts = 1, .rail_deaths = 1}, 1);
    half_duplex_holds({.transfers = kStar, .rail_deaths = 2}, 1);
    half_duplex_holds({.transfers = kStar, .any_order = true, .requester_ends = true, .rail_deaths = 1}, 1);
    half_duplex_holds({.transfers = kRing, .node_deaths = 1, .rail_deaths = 1}, 1);
}

TEST(HalfDuplexRails, rails_may_stay_dead_and_two_nodes_die_in_any_order) {
    half_duplex_holds({.transfers = kRing, .any_order = true, .rail_deaths = 2, .rails_return = false}, 1);
    half_duplex_holds(
        {.transfers = kStar, .any_order = true, .node_deaths = 1, .rail_deaths = 1, .rails_return = false},
        1);
    half_duplex_holds({.transfers = kRing, .any_order = true, .node_deaths = 2}, 1);
    half_duplex_holds({.transfers = kStar, .any_order = true, .requester_ends = true, .node_deaths = 2}, 1);
}

TEST(DuplexRails, requests_queue_or_are_refused) {
    for (const uint32_t queue_max : {0u, 1u, 2u}) {
        duplex_holds({.transfers = kAll, .any_order = true}, queue_max);
        duplex_holds({.transfers = kStar, .any_order = true, .aborts = 2}, queue_max);
        duplex_holds({.transfers = kRing, .requester_ends = true, .aborts = 1, .node_deaths = 1}, queue_max);
    }
}

TEST(DuplexRails, nodes_and_rails_die_at_any_point) {
    duplex_holds({.transfers = kStar, .any_order = true, .node_deaths = 1}, 2);
    duplex_holds({.transfers = kStar, .any_order = true, .rail_deaths = 1}, 2);
    duplex_holds({.transfers = kStar, .any_order = true, .requester_ends = true, .rail_deaths = 1}, 2);
    duplex_holds({.transfers = kRing, .aborts = 1, .rail_deaths = 1}, 1);
    duplex_holds({.transfers = kStar, .any_order = true, .rail_deaths = 1}, 0);
    duplex_holds({.transfers = kPair, .any_order = true, .aborts = 1, .rail_deaths = 1}, 1);
    duplex_holds({.transfers = kStar, .aborts = 1, .node_deaths = 1, .rail_deaths = 1}, 2);
}

TEST(DuplexRails, rails_may_stay_dead_and_two_nodes_die_in_any_order) {
    for (const uint32_t queue_max : {0u, 2u}) {
        duplex_holds({.transfers = kAll, .any_order = true, .rail_deaths = 1, .rails_return = false},
                     queue_max);
        duplex_holds({.transfers = kStar,
                      .any_order = true,
                      .requester_ends = true,
                      .rail_deaths = 2,
                      .rails_return = false},
                     queue_max);
        duplex_holds({.transfers = kStar, .any_order = true, .requester_ends = true, .node_deaths = 2},
                     queue_max);
        duplex_holds({.transfers = kRing, .any_order = true, .aborts = 1, .node_deaths = 2}, queue_max);
    }
}

/// Two states that alternate, with a way out that is an action or a fault.
struct Alternation {
    struct State {
        uint8_t place = 0;
    };
    struct Step {
        uint8_t to = 0;
    };
    static constexpr uint32_t kFault = 63;
    bool is_fault = false;  ///< the way out
    bool progress = false;  ///< of an alternation
    bool from_both = true;  ///< the way out is there in both states

    [[nodiscard]] static State initial() { return {}; }
    void append_steps(const State& state, std::vector<Step>& steps) const {
        if (state.place == 2) return;
        steps.push_back({static_cast<uint8_t>(1 - state.place)});
        if (from_both || state.place == 0) steps.push_back({2});
    }
    bool apply(State& state, Step step) const {
        state.place = step.to;
        return progress;
    }
    [[nodiscard]] uint32_t action(const State&, Step step) const {
        return step.to == 2 && is_fault ? kFault : step.to;
    }
    [[nodiscard]] static bool is_goal(const State& state) { return state.place == 2; }
    [[nodiscard]] static std::string violation(const State&) { return ""; }
    static void append_key(const State& state, Key& key) { key.push_back(state.place); }
    [[nodiscard]] static std::string describe(Step) { return "step"; }
};

TEST(FairExplorer, a_cycle_is_unfair_if_an_action_leaves_all_of_its_states) {
    EXPECT_EQ(FairExplorer(Alternation{}).run().cyclic, 0u);
    EXPECT_EQ(FairExplorer(Alternation{.from_both = false}).run().cyclic, 2u);
    EXPECT_EQ(FairExplorer(Alternation{.is_fault = true}).run().cyclic, 2u) << "no schedule needs a fault";
    EXPECT_EQ(FairExplorer(Alternation{.is_fault = true, .progress = true}).run().cyclic, 0u);
}

/// The paper's form with the safe reading is the same machine: each of the mistakes below is the only one.
TEST(PaperRails, the_safe_reading_is_the_production_machine) {
    for (const RailWorldOptions& options :
         {RailWorldOptions{.transfers = kPairTwice, .any_order = true, .aborts = 1},
          RailWorldOptions{.transfers = kPairTwice, .rail_deaths = 2},
          RailWorldOptions{.transfers = kRing, .aborts = 1, .node_deaths = 1}}) {
        const FairVerdict paper = explore_paper(options, {});
        const FairVerdict own =
            explore_rails<HalfDuplexRail>(options, [](uint32_t node) { return HalfDuplexRail(node, 2); });
        EXPECT_TRUE(paper.holds()) << paper.text();
        EXPECT_EQ(paper.states, own.states);
        EXPECT_EQ(paper.steps, own.steps);
    }
}

/// After the message the NIC is Reserved without a request.
TEST(PaperRails, algorithm_5_literally_leaves_a_rail_reserved) {
    for (const Transfers& transfers : {kPair, kRing}) {
        const FairVerdict verdict = explore_paper({.transfers = transfers}, {.algorithm_5 = true});
        EXPECT_GT(verdict.stuck, 0u) << verdict.text();
    }
}

/// The process waits no more, the NIC is Reserved, and the CTS comes: Sending without a sender.
TEST(PaperRails, the_timeout_of_algorithm_4_leaves_both_ends_reserved) {
    for (const Transfers& transfers : {kPair, kRing}) {
        const FairVerdict verdict = explore_paper({.transfers = transfers, .timeouts = 1}, {});
        EXPECT_GT(verdict.stuck, 0u) << verdict.text();
    }
}

TEST(PaperRails, without_the_nodes_as_tie_break_two_nodes_refuse_each_other_without_end) {
    const FairVerdict verdict = explore_paper({.transfers = kPair}, {.tie_break = false});
    EXPECT_EQ(verdict.stuck, 0u) << verdict.text();
    EXPECT_GT(verdict.cyclic, 0u) << verdict.text();
}

TEST(PaperRails, without_algorithm_6_requests_refuse_each_other_without_end) {
    for (const Transfers& transfers : {kPair, kRing}) {
        const FairVerdict verdict = explore_paper({.transfers = transfers}, {.algorithm_6 = false});
        EXPECT_EQ(verdict.stuck, 0u) << verdict.text();
        EXPECT_GT(verdict.cyclic, 0u) << verdict.text();
    }
}

/// A counter that changes while a request is out may make both of two nodes lose, or win, for each other.
TEST(PaperRails, a_live_counter_has_cycles_without_a_transfer_once_it_reaches_its_bound) {
    for (const int32_t counter_max : {1, 2, 3, 4}) {
        const FairVerdict verdict = explore_paper({.transfers = kRing}, {.live_counter = true}, counter_max);
        EXPECT_EQ(verdict.stuck, 0u) << verdict.text();
        EXPECT_GT(verdict.cyclic, 0u) << verdict.text();
    }
}

/// It takes a rail that dies and comes back: as long as each request has its answer before the next one
/// leaves, an answer needs no number.
TEST(PaperRails, without_numbers_the_ends_disagree_after_a_rail_has_come_back) {
    constexpr Reading kReading = {.numbers = false};
    EXPECT_TRUE(
        explore_paper({.transfers = kPairTwice, .any_order = true, .numbers = false, .aborts = 1}, kReading)
            .holds());
    const FairVerdict verdict =
        explore_paper({.transfers = kPairTwice, .numbers = false, .rail_deaths = 1}, kReading);
    EXPECT_GT(verdict.stuck, 0u) << verdict.text();
    EXPECT_GT(verdict.cyclic, 0u) << verdict.text();
}

/// The requester's rail dies while its request is out, and the CTS finds no request.
TEST(PaperRails, a_stale_cts_that_is_not_given_back_leaves_the_granter_reserved) {
    for (const Transfers& transfers : {kPair, kRing}) {
        const FairVerdict verdict =
            explore_paper({.transfers = transfers, .rail_deaths = 1}, {.stale_aborts = false});
        EXPECT_GT(verdict.stuck, 0u) << verdict.text();
    }
    EXPECT_TRUE(explore_paper({.transfers = kRing, .aborts = 1}, {.stale_aborts = false}).holds())
        << "without deaths no CTS is stale";
}

TEST(PaperRails, a_grant_that_a_dead_rail_does_not_take_back_is_used) {
    for (const Transfers& transfers : {kPair, kRing}) {
        const FairVerdict verdict =
            explore_paper({.transfers = transfers, .rail_deaths = 1}, {.takes_back = false});
        EXPECT_FALSE(verdict.violation.empty() && verdict.stuck == 0) << verdict.text();
    }
}

/// An ACK or a CTS of a node that has died never comes.
TEST(PaperRails, a_death_that_is_not_followed_leaves_the_other_end_reserved) {
    for (const Transfers& transfers : {kPair, kRing}) {
        const FairVerdict verdict =
            explore_paper({.transfers = transfers, .node_deaths = 1}, {.follows_deaths = false});
        EXPECT_GT(verdict.stuck, 0u) << verdict.text();
    }
}

/// Algorithm 5 as printed: the NIC is Free while its request is out, and so has two requests out after the
/// first one was given up.
TEST(PaperRails, a_grant_whose_end_frees_a_rail_with_a_request_out_needs_numbers) {
    for (const Transfers& transfers : {kPairTwice, kStar}) {
        for (const bool numbers : {true, false}) {
            const FairVerdict verdict =
                explore_paper({.transfers = transfers, .numbers = numbers, .aborts = 1},
                              {.numbers = numbers, .ack_frees = true});
            EXPECT_EQ(verdict.holds(), numbers) << verdict.text();
        }
    }
}

}  // namespace
}  // namespace velo::exhaustive
