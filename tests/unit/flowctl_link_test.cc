// The link of a pair and its outbox: legal transitions, what leaves next, and what is void.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "flowctl/flow_control.h"
#include "flowctl/link.h"
#include "flowctl/outbox.h"

namespace velo::flowctl {
namespace {

using Kinds = std::vector<ControlKind>;

struct Pair {
    Outbox outbox;
    LinkState state = LinkState::kUnknown;

    Pair() { outbox.know(0); }
    bool happens(LinkEvent event) { return apply(state, event, outbox, 0, 2); }
    /// Everything that is due leaves.
    Kinds take() {
        Kinds all;
        const auto visit = [&](PeerIndex peer) {
            while (!outbox.ready(peer, true).empty()) {
                const ControlKind kind = outbox.ready(peer, true).first();
                outbox.left(peer, kind, kind == ControlKind::kCredits ? outbox.credits(peer) : 0);
                all.push_back(kind);
            }
            return true;
        };
        outbox.visit_fresh(visit);
        outbox.visit_refused(visit);
        return all;
    }
    void refuse() {
        outbox.visit_fresh([](PeerIndex) { return false; });
    }
};

TEST(Link, only_the_table_changes_a_state) {
    uint32_t legal = 0;
    for (uint32_t state = 0; state < kLinkStates; ++state) {
        for (uint32_t event = 0; event < kLinkEvents; ++event) {
            Pair pair;
            pair.state = static_cast<LinkState>(state);
            const auto next = next_state(pair.state, static_cast<LinkEvent>(event));
            EXPECT_EQ(pair.happens(static_cast<LinkEvent>(event)), next.has_value());
            EXPECT_EQ(pair.state, next.value_or(static_cast<LinkState>(state)));
            if (!next) {
                EXPECT_TRUE(pair.take().empty()) << "a refused event asks for nothing";
            }
            legal += next.has_value();
        }
    }
    EXPECT_EQ(legal, 11u);
}

TEST(Link, an_end_that_was_not_expected_is_refused) {
    for (const LinkState state : {LinkState::kUnknown, LinkState::kOpening}) {
        EXPECT_FALSE(next_state(state, LinkEvent::kCloseArrived));
    }
    for (const LinkState state :
         {LinkState::kUnknown, LinkState::kOffered, LinkState::kOpening, LinkState::kOpen}) {
        EXPECT_FALSE(next_state(state, LinkEvent::kClosedArrived));
    }
}

TEST(Link, an_answer_to_what_has_not_left_is_refused) {
    Pair pair;
    pair.state = LinkState::kOpen;
    ASSERT_TRUE(pair.happens(LinkEvent::kCloses));
    EXPECT_FALSE(pair.happens(LinkEvent::kClosedArrived));
    EXPECT_EQ(pair.take(), (Kinds{ControlKind::kClose}));
    EXPECT_TRUE(pair.happens(LinkEvent::kClosedArrived));
    EXPECT_EQ(pair.state, LinkState::kUnknown);
}

// With one word for both, and a flag, the two became one packet, and one side waited without end.
TEST(Link, an_answer_that_waits_and_a_later_close_stay_two_packets) {
    Pair pair;
    pair.state = LinkState::kOpen;
    ASSERT_TRUE(pair.happens(LinkEvent::kCloseArrived));
    pair.refuse();
    ASSERT_TRUE(pair.happens(LinkEvent::kOpens));
    ASSERT_TRUE(pair.happens(LinkEvent::kOpenArrived));
    ASSERT_TRUE(pair.happens(LinkEvent::kCloses));
    EXPECT_EQ(pair.take(), (Kinds{ControlKind::kClosed, ControlKind::kOpen, ControlKind::kClose}));
}

TEST(Link, a_close_that_has_not_left_becomes_the_answer_to_the_peers) {
    Pair pair;
    pair.state = LinkState::kOpen;
    ASSERT_TRUE(pair.happens(LinkEvent::kCloses));
    pair.refuse();
    ASSERT_TRUE(pair.happens(LinkEvent::kCloseArrived));
    EXPECT_EQ(pair.state, LinkState::kUnknown);
    EXPECT_EQ(pair.take(), (Kinds{ControlKind::kClosed}));
}

TEST(Link, an_opening_that_has_not_left_is_void_when_the_peer_closes) {
    Pair pair;
    ASSERT_TRUE(pair.happens(LinkEvent::kOpenArrived));
    ASSERT_TRUE(pair.happens(LinkEvent::kOpens));
    pair.refuse();
    ASSERT_TRUE(pair.happens(LinkEvent::kCloseArrived));
    EXPECT_EQ(pair.take(), (Kinds{ControlKind::kClosed}));
}

TEST(Outbox, kinds_leave_in_their_order_and_returns_become_one) {
    Outbox outbox;
    outbox.know(0);
    outbox.add(0, ControlKind::kReturnResponse);
    outbox.add(0, ControlKind::kReturnRequest);
    outbox.add_credits(0, 3);
    outbox.add_credits(0, 4);
    outbox.add_open(0, 2);
    EXPECT_EQ(outbox.credits(0), 7u);
    Kinds all;
    while (!outbox.ready(0, true).empty()) {
        all.push_back(outbox.ready(0, true).first());
        outbox.left(0, all.back(), all.back() == ControlKind::kCredits ? 7 : 0);
    }
    EXPECT_EQ(all, (Kinds{ControlKind::kOpen, ControlKind::kCredits, ControlKind::kReturnRequest,
                          ControlKind::kReturnResponse}));
}

TEST(Outbox, what_costs_a_credit_waits_for_one_and_blocks_nothing_else) {
    Outbox outbox;
    outbox.know(0);
    outbox.add(0, ControlKind::kReturnRequest);
    EXPECT_TRUE(outbox.ready(0, false).empty());
    // Nothing can go, so the peer leaves the queue without having been refused.
    outbox.visit_fresh([](PeerIndex) { return true; });
    EXPECT_TRUE(outbox.fresh_empty());
    outbox.credits_came(0);
    EXPECT_FALSE(outbox.fresh_empty());
}

TEST(Outbox, a_refused_peer_is_in_one_line_only) {
    Outbox outbox;
    outbox.know(1);
    outbox.add_credits(1, 1);
    outbox.visit_fresh([](PeerIndex) { return false; });
    EXPECT_FALSE(outbox.refused_empty());
    outbox.add_credits(1, 1);
    EXPECT_TRUE(outbox.fresh_empty()) << "the device refuses it anyway";
    outbox.left(1, ControlKind::kCredits, 2);
    outbox.visit_refused([](PeerIndex) { return true; });
    EXPECT_TRUE(outbox.refused_empty());
}

/// Two processes with contact slots, whose control packets the test delivers.
struct Duo {
    FlowControl flow[2] = {FlowControl(contact_plan()), FlowControl(contact_plan())};

