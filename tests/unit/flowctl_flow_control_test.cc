// Events of one process under flow control: what each changes, and what it refuses.
#include <gtest/gtest.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/unit/flowctl_driver.h"

namespace velo::flowctl {
namespace {

Plan static_plan(uint32_t peers, uint32_t quota, uint32_t credit_slots, uint32_t excess = 0) {
    return std::get<Plan>(plan({.mode = Mode::kStatic,
                                .peers = peers,
                                .mailbox_slots = peers * (quota + credit_slots) + excess,
                                .credit_slots = credit_slots}));
}

Plan none_plan() {
    return std::get<Plan>(plan({.mode = Mode::kNone, .peers = 3}));
}

std::vector<uint32_t> state_of(const DrivenFlowControl& flow_control) {
    std::vector<uint32_t> words;
    flow_control.visit_state([&words](uint32_t word) { words.push_back(word); });
    return words;
}

constexpr Action send_credits(PeerIndex peer, uint32_t credits) {
    return {.kind = ControlKind::kCredits, .peer = peer, .credits = credits};
}

TEST(Sender, may_send_its_quota_and_no_more) {
    DrivenFlowControl flow_control(static_plan(2, 20, 2));
    EXPECT_EQ(flow_control.sendable(1, 37), 20u);
    EXPECT_EQ(flow_control.sendable(1, 5), 5u);
    flow_control.packets_sent(1, 18);
    EXPECT_EQ(flow_control.sendable(1, 5), 2u);
    flow_control.packets_sent(1, 2);
    EXPECT_EQ(flow_control.sendable(1, 5), 0u);
    EXPECT_EQ(flow_control.sendable(0, 5), 5u) << "another peer's credits are its own";
}

TEST(Sender, returned_credits_may_be_sent_again) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    Actions actions;
    flow_control.packets_sent(0, 20);
    EXPECT_EQ(flow_control.credits_arrived(0, 7, actions), Status::kOk);
    EXPECT_EQ(flow_control.sendable(0, 37), 7u);
    EXPECT_TRUE(actions.empty());
}

TEST(Sender, return_of_more_than_the_peer_owes_is_a_violation_and_changes_nothing) {
    DrivenFlowControl flow_control(static_plan(2, 20, 2));
    Actions actions;
    flow_control.packets_sent(0, 7);
    const auto before = state_of(flow_control);
    EXPECT_EQ(flow_control.credits_arrived(0, 8, actions), Status::kProtocol);
    EXPECT_EQ(flow_control.credits_arrived(0, UINT32_MAX, actions), Status::kProtocol);
    EXPECT_EQ(flow_control.credits_arrived(1, 1, actions), Status::kProtocol);
    EXPECT_EQ(state_of(flow_control), before);
    EXPECT_TRUE(actions.empty());
    EXPECT_EQ(flow_control.credits_arrived(0, 7, actions), Status::kOk);
}

TEST(Sender, return_of_no_credits_is_a_violation_and_changes_nothing) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    Actions actions;
    flow_control.packets_sent(0, 20);
    const auto before = state_of(flow_control);
    EXPECT_EQ(flow_control.credits_arrived(0, 0, actions), Status::kProtocol);
    EXPECT_EQ(state_of(flow_control), before);
}

TEST(Sender, accepts_the_one_slot_that_a_favouring_peer_may_add_and_no_second) {
    DrivenFlowControl flow_control(static_plan(2, 5, 2, 1));
    Actions actions;
    EXPECT_EQ(flow_control.sendable(0, 37), 5u) << "favoured or not, every sender starts alike";
    EXPECT_EQ(flow_control.sendable(1, 37), 5u);
    EXPECT_EQ(flow_control.credits_arrived(1, 1, actions), Status::kOk);
    EXPECT_EQ(flow_control.credits_arrived(1, 1, actions), Status::kProtocol);
    EXPECT_EQ(flow_control.credits(1), 6u);
}

TEST(SenderDeathTest, sending_without_credits_is_our_own_bug) {
    DrivenFlowControl flow_control(static_plan(1, 4, 1));
    EXPECT_DEATH(flow_control.packets_sent(0, 5), "5 packets went to peer 0 with 4 credits");
}

