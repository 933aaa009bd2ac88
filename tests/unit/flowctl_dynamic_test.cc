// Dynamic flow control of one process: thresholds, activity, stealing, and the trace of FC figure 14.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/unit/flowctl_driver.h"

namespace velo::flowctl {
namespace {

constexpr MessageEnd kEnd{.ended = true};

/// `data_slots`: of the whole mailbox.
Plan dynamic_plan(uint32_t peers, uint32_t data_slots, uint32_t credit_slots = 2,
                  Stealing stealing = Stealing::kPaper, uint32_t sender_slots_max = 0) {
    const PlanResult result = plan({.mode = Mode::kDynamic,
                                    .peers = peers,
                                    .mailbox_slots = data_slots + peers * credit_slots,
                                    .credit_slots = credit_slots,
                                    .sender_slots_max = sender_slots_max,
                                    .stealing = stealing});
    EXPECT_TRUE(std::holds_alternative<Plan>(result));
    return std::get<Plan>(result);
}

struct Receiver {
    DrivenFlowControl flow;
    Actions actions;

    explicit Receiver(const Plan& plan) : flow(plan) {}

    /// Packets of one sender, one at a time. Returns the credits that go back explicitly.
    uint32_t retrieve(PeerIndex from, uint32_t packets, MessageEnd end = {}) {
        uint32_t returned = 0;
        for (uint32_t i = 0; i < packets; ++i) {
            actions.clear();
            EXPECT_EQ(flow.packets_retrieved(from, 1, end, actions), Status::kOk);
            for (const Action& action : actions) {
                if (action.kind == ControlKind::kCredits) returned += action.credits;
                if (action.kind == ControlKind::kReturnRequest) requested.push_back(action.peer);
            }
        }
        EXPECT_TRUE(flow.check_invariants(from));
        return returned;
    }
    uint32_t piggyback(PeerIndex to) {
        actions.clear();
        const uint32_t credits = flow.take_piggyback(to, kReturnMax, actions);
        EXPECT_TRUE(flow.check_invariants(to));
        return credits;
    }
    std::vector<uint32_t> thresholds(PeerIndex peer) const {
        std::vector<uint32_t> all;
        for (uint32_t place = 0; place < 3; ++place) all.push_back(flow.dynamic()->ledger().threshold(peer, place));
        return all;
    }
    uint32_t available() const { return flow.available_slots(); }
    Activity activity(PeerIndex peer) const { return flow.dynamic()->activity(peer); }

    std::vector<PeerIndex> requested;
};

using Fifo = std::vector<uint32_t>;

// The paper's text gives what happens in each block, and the figure the numbers: two credit slots and an
// intended quota of
// 10. Two other senders make slots short in block 2 and take quota away in block 4.
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
    EXPECT_EQ(receiver.flow.dynamic()->peer(0).piggybacked(), 0u);
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
    EXPECT_FALSE(receiver.flow.dynamic()->peer(1).blocked);
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
    while (!receiver.flow.dynamic()->peer(1).blocked) receiver.retrieve(0, 1);
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

TEST(SilentStealing, leaves_alone_who_sends_now_and_then_and_takes_from_who_does_not) {
    Receiver receiver(dynamic_plan(3, 60, 2, Stealing::kSilent));
    for (int round = 0; round < 100; ++round) {
        receiver.retrieve(0, 20, {});
        receiver.retrieve(0, 1, kEnd);
        receiver.retrieve(1, 1, kEnd);
    }
    EXPECT_EQ(receiver.flow.quota(1), 20u);
    EXPECT_EQ(receiver.flow.quota(2), 2u);
    EXPECT_EQ(receiver.flow.quota(0), 38u);
}

TEST(SilentStealing, does_not_shift_slots_among_senders_that_all_send) {
    Receiver receiver(dynamic_plan(8, 48, 2, Stealing::kSilent));
    for (int round = 0; round < 50; ++round) {
        for (PeerIndex peer = 0; peer < 8; ++peer) {
            receiver.retrieve(peer, 36);
            receiver.retrieve(peer, 1, kEnd);
        }
    }
    EXPECT_EQ(receiver.flow.dynamic()->counters().steals, 0u);
    for (PeerIndex peer = 0; peer < 8; ++peer) EXPECT_EQ(receiver.flow.quota(peer), 6u);
}

TEST(SilentStealing, who_comes_back_gets_a_share_again_from_those_that_go_on) {
    Receiver receiver(dynamic_plan(2, 60, 2, Stealing::kSilent));
    const auto message = [&receiver](PeerIndex from) {
        receiver.retrieve(from, 4);
        receiver.retrieve(from, 1, kEnd);
    };
    for (int i = 0; i < 200; ++i) message(0);
    ASSERT_EQ(receiver.flow.quota(1), 2u);
    for (int i = 0; i < 200; ++i) {
        message(0);
        // What it may have sent: it holds little at first.
        for (uint32_t packet = receiver.flow.granted(1); packet > 1; --packet) receiver.retrieve(1, 1);
        receiver.retrieve(1, 1, kEnd);
    }
    EXPECT_GE(receiver.flow.quota(1), 20u);
    EXPECT_LE(receiver.flow.quota(1), 40u);
}

/// Ten senders of messages of 37 packets, with 14 data slots each.
struct Turns : testing::Test {
    static constexpr uint32_t kSenders = 10;
    static constexpr uint32_t kPackets = 37;
    Receiver receiver{dynamic_plan(kSenders, 14 * kSenders, 2, Stealing::kTurns)};
    std::vector<uint32_t> returns = std::vector<uint32_t>(kSenders);  ///< explicit, to each
    std::vector<uint32_t> requests = std::vector<uint32_t>(kSenders);
    uint32_t waits = 0;  ///< times that a sender had to wait in the middle of a message

