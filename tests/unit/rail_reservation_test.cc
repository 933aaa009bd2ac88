#include "rma/rail_reservation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

namespace velo::rma {
namespace {

using State = HalfDuplexRail::State;
using Kind = RailMessageKind;

constexpr uint64_t kId = 5;        // of the rail under test
constexpr uint32_t kAsked = 7;     // the peer that it asks
constexpr uint32_t kAsking = 8;    // the peer that asks it
constexpr uint32_t kStranger = 9;  // one more
constexpr uint32_t kTheirs = 100;  // number of their request

RailMessage rts(uint32_t peer, uint32_t number, int32_t counter, uint64_t id) {
    return {Kind::kRts, peer, number, counter, id};
}
RailMessage message(Kind kind, uint32_t peer, uint32_t number) {
    return {.kind = kind, .peer = peer, .number = number};
}

/// A rail in the state, whose own request, if it has one, is its first.
HalfDuplexRail in(State state) {
    HalfDuplexRail rail(kId);
    if (state == State::kReserved || state == State::kReceivingOutRts || state == State::kSending) {
        (void)rail.request(kAsked);
    }
    if (state == State::kReceiving || state == State::kReceivingOutRts) {
        (void)rail.received(rts(kAsking, kTheirs, 1, 0));
    }
    if (state == State::kSending) (void)rail.received(message(Kind::kCts, kAsked, 1));
    if (state == State::kDead) (void)rail.rail_died([](const RailMessage&) {});
    EXPECT_EQ(rail.state(), state);
    return rail;
}

constexpr auto kNothing = std::nullopt;
using Sent = std::optional<RailMessage>;

/// One cell of table 1.
struct Cell {
    State state;
    Sent sent;
    RailAnswer answer;
    State next;
};

void expect_cells(const std::function<RailActions(HalfDuplexRail&)>& event, const std::vector<Cell>& cells) {
    for (const Cell& cell : cells) {
        SCOPED_TRACE(static_cast<int>(cell.state));
        HalfDuplexRail rail = in(cell.state);
        const bool granted = rail.grant().has_value();
        const RailActions actions = event(rail);
        EXPECT_EQ(actions.message, cell.sent);
        EXPECT_EQ(actions.answer, cell.answer);
        EXPECT_EQ(rail.state(), cell.next);
        const auto change = granted ? RailGrantChange::kEnded : RailGrantChange::kBegun;
        EXPECT_EQ(actions.grant, rail.grant().has_value() == granted ? RailGrantChange::kNone : change);
    }
}

TEST(Table1, local_rts) {
    const auto event = [](HalfDuplexRail& rail) { return rail.request(kStranger); };
    expect_cells(event, {{State::kFree, rts(kStranger, 1, 0, kId), RailAnswer::kNone, State::kReserved},
                         {State::kReserved, kNothing, RailAnswer::kRefused, State::kReserved},
                         {State::kReceiving, kNothing, RailAnswer::kRefused, State::kReceiving},
                         {State::kReceivingOutRts, kNothing, RailAnswer::kRefused, State::kReceivingOutRts},
                         {State::kSending, kNothing, RailAnswer::kRefused, State::kSending},
                         {State::kDead, kNothing, RailAnswer::kRefused, State::kDead}});
}

TEST(Table1, rts) {
    const Sent cts = message(Kind::kCts, kStranger, 3);
    const Sent nack = message(Kind::kNack, kStranger, 3);
    const auto weaker = [](HalfDuplexRail& rail) { return rail.received(rts(kStranger, 3, -1, 99)); };
    expect_cells(weaker, {{State::kFree, cts, RailAnswer::kNone, State::kReceiving},
                          {State::kReserved, nack, RailAnswer::kNone, State::kReserved},
                          {State::kReceiving, nack, RailAnswer::kNone, State::kReceiving},
                          {State::kReceivingOutRts, nack, RailAnswer::kNone, State::kReceivingOutRts},
                          {State::kSending, nack, RailAnswer::kNone, State::kSending},
                          {State::kDead, nack, RailAnswer::kNone, State::kDead}});
    const auto stronger = [](HalfDuplexRail& rail) { return rail.received(rts(kStranger, 3, 1, 0)); };
    expect_cells(stronger, {{State::kFree, cts, RailAnswer::kNone, State::kReceiving},
                            {State::kReserved, cts, RailAnswer::kNone, State::kReceivingOutRts},
                            {State::kReceiving, nack, RailAnswer::kNone, State::kReceiving},
                            {State::kReceivingOutRts, nack, RailAnswer::kNone, State::kReceivingOutRts},
                            {State::kSending, nack, RailAnswer::kNone, State::kSending},
                            {State::kDead, nack, RailAnswer::kNone, State::kDead}});
}

TEST(Table1, cts) {
    const Sent abort = message(Kind::kAbort, kAsked, 1);
    const auto event = [](HalfDuplexRail& rail) { return rail.received(message(Kind::kCts, kAsked, 1)); };
    expect_cells(event, {{State::kFree, abort, RailAnswer::kNone, State::kFree},
                         {State::kReserved, kNothing, RailAnswer::kGranted, State::kSending},
                         {State::kReceiving, abort, RailAnswer::kNone, State::kReceiving},
                         {State::kReceivingOutRts, abort, RailAnswer::kRefused, State::kReceiving},
                         {State::kSending, abort, RailAnswer::kNone, State::kSending},
                         {State::kDead, abort, RailAnswer::kNone, State::kDead}});
}

TEST(Table1, nack) {
    const auto event = [](HalfDuplexRail& rail) { return rail.received(message(Kind::kNack, kAsked, 1)); };
    expect_cells(event, {{State::kFree, kNothing, RailAnswer::kNone, State::kFree},
                         {State::kReserved, kNothing, RailAnswer::kRefused, State::kFree},
                         {State::kReceiving, kNothing, RailAnswer::kNone, State::kReceiving},
                         {State::kReceivingOutRts, kNothing, RailAnswer::kRefused, State::kReceiving},
                         {State::kSending, kNothing, RailAnswer::kLost, State::kFree},
                         {State::kDead, kNothing, RailAnswer::kNone, State::kDead}});
}

TEST(Table1, local_abort) {
    const auto event = [](HalfDuplexRail& rail) { return rail.abort(); };
    expect_cells(event, {{State::kFree, kNothing, RailAnswer::kNone, State::kFree},
                         {State::kReserved, kNothing, RailAnswer::kNone, State::kReserved},
                         {State::kReceiving, kNothing, RailAnswer::kNone, State::kReceiving},
                         {State::kReceivingOutRts, kNothing, RailAnswer::kNone, State::kReceivingOutRts},
                         {State::kSending, message(Kind::kAbort, kAsked, 1), RailAnswer::kNone, State::kFree},
                         {State::kDead, kNothing, RailAnswer::kNone, State::kDead}});
}

TEST(Table1, abort_and_the_requesters_end) {
    for (const Kind kind : {Kind::kAbort, Kind::kDone}) {
        const auto event = [&](HalfDuplexRail& rail) {
            return rail.received(message(kind, kAsking, kTheirs));
        };
        expect_cells(event, {{State::kFree, kNothing, RailAnswer::kNone, State::kFree},
                             {State::kReserved, kNothing, RailAnswer::kNone, State::kReserved},
                             {State::kReceiving, kNothing, RailAnswer::kNone, State::kFree},
                             {State::kReceivingOutRts, kNothing, RailAnswer::kNone, State::kReserved},
                             {State::kSending, kNothing, RailAnswer::kNone, State::kSending},
                             {State::kDead, kNothing, RailAnswer::kNone, State::kDead}});
    }
}

TEST(Table1, local_ack) {
    const auto event = [](HalfDuplexRail& rail) {
        Sent sent;
        RailActions actions = rail.grant_done([&](const RailMessage& ack) { sent = ack; });
        EXPECT_FALSE(actions.message);
        actions.message = sent;
        return actions;
    };
    const Sent ack = message(Kind::kAck, kAsking, kTheirs);
    expect_cells(event, {{State::kFree, kNothing, RailAnswer::kNone, State::kFree},
                         {State::kReserved, kNothing, RailAnswer::kNone, State::kReserved},
                         {State::kReceiving, ack, RailAnswer::kNone, State::kFree},
                         {State::kReceivingOutRts, ack, RailAnswer::kNone, State::kReserved},
                         {State::kSending, kNothing, RailAnswer::kNone, State::kSending},
                         {State::kDead, kNothing, RailAnswer::kNone, State::kDead}});
}

TEST(Table1, ack) {
    const auto event = [](HalfDuplexRail& rail) { return rail.received(message(Kind::kAck, kAsked, 1)); };
    expect_cells(event, {{State::kFree, kNothing, RailAnswer::kNone, State::kFree},
                         {State::kReserved, kNothing, RailAnswer::kNone, State::kReserved},
                         {State::kReceiving, kNothing, RailAnswer::kNone, State::kReceiving},
                         {State::kReceivingOutRts, kNothing, RailAnswer::kNone, State::kReceivingOutRts},
                         {State::kSending, kNothing, RailAnswer::kDone, State::kFree},
                         {State::kDead, kNothing, RailAnswer::kNone, State::kDead}});
}

TEST(Table1, the_requesters_own_end) {
    const auto event = [](HalfDuplexRail& rail) { return rail.request_done(); };
    expect_cells(event, {{State::kFree, kNothing, RailAnswer::kNone, State::kFree},
                         {State::kReserved, kNothing, RailAnswer::kNone, State::kReserved},
                         {State::kReceiving, kNothing, RailAnswer::kNone, State::kReceiving},
                         {State::kReceivingOutRts, kNothing, RailAnswer::kNone, State::kReceivingOutRts},
                         {State::kSending, message(Kind::kDone, kAsked, 1), RailAnswer::kNone, State::kFree},
                         {State::kDead, kNothing, RailAnswer::kNone, State::kDead}});
}

TEST(Table1, death_of_the_peer_that_was_asked_or_that_asks) {
    const auto asked = [](HalfDuplexRail& rail) { return rail.peer_died(kAsked); };
    expect_cells(asked, {{State::kFree, kNothing, RailAnswer::kNone, State::kFree},
                         {State::kReserved, kNothing, RailAnswer::kRefused, State::kFree},
                         {State::kReceiving, kNothing, RailAnswer::kNone, State::kReceiving},
                         {State::kReceivingOutRts, kNothing, RailAnswer::kRefused, State::kReceiving},
                         {State::kSending, kNothing, RailAnswer::kLost, State::kFree},
                         {State::kDead, kNothing, RailAnswer::kNone, State::kDead}});
    const auto asking = [](HalfDuplexRail& rail) { return rail.peer_died(kAsking); };
    expect_cells(asking, {{State::kReserved, kNothing, RailAnswer::kNone, State::kReserved},
                          {State::kReceiving, kNothing, RailAnswer::kNone, State::kFree},
                          {State::kReceivingOutRts, kNothing, RailAnswer::kNone, State::kReserved},
                          {State::kSending, kNothing, RailAnswer::kNone, State::kSending}});
}

TEST(Table1, death_of_the_rail_tells_the_other_end) {
    const auto event = [](HalfDuplexRail& rail) {
        Sent sent;
        RailActions actions = rail.rail_died([&](const RailMessage& to_other_end) {
            EXPECT_FALSE(sent) << "one is enough";
            sent = to_other_end;
        });
        actions.message = sent;
        return actions;
    };
    expect_cells(
        event, {{State::kFree, kNothing, RailAnswer::kNone, State::kDead},
                {State::kReserved, kNothing, RailAnswer::kRefused, State::kDead},
                {State::kReceiving, message(Kind::kNack, kAsking, kTheirs), RailAnswer::kNone, State::kDead},
                {State::kReceivingOutRts, message(Kind::kNack, kAsking, kTheirs), RailAnswer::kRefused,
                 State::kDead},
                {State::kSending, message(Kind::kAbort, kAsked, 1), RailAnswer::kLost, State::kDead},
                {State::kDead, kNothing, RailAnswer::kNone, State::kDead}});
    HalfDuplexRail rail = in(State::kDead);
    rail.rail_revived();
    EXPECT_EQ(rail.state(), State::kFree);
    for (const State state : {State::kReserved, State::kReceiving, State::kSending}) {
        HalfDuplexRail live = in(state);
        live.rail_revived();
        EXPECT_EQ(live.state(), state) << "it was not dead";
    }
}

TEST(Table2, the_greater_of_counter_and_id_wins_and_counters_move) {
    for (const int32_t counter : {-1, 0, 1}) {
        for (const uint64_t id : {kId - 1, kId + 1}) {
            HalfDuplexRail rail = in(State::kReserved);
            const bool own = counter < 0 || (counter == 0 && id < kId);
            const RailActions actions = rail.received(rts(kStranger, 3, counter, id));
            EXPECT_EQ(actions.message->kind, own ? Kind::kNack : Kind::kCts) << counter << " " << id;
            EXPECT_EQ(rail.counter(), own ? -1 : 1) << counter << " " << id;
            EXPECT_EQ(actions.grant, own ? RailGrantChange::kNone : RailGrantChange::kBegun);
        }
    }
}

TEST(Table2, the_counter_moves_in_no_other_state) {
    for (const State state : {State::kFree, State::kReceiving, State::kSending, State::kDead}) {
        HalfDuplexRail rail = in(state);
        (void)rail.received(rts(kStranger, 3, 5, 99));
        EXPECT_EQ(rail.counter(), 0) << static_cast<int>(state);
    }
}

/// The own request is judged by what it carries, though the counter has moved since.
TEST(Table2, a_request_keeps_the_priority_that_it_left_with) {
    HalfDuplexRail rail = in(State::kReserved);
    for (uint32_t i = 0; i < 4; ++i) {
        EXPECT_EQ(rail.received(rts(kStranger, i, -1, 99)).message->kind, Kind::kNack);
    }
    EXPECT_EQ(rail.counter(), -4);
    EXPECT_EQ(rail.received(rts(kStranger, 9, -1, 99)).message->kind, Kind::kNack);
    (void)rail.received(message(Kind::kNack, kAsked, 1));
    EXPECT_EQ(rail.request(kAsked).message, rts(kAsked, 2, -5, kId)) << "the next one carries it";
}

TEST(Table2, the_counter_has_bounds) {
    HalfDuplexRail low(kId, 2);
    HalfDuplexRail high(kId, 2);
    (void)low.request(kAsked);
    for (uint32_t i = 0; i < 5; ++i) (void)low.received(rts(kStranger, i, -1, 0));
    EXPECT_EQ(low.counter(), -2);
    for (uint32_t i = 0; i < 5; ++i) {
        (void)high.request(kAsked);
        (void)high.received(rts(kAsking, i, 9, 0));
        (void)high.received(message(Kind::kNack, kAsked, i + 1));
        (void)high.received(message(Kind::kAbort, kAsking, i));
        EXPECT_EQ(high.state(), State::kFree);
    }
    EXPECT_EQ(high.counter(), 2);
}

TEST(HalfDuplexRail, a_request_given_up_is_not_answered_and_its_cts_is_aborted) {
    for (const State state : {State::kReserved, State::kReceivingOutRts}) {
        for (const Kind kind : {Kind::kCts, Kind::kNack}) {
            HalfDuplexRail rail = in(state);
            EXPECT_FALSE(rail.abort().message);
            const RailActions actions = rail.received(message(kind, kAsked, 1));
            EXPECT_EQ(actions.answer, RailAnswer::kNone) << "the caller has given it up";
            EXPECT_EQ(actions.message, kind == Kind::kCts ? Sent(message(Kind::kAbort, kAsked, 1)) : Sent());
            EXPECT_EQ(rail.state(), state == State::kReserved ? State::kFree : State::kReceiving);
        }
    }
    for (const State state : {State::kReserved, State::kReceivingOutRts}) {
        HalfDuplexRail peerless = in(state);
        HalfDuplexRail dead = in(state);
        (void)peerless.abort();
        (void)dead.abort();
        EXPECT_EQ(peerless.peer_died(kAsked).answer, RailAnswer::kNone);
        EXPECT_EQ(dead.rail_died([](const RailMessage&) {}).answer, RailAnswer::kNone);
    }
    HalfDuplexRail rail = in(State::kReserved);
    (void)rail.abort();
    (void)rail.received(message(Kind::kNack, kAsked, 1));
    (void)rail.request(kAsked);
    EXPECT_EQ(rail.received(message(Kind::kCts, kAsked, 2)).answer, RailAnswer::kGranted)
        << "the next request is not given up";
}

/// Answers and ends of other requests, or of other peers, change nothing; a stale CTS is given back.
TEST(HalfDuplexRail, stale_messages_change_nothing) {
    for (const State state : {State::kFree, State::kReserved, State::kReceiving, State::kReceivingOutRts,
                              State::kSending, State::kDead}) {
        for (const Kind kind : {Kind::kCts, Kind::kNack, Kind::kAbort, Kind::kAck, Kind::kDone}) {
            for (const auto& [peer, number] : {std::pair{kStranger, 1u},
                                               {kAsked, 2u},
                                               {kAsked, 0u},
                                               {kStranger, kTheirs},
                                               {kAsking, kTheirs + 1}}) {
                HalfDuplexRail rail = in(state);
                const RailActions actions = rail.received(message(kind, peer, number));
                EXPECT_EQ(actions.message,
                          kind == Kind::kCts ? Sent(message(Kind::kAbort, peer, number)) : Sent());
                EXPECT_EQ(actions.answer, RailAnswer::kNone);
                EXPECT_EQ(actions.grant, RailGrantChange::kNone);
                EXPECT_EQ(rail.state(), state);
                EXPECT_EQ(rail.counter(), in(state).counter());
            }
        }
    }
}

TEST(HalfDuplexRail, what_both_ends_know) {
    EXPECT_FALSE(in(State::kFree).own_request());
    EXPECT_FALSE(in(State::kFree).grant());
    const HalfDuplexRail both = in(State::kReceivingOutRts);
    EXPECT_EQ(both.own_request()->peer, kAsked);
    EXPECT_EQ(both.own_request()->number, 1u);
    EXPECT_EQ(both.grant(), (RailGrant{kAsking, kTheirs}));
    EXPECT_FALSE(in(State::kDead).own_request());
    EXPECT_FALSE(in(State::kDead).grant());
}

TEST(RetryWait, is_from_none_to_half_a_round_trip) {
    std::mt19937_64 random(1);
    uint64_t least = 100;
    uint64_t most = 0;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t wait = retry_wait(20, random());
        least = std::min(least, wait);
        most = std::max(most, wait);
    }
    EXPECT_EQ(least, 0u);
    EXPECT_EQ(most, 10u);
    EXPECT_EQ(retry_wait(0, random()), 0u);
}

using Duplex = DuplexRail<3>;

const auto kIgnore = [](const RailMessage&) {};

TEST(DuplexRail, both_halves_work_at_once) {
    Duplex rail;
    (void)rail.request(kAsked);
    EXPECT_EQ(rail.received(rts(kAsking, kTheirs, 0, 0)).message, message(Kind::kCts, kAsking, kTheirs));
    EXPECT_EQ(rail.received(message(Kind::kCts, kAsked, 1)).answer, RailAnswer::kGranted);
    EXPECT_EQ(rail.state(), Duplex::State::kSending);
    EXPECT_EQ(rail.grant(), (RailGrant{kAsking, kTheirs}));
    EXPECT_EQ(rail.received(message(Kind::kAck, kAsked, 1)).answer, RailAnswer::kDone);
    EXPECT_EQ(rail.state(), Duplex::State::kFree);
    EXPECT_TRUE(rail.grant());
    EXPECT_EQ(rail.received(message(Kind::kDone, kAsking, kTheirs)).grant, RailGrantChange::kEnded);
    EXPECT_FALSE(rail.grant());
}

TEST(DuplexRail, requests_queue_in_order_and_are_refused_beyond) {
    Duplex rail;
    for (uint32_t peer = 10; peer < 14; ++peer) {
        const RailActions actions = rail.received(rts(peer, 1, 0, 0));
        EXPECT_EQ(actions.message.has_value(), peer == 10);
    }
    EXPECT_EQ(rail.queued(), 3u);
    EXPECT_EQ(rail.received(rts(14, 1, 0, 0)).message, message(Kind::kNack, 14, 1));
    std::vector<RailMessage> sent;
    const RailActions next = rail.grant_done([&](const RailMessage& ack) { sent.push_back(ack); });
    EXPECT_EQ(sent, std::vector{message(Kind::kAck, 10, 1)});
    EXPECT_EQ(next.message, message(Kind::kCts, 11, 1));
    EXPECT_EQ(next.grant, RailGrantChange::kBegun);
    EXPECT_FALSE(rail.received(message(Kind::kAbort, 12, 1)).message) << "it waited";
    EXPECT_EQ(rail.received(message(Kind::kAbort, 11, 1)).message, message(Kind::kCts, 13, 1));
    EXPECT_EQ(rail.queued(), 0u);

    Duplex without(0);
    (void)without.received(rts(10, 1, 0, 0));
    EXPECT_EQ(without.received(rts(11, 1, 0, 0)).message, message(Kind::kNack, 11, 1));
}

/// Of one peer's requests the newest counts, in whatever order they come.
TEST(DuplexRail, a_peer_waits_with_one_request) {
    for (const uint32_t first : {6u, UINT32_MAX}) {
        for (const bool in_order : {true, false}) {
            Duplex rail;
            (void)rail.received(rts(10, 1, 0, 0));
            (void)rail.received(rts(11, in_order ? first : first + 1, 0, 0));
            EXPECT_FALSE(rail.received(rts(11, in_order ? first + 1 : first, 0, 0)).message);
            EXPECT_EQ(rail.queued(), 1u);
            EXPECT_EQ(rail.queued_at(0), (RailGrant{11, first + 1}));
        }
    }
}

TEST(DuplexRail, a_request_given_up_frees_its_half_at_once) {
    Duplex rail;
    (void)rail.request(kAsked);
    EXPECT_EQ(rail.abort().message, message(Kind::kAbort, kAsked, 1));
    EXPECT_EQ(rail.state(), Duplex::State::kFree);
    EXPECT_EQ(rail.request(kAsked).message, rts(kAsked, 2, 0, 0));
    EXPECT_EQ(rail.received(message(Kind::kCts, kAsked, 1)).message, message(Kind::kAbort, kAsked, 1));
    EXPECT_EQ(rail.received(message(Kind::kNack, kAsked, 1)).answer, RailAnswer::kNone);
    EXPECT_EQ(rail.received(message(Kind::kNack, kAsked, 2)).answer, RailAnswer::kRefused);
    EXPECT_FALSE(rail.abort().message);
    EXPECT_FALSE(rail.request_done().message);
}

TEST(DuplexRail, a_request_ends_once) {
    Duplex rail;
    (void)rail.request(kAsked);
    EXPECT_EQ(rail.request(kStranger).answer, RailAnswer::kRefused);
    EXPECT_FALSE(rail.request_done().message) << "it is not granted";
    (void)rail.received(message(Kind::kCts, kAsked, 1));
    EXPECT_EQ(rail.request_done().message, message(Kind::kDone, kAsked, 1));
    EXPECT_EQ(rail.received(message(Kind::kAck, kAsked, 1)).answer, RailAnswer::kNone);
    EXPECT_FALSE(rail.grant_done(kIgnore).message);
}

TEST(DuplexRail, death_of_peer_and_rail) {
    Duplex rail;
    (void)rail.request(kAsked);
    (void)rail.received(rts(10, 1, 0, 0));
    (void)rail.received(rts(11, 1, 0, 0));
    (void)rail.received(rts(12, 1, 0, 0));
    EXPECT_FALSE(rail.peer_died(11).message);
    EXPECT_EQ(rail.peer_died(10).message, message(Kind::kCts, 12, 1));
    EXPECT_EQ(rail.peer_died(kAsked).answer, RailAnswer::kRefused);
    (void)rail.request(kAsked);
    (void)rail.received(message(Kind::kCts, kAsked, 2));
    (void)rail.received(rts(13, 1, 0, 0));
    std::vector<RailMessage> sent;
    const RailActions dead = rail.rail_died([&](const RailMessage& each) { sent.push_back(each); });
    EXPECT_EQ(dead.answer, RailAnswer::kLost);
    EXPECT_EQ(dead.grant, RailGrantChange::kEnded);
    EXPECT_EQ(sent, (std::vector{message(Kind::kNack, 12, 1), message(Kind::kNack, 13, 1),
                                 message(Kind::kAbort, kAsked, 2)}));
    EXPECT_EQ(rail.received(rts(13, 2, 0, 0)).message, message(Kind::kNack, 13, 2));
    EXPECT_EQ(rail.request(kAsked).answer, RailAnswer::kRefused);
    rail.rail_revived();
    EXPECT_EQ(rail.received(rts(13, 3, 0, 0)).message, message(Kind::kCts, 13, 3));
    EXPECT_EQ(rail.request(kAsked).message, rts(kAsked, 3, 0, 0));
    (void)rail.received(message(Kind::kCts, kAsked, 3));
    EXPECT_EQ(rail.peer_died(kAsked).answer, RailAnswer::kLost);
}

/// Many nodes ask each other over a network without order, under any interleaving: at most one user of a rail
/// at any time, and all is free at the end.
template <typename Rail>
void random_order(uint64_t seed, const std::function<Rail(uint32_t)>& make) {
    constexpr uint32_t kNodes = 8;
    constexpr uint32_t kTransfers = 40;
    std::mt19937_64 random(seed);
    const auto below = [&](size_t bound) { return random() % bound; };
    struct Flight {
        uint32_t to;
        RailMessage message;
    };
    std::vector<Rail> rails;
    std::vector<uint32_t> left(kNodes, kTransfers);
    std::vector<bool> moving(kNodes, false);
    std::vector<Flight> flights;
    uint64_t tries = 0;
    for (uint32_t i = 0; i < kNodes; ++i) rails.push_back(make(i));
    const auto perform = [&](uint32_t at, const RailActions& actions) {
        if (actions.message) {
            RailMessage message = *actions.message;
            const uint32_t to = std::exchange(message.peer, at);
            flights.push_back({to, message});
        }
        if (actions.answer == RailAnswer::kGranted) moving[at] = true;
        ASSERT_NE(actions.answer, RailAnswer::kLost);
    };
    while (std::any_of(left.begin(), left.end(), [](uint32_t count) { return count != 0; }) ||
           !flights.empty()) {
        ASSERT_LT(++tries, 2'000'000u) << "seed " << seed;
        const auto at = static_cast<uint32_t>(below(kNodes));
        if (moving[at] && below(4) == 0) {
            const uint32_t to = rails[at].own_request()->peer;
            ASSERT_EQ(rails[to].grant(), (RailGrant{at, rails[at].own_request()->number})) << "seed " << seed;
            for (uint32_t other = 0; other < kNodes; ++other) {
                ASSERT_TRUE(other == at || !moving[other] || rails[other].own_request()->peer != to)
                    << "two send to one, seed " << seed;
            }
            moving[at] = false;
            if (below(3) == 0) {
                perform(at, rails[at].abort());
            } else {
                --left[at];
                perform(at, rails[at].request_done());
            }
        } else if (!moving[at] && left[at] != 0 && rails[at].state() == Rail::State::kFree && below(2) == 0) {
            perform(at, rails[at].request(static_cast<uint32_t>((at + 1 + below(kNodes - 1)) % kNodes)));
        } else if (!moving[at] && below(64) == 0) {
            perform(at, rails[at].abort());
        } else if (!flights.empty()) {
            const size_t which = below(flights.size());
            const Flight flight = flights[which];
            flights.erase(flights.begin() + static_cast<ptrdiff_t>(which));
            perform(flight.to, rails[flight.to].received(flight.message));
        }
    }
    for (const Rail& rail : rails) {
        EXPECT_EQ(rail.state(), Rail::State::kFree) << "seed " << seed;
        EXPECT_FALSE(rail.grant()) << "seed " << seed;
    }
}

TEST(HalfDuplexRail, all_transfers_end_in_any_order) {
    for (uint64_t seed = 1; seed <= 100; ++seed) {
        random_order<HalfDuplexRail>(seed, [](uint32_t node) { return HalfDuplexRail(node); });
        if (HasFatalFailure()) return;
    }
}
TEST(DuplexRail, all_transfers_end_in_any_order) {
    for (uint64_t seed = 1; seed <= 100; ++seed) {
        for (const uint32_t queue_max : {0u, 3u}) {
            random_order<Duplex>(seed, [=](uint32_t) { return Duplex(queue_max); });
            if (HasFatalFailure()) return;
        }
    }
}

/// Garbage of a peer reaches no check, and leaves the rail usable once that peer is dead.
TEST(Rails, garbage_ends_with_its_sender) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 200; ++round) {
        HalfDuplexRail half(kId);
        Duplex duplex;
        for (int i = 0; i < 50; ++i) {
            const auto number = static_cast<uint32_t>(random() % 4);
            const RailMessage garbage = {static_cast<Kind>(random() % 7), kAsking, number,
                                         static_cast<int32_t>(random()), random() % 7};
            if (random() % 4 == 0) (void)half.request(kAsking);
            if (random() % 4 == 0) (void)duplex.request(kAsking);
            (void)half.received(garbage);
            (void)duplex.received(garbage);
        }
        (void)half.peer_died(kAsking);
        (void)duplex.peer_died(kAsking);
        EXPECT_EQ(half.state(), State::kFree);
        EXPECT_EQ(duplex.state(), Duplex::State::kFree);
        EXPECT_FALSE(duplex.grant());
        EXPECT_EQ(duplex.queued(), 0u);
    }
}

static_assert(sizeof(HalfDuplexRail) <= 64, "one line of a cache");
static_assert(HalfDuplexRail(1).request(2).message->kind == Kind::kRts);

}  // namespace
}  // namespace velo::rma
