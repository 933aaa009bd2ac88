// Control packets that are due: what is added, what is void, and what has left.
#include "flowctl/outbox.h"

#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "flowctl/flow_control.h"

namespace velo::flowctl {
namespace {

Outbox with_peers(PeerIndex peers) {
    Outbox outbox;
    outbox.know(peers - 1);
    return outbox;
}

TEST(Outbox, returns_that_wait_become_one_of_their_sum) {
    Outbox outbox = with_peers(2);
    outbox.add_credits(1, 5);
    outbox.add_credits(1, 3);
    EXPECT_EQ(outbox.credits(1), 8u);
    EXPECT_EQ(outbox.credits(0), 0u);
    EXPECT_TRUE(outbox.has(1, ControlKind::kCredits));
    EXPECT_FALSE(outbox.due(0));
}

/// A packet carries a bounded number of credits, so one return may take several.
TEST(Outbox, a_return_of_which_a_part_has_left_is_due_with_the_rest) {
    Outbox outbox = with_peers(1);
    outbox.add_credits(0, 8);
    outbox.left(0, ControlKind::kCredits, 5);
    EXPECT_TRUE(outbox.has(0, ControlKind::kCredits));
    EXPECT_EQ(outbox.credits(0), 3u);
    outbox.left(0, ControlKind::kCredits, 3);
    EXPECT_FALSE(outbox.due(0));
    EXPECT_EQ(outbox.credits(0), 0u);
}

TEST(Outbox, a_return_that_is_void_leaves_nothing_to_a_later_one) {
    Outbox outbox = with_peers(1);
    outbox.add_credits(0, 8);
    outbox.remove(0, ControlSet(ControlKind::kCredits));
    EXPECT_FALSE(outbox.due(0));
    outbox.add_credits(0, 2);
    EXPECT_EQ(outbox.credits(0), 2u);
}

TEST(Outbox, an_opening_that_is_void_leaves_nothing_to_a_later_one) {
    Outbox outbox = with_peers(1);
    outbox.add_open(0, 8);
    EXPECT_EQ(outbox.first_credits(0), 8u);
    outbox.remove(0, ControlSet(ControlKind::kOpen));
    EXPECT_EQ(outbox.first_credits(0), 0u);
    outbox.add_open(0, 2);
    outbox.left(0, ControlKind::kOpen, 0);
    EXPECT_EQ(outbox.first_credits(0), 0u);
    EXPECT_FALSE(outbox.due(0));
}

TEST(Outbox, what_costs_a_credit_is_not_ready_without_one) {
    Outbox outbox = with_peers(1);
    outbox.add(0, ControlKind::kReturnRequest);
    outbox.add_credits(0, 1);
    EXPECT_TRUE(outbox.ready(0, true).has(ControlKind::kReturnRequest));
    EXPECT_FALSE(outbox.ready(0, false).has(ControlKind::kReturnRequest));
    EXPECT_TRUE(outbox.ready(0, false).has(ControlKind::kCredits));
}

/// Body packets that were accounted for ahead of their message's end, more of them than the peer has credits
/// for.
TEST(FlowControl, a_run_of_more_packets_than_were_granted_is_a_violation_and_changes_nothing) {
    FlowControl flow(std::get<Plan>(plan({.mode = Mode::kStatic, .peers = 2, .mailbox_slots = 44, .credit_slots = 2})));
    for (PeerIndex peer = 0; peer < 2; ++peer) flow.know(peer);
    const auto state = [&flow] {
        std::vector<uint32_t> words;
        flow.visit_state([&words](uint32_t word) { words.push_back(word); });
        return words;
    };
    const auto before = state();
    EXPECT_EQ(flow.run_retrieved(0, 21), Status::kProtocol);
    EXPECT_EQ(state(), before);
    EXPECT_EQ(flow.run_retrieved(0, 4), Status::kOk);
}

}  // namespace
}  // namespace velo::flowctl
