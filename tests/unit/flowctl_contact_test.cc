// Slots that follow the conversation: the peers that a process opens to, what each owns, and the links that
// close when others need slots.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/unit/flowctl_driver.h"

namespace velo::flowctl {
namespace {

constexpr uint32_t kCreditSlots = 2;
/// Static slots and credit slots.
constexpr uint32_t kLeastSlots = 2 * kCreditSlots;

Plan contact_plan(uint32_t peers, uint32_t shared_slots, uint32_t contact_slots = 4) {
    const PlanResult result = plan({.mode = Mode::kDynamic,
                                    .peers = peers,
                                    .mailbox_slots = shared_slots + contact_slots,
                                    .credit_slots = kCreditSlots,
                                    .contact_slots = contact_slots});
    EXPECT_TRUE(std::holds_alternative<Plan>(result));
    return std::get<Plan>(result);
}

struct Process {
    DrivenFlowControl flow;
    Actions actions;

    explicit Process(const Plan& plan) : flow(plan) {}

    [[nodiscard]] const DynamicAccounts& dynamic() const { return *flow.dynamic(); }
    [[nodiscard]] const FifoLedger<DynamicPeer>& ledger() const { return flow.dynamic()->ledger; }
    [[nodiscard]] std::vector<Action> take() { return std::exchange(actions, {}); }
    /// A message without credits, of two packets; of its first packet only if it has not `ended`.
    std::vector<Action> contact(PeerIndex from, bool ended = true) {
        flow.know(from);
        EXPECT_EQ(flow.contact_retrieved(from, ended ? 2 : 1, ended, actions), Status::kOk);
        check();
        return take();
    }
    /// A message of one packet, without credits.
    std::vector<Action> short_contact(PeerIndex from) {
        flow.know(from);
        EXPECT_EQ(flow.contact_retrieved(from, 1, true, actions), Status::kOk);
        check();
        return take();
    }
    std::vector<Action> retrieve(PeerIndex from) {
        EXPECT_EQ(flow.packets_retrieved(from, 1, {.ended = true}, actions), Status::kOk);
        check();
        return take();
    }
    void check() const {
        uint32_t granted = 0;
        for (PeerIndex peer = 0; peer < flow.known(); ++peer) {
            EXPECT_TRUE(flow.check_invariants(peer)) << peer;
            granted += flow.granted(peer);
        }
        EXPECT_EQ(ledger().available_slots() + granted + ledger().lent_slots(), slots);
    }
    uint32_t slots = 0;
};

Process process(const Plan& plan) {
    Process made(plan);
    made.slots = plan.data_region_slots;
    return made;
}

std::vector<Action> opening(PeerIndex to, uint32_t credits = kCreditSlots) {
    return {{.kind = ControlKind::kOpen, .peer = to, .credits = credits}};
}

TEST(Contact, who_was_never_talked_to_owns_nothing_and_has_no_entry) {
    Process here = process(contact_plan(1000, 4000));
    EXPECT_EQ(here.flow.known(), 0u);
    EXPECT_EQ(here.flow.slot_owners(), 0u);
    EXPECT_EQ(here.ledger().available_slots(), 4000u);
}

TEST(Contact, the_first_packet_brings_slots_and_a_welcome) {
    Process here = process(contact_plan(10, 400));
    EXPECT_EQ(here.contact(3), opening(3, 40 - kCreditSlots));
    EXPECT_EQ(here.flow.granted(3), 40u - kCreditSlots);
    EXPECT_EQ(here.flow.quota(3), 40u - kCreditSlots);
    EXPECT_EQ(here.ledger().available_slots(), 400 - 40u);
    EXPECT_EQ(here.flow.slot_owners(), 1u);
    // The next packet that was on its way brings nothing new.
    EXPECT_TRUE(here.contact(3).empty());
}

// Most peers that send one short message send no other, and an opening costs a packet.
TEST(Contact, one_message_of_one_packet_brings_no_slots_and_the_second_does) {
    Process here = process(contact_plan(10, 400));
    EXPECT_TRUE(here.short_contact(3).empty());
    EXPECT_EQ(here.flow.granted(3), 0u);
    EXPECT_EQ(here.short_contact(3), opening(3, 40 - kCreditSlots));
}

TEST(Contact, an_opening_that_comes_with_one_short_message_is_answered_by_our_own_message) {
    Process here = process(contact_plan(10, 400));
    EXPECT_TRUE(here.short_contact(0).empty());
    EXPECT_EQ(here.flow.open_arrived(0, 3, here.actions), Status::kOk);
    EXPECT_TRUE(here.take().empty());
    EXPECT_TRUE(here.flow.by_contact(0));
    here.flow.contact_sent(0, here.actions);
    EXPECT_EQ(here.take(), opening(0, 40 - kCreditSlots));
    EXPECT_FALSE(here.flow.by_contact(0));
    EXPECT_EQ(here.flow.sendable(0, 9), 3u);
}

// A message that began when there were no slots, or when the link was another one.
TEST(Contact, a_later_packet_of_ours_opens_once_there_is_room) {
    FlowControl here(contact_plan(10, kLeastSlots));
    here.know(1);
    here.contact_sent(0, true);
    ASSERT_EQ(here.link(0), LinkState::kOpening);
    here.contact_sent(1, false);
    EXPECT_EQ(here.link(1), LinkState::kUnknown);
    here.opening_left(0);
    here.close(0);
    ASSERT_EQ(here.control_arrived(0, ControlKind::kClose, 0), Status::kOk);
    here.contact_sent(1, false);
    EXPECT_EQ(here.link(1), LinkState::kOpening);
}

TEST(Contact, an_opening_may_ride_where_nothing_goes_before_it) {
    FlowControl here(contact_plan(10, 400));
    here.know(0);
    EXPECT_EQ(here.opening_due(0, 500), 0u);
    here.contact_sent(0, true);
    EXPECT_EQ(here.opening_due(0, 500), 40u - kCreditSlots);
    EXPECT_EQ(here.opening_due(0, 40 - kCreditSlots - 1), 0u) << "more than a packet can say";
    here.opening_left(0);
    EXPECT_EQ(here.opening_due(0, 500), 0u);
    EXPECT_FALSE(here.any_control_due(0));
    EXPECT_EQ(here.link(0), LinkState::kOpening);
    // The answer to a close that waits goes first.
    ASSERT_EQ(here.control_arrived(0, ControlKind::kOpen, 2), Status::kOk);
    ASSERT_EQ(here.control_arrived(0, ControlKind::kClose, 0), Status::kOk);
    here.contact_sent(0, true);
    EXPECT_TRUE(here.control_due(0, ControlKind::kOpen));
    EXPECT_EQ(here.opening_due(0, 500), 0u);
}

TEST(Contact, who_has_begun_a_message_is_welcomed_with_what_it_lacks) {
    constexpr uint32_t kPackets = 37;
    Process here = process(contact_plan(10, 400));
    // The length of messages is not known yet: the share.
    EXPECT_EQ(here.contact(0, false), opening(0, 40 - kCreditSlots));
    for (uint32_t packet = 2; packet < kPackets; ++packet) {
        EXPECT_EQ(here.flow.packets_retrieved(0, 1, {}, here.actions), Status::kOk);
        here.check();
    }
    here.retrieve(0);
    EXPECT_EQ(here.contact(1, false), opening(1, kPackets - 1 + kCreditSlots));
    EXPECT_EQ(here.flow.granted(1), kPackets - 1 + kCreditSlots);
    EXPECT_EQ(here.contact(2), opening(2, 40 - kCreditSlots)) << "its message has ended: its quota";
}

TEST(Contact, who_comes_when_slots_are_short_is_welcomed_with_static_slots) {
    Process here = process(contact_plan(100, 400));
    const std::vector<Action> first = here.contact(0, false);
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(here.flow.granted(0), first.front().credits);
    for (PeerIndex peer = 1; peer < 99; ++peer) EXPECT_EQ(here.contact(peer, false), opening(peer));
}

TEST(Contact, a_welcome_brings_no_more_than_a_packet_can_say) {
    Process here = process(contact_plan(2, 200'000));
    EXPECT_EQ(here.contact(0, false), opening(0, kReturnMax));
}

TEST(Contact, who_is_asked_for_slots_and_has_none_for_us_is_left) {
    Process here = process(contact_plan(2, 60));
    EXPECT_EQ(here.contact(0, false).size(), 1u);
    ASSERT_GT(here.flow.granted(0), kCreditSlots);
    EXPECT_EQ(here.contact(1).size(), 1u);
    EXPECT_EQ(here.flow.open_arrived(1, kCreditSlots, here.actions), Status::kOk);
    // The first one has not opened to us, so it goes on by contact, and cannot be sent a request.
    bool left = false;
    for (int message = 0; message < 200 && !left; ++message) {
        for (const Action& action : here.retrieve(1)) {
            EXPECT_NE(action.kind, ControlKind::kReturnRequest);
            left |= action == Action{.kind = ControlKind::kClose, .peer = 0, .credits = 0};
        }
    }
    EXPECT_TRUE(left);
    EXPECT_EQ(here.flow.end_arrived(0, here.actions), Status::kOk);
    EXPECT_EQ(here.flow.granted(0), 0u);
}

TEST(Contact, credits_of_a_welcome_are_kept_until_their_sender_is_met) {
    Process here = process(contact_plan(10, kLeastSlots));
    EXPECT_EQ(here.contact(0).size(), 1u);
    here.flow.know(1);
    EXPECT_EQ(here.flow.open_arrived(1, 3, here.actions), Status::kOk);
    EXPECT_EQ(here.flow.sendable(1, 99), 0u);
    here.flow.close(0, here.actions);
    EXPECT_EQ(here.flow.end_arrived(0, here.actions), Status::kOk);
    EXPECT_EQ(here.take().size(), 1u);
    EXPECT_EQ(here.contact(1), opening(1));
    EXPECT_EQ(here.flow.sendable(1, 99), 3u);
}

TEST(Contact, a_welcome_with_credits_that_can_not_be_is_refused) {
    Process here = process(contact_plan(10, 400));
    here.flow.know(0);
    EXPECT_EQ(here.flow.open_arrived(0, 0, here.actions), Status::kProtocol);
    EXPECT_EQ(here.flow.open_arrived(0, 401, here.actions), Status::kProtocol);
    EXPECT_EQ(here.flow.open_arrived(0, 400, here.actions), Status::kOk);
}

TEST(Contact, credits_are_used_by_who_is_met_and_welcome) {
    Process here = process(contact_plan(10, 400));
    here.flow.know(0);
    EXPECT_TRUE(here.flow.by_contact(0));
    here.flow.contact_sent(0, here.actions);
    EXPECT_EQ(here.take().size(), 1u);
    EXPECT_TRUE(here.flow.by_contact(0));
    EXPECT_EQ(here.flow.sendable(0, 9), 0u);
    EXPECT_EQ(here.flow.open_arrived(0, kCreditSlots, here.actions), Status::kOk);
    EXPECT_FALSE(here.flow.by_contact(0));
    EXPECT_EQ(here.flow.sendable(0, 9), kCreditSlots);
    EXPECT_EQ(here.flow.open_arrived(0, kCreditSlots, here.actions), Status::kProtocol);
}

TEST(Contact, who_finds_no_room_is_not_met_and_loses_nothing) {
    Process here = process(contact_plan(10, kLeastSlots + 1));
    EXPECT_EQ(here.contact(0).size(), 1u);
    EXPECT_TRUE(here.contact(1).empty());
    EXPECT_EQ(here.flow.open_arrived(1, kCreditSlots, here.actions), Status::kOk);
    EXPECT_TRUE(here.flow.by_contact(1));
    EXPECT_EQ(here.flow.sendable(1, 1), 0u);
}

TEST(Contact, idle_peer_is_left_where_another_needs_its_slots) {
    Process here = process(contact_plan(10, kLeastSlots));
    EXPECT_EQ(here.contact(0).size(), 1u);
    std::vector<Action> actions;
    uint32_t messages = 0;
    while (actions.empty() && messages < 1000) {
        actions = here.contact(1);
        ++messages;
    }
    // Not at once: it may only have been quiet for a moment.
    EXPECT_GT(messages, 64u);
    EXPECT_EQ(actions, (std::vector<Action>{{.kind = ControlKind::kClose, .peer = 0, .credits = 0}}));
    EXPECT_TRUE(here.contact(1).empty()) << "its packets may still be under way";
    EXPECT_EQ(here.flow.end_arrived(0, here.actions), Status::kOk);
    EXPECT_TRUE(here.take().empty()) << "it was the answer";
    EXPECT_EQ(here.contact(1), opening(1));
}

TEST(Contact, a_peer_that_is_sent_messages_is_not_left) {
    Process here = process(contact_plan(10, kLeastSlots));
    EXPECT_EQ(here.contact(0).size(), 1u);
    EXPECT_EQ(here.flow.open_arrived(0, kCreditSlots, here.actions), Status::kOk);
    for (int message = 0; message < 1000; ++message) {
        here.flow.packets_sent(0, 1);
        EXPECT_EQ(here.flow.credits_arrived(0, 1, here.actions), Status::kOk);
        EXPECT_TRUE(here.contact(1).empty());
    }
}

TEST(Contact, a_close_is_answered_and_ends_the_link) {
    Process here = process(contact_plan(10, 400));
    EXPECT_EQ(here.contact(0).size(), 1u);
    EXPECT_EQ(here.flow.open_arrived(0, kCreditSlots, here.actions), Status::kOk);
    EXPECT_EQ(here.flow.end_arrived(0, here.actions), Status::kOk);
    EXPECT_EQ(here.take(), (std::vector<Action>{{.kind = ControlKind::kClosed, .peer = 0, .credits = 0}}));
    EXPECT_TRUE(here.flow.by_contact(0));
    EXPECT_EQ(here.ledger().available_slots(), 400u);
    EXPECT_EQ(here.ledger().unassigned_slots(), 400u);
}

TEST(Contact, closes_that_cross_answer_each_other) {
    Process here = process(contact_plan(10, 400));
    EXPECT_EQ(here.contact(0).size(), 1u);
    here.flow.close(0, here.actions);
    EXPECT_EQ(here.take(), (std::vector<Action>{{.kind = ControlKind::kClose, .peer = 0, .credits = 0}}));
    EXPECT_EQ(here.flow.end_arrived(0, here.actions), Status::kOk);
    EXPECT_TRUE(here.take().empty());
    EXPECT_EQ(here.ledger().available_slots(), 400u);
}

TEST(Contact, an_opening_that_our_close_has_crossed_brings_no_credits) {
    Process here = process(contact_plan(10, 400));
    EXPECT_EQ(here.contact(0).size(), 1u);
    here.flow.close(0, here.actions);
    here.actions.clear();
    EXPECT_EQ(here.flow.open_arrived(0, kCreditSlots, here.actions), Status::kOk);
    EXPECT_EQ(here.flow.credits(0), 0u);
    here.check();
    EXPECT_EQ(here.flow.end_arrived(0, here.actions), Status::kOk);
    EXPECT_EQ(here.flow.link(0), LinkState::kUnknown);
    EXPECT_EQ(here.flow.offered_credits(0), 0u);
    EXPECT_TRUE(here.take().empty());
    here.check();
}

TEST(Contact, packets_under_way_to_who_parts_are_still_counted) {
    Process here = process(contact_plan(10, 400));
    EXPECT_EQ(here.contact(0).size(), 1u);
    const uint32_t granted = here.flow.granted(0);
    here.flow.close(0, here.actions);
    here.actions.clear();
    EXPECT_TRUE(here.retrieve(0).empty());
    EXPECT_EQ(here.flow.credits_arrived(0, 1, here.actions), Status::kOk);
    EXPECT_EQ(here.flow.control_arrived(0, ControlKind::kReturnRequest, 0, here.actions), Status::kOk);
    EXPECT_EQ(here.flow.packets_retrieved(0, granted, {}, here.actions), Status::kProtocol)
        << "it had one fewer";
    EXPECT_EQ(here.flow.end_arrived(0, here.actions), Status::kOk);
    EXPECT_TRUE(here.take().empty());
    here.check();
}

TEST(Contact, slots_of_nobody_go_to_those_that_use_theirs_up) {
    // A share by the size of the job is 4 slots; five of a hundred talk.
    Process here = process(contact_plan(100, 400));
    for (PeerIndex peer = 0; peer < 5; ++peer) EXPECT_EQ(here.contact(peer).size(), 1u);
    EXPECT_EQ(here.flow.quota(0), kCreditSlots);
    for (int round = 0; round < 200; ++round) {
        for (PeerIndex peer = 0; peer < 5; ++peer) here.retrieve(peer);
    }
    for (PeerIndex peer = 0; peer < 5; ++peer) EXPECT_EQ(here.flow.quota(peer), 400u / 5 - kCreditSlots);
    EXPECT_EQ(here.ledger().unassigned_slots(), 0u);
}

TEST(Contact, who_comes_late_is_given_slots_of_who_has_more_than_its_share) {
    Process here = process(contact_plan(100, 40));
    EXPECT_EQ(here.contact(0).size(), 1u);
    for (int packet = 0; packet < 100; ++packet) here.retrieve(0);
    EXPECT_EQ(here.flow.quota(0), 40u - kCreditSlots);
    bool met = false;
    for (int message = 0; message < 20 && !met; ++message) {
        for (const Action& action : here.contact(1)) met |= action.kind == ControlKind::kOpen;
        here.retrieve(0);
    }
    EXPECT_TRUE(met);
    EXPECT_LE(here.flow.quota(0), 20u);
}

// Else it would keep the turn without end if it fell silent then.
TEST(Contact, who_is_given_a_turn_is_where_slots_are_looked_for) {
    Process here = process(contact_plan(100, 400));
    here.flow.know(0);
    ASSERT_EQ(here.flow.contact_retrieved(0, 5, true, here.actions), Status::kOk);
    here.actions.clear();
    ASSERT_EQ(here.dynamic().activity(0), Activity::kNull);
    ASSERT_EQ(here.flow.packets_retrieved(0, 1, {}, here.actions), Status::kOk);
    EXPECT_GT(here.flow.granted(0), kCreditSlots);
    EXPECT_EQ(here.dynamic().activity(0), Activity::kLow);
}

TEST(Contact, nothing_of_it_is_known_to_other_plans) {
    const PlanResult result = plan({.mode = Mode::kDynamic, .peers = 2, .mailbox_slots = 40});
    Process here(std::get<Plan>(result));
    EXPECT_FALSE(here.flow.by_contact(0));
    EXPECT_EQ(here.flow.contact_retrieved(0, 1, true, here.actions), Status::kProtocol);
    EXPECT_EQ(here.flow.open_arrived(0, kCreditSlots, here.actions), Status::kProtocol);
    EXPECT_EQ(here.flow.end_arrived(0, here.actions), Status::kProtocol);
    EXPECT_TRUE(here.actions.empty());
}

TEST(Contact, contact_slots_are_a_64th_and_leave_room_for_a_peer) {
    Config config{.mode = Mode::kDynamic, .peers = 15, .slots_per_peer = 16};
    EXPECT_EQ(contact_slots_for(config, 64), 3u);
    EXPECT_EQ(contact_slots_for(config, 2), 2u);
    config.mailbox_slots = 64 * 1000;
    EXPECT_EQ(contact_slots_for(config, 64), 64u);
    config.mailbox_slots = kLeastSlots + 1;
    EXPECT_EQ(contact_slots_for(config, 64), 1u);
    // (The plan says what is wrong with this one.)
    config.mailbox_slots = kLeastSlots;
    EXPECT_EQ(contact_slots_for(config, 64), 1u);
    config.peers = 1;
    EXPECT_EQ(contact_slots_for(config, 64), 0u);
    config.peers = 15;
    config.stealing = Stealing::kPaper;
    EXPECT_EQ(contact_slots_for(config, 64), 0u);
    config = {.mode = Mode::kStatic, .peers = 15, .slots_per_peer = 16};
    EXPECT_EQ(contact_slots_for(config, 64), 0u);
}

}  // namespace
}  // namespace velo::flowctl
