// Reservations of rails between engines, alone: messages that a broken or wicked peer may send about rails, and
// transfers that wait for them.
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/rendezvous/reserving_impl.h"

namespace velo::rma {
namespace {

struct FakeCore : test::PlainCore {
    explicit FakeCore(uint64_t reserve_ns) {
        options.rails.rails = 2;
        options.rails.reserve_ns = reserve_ns;
        options.rails.retry_ns = 1'000'000'000;
        options.identity.name = 77;
    }
    std::optional<int> device{1};
};

/// A message about a rail, as it goes to a peer or comes from one.
struct Told {
    uint32_t peer = 0;
    RailMessageKind kind{};
    uint32_t rail = 0;
    uint32_t number = 0;
    bool sends = false;
    Status status = Status::kOk;
    bool operator==(const Told&) const = default;
};
RailHeader to_header(const Told& told) {
    return {.kind = told.kind,
            .rail = static_cast<uint8_t>(told.rail),
            .status = told.status,
            .sends = told.sends,
            .number = told.number};
}

}  // namespace
}  // namespace velo::rma

namespace velo {

template <>
class EngineMessages<rma::FakeCore> {
  public:
    void send_control(velo_peer& peer, const RailHeader& header) {
        sent.push_back({.peer = peer.index,
                        .kind = header.kind,
                        .rail = header.rail,
                        .number = header.number,
                        .sends = header.sends != 0,
                        .status = header.status});
    }
    std::vector<rma::Told> take() { return std::exchange(sent, {}); }

    std::vector<rma::Told> sent;
};

template <>
class rma::RailDispatch<rma::FakeCore> {
  public:
    explicit RailDispatch(const RailsSettings& settings) : machine(settings) {}
    [[nodiscard]] const Rails& rails() const { return machine; }
    PeerSources& sources_of(velo_peer& peer) {
        if (peer.sources == nullptr) peer.sources = std::make_unique<PeerSources>();
        return *peer.sources;
    }
    /// The first one.
    [[nodiscard]] static RailMask share(RailMask free, uint64_t /*bytes*/) { return free & (~free + 1); }

    Rails machine;
};

}  // namespace velo

namespace velo::rma {
namespace {

using State = TransferState<velo_peer>;

struct FakeTransfers : TransferOps {
    std::vector<State*> admitted;
    std::vector<State*> opened;
    void admit(State& state) override { admitted.push_back(&state); }
    void open(State& state) override { opened.push_back(&state); }
    bool find_remote(State& /*state*/) override { return unexpected(); }
    void chunk_done(State& /*state*/, uint32_t /*bytes*/, Status /*status*/) override { unexpected(); }
    void chunk_refused(State& /*state*/, uint64_t /*offset*/, uint32_t /*bytes*/) override { unexpected(); }
    void memory_refused(State& /*state*/, uint64_t /*offset*/, uint32_t /*bytes*/) override { unexpected(); }
    void finished(velo_rma_t& /*op*/, Status /*status*/) override { unexpected(); }
    static bool unexpected() {
        ADD_FAILURE() << "reservations move nothing";
        return false;
    }
};

constexpr uint64_t kReserveNs = 10'000'000;
constexpr auto kRts = RailMessageKind::kRts;
constexpr auto kCts = RailMessageKind::kCts;
constexpr auto kNack = RailMessageKind::kNack;
constexpr auto kAbort = RailMessageKind::kAbort;
constexpr auto kDone = RailMessageKind::kDone;

class ReservingAlone : public testing::Test {
  protected:
    explicit ReservingAlone(uint64_t reserve_ns = kReserveNs) : core_(reserve_ns) {
        reserving_.reports_to(transfers_);
    }
    velo_peer& peer(uint32_t index) {
        velo_peer& found = peers_.of(VELO_PATH_DEVICE, index);
        found.direct = true;
        return found;
    }
    State& transfer(uint32_t to) {
        velo_rma_t& op = ops_.emplace_back();
        op.kind = VELO_RMA_GET;
        op.bytes = 1 << 20;
        op.remote.device_key = 1;
        State& state = states_.emplace_back();
        state.op = &op;
        state.peer = &peer(to);
        state.bytes = op.bytes;
        state.chunk_bytes = 1 << 18;
        return state;
    }
    /// A transfer that has asked for its first rail. Gives what it asks.
    Told asks(State& state) {
        EXPECT_TRUE(reserving_.takes(state));
        reserving_.drive();
        EXPECT_EQ(messages_.sent.size(), 1u);
        return messages_.take().front();
    }
    void receive(const Told& told) { reserving_.receive(peer(told.peer), to_header(told)); }
    std::vector<Told> answers_to(const Told& told) {
        receive(told);
        return messages_.take();
    }
    [[nodiscard]] std::optional<RailGrant> grant(uint32_t rail) const {
        return reserving_.machine()->rail(RailDirection::kReceiving, rail).grant();
    }
    using All = std::vector<Told>;