    void retrieve(PeerIndex from, MessageEnd end = {}) {
        Actions actions;
        ASSERT_EQ(receiver.flow.packets_retrieved(from, 1, end, actions), Status::kOk);
        for (const Action& action : actions) {
            returns[action.peer] += action.kind == ControlKind::kCredits;
            requests[action.peer] += action.kind == ControlKind::kReturnRequest;
        }
        for (PeerIndex peer = 0; peer < kSenders; ++peer) {
            ASSERT_TRUE(receiver.flow.check_invariants(peer));
        }
    }
    void message(PeerIndex from, uint32_t length = kPackets, bool says_it_waited = false) {
        for (uint32_t left = length; left != 0;) {
            const uint32_t packets = std::min(left, receiver.flow.granted(from));
            ASSERT_NE(packets, 0u) << "sender " << from << " waits for ever";
            left -= packets;
            waits += left != 0;
            for (uint32_t i = 1; i <= packets; ++i) {
                const bool ended = left == 0 && i == packets;
                retrieve(from, {.ended = ended, .waited = ended && says_it_waited});
            }
        }
    }
    void rounds(int count) {
        for (int round = 0; round < count; ++round) {
            for (PeerIndex peer = 0; peer < kSenders; ++peer) message(peer);
        }
    }
    /// Nobody waits in so many rounds, and each sender has a return for each of its messages.
    void expect_smooth(int count) {
        waits = 0;
        returns.assign(kSenders, 0);
        rounds(count);
        EXPECT_EQ(waits, 0u);
        // Those whose next turn is near have had a return more for it, before and after.
        for (PeerIndex peer = 0; peer < kSenders; ++peer) EXPECT_NEAR(returns[peer], count, 1) << peer;
    }
};

TEST_F(Turns, senders_in_turn_have_a_message_s_credits_when_it_comes_and_get_one_return_for_each) {
    rounds(3);
    expect_smooth(20);
    for (PeerIndex peer = 0; peer < kSenders; ++peer) EXPECT_EQ(receiver.flow.quota(peer), 14u);
}

TEST_F(Turns, who_has_just_sent_keeps_its_static_slots_and_what_is_held_back_is_left) {
    rounds(5);
    EXPECT_EQ(receiver.flow.granted(kSenders - 1), 2u);
    EXPECT_EQ(receiver.flow.granted(0), kPackets + 2);
    EXPECT_GE(receiver.available(), 14 * kSenders / 16);
}

TEST_F(Turns, who_comes_out_of_turn_waits_once) {
    rounds(5);
    ASSERT_EQ(receiver.flow.granted(kSenders - 1), 2u);
    waits = 0;
    message(kSenders - 1);
    EXPECT_LE(waits, 2u);
}

TEST_F(Turns, who_came_early_does_not_keep_the_others_waiting) {
    rounds(5);
    message(4);
    waits = 0;
    for (const PeerIndex peer : {0, 1, 2, 3, 5, 6, 7, 8, 9}) message(peer);
    EXPECT_EQ(waits, 0u);
}

TEST_F(Turns, whoever_comes_early_the_others_keep_their_order) {
    rounds(5);
    for (const PeerIndex early : {5, 2, 7}) message(early);
    waits = 0;
    for (const PeerIndex peer : {0, 1, 3, 4, 6, 8, 9}) message(peer);
    EXPECT_EQ(waits, 0u);
}

TEST_F(Turns, short_messages_between_long_ones_make_no_turn_shorter) {
    rounds(5);
    for (int round = 0; round < 5; ++round) {
        for (PeerIndex peer = 0; peer < kSenders; ++peer) message(peer, 1);
        rounds(1);
    }
    expect_smooth(3);
}

TEST_F(Turns, come_earlier_where_messages_had_to_wait_although_there_were_slots) {
    rounds(5);
    ASSERT_EQ(receiver.flow.granted(1), kPackets + 2);
    ASSERT_EQ(receiver.flow.granted(2), 2u);
    for (PeerIndex peer = 0; peer < kSenders; ++peer) message(peer, kPackets, true);
    EXPECT_EQ(receiver.flow.granted(2), kPackets + 2);
}

// So that the next message does not wait for the credits of the one before.
TEST_F(Turns, of_two_messages_come_at_once_where_there_is_enough_for_all_that_are_active) {
    message(0);
    message(0);
    EXPECT_EQ(receiver.flow.granted(0), 2 * kPackets + 2);
    message(1);
    EXPECT_EQ(receiver.flow.granted(1), kPackets + 2);
}

TEST_F(Turns, who_has_fallen_silent_when_slots_are_free_again_is_given_none) {
    Plan plan = dynamic_plan(kSenders, 14 * kSenders, 2, Stealing::kTurns);
    plan.sender_slots_max = 14;
    receiver = Receiver(plan);
    rounds(5);
    // Slots for another turn are free only after so many short messages that all others are silent.
    for (int i = 0; i < 60; ++i) message(i % 2, 1);
    ASSERT_GE(receiver.available(), kPackets + 14 * kSenders / 16);
    for (PeerIndex peer = 3; peer < kSenders; ++peer) EXPECT_EQ(receiver.flow.granted(peer), 2u) << peer;
}

TEST_F(Turns, a_request_is_no_message_and_brings_no_turn) {
    rounds(5);
    ASSERT_EQ(receiver.flow.granted(kSenders - 1), 2u);
    retrieve(kSenders - 1, {.control = true});
    EXPECT_EQ(receiver.flow.granted(kSenders - 1), 2u);
}

TEST_F(Turns, who_sends_short_messages_now_is_asked_for_what_it_holds) {
    rounds(5);
    ASSERT_EQ(receiver.flow.granted(0), kPackets + 2);
    for (int round = 0; round < 20; ++round) {
        message(0, 1);
        for (PeerIndex peer = 1; peer < kSenders; ++peer) message(peer);
    }
    EXPECT_EQ(requests[0], 1u);
    EXPECT_EQ(receiver.flow.quota(0), 14u);
}

TEST_F(Turns, credits_of_a_turn_ride_in_a_message_to_the_sender) {
    rounds(5);
    returns.assign(kSenders, 0);
    message(0);
    message(1);
    ASSERT_EQ(receiver.flow.granted(0), 2u);
    EXPECT_EQ(receiver.piggyback(0), kPackets);
    EXPECT_EQ(receiver.flow.granted(0), kPackets + 2);
    EXPECT_EQ(receiver.piggyback(0), 0u) << "it has all";
    EXPECT_EQ(returns[0], 0u);
}

/// Messages of 37 packets from the only sender, each of which is answered.
struct Answered {
    Receiver receiver;
    uint32_t explicit_credits = 0;
    uint32_t piggybacks = 0;
    uint32_t least_granted = UINT32_MAX;

