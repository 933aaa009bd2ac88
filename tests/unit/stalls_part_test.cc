// The reporter of stalls, alone: work that moves or does not, as the neighbours say.
#include <gtest/gtest.h>

#include <csignal>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/report/stall_reporter_impl.h"

namespace velo {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

struct FakeCore : test::PlainCore {
    explicit FakeCore(uint64_t seconds) {
        options.identity.rank = 3;
        options.stall.seconds = seconds;
    }
    struct {
        size_t waiting_contacts = 0;
        [[nodiscard]] size_t unanswered() const { return waiting_contacts; }
    } on_node;
    struct Device {
        DeviceReport own;
        [[nodiscard]] DeviceReport report(DeviceAddr /*peer*/) const { return own; }
    };
    std::optional<Device> device;
    struct Channel {
        [[nodiscard]] static uint32_t name_of(const velo_peer& peer) { return peer.index; }
        [[nodiscard]] uint64_t describe(uint32_t /*peer*/, PeerReport& out) const {
            out.ring.unread = unread;
            return 0;
        }
        bool unread = false;
    } channel;
    template <class Action>
    auto on_channel(const velo_peer& /*peer*/, Action&& action) {
        return action(channel);
    }
};

using State = rma::TransferState<velo_peer>;
using Op = rma::PendingOp<velo_peer>;

/// Transfers of which something is not issued, or atomics that wait.
struct FakeWaiting {
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        for (const State* state : waiting) visit(*state);
    }
    std::vector<const State*> waiting;
};

}  // namespace

template <>
class SendQueue<FakeCore> {
  public:
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        for (velo_peer* peer : waiting) visit(*peer);
    }
    std::vector<velo_peer*> waiting;
};
template <>
class rma::RailDispatch<FakeCore> {
  public:
    [[nodiscard]] const Rails& rails() const { return machine; }
    Rails machine{RailsSettings{}};
};
template <>
class rma::Reserving<FakeCore> : public FakeWaiting {
  public:
    [[nodiscard]] static const RailReservations* machine() { return nullptr; }
};
template <>
class rma::Atomics<FakeCore> : public FakeWaiting {};
template <>
class rma::Transfers<FakeCore> : public FakeWaiting {};
template <>
class rma::CoopOwner<FakeCore> {
  public:
    template <class Visit>
    void for_each_assist(Visit&& visit) const {
        if (assisted != nullptr) visit(*assisted, 0u, left);
    }
    const velo_peer* assisted = nullptr;
    uint32_t left = 0;
};
template <>
class rma::CoopReader<FakeCore> {
  public:
    [[nodiscard]] uint32_t ended_bytes(const Op& /*op*/) const { return ended; }
    [[nodiscard]] static uint32_t left_bytes(const Op& /*op*/) { return 5000; }
    uint32_t ended = 0;
};

namespace {

class StallsAlone : public testing::Test {
  protected:
    StallsAlone() { open(10); }
    void open(int seconds) {
        core_.emplace(seconds);
        reporter_.emplace(*core_, peers_, queue_, pending_, rails_, reserving_, atomics_, coop_owner_,
                          coop_reader_, transfers_);
    }
    velo_peer& peer(uint32_t index) {
        velo_peer& found = peers_.of(VELO_PATH_ON_NODE, index);
        found.connected = true;
        found.rank = 10 + index;
        return found;
    }
    void queues(velo_peer& to) {
        message_.total = 500;
        to.sending.pending.push_back(&message_);
        queue_.waiting.push_back(&to);
    }
    State& transfer(velo_peer& with) {
        velo_rma_t& op = ops_.emplace_back();
        op.kind = VELO_RMA_GET;
        State& state = states_.emplace_back();
        state.op = &op;
        state.peer = &with;
        state.bytes = 1000;
        return state;
    }
    Op& operation(velo_peer& with, Op::Kind kind) {
        Op& op = *pending_.take();
        op.kind = kind;
        op.state = &transfer(with);
        op.bytes = 100;
        return op;
    }
    /// Checks each second, for so long, and calls `moves` each time.
    template <class Moves>
    void pass(int seconds, Moves&& moves) {
        for (int i = 0; i < seconds; ++i) {
            core_->clock.ns += kSecond;
            moves();
            reporter_->check(core_->clock.ns);
        }
    }
    void pass(int seconds) {
        pass(seconds, [] {});
    }
    /// How many reports there were, of which the last one says this.
    size_t reports_saying(const std::string& text) {
        const std::string last = core_->lines.empty() ? text : core_->lines.back();
        EXPECT_NE(last.find(text), std::string::npos) << last;
        return core_->lines.size();
    }

