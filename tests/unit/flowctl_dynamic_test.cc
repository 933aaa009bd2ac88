// Dynamic flow control of one process: thresholds, activity, stealing, and the trace of FC figure 14.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/unit/flowctl_receiver.h"

namespace velo::flowctl {
namespace {

using Fifo = std::vector<uint32_t>;

// The paper's text gives what happens in each block, and the figure the numbers: two credit slots and an
// intended quota of 10. Two other senders make slots short in block 2 and take quota away in block 4.
TEST(Figure14, trace_of_eight_blocks) {
    Receiver receiver(dynamic_plan(3, 28));
    ASSERT_EQ(receiver.flow.quota(0), 10u);
    for (const PeerIndex other : {1u, 2u}) {
        EXPECT_EQ(receiver.retrieve(other, 1), 4u);
        EXPECT_EQ(receiver.retrieve(other, 1), 4u);
        EXPECT_EQ(receiver.retrieve(other, 1), 4u);
    }
    ASSERT_EQ(receiver.available(), 4u);

    // 1: the regular way, with what equation 1 says.
    EXPECT_EQ(receiver.thresholds(0), (Fifo{1, 1, 1}));
    EXPECT_EQ(receiver.retrieve(0, 1), 4u);
    EXPECT_EQ(receiver.thresholds(0), (Fifo{1, 1, 4}));
    // 2: four are due and two available.
    EXPECT_EQ(receiver.retrieve(0, 1), 2u);
    EXPECT_EQ(receiver.thresholds(0), (Fifo{1, 4, 2}));
    EXPECT_EQ(receiver.available(), 0u);
    // 3: another sender's packets have freed slots, so four are available again.
    EXPECT_EQ(receiver.retrieve(1, 3), 0u);
    EXPECT_EQ(receiver.retrieve(0, 1), 4u);
    EXPECT_EQ(receiver.thresholds(0), (Fifo{4, 2, 4}));
    // 4: more active senders have taken quota.
    while (receiver.flow.quota(0) > 7) receiver.retrieve(1, 1);
    while (receiver.flow.quota(0) > 5) receiver.retrieve(2, 1);
    ASSERT_EQ(threshold_for(receiver.flow.quota(0), 2), 2u);
    EXPECT_EQ(receiver.retrieve(0, 4), 2u);
    EXPECT_EQ(receiver.thresholds(0), (Fifo{2, 4, 2}));
    // 5: the piggybacking way, by deficit: of two credits one has gone.
    EXPECT_EQ(receiver.retrieve(0, 1), 0u);
    EXPECT_EQ(receiver.piggyback(0), 1u);
    EXPECT_EQ(receiver.retrieve(0, 1), 0u);
    EXPECT_EQ(receiver.piggyback(0), 1u);
    EXPECT_EQ(receiver.thresholds(0), (Fifo{4, 2, 2}));
    // 6: by excess: three have gone where two are due, so the next threshold is one higher.
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(receiver.retrieve(0, 1), 0u);
        EXPECT_EQ(receiver.piggyback(0), 1u);
    }
    EXPECT_EQ(receiver.retrieve(0, 1), 0u);
    EXPECT_EQ(receiver.piggyback(0), 0u);
    EXPECT_EQ(receiver.thresholds(0), (Fifo{3, 2, 2}));
    // 7: the regular way after credits were piggybacked; nothing is adjusted.
    EXPECT_EQ(receiver.retrieve(0, 1), 0u);
    EXPECT_EQ(receiver.piggyback(0), 1u);
    EXPECT_EQ(receiver.retrieve(0, 3), 2u);
    EXPECT_EQ(receiver.thresholds(0), (Fifo{2, 2, 2}));
    EXPECT_EQ(receiver.flow.dynamic()->at(0).piggybacked(), 0u);
    // 8: the regular way.
    EXPECT_EQ(receiver.retrieve(0, 2), 2u);
}

TEST(Dynamic, senders_start_with_their_static_slots_in_the_low_list_and_equal_quotas) {
    Receiver receiver(dynamic_plan(4, 30));
    uint32_t quotas = 0;
    for (PeerIndex peer = 0; peer < 4; ++peer) {
        EXPECT_EQ(receiver.flow.credits(peer), 2u);
        EXPECT_EQ(receiver.flow.granted(peer), 2u);
        EXPECT_EQ(receiver.activity(peer), Activity::kLow);
        EXPECT_EQ(receiver.thresholds(peer), (Fifo{1, 1, 1}));
        quotas += receiver.flow.quota(peer);
    }
    EXPECT_EQ(quotas, 30u);
    EXPECT_EQ(receiver.available(), 22u);
}

TEST(Dynamic, without_a_dynamic_region_it_is_static_flow_control) {
    Receiver receiver(dynamic_plan(2, 4));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(receiver.retrieve(0, 1), 1u);
    EXPECT_EQ(receiver.flow.granted(1), 2u);
}

// FC 6.5.2, figures 12 and 13.
TEST(Dynamic, an_active_sender_rises_and_takes_all_but_the_static_slots_of_the_idle_one) {
    Receiver receiver(dynamic_plan(2, 40));
    const auto to_next_monitoring_point = [&] {
        for (int threshold = 0; threshold < 3; ++threshold) {
            receiver.retrieve(0, receiver.flow.threshold(0) - receiver.flow.retrieved(0));
        }
    };
    to_next_monitoring_point();
    EXPECT_EQ(receiver.activity(0), Activity::kMedium);
    EXPECT_EQ(receiver.flow.quota(0), 20u) << "a medium sender takes nothing";
    to_next_monitoring_point();
    EXPECT_EQ(receiver.activity(0), Activity::kHigh);
    EXPECT_EQ(receiver.flow.quota(0), 20u);
    to_next_monitoring_point();
    EXPECT_EQ(receiver.flow.quota(0), 23u) << "equation 6: credit slots + 1 where the quotas are equal";
    EXPECT_EQ(receiver.flow.quota(1), 17u);
    EXPECT_EQ(receiver.activity(1), Activity::kMedium);
    for (int i = 0; i < 20; ++i) to_next_monitoring_point();
    EXPECT_EQ(receiver.flow.quota(0), 38u);
    EXPECT_EQ(receiver.flow.quota(1), 2u) << "its static slots";
    EXPECT_EQ(receiver.activity(1), Activity::kNull);
    EXPECT_TRUE(receiver.requested.empty()) << "it holds no more than it should";
    EXPECT_EQ(receiver.flow.granted(1), 2u);
}

/// A sender that was active and is not any more, and what it holds beyond its static slots.
struct Idle : testing::Test {
    Receiver receiver{dynamic_plan(2, 20)};