    explicit Answered(uint32_t data_slots) : receiver(dynamic_plan(1, data_slots, 2, Stealing::kTurns)) {
        // Until it has grown to what it may have, and its length is known.
        for (int warm_up = 0; warm_up < 30; ++warm_up) exchange();
        explicit_credits = piggybacks = 0;
        least_granted = UINT32_MAX;
        for (int message = 0; message < 300; ++message) exchange();
    }
    void exchange() {
        least_granted = std::min(least_granted, receiver.flow.granted(0));
        for (uint32_t left = kPackets; left != 0;) {
            const uint32_t some = std::min(left, receiver.flow.granted(0));
            ASSERT_NE(some, 0u);
            left -= some;
            receiver.actions.clear();
            ASSERT_EQ(receiver.flow.packets_retrieved(0, some, {.ended = left == 0}, receiver.actions), Status::kOk);
            for (const Action& action : receiver.actions) explicit_credits += action.credits;
        }
        piggybacks += receiver.piggyback(0) != 0;
    }
    static constexpr uint32_t kPackets = 37;
};

TEST(Piggybacking, an_answer_takes_what_is_beyond_the_threshold_too) {
    // Thresholds of 42.
    const Answered answered(124);
    EXPECT_EQ(answered.explicit_credits, 0u);
    EXPECT_GE(answered.least_granted, Answered::kPackets);
}

TEST(Piggybacking, what_reaches_no_threshold_with_the_next_message_waits) {
    const Answered answered(1000);
    EXPECT_EQ(answered.explicit_credits, 0u);
    EXPECT_LE(answered.piggybacks, 300u / 4);
    EXPECT_GE(answered.least_granted, 500u);
}

TEST_F(Turns, messages_that_a_share_lets_go_take_no_turns) {
    Receiver silent(dynamic_plan(kSenders, 60 * kSenders, 2, Stealing::kSilent));
    Receiver turns(dynamic_plan(kSenders, 60 * kSenders, 2, Stealing::kTurns));
    for (int round = 0; round < 5; ++round) {
        for (PeerIndex peer = 0; peer < kSenders; ++peer) {
            for (uint32_t i = 1; i <= kPackets; ++i) {
                const MessageEnd end{.ended = i == kPackets};
                ASSERT_EQ(silent.retrieve(peer, 1, end), turns.retrieve(peer, 1, end));
            }
        }
    }
    EXPECT_EQ(silent.available(), turns.available());
}

TEST_F(Turns, an_ended_sender_is_given_nothing_when_its_turn_comes) {
    rounds(5);
    ASSERT_TRUE(receiver.flow.dynamic()->peer(kSenders - 1).queued_for_grant);
    receiver.flow.reset_peer(kSenders - 1);
    for (int round = 0; round < 5; ++round) {
        for (PeerIndex peer = 0; peer + 1 < kSenders; ++peer) message(peer);
    }
    EXPECT_EQ(receiver.flow.granted(kSenders - 1), 0u);
}

TEST(SharesAboveAMessage, who_sends_on_is_not_asked_for_what_its_share_loses) {
    Receiver receiver(dynamic_plan(8, 8 * 80, 2, Stealing::kTurns));
    uint32_t requests = 0;
    const auto message = [&](PeerIndex from) {
        for (uint32_t left = 37; left != 0; --left) {
            ASSERT_NE(receiver.flow.granted(from), 0u);
            Actions actions;
            ASSERT_EQ(receiver.flow.packets_retrieved(from, 1, {.ended = left == 1}, actions), Status::kOk);
            for (const Action& action : actions) {
                requests += action.kind == ControlKind::kReturnRequest && action.peer < 4;
            }
        }
    };
    const auto rounds = [&](int count, PeerIndex first, PeerIndex end) {
        for (int round = 0; round < count; ++round) {
            for (PeerIndex peer = first; peer < end; ++peer) message(peer);
        }
    };
    rounds(100, 0, 4);
    ASSERT_GE(receiver.flow.quota(0), 120u) << "the others are silent";
    // Not long enough for the first four to be taken for silent.
    rounds(7, 4, 8);
    EXPECT_LE(receiver.flow.quota(0), 125u);
    EXPECT_EQ(requests, 0u);
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
