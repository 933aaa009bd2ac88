// Credits for whole messages: turns, streams, and who is asked for what it holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/unit/flowctl_receiver.h"

namespace velo::flowctl {
namespace {

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
            ASSERT_NE(packets, 0u) << "sender " << from << " waits without end";
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
    /// No sender waits in this number of rounds, and each has a return for each of its messages.
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

// A stream would stop at each message for the credits of the one before.
TEST_F(Turns, a_lone_stream_is_granted_messages_ahead) {
    receiver = Receiver(dynamic_plan(kSenders, 30 * kSenders, 2, Stealing::kTurns));
    message(0);
    EXPECT_LE(receiver.flow.granted(0), kPackets + 2) << "who has sent one message may send no other";
    for (int i = 0; i < 4; ++i) message(0);
    EXPECT_GE(receiver.flow.granted(0), 3 * kPackets);
}

TEST_F(Turns, streams_that_alternate_need_fewer_messages_ahead) {
    receiver = Receiver(dynamic_plan(kSenders, 30 * kSenders, 2, Stealing::kTurns));
    for (int round = 0; round < 10; ++round) {
        for (const PeerIndex peer : {0, 1, 2, 3}) message(peer);
    }
    for (const PeerIndex peer : {0, 1, 2, 3}) EXPECT_LE(receiver.flow.granted(peer), kPackets + 2) << peer;
}

TEST_F(Turns, what_an_idle_sender_holds_goes_to_a_stream_and_not_back) {
    receiver = Receiver(dynamic_plan(kSenders, 30 * kSenders, 2, Stealing::kTurns));
    for (PeerIndex peer = 0; peer < 3; ++peer) {
        for (int i = 0; i < 10; ++i) message(peer);
    }
    ASSERT_GT(receiver.flow.granted(0), kPackets);
    EXPECT_EQ(requests[0], 0u) << "not idle for long enough";
    for (int i = 0; i < 30; ++i) message(3);
    EXPECT_EQ(requests[0], 1u);
    EXPECT_EQ(requests[3], 0u);

    // The response leaves it its minimum quota.
    retrieve(0, {.control = true});
    Actions actions;
    const uint32_t excess = receiver.flow.granted(0) - 2;
    ASSERT_EQ(receiver.flow.control_arrived(0, ControlKind::kReturnResponse, excess, actions), Status::kOk);
    EXPECT_EQ(receiver.flow.granted(0), 2u);
    for (const Action& action : actions)
        EXPECT_FALSE(action.kind == ControlKind::kCredits && action.peer == 0);
}

TEST_F(Turns, who_has_fallen_silent_when_slots_are_free_again_is_given_none) {
    Plan plan = dynamic_plan(kSenders, 14 * kSenders, 2, Stealing::kTurns);
    plan.sender_slots_max = 14;
    receiver = Receiver(plan);
    rounds(5);
    // Slots for another turn are free only after enough short messages for all others to be idle.
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

/// A run's packets are a part of a message, whatever they are accounted for with.
TEST_F(Turns, packets_that_were_taken_ahead_of_a_request_are_still_those_of_a_message) {
    receiver = Receiver(dynamic_plan(kSenders, 60 * kSenders, 2, Stealing::kTurns));
    rounds(5);
    Receiver single = receiver;
    ASSERT_EQ(receiver.flow.run_retrieved(0, 2), Status::kOk);
    ASSERT_EQ(receiver.flow.run_packets(0), 2u) << "they are booked already";
    ASSERT_EQ(single.flow.packets_retrieved(0, 2, {}, single.actions), Status::kOk);
    const auto after_request = [](Receiver& of) {
        EXPECT_EQ(of.flow.packets_retrieved(0, 1, {.control = true}, of.actions), Status::kOk);
        std::vector<uint32_t> words;
        of.flow.visit_state([&words](uint32_t word) { words.push_back(word); });
        return words;
    };
    EXPECT_EQ(after_request(receiver), after_request(single));
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

TEST_F(Turns, who_has_been_asked_is_not_asked_again_before_it_answers) {
    rounds(5);
    // Its messages have become short, and then there are none: two reasons to ask it.
    for (int round = 0; round < 40; ++round) {
        if (round < 20) message(0, 1);
        for (PeerIndex peer = 1; peer < kSenders; ++peer) message(peer);
    }
    ASSERT_TRUE(receiver.flow.blocked(0));
    EXPECT_EQ(receiver.activity(0), Activity::kNull) << "it has not been idle for long enough";
    EXPECT_EQ(requests[0], 1u);
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
            ASSERT_EQ(receiver.flow.packets_retrieved(0, some, {.ended = left == 0}, receiver.actions),
                      Status::kOk);
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
    receiver = Receiver(dynamic_plan(kSenders, 60 * kSenders, 2, Stealing::kTurns));
    rounds(5);
    for (PeerIndex peer = 0; peer < kSenders; ++peer) {
        EXPECT_FALSE(receiver.flow.dynamic()->at(peer).queued_for_grant) << peer;
        EXPECT_GE(receiver.flow.granted(peer), kPackets) << peer;
    }
}

TEST_F(Turns, an_ended_sender_is_given_nothing_when_its_turn_comes) {
    rounds(5);
    ASSERT_TRUE(receiver.flow.dynamic()->at(kSenders - 1).queued_for_grant);
    receiver.flow.reset_peer(kSenders - 1);
    for (int round = 0; round < 5; ++round) {
        for (PeerIndex peer = 0; peer + 1 < kSenders; ++peer) message(peer);
    }
    EXPECT_EQ(receiver.flow.granted(kSenders - 1), 0u);
}

/// Four of eight senders are active, and after them the others. Returns how often the first four are asked
/// for credits.
uint32_t requests_after_others(Receiver& receiver, uint32_t quota_before, uint32_t quota_after) {
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
    EXPECT_GE(receiver.flow.quota(0), quota_before) << "the others are silent";
    // Not long enough for the first four to be taken for silent.
    rounds(7, 4, 8);
    EXPECT_LE(receiver.flow.quota(0), quota_after);
    return requests;
}

TEST(SharesAboveAMessage, who_sends_on_is_not_asked_for_what_its_share_loses) {
    Receiver receiver(dynamic_plan(8, 8 * 50, 2, Stealing::kTurns));
    EXPECT_EQ(requests_after_others(receiver, 70, 100), 0u);
}

TEST(SharesAboveAMessage, who_holds_more_than_its_messages_can_need_is_asked_where_others_lack_it) {
    Receiver receiver(dynamic_plan(8, 8 * 120, 2, Stealing::kTurns));
    EXPECT_GE(requests_after_others(receiver, 180, 180), 1u);
}

}  // namespace
}  // namespace velo::flowctl