    FakeCore core_;
    Peers peers_;
    EngineMessages<FakeCore> messages_;
    RailDispatch<FakeCore> rails_{core_.options.rails};
    FakeTransfers transfers_;
    Reserving<FakeCore> reserving_{core_, peers_, messages_, rails_};
    std::deque<velo_rma_t> ops_;
    std::deque<State> states_;
};

TEST_F(ReservingAlone, request_for_a_rail_that_is_not_here_is_refused_and_nothing_else_about_it_is_answered) {
    EXPECT_EQ(answers_to({.peer = 1, .kind = kRts, .rail = 2, .number = 4}),
              (All{{.peer = 1, .kind = kNack, .rail = 2, .number = 4, .status = Status::kUnsupported}}));
    for (const RailMessageKind kind : {kCts, kNack, kAbort, RailMessageKind::kAck, kDone})
        EXPECT_TRUE(answers_to({.peer = 1, .kind = kind, .rail = 255, .number = 4}).empty());
}

TEST_F(ReservingAlone, peer_that_has_ended_is_neither_answered_nor_granted_anything) {
    peer(1).state = PeerState::kFailed;
    EXPECT_TRUE(answers_to({.peer = 1, .kind = kRts, .number = 1}).empty());
    EXPECT_FALSE(grant(0));
}

TEST_F(ReservingAlone, grant_that_was_not_asked_for_is_given_back) {
    EXPECT_EQ(answers_to({.peer = 1, .kind = kCts, .number = 9}),
              (All{{.peer = 1, .kind = kAbort, .number = 9}}));
    State& state = transfer(1);
    const Told asked = asks(state);
    EXPECT_EQ(asked.kind, kRts);
    // Of another peer, and of another request.
    EXPECT_EQ(answers_to({.peer = 2, .kind = kCts, .number = asked.number}),
              (All{{.peer = 2, .kind = kAbort, .number = asked.number}}));
    EXPECT_EQ(answers_to({.peer = 1, .kind = kCts, .number = asked.number + 1}),
              (All{{.peer = 1, .kind = kAbort, .number = asked.number + 1}}));
    EXPECT_TRUE(transfers_.opened.empty());
    EXPECT_TRUE(answers_to({.peer = 1, .kind = kCts, .number = asked.number}).empty());
    EXPECT_EQ(transfers_.opened, std::vector<State*>{&state});
}

TEST_F(ReservingAlone, answers_that_come_twice_admit_once_and_refuse_once) {
    State& granted = transfer(1);
    const Told first = asks(granted);
    receive({.peer = 1, .kind = kCts, .number = first.number});
    receive({.peer = 1, .kind = kCts, .number = first.number});
    EXPECT_EQ(transfers_.opened.size(), 1u);
    messages_.sent.clear();
    State& refused = transfer(1);
    const Told second = asks(refused);
    EXPECT_EQ(second.rail, 1u) << "the other one is held";
    receive({.peer = 1, .kind = kNack, .rail = 1, .number = second.number});
    receive({.peer = 1, .kind = kNack, .rail = 1, .number = second.number});
    EXPECT_EQ(reserving_.machine()->counters().refusals, 1u);
    EXPECT_TRUE(reserving_.waits());
    EXPECT_EQ(transfers_.opened.size(), 1u);
}

TEST_F(ReservingAlone, grant_is_ended_by_its_peer_and_its_number_alone) {
    EXPECT_EQ(answers_to({.peer = 1, .kind = kRts, .number = 5}),
              (All{{.peer = 1, .kind = kCts, .number = 5}}));
    EXPECT_TRUE(answers_to({.peer = 2, .kind = kRts, .number = 5}).empty()) << "queued";
    for (const RailMessageKind kind : {kDone, kAbort}) {
        EXPECT_TRUE(answers_to({.peer = 3, .kind = kind, .number = 5}).empty());
        EXPECT_TRUE(answers_to({.peer = 1, .kind = kind, .number = 4}).empty());
        EXPECT_EQ(grant(0), (RailGrant{1, 5}));
    }
    EXPECT_EQ(answers_to({.peer = 1, .kind = kDone, .number = 5}),
              (All{{.peer = 2, .kind = kCts, .number = 5}}));
    EXPECT_EQ(grant(0), (RailGrant{2, 5}));
    EXPECT_TRUE(answers_to({.peer = 1, .kind = kDone, .number = 5}).empty()) << "twice";
    EXPECT_EQ(grant(0), (RailGrant{2, 5}));
    reserving_.peer_failed(peer(2));
    EXPECT_FALSE(grant(0));
}

TEST_F(ReservingAlone, peer_that_takes_no_packets_is_not_answered_any_more) {
    peer(1).serving.answers = 1024;
    EXPECT_TRUE(answers_to({.peer = 1, .kind = kRts, .number = 1}).empty());
    EXPECT_EQ(core_.counters.engine_malformed, 1u);
    peer(1).serving.answers = 1023;
    EXPECT_EQ(answers_to({.peer = 1, .kind = kRts, .rail = 1, .number = 1}).size(), 1u);
}

TEST_F(ReservingAlone, peer_with_messages_that_wait_is_not_asked) {
    peer(1).serving.answers = 65;
    State& state = transfer(1);
    EXPECT_TRUE(reserving_.takes(state));
    reserving_.drive();
    EXPECT_TRUE(messages_.sent.empty());
    EXPECT_EQ(transfers_.admitted, std::vector<State*>{&state}) << "without a rail";
}

TEST_F(ReservingAlone, peer_that_reserves_nothing_is_never_asked_again) {
    State& asking = transfer(1);
    State& waiting = transfer(1);
    State& other = transfer(2);
    const Told asked = asks(asking);
    EXPECT_TRUE(reserving_.takes(waiting));
    EXPECT_TRUE(reserving_.takes(other));
    receive({.peer = 1, .kind = kNack, .number = asked.number, .status = Status::kUnsupported});
    EXPECT_EQ(transfers_.opened, std::vector<State*>{&asking});
    EXPECT_EQ(transfers_.admitted, (std::vector<State*>{&asking, &waiting})) << "the first one began before";
    EXPECT_TRUE(reserving_.waits()) << "with the other peer";
    messages_.sent.clear();
    receive({.peer = 1, .kind = kRts, .rail = 1, .number = 1});
    core_.clock.ns += 1'000'000'000'000;
    EXPECT_FALSE(reserving_.takes(transfer(1)));
}

TEST_F(ReservingAlone, peer_that_is_late_is_left_alone_for_a_while_or_until_it_says_something) {
    State& state = transfer(1);
    asks(state);
    core_.clock.ns += kReserveNs;
    reserving_.drive();
    EXPECT_EQ(transfers_.opened, std::vector<State*>{&state});
    EXPECT_FALSE(reserving_.takes(transfer(1)));
    core_.clock.ns += 16 * kReserveNs;
    EXPECT_TRUE(reserving_.takes(transfer(1)));
    core_.clock.ns += kReserveNs;
    reserving_.drive();
    reserving_.drive();
    receive({.peer = 1, .kind = kRts, .number = 1});
    EXPECT_TRUE(reserving_.takes(transfer(1)));
}

TEST_F(ReservingAlone, rail_that_fails_here_is_taken_from_its_holder_and_granted_again_when_it_is_due) {
    EXPECT_EQ(answers_to({.peer = 1, .kind = kRts, .number = 5}).front().kind, kCts);
    reserving_.rail_failed(peer(1), 0);
    EXPECT_TRUE(messages_.take().empty()) << "not out yet";
    for (uint32_t i = 0; i < Rails::kRailFailuresMax; ++i)
        rails_.machine.failed(0, rails_.sources_of(peer(1)).rails, core_.clock.ns);
    reserving_.rail_failed(peer(1), 0);
    EXPECT_EQ(messages_.take(), (All{{.peer = 1, .kind = kNack, .number = 5}}));
    EXPECT_EQ(answers_to({.peer = 1, .kind = kRts, .number = 6}).front().kind, kNack);
    core_.clock.ns += 2'000'000'000;
    EXPECT_EQ(answers_to({.peer = 1, .kind = kRts, .number = 7}).front().kind, kCts);
}

struct NothingReservedAlone : ReservingAlone {
    NothingReservedAlone() : ReservingAlone(0) {}
};

TEST_F(NothingReservedAlone, process_says_so_to_those_that_ask) {
    EXPECT_FALSE(reserving_.takes(transfer(1)));
    EXPECT_EQ(answers_to({.peer = 1, .kind = kRts, .rail = 1, .number = 4}),
              (All{{.peer = 1, .kind = kNack, .rail = 1, .number = 4, .status = Status::kUnsupported}}));
    EXPECT_TRUE(answers_to({.peer = 1, .kind = kCts, .number = 4}).empty());
    reserving_.rail_failed(peer(1), 0);
    reserving_.peer_failed(peer(1));
    EXPECT_TRUE(messages_.sent.empty());
}

}  // namespace
}  // namespace velo::rma