    void SetUp() override {
        receiver.retrieve(1, 6);
        while (receiver.requested.empty()) receiver.retrieve(0, 1);
        ASSERT_EQ(receiver.requested, (std::vector<PeerIndex>{1}));
    }
};

TEST_F(Idle, is_asked_once_for_what_it_holds_and_gets_nothing_until_it_answers) {
    const uint32_t held = receiver.flow.granted(1);
    ASSERT_GT(held, 2u);
    for (int i = 0; i < 40; ++i) receiver.retrieve(0, 1);
    EXPECT_EQ(receiver.requested.size(), 1u);
    EXPECT_EQ(receiver.retrieve(1, held - 2), 0u) << "it has its static slots";
    EXPECT_EQ(receiver.piggyback(1), 0u);
    EXPECT_EQ(receiver.retrieve(1, 2), 2u) << "one credit for each threshold";
}

TEST_F(Idle, gives_up_all_but_its_static_slots_and_the_response_costs_one) {
    const uint32_t held = receiver.flow.granted(1);
    EXPECT_EQ(receiver.retrieve(1, 1), 0u) << "the response's own packet";
    Actions actions;
    const uint32_t before = receiver.available();
    EXPECT_EQ(receiver.flow.control_arrived(1, ControlKind::kReturnResponse, held - 2, actions), Status::kOk);
    EXPECT_FALSE(receiver.flow.dynamic()->at(1).blocked);
    EXPECT_EQ(receiver.flow.granted(1), 2u) << "one held, and one returned for the response";
    EXPECT_EQ(receiver.available(), before + held - 3);
    EXPECT_TRUE(receiver.flow.check_invariants(1));
}

TEST_F(Idle, a_response_of_more_than_it_holds_or_without_a_request_changes_nothing) {
    Actions actions;
    std::vector<uint32_t> before;
    receiver.flow.visit_state([&](uint32_t word) { before.push_back(word); });
    const uint32_t held = receiver.flow.granted(1);
    EXPECT_EQ(receiver.flow.control_arrived(1, ControlKind::kReturnResponse, held + 1, actions),
              Status::kProtocol);
    EXPECT_EQ(receiver.flow.control_arrived(0, ControlKind::kReturnResponse, 0, actions), Status::kProtocol);
    EXPECT_EQ(receiver.flow.packets_retrieved(1, held + 1, {}, actions), Status::kProtocol);
    std::vector<uint32_t> after;
    receiver.flow.visit_state([&](uint32_t word) { after.push_back(word); });
    EXPECT_EQ(after, before);
    EXPECT_TRUE(actions.empty());
}

// FC 6.5.4.
TEST(Response, leaves_one_less_than_the_static_slots) {
    DrivenFlowControl flow(dynamic_plan(1, 20));
    Actions actions;
    ASSERT_EQ(flow.credits_arrived(0, 7, actions), Status::kOk);
    EXPECT_EQ(flow.control_arrived(0, ControlKind::kReturnRequest, 0, actions), Status::kOk);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0], (Action{.kind = ControlKind::kReturnResponse, .peer = 0, .credits = 7}));
    EXPECT_EQ(flow.credits(0), 1u);
}