TEST(Receiver, returns_credits_at_the_threshold_and_not_before) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    Actions actions;
    for (uint32_t packet = 1; packet <= 6; ++packet) {
        EXPECT_EQ(flow_control.packets_retrieved(0, 1, {}, actions), Status::kOk);
        EXPECT_TRUE(actions.empty());
    }
    EXPECT_EQ(flow_control.packets_retrieved(0, 1, {}, actions), Status::kOk);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0], send_credits(0, 7));
    EXPECT_EQ(flow_control.retrieved(0), 0u);
}

TEST(Receiver, figure_3_of_the_paper_sends_two_credit_packets_and_keeps_six) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    uint32_t credit_packets = 0;
    for (uint32_t packet = 0; packet < 20; ++packet) {
        Actions actions;
        EXPECT_EQ(flow_control.packets_retrieved(0, 1, {}, actions), Status::kOk);
        credit_packets += actions.size();
    }
    EXPECT_EQ(credit_packets, 2u);
    EXPECT_EQ(flow_control.retrieved(0), 6u);
    EXPECT_EQ(flow_control.granted(0), 14u);
}

TEST(Receiver, batch_past_the_threshold_returns_all_of_it_in_one_packet) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    Actions actions;
    EXPECT_EQ(flow_control.packets_retrieved(0, 16, {}, actions), Status::kOk);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0], send_credits(0, 16));
}

TEST(Receiver, return_larger_than_one_packet_carries_goes_in_chunks) {
    const uint32_t quota = 3 * kReturnMax - 1;
    DrivenFlowControl flow_control(static_plan(1, quota, 2));
    Actions actions;
    EXPECT_EQ(flow_control.packets_retrieved(0, quota, {}, actions), Status::kOk);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0], send_credits(0, kReturnMax));
    EXPECT_EQ(flow_control.retrieved(0), quota - kReturnMax);
    EXPECT_EQ(flow_control.take_piggyback(0, UINT32_MAX, actions), kReturnMax);
    EXPECT_EQ(flow_control.retrieved(0), quota - 2 * kReturnMax);
}

TEST(Receiver, more_packets_than_the_peer_can_have_sent_are_a_violation_and_change_nothing) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    Actions actions;
    EXPECT_EQ(flow_control.packets_retrieved(0, 3, {}, actions), Status::kOk);
    const auto before = state_of(flow_control);
    EXPECT_EQ(flow_control.packets_retrieved(0, 18, {}, actions), Status::kProtocol);
    EXPECT_EQ(flow_control.packets_retrieved(0, UINT32_MAX, {}, actions), Status::kProtocol);
    EXPECT_EQ(state_of(flow_control), before);
    EXPECT_TRUE(actions.empty());
    EXPECT_EQ(flow_control.packets_retrieved(0, 17, {}, actions), Status::kOk);
}

TEST(Receiver, favoured_peer_gets_its_extra_credit_with_its_first_return) {
    DrivenFlowControl flow_control(static_plan(2, 5, 2, 1));
    Actions actions;
    ASSERT_EQ(flow_control.threshold(0), 3u);
    ASSERT_EQ(flow_control.threshold(1), 2u);
    EXPECT_EQ(flow_control.packets_retrieved(0, 1, {}, actions), Status::kOk);
    EXPECT_TRUE(actions.empty());
    EXPECT_EQ(flow_control.packets_retrieved(0, 1, {}, actions), Status::kOk);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0], send_credits(0, 3));
    EXPECT_EQ(flow_control.granted(0), 6u);
    EXPECT_EQ(flow_control.granted(1), 5u);
}

TEST(Piggyback, takes_the_counter_with_it_and_puts_off_the_explicit_return) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    Actions actions;
    EXPECT_EQ(flow_control.packets_retrieved(0, 6, {}, actions), Status::kOk);
    EXPECT_EQ(flow_control.take_piggyback(0, kReturnMax, actions), 6u);
    EXPECT_EQ(flow_control.take_piggyback(0, kReturnMax, actions), 0u);
    EXPECT_EQ(flow_control.packets_retrieved(0, 6, {}, actions), Status::kOk);
    EXPECT_TRUE(actions.empty()) << "6 are below the threshold again";
}

TEST(Piggyback, takes_no_more_than_there_is_room_for) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    Actions actions;
    EXPECT_EQ(flow_control.packets_retrieved(0, 6, {}, actions), Status::kOk);
    EXPECT_EQ(flow_control.take_piggyback(0, 4, actions), 4u);
    EXPECT_EQ(flow_control.take_piggyback(0, 0, actions), 0u);
    EXPECT_EQ(flow_control.retrieved(0), 2u);
}

