// Transfers over several rails (rma/rail_reservations.h): in every interleaving of small cases a rail that is
// held is set aside at the other end, every transfer ends, and nothing is left of it. Processes die in any
// order, rails die and may stay dead, paths fail, and messages are lost.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/exhaustive/fair_explorer.h"
#include "tests/exhaustive/rail_reservations_world.h"

namespace velo::exhaustive {
namespace {

FairVerdict explore(const RailReservationsOptions& options) {
    const RailReservationsWorld world(options);
    FairVerdict verdict = FairExplorer(world).run();
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::printf("%s: %s\n", test->name(), verdict.text().substr(0, 400).c_str());
    return verdict;
}
void holds(const RailReservationsOptions& options) {
    const FairVerdict verdict = explore(options);
    EXPECT_TRUE(verdict.holds()) << verdict.text();
    EXPECT_GT(verdict.states, 40u);
}

TEST(RailReservations, two_requesters_of_one_owner_share_its_rails) {
    holds({.transfers = {{1, 0, 2}, {2, 0, 2}}, .processes = 3, .patient = true});
    holds({.transfers = {{1, 0, 1}, {1, 0, 2}, {2, 0, 1}}, .processes = 3, .patient = true});
}

TEST(RailReservations, processes_that_ask_each_other_do_not_wait_in_a_circle) {
    holds({.transfers = {{0, 1, 2}, {1, 0, 2}}, .patient = true});
    holds({.transfers = {{0, 1, 2}, {1, 2, 1}, {2, 0, 1}}, .processes = 3, .patient = true});
    holds({.transfers = {{0, 1, 1}, {0, 2, 1}, {1, 2, 1}}, .processes = 3, .patient = true});
    holds({.transfers = {{0, 1, 2}, {0, 1, 1, true}, {1, 0, 1, true}}, .patient = true});
}

/// The warning of DuplexRail: each of two transfers has a rail, and waits for the other one's.
TEST(RailReservations, a_transfer_that_keeps_a_rail_while_it_waits_for_another_deadlocks) {
    const FairVerdict verdict =
        explore({.transfers = {{1, 0, 2}, {2, 0, 2}}, .processes = 3, .patient = true, .keeps = true});
    EXPECT_GT(verdict.stuck, 0u) << verdict.text();
}

TEST(RailReservations, rails_die_at_any_point_and_come_back) {
    holds({.transfers = {{1, 0, 2}}, .rail_deaths = 2, .patient = true});
    holds({.transfers = {{1, 0, 1}, {1, 0, 1}}, .rails = 1, .rail_deaths = 2, .patient = true});
    holds({.transfers = {{1, 0, 2}, {2, 0, 1}}, .processes = 3, .rail_deaths = 1, .patient = true});
    holds({.transfers = {{1, 0, 1}, {2, 0, 1}},
           .processes = 3,
           .rails = 1,
           .deaths = 1,
           .rail_deaths = 1,
           .patient = true});
    holds({.transfers = {{0, 1, 1}, {1, 0, 1}}, .rail_deaths = 1, .patient = true});
}

/// With no rail left the transfers go without, some of them when their time has come.
TEST(RailReservations, rails_die_for_good) {
    holds({.transfers = {{1, 0, 2}}, .rail_deaths = 4, .come_back = false});
    holds({.transfers = {{0, 1, 1}, {1, 0, 1}}, .rail_deaths = 1, .come_back = false});
    holds({.transfers = {{1, 0, 1}, {1, 0, 1}}, .rails = 1, .rail_deaths = 2, .come_back = false});
    holds({.transfers = {{1, 0, 1}, {2, 0, 1}},
           .processes = 3,
           .rails = 1,
           .rail_deaths = 2,
           .come_back = false});
}

TEST(RailReservations, paths_fail) {
    holds({.transfers = {{1, 0, 2}, {1, 0, 1}}, .paths = 2, .patient = true});
    holds({.transfers = {{1, 0, 2}, {2, 0, 1}}, .processes = 3, .paths = 1, .patient = true});
}

TEST(RailReservations, processes_die_in_any_order) {
    holds({.transfers = {{1, 0, 2}, {2, 0, 1}}, .processes = 3, .deaths = 2, .patient = true});
    holds({.transfers = {{0, 1, 1}, {1, 2, 1}, {2, 0, 1}}, .processes = 3, .deaths = 2, .patient = true});
}

/// The loss of a rail's last message at its owner leaves it set aside, until the same process asks again.
TEST(RailReservations, lost_messages_hold_up_no_transfer_for_longer_than_its_limit) {
    holds({.transfers = {{1, 0, 2}}, .losses = 3});
    holds({.transfers = {{1, 0, 2}, {2, 0, 1}}, .processes = 3, .losses = 1});
    holds({.transfers = {{1, 0, 1}, {2, 0, 1}}, .processes = 3, .rails = 1, .losses = 2});
}

TEST(RailReservations, a_transfer_may_go_without_at_any_point) {
    holds({.transfers = {{1, 0, 2}, {2, 0, 1}}, .processes = 3});
    holds({.transfers = {{0, 1, 1}, {1, 0, 1}, {0, 1, 1}}, .rails = 1});
}

}  // namespace
}  // namespace velo::exhaustive