TEST(Response, without_a_credit_waits_for_one_and_goes_ahead_of_data) {
    DrivenFlowControl flow(dynamic_plan(1, 20));
    Actions actions;
    flow.packets_sent(0, 2);
    EXPECT_EQ(flow.control_arrived(0, ControlKind::kReturnRequest, 0, actions), Status::kOk);
    EXPECT_TRUE(actions.empty());
    EXPECT_EQ(flow.control_arrived(0, ControlKind::kReturnRequest, 0, actions), Status::kProtocol)
        << "asked twice";
    EXPECT_EQ(flow.credits_arrived(0, 1, actions), Status::kOk);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0], (Action{.kind = ControlKind::kReturnResponse, .peer = 0, .credits = 0}));
    EXPECT_EQ(flow.sendable(0, 1), 0u) << "the credit went to the response";
}

TEST(Request, goes_before_a_response_when_one_credit_comes) {
    Receiver receiver(dynamic_plan(2, 20));
    receiver.flow.packets_sent(1, 2);
    receiver.retrieve(1, 6);
    while (!receiver.flow.dynamic()->at(1).blocked) receiver.retrieve(0, 1);
    EXPECT_TRUE(receiver.requested.empty()) << "there is no credit for it";
    Actions actions;
    EXPECT_EQ(receiver.flow.control_arrived(1, ControlKind::kReturnRequest, 0, actions), Status::kOk);
    EXPECT_EQ(receiver.flow.credits_arrived(1, 1, actions), Status::kOk);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0].kind, ControlKind::kReturnRequest);
    EXPECT_EQ(receiver.flow.credits_arrived(1, 1, actions), Status::kOk);
    ASSERT_EQ(actions.size(), 2u);
    EXPECT_EQ(actions[1].kind, ControlKind::kReturnResponse);
}

// FC 7.4.1.
TEST(Cap, bounds_what_a_sender_gathers) {
    Receiver receiver(dynamic_plan(2, 40, 2, Stealing::kPaper, 25));
    receiver.retrieve(0, 1'000);
    EXPECT_EQ(receiver.flow.quota(0), 25u);
    EXPECT_LE(receiver.flow.granted(0), 27u);
}

TEST(ActivityStealing, leaves_alone_who_sends_now_and_then_and_takes_from_who_does_not) {
    Receiver receiver(dynamic_plan(3, 60, 2, Stealing::kTurns));
    for (int round = 0; round < 100; ++round) {
        receiver.retrieve(0, 20, {});
        receiver.retrieve(0, 1, kEnd);
        receiver.retrieve(1, 1, kEnd);
    }
    EXPECT_EQ(receiver.flow.quota(1), 20u);
    EXPECT_EQ(receiver.flow.quota(2), 2u);
    EXPECT_EQ(receiver.flow.quota(0), 38u);
}

TEST(ActivityStealing, does_not_shift_slots_among_senders_that_all_send) {
    Receiver receiver(dynamic_plan(8, 48, 2, Stealing::kTurns));
    for (int round = 0; round < 50; ++round) {
        for (PeerIndex peer = 0; peer < 8; ++peer) {
            receiver.retrieve(peer, 36);
            receiver.retrieve(peer, 1, kEnd);
        }
    }
    EXPECT_EQ(receiver.flow.dynamic()->counters.steals, 0u);
    for (PeerIndex peer = 0; peer < 8; ++peer) EXPECT_EQ(receiver.flow.quota(peer), 6u);
}

TEST(ActivityStealing, who_comes_back_gets_a_share_again_from_those_that_go_on) {
    Receiver receiver(dynamic_plan(2, 60, 2, Stealing::kTurns));
    const auto message = [&receiver](PeerIndex from) {
        receiver.retrieve(from, 4);
        receiver.retrieve(from, 1, kEnd);
    };
    for (int i = 0; i < 200; ++i) message(0);
    ASSERT_EQ(receiver.flow.quota(1), 2u);
    for (int i = 0; i < 200; ++i) {
        message(0);
        // Its packets so far: it holds little at first.
        for (uint32_t packet = receiver.flow.granted(1); packet > 1; --packet) receiver.retrieve(1, 1);
        receiver.retrieve(1, 1, kEnd);
    }
    EXPECT_GE(receiver.flow.quota(1), 20u);
    EXPECT_LE(receiver.flow.quota(1), 40u);
}

TEST(EndedPeer, gives_all_its_slots_back) {
    Receiver receiver(dynamic_plan(2, 20));
    receiver.retrieve(0, 3);
    receiver.flow.reset_peer(0);
    EXPECT_EQ(receiver.flow.granted(0), 0u);
    EXPECT_EQ(receiver.available(), 18u);
    EXPECT_TRUE(receiver.flow.check_invariants(0));
}

// FC 7.5 has 150 bytes; the target is 64.
TEST(Memory, of_a_peer_is_less_than_64_bytes) {
    EXPECT_LE(sizeof(DynamicPeer) + (kCreditSlotsDefault + 1) * sizeof(uint16_t), 64u);
}

}  // namespace
}  // namespace velo::flowctl