TEST(Piggyback, switched_off_returns_nothing_and_keeps_the_counter) {
    Plan plan = static_plan(1, 20, 2);
    plan.piggyback = false;
    DrivenFlowControl flow_control(plan);
    Actions actions;
    EXPECT_EQ(flow_control.packets_retrieved(0, 6, {}, actions), Status::kOk);
    EXPECT_EQ(flow_control.take_piggyback(0, kReturnMax, actions), 0u);
    EXPECT_EQ(flow_control.retrieved(0), 6u);
}

TEST(Control, request_or_response_under_static_is_a_violation_and_changes_nothing) {
    DrivenFlowControl flow_control(static_plan(1, 20, 2));
    Actions actions;
    const auto before = state_of(flow_control);
    EXPECT_EQ(flow_control.control_arrived(0, ControlKind::kReturnRequest, 0, actions), Status::kProtocol);
    EXPECT_EQ(flow_control.control_arrived(0, ControlKind::kReturnResponse, 3, actions), Status::kProtocol);
    EXPECT_EQ(state_of(flow_control), before);
    EXPECT_TRUE(actions.empty());
}

TEST(ResetPeer, gives_back_what_the_dead_peer_held_and_owed_and_leaves_others_alone) {
    DrivenFlowControl flow_control(static_plan(3, 5, 2, 1));
    const auto fresh = state_of(flow_control);
    Actions actions;
    flow_control.packets_sent(0, 3);
    flow_control.packets_sent(2, 2);
    EXPECT_EQ(flow_control.packets_retrieved(0, 1, {}, actions), Status::kOk);
    flow_control.reset_peer(0);
    EXPECT_EQ(flow_control.credits(0), 5u);
    EXPECT_EQ(flow_control.retrieved(0), 1u) << "a favoured peer starts with one packet retrieved";
    EXPECT_EQ(flow_control.credits(2), 3u);
    flow_control.reset_peer(2);
    EXPECT_EQ(state_of(flow_control), fresh);
}

TEST(ModeNone, never_holds_anything_back_and_never_returns_credits) {
    DrivenFlowControl flow_control(none_plan());
    Actions actions;
    EXPECT_EQ(flow_control.sendable(2, 1'000'000), 1'000'000u);
    flow_control.packets_sent(2, 1'000'000);
    EXPECT_EQ(flow_control.sendable(2, 1'000'000), 1'000'000u);
    EXPECT_EQ(flow_control.packets_retrieved(2, 1'000'000, {}, actions), Status::kOk);
    EXPECT_EQ(flow_control.take_piggyback(2, kReturnMax, actions), 0u);
    EXPECT_TRUE(actions.empty());
    EXPECT_EQ(flow_control.credits_arrived(2, 1, actions), Status::kProtocol);
    flow_control.reset_peer(2);
    EXPECT_TRUE(flow_control.check_invariants(2));
    EXPECT_TRUE(state_of(flow_control).empty());
}

TEST(FlowControlDeathTest, plan_with_a_mode_that_is_not_available_is_our_own_bug) {
    Plan plan = static_plan(1, 4, 1);
    plan.mode = static_cast<Mode>(77);
    EXPECT_DEATH(FlowControl{plan}, "a plan with mode");
}

TEST(FlowControl, invariants_hold_after_every_event_of_an_exchange) {
    DrivenFlowControl flow_control(static_plan(1, 3, 2));
    Actions actions;
    for (uint32_t turn = 0; turn < 50; ++turn) {
        actions.clear();
        const uint32_t sent = flow_control.sendable(0, 1 + turn % 3);
        flow_control.packets_sent(0, sent);
        ASSERT_TRUE(flow_control.check_invariants(0));
        ASSERT_EQ(flow_control.packets_retrieved(0, 1 + turn % 2, {}, actions), Status::kOk);
        ASSERT_TRUE(flow_control.check_invariants(0));
        ASSERT_EQ(flow_control.credits_arrived(0, sent, actions), Status::kOk);
        ASSERT_TRUE(flow_control.check_invariants(0));
    }
}


}  // namespace
}  // namespace velo::flowctl
