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
    duplex_holds({.transfers = kStar, .aborts = 1, .node_deaths = 1, .rail_deaths = 1}, 2);
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

}  // namespace
}  // namespace velo::exhaustive