    Duo() {
        for (FlowControl& one : flow) one.know(0);
    }
    static Plan contact_plan() {
        return std::get<Plan>(plan({.mode = Mode::kDynamic,
                                    .peers = 1,
                                    .mailbox_slots = 41,
                                    .credit_slots = 1,
                                    .contact_slots = 1}));
    }
    struct Sent {
        ControlKind kind;
        uint32_t value;
    };
    std::vector<Sent> take(int from) {
        std::vector<Sent> all;
        const auto send = [&](PeerIndex, ControlKind kind, uint32_t value) {
            all.push_back({kind, value});
            return Status::kOk;
        };
        flow[from].send_control(send);
        flow[from].resend_control(send);
        return all;
    }
    /// Until nothing moves. Returns the packets.
    uint32_t exchange() {
        uint32_t packets = 0;
        for (uint32_t before = ~0u; before != packets;) {
            before = packets;
            for (const int from : {0, 1}) {
                for (const Sent& sent : take(from)) {
                    if (costs_a_credit(sent.kind))
                        (void)flow[1 - from].packets_retrieved(0, 1, {.control = true});
                    refused += flow[1 - from].control_arrived(0, sent.kind, sent.value) != Status::kOk;
                    if (++packets > 1000) return packets;
                }
            }
        }
        return packets;
    }
    void open() {
        flow[0].contact_sent(0, true);
        // More than a message of one packet.
        ASSERT_EQ(flow[1].contact_retrieved(0, 2, true), Status::kOk);
        EXPECT_EQ(exchange(), 2u);
        EXPECT_EQ(flow[0].link(0), LinkState::kOpen);
        EXPECT_EQ(flow[1].link(0), LinkState::kOpen);
    }
    uint32_t refused = 0;
};

TEST(StrayControl, one_close_too_many_is_answered_once) {
    Duo duo;
    duo.open();
    ASSERT_EQ(duo.flow[1].control_arrived(0, ControlKind::kClose, 0), Status::kOk);
    EXPECT_LE(duo.exchange(), 2u) << "each answers the other's answer";
    EXPECT_EQ(duo.refused, 1u) << "an answer that was not expected";
}

TEST(StrayControl, answers_that_were_not_asked_for_change_nothing) {
    Duo duo;
    duo.open();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(duo.flow[1].control_arrived(0, ControlKind::kClosed, 0), Status::kProtocol);
        EXPECT_EQ(duo.flow[1].control_arrived(0, ControlKind::kOpen, 1), Status::kProtocol);
        EXPECT_EQ(duo.flow[1].control_arrived(0, ControlKind::kReturnResponse, 0), Status::kProtocol);
    }
    EXPECT_EQ(duo.exchange(), 0u);
    EXPECT_EQ(duo.flow[1].link(0), LinkState::kOpen);
}

TEST(Run, is_booked_before_a_control_packet_behind_it) {
    Duo duo;
    duo.open();
    const uint32_t credits = duo.flow[0].credits(0);
    ASSERT_GE(credits, 1u);
    duo.flow[0].packets_sent(0, 1);
    ASSERT_EQ(duo.flow[1].run_retrieved(0, 1), Status::kOk);
    ASSERT_EQ(duo.flow[1].control_arrived(0, ControlKind::kClose, 0), Status::kOk);
    EXPECT_EQ(duo.flow[1].run_packets(0), 0u);
    EXPECT_EQ(duo.flow[1].granted(0), 0u);
    EXPECT_EQ(duo.flow[1].available_slots(), duo.contact_plan().data_region_slots);
}

TEST(Run, of_more_packets_than_were_granted_is_refused) {
    Duo duo;
    duo.open();
    EXPECT_EQ(duo.flow[1].run_retrieved(0, duo.flow[1].granted(0) + 1), Status::kProtocol);
    EXPECT_EQ(duo.flow[1].run_packets(0), 0u);
}

}  // namespace
}  // namespace velo::flowctl