    std::optional<FakeCore> core_;
    Peers peers_;
    SendQueue<FakeCore> queue_;
    rma::CookieTable<Op> pending_{16};
    rma::RailDispatch<FakeCore> rails_;
    rma::Reserving<FakeCore> reserving_;
    rma::Atomics<FakeCore> atomics_;
    rma::CoopOwner<FakeCore> coop_owner_;
    rma::CoopReader<FakeCore> coop_reader_;
    rma::Transfers<FakeCore> transfers_;
    std::optional<StallReporter<FakeCore>> reporter_;
    velo_send_t message_{};
    std::deque<velo_rma_t> ops_;
    std::deque<State> states_;
};

TEST_F(StallsAlone, message_that_does_not_move_is_reported_once_and_that_it_goes_on) {
    queues(peer(1));
    pass(10);
    EXPECT_TRUE(core_->lines.empty());
    pass(1);
    EXPECT_EQ(reports_saying("rank 11"), 1u);
    pass(30);
    EXPECT_EQ(core_->lines.size(), 1u);
    message_.done = 100;
    pass(1);
    EXPECT_EQ(reports_saying("goes on after"), 2u);
}

TEST_F(StallsAlone, each_kind_of_work_that_moves_is_no_stall) {
    queues(peer(1));
    Op& pull = operation(peer(2), Op::Kind::kPullChunk);
    operation(peer(3), Op::Kind::kCoopBlock);
    State& get = transfer(peer(4));
    transfers_.waiting = {&get};
    coop_owner_.assisted = &peer(5);
    pass(60, [&] {
        ++message_.done;
        ++pull.received;
        ++coop_reader_.ended;
        ++get.issued_bytes;
        ++coop_owner_.left;
    });
    EXPECT_TRUE(core_->lines.empty());
}

TEST_F(StallsAlone, each_kind_of_work_that_stands_still_is_reported_by_its_peer) {
    queues(peer(1));
    operation(peer(2), Op::Kind::kPullChunk);
    operation(peer(3), Op::Kind::kCoopBlock);
    State& get = transfer(peer(4));
    transfers_.waiting = {&get};
    State& atomic = transfer(peer(5));
    atomics_.waiting = {&atomic};
    coop_owner_.assisted = &peer(6);
    coop_owner_.left = 7;
    peer(7);  // nothing waits for it
    pass(12);
    for (const char* rank : {"rank 11", "rank 12", "rank 13", "rank 14", "rank 15", "rank 16"})
        EXPECT_EQ(reports_saying(rank), 1u);
    EXPECT_EQ(core_->lines[0].find("rank 17"), std::string::npos);
}

TEST_F(StallsAlone, one_peer_that_moves_does_not_hide_another_one_that_does_not) {
    Op& moving = operation(peer(1), Op::Kind::kPullChunk);
    operation(peer(2), Op::Kind::kPullChunk);
    pass(12, [&] { ++moving.received; });
    EXPECT_EQ(reports_saying("rank 12"), 1u);
}

TEST_F(StallsAlone, packets_that_lie_in_the_own_mailbox_are_a_stall) {
    core_->device.emplace();
    core_->device->own = {.mailbox_written = 9, .mailbox_read = 4};
    pass(12);
    EXPECT_EQ(core_->lines.size(), 1u);
    core_->device->own.mailbox_read = 9;
    pass(1);
    EXPECT_EQ(reports_saying("goes on"), 2u);
}

TEST_F(StallsAlone, nothing_is_looked_at_where_no_report_is_wanted) {
    open(0);
    queues(peer(1));
    pass(100);
    EXPECT_TRUE(core_->lines.empty());
}

TEST_F(StallsAlone, signal_asks_for_what_waits_now) {
    core_.emplace(0);
    core_->options.stall.signal = SIGUSR2;
    reporter_.emplace(*core_, peers_, queue_, pending_, rails_, reserving_, atomics_, coop_owner_,
                      coop_reader_, transfers_);
    queues(peer(1));
    pass(1);
    EXPECT_TRUE(core_->lines.empty());
    ASSERT_EQ(raise(SIGUSR2), 0);
    pass(1);
    EXPECT_EQ(reports_saying("rank 11"), 1u);
    pass(1);
    EXPECT_EQ(core_->lines.size(), 1u) << "one report a signal";
    base::release_dump_signal();
}

TEST_F(StallsAlone, signal_that_cannot_be_caught_is_said) {
    core_.emplace(0);
    core_->options.stall.signal = SIGKILL;
    reporter_.emplace(*core_, peers_, queue_, pending_, rails_, reserving_, atomics_, coop_owner_,
                      coop_reader_, transfers_);
    EXPECT_EQ(reports_saying("cannot be caught"), 1u);
}

TEST_F(StallsAlone, messages_that_lie_in_a_ring_are_part_of_a_report) {
    queues(peer(1));
    peer(2);
    core_->channel.unread = true;
    pass(12);
    EXPECT_EQ(reports_saying("rank 12"), 1u);
}

}  // namespace
}  // namespace velo
