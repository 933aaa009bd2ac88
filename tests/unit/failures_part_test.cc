// Peers that ended, alone: over a node and a device that say what the test wants, and neighbours that keep what they
// were told.
#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/engine/failures_impl.h"

namespace velo {
namespace {

using base::Ending;

struct FakeNode {
    std::vector<shm::PeerIndex> ended;  ///< since the last poll
    std::vector<shm::Loss> losses;
    std::map<uint32_t, Ending> said;
    std::set<uint32_t> with_messages;
    std::vector<uint32_t> disconnected;
    std::vector<Ending> announced;
    size_t waiting_contacts = 0;
    bool elected = true;
    shm::OnNodeAddress own{};

    void beat(uint64_t /*now*/) {}
    void poll_liveness(std::vector<shm::PeerIndex>& died) { died = std::exchange(ended, {}); }
    std::vector<shm::Loss> take_losses() { return std::exchange(losses, {}); }
    [[nodiscard]] size_t unanswered() const { return waiting_contacts; }
    [[nodiscard]] static base::Failure unanswered_failure() { return {.call = "mmap", .error = ENOMEM}; }
    [[nodiscard]] Ending announced_ending(uint32_t peer) const {
        const auto at = said.find(peer);
        return at == said.end() ? Ending::kNone : at->second;
    }
    void announce_ending(Ending ending) { announced.push_back(ending); }
    [[nodiscard]] bool unread(uint32_t peer) const { return with_messages.contains(peer); }
    bool disconnect(uint32_t peer) {
        disconnected.push_back(peer);
        return true;
    }
    [[nodiscard]] bool claim_report(uint32_t /*peer*/) const { return elected; }
    [[nodiscard]] const shm::OnNodeAddress& address() const { return own; }
};

struct FakeDevice {
    DeviceTraits with{};
    std::set<uint32_t> dead;
    std::map<uint32_t, Ending> said;
    std::vector<uint32_t> watched;
    DeviceReport own{};
    bool elected = true;

    [[nodiscard]] const DeviceTraits& traits() const { return with; }
    [[nodiscard]] DeviceReport report(DeviceAddr peer) const {
        DeviceReport report = own;
        report.unreached = peer == DeviceAddr{4};
        return report;
    }
    [[nodiscard]] bool alive(DeviceAddr peer) const { return !dead.contains(peer); }
    void announce_ending(Ending /*ending*/) {}
    [[nodiscard]] Ending announced_ending(DeviceAddr peer) const {
        const auto at = said.find(peer);
        return at == said.end() ? Ending::kNone : at->second;
    }
    void watch(DeviceAddr peer) { watched.push_back(peer); }
    bool claim_report(DeviceAddr /*peer*/) const { return elected; }
};

struct FakeCore : test::PlainCore {
    FakeCore() { options.identity.job = 5; }
    FakeNode on_node;
    std::optional<FakeDevice> device{FakeDevice{}};
    uint64_t device_event_ns = 0;
    struct {
        static int32_t pid() { return 100; }
    } system;

    template <class Of>
    struct Channel {
        Of& of;
        [[nodiscard]] static uint32_t name_of(const velo_peer& peer) { return peer.index; }
        [[nodiscard]] Ending announced_ending(uint32_t peer) const {
            return of.announced_ending(DeviceAddr{peer});
        }
    };
    template <class Action>
    auto on_channel(const velo_peer& peer, Action&& action) {
        return peer.path == VELO_PATH_DEVICE ? action(Channel<FakeDevice>{*device})
                                             : action(Channel<FakeNode>{on_node});
    }
};

using State = rma::TransferState<velo_peer>;
using Op = rma::PendingOp<velo_peer>;

}  // namespace

template <>
class SendQueue<FakeCore> {
  public:
    void unpark(velo_peer& peer) { unparked.push_back(&peer); }
    std::vector<velo_peer*> unparked;
};
template <>
class rma::Reserving<FakeCore> {
  public:
    void peer_failed(const velo_peer& peer) { failed.push_back(&peer); }
    std::vector<const velo_peer*> failed;
};
template <>
class rma::Atomics<FakeCore> {
  public:
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        if (waiting != nullptr) visit(*waiting);
    }
    const State* waiting = nullptr;
};
template <>
class rma::CoopOwner<FakeCore> {
  public:
    void peer_failed(const velo_peer& peer) { failed.push_back(&peer); }
    [[nodiscard]] bool assists(const velo_peer& peer) const { return &peer == assisted; }
    std::vector<const velo_peer*> failed;
    const velo_peer* assisted = nullptr;
};
template <>
class rma::CoopReader<FakeCore> {
  public:
    void peer_failed(const velo_peer& peer) { failed.push_back(&peer); }
    std::vector<const velo_peer*> failed;
};
template <>
class rma::Transfers<FakeCore> {
  public:
    explicit Transfers(FakeCore& core) : core_(core) {}
    void end(Cookie cookie, Status status, uint64_t /*value*/) {
        ended.emplace_back(cookie, status);
        told_before = !core_.events.peer_ends.empty();
    }
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        if (waiting != nullptr) visit(*waiting);
    }
    std::vector<std::pair<Cookie, Status>> ended;
    bool told_before = false;  ///< the host, of the peer's end
    const State* waiting = nullptr;

  private:
    FakeCore& core_;
};
template <>
class Matching<FakeCore> {
  public:
    void finished(velo_peer& peer) { all_finished.push_back(&peer); }
    void forget(velo_peer& peer) { forgotten.push_back(&peer); }
    [[nodiscard]] HostState host() const { return state; }
    std::vector<velo_peer*> all_finished;
    std::vector<velo_peer*> forgotten;
    HostState state = HostState::kPresent;
};
template <>
class StallReporter<FakeCore> {
  public:
    void check(uint64_t /*now*/) {}
};

namespace {

class FailuresAlone : public testing::Test {
  protected:
    explicit FailuresAlone(bool sees_processes = true) {
        core_.on_node.own.segment.pid = 100;
        core_.device->with.sees_processes = sees_processes;
        failures_.emplace(core_, peers_, queue_, pending_, reserving_, atomics_, coop_owner_, coop_reader_,
                          transfers_, matching_, stalls_);
    }
    velo_peer& peer(uint32_t index, velo_path_t path = VELO_PATH_ON_NODE) {
        velo_peer& found = peers_.of(path, index);
        found.connected = true;
        found.rank = 10 + index;
        found.job = 5;
        found.pid = 1000;
        return found;
    }
    void poll() { failures_->poll_liveness(core_.clock.ns); }
    void ends(velo_peer& peer) {
        if (peer.path == VELO_PATH_ON_NODE) {
            core_.on_node.ended.emplace_back(peer.index);
        } else {
            core_.device->dead.insert(peer.index);
        }
        poll();
    }
    State& state_of(velo_peer& peer) {
        State& state = states_.emplace_back();
        state.peer = &peer;
        return state;
    }
    Cookie waits(velo_peer& peer, Op::Kind kind) {
        Op& op = *pending_.take();
        op.kind = kind;
        op.state = &state_of(peer);
        return op.cookie;
    }

    FakeCore core_;
    Peers peers_;
    SendQueue<FakeCore> queue_;
    rma::CookieTable<Op> pending_{16};
    rma::Reserving<FakeCore> reserving_;
    rma::Atomics<FakeCore> atomics_;
    rma::CoopOwner<FakeCore> coop_owner_;
    rma::CoopReader<FakeCore> coop_reader_;
    rma::Transfers<FakeCore> transfers_{core_};
    Matching<FakeCore> matching_;
    StallReporter<FakeCore> stalls_;
    std::optional<Failures<FakeCore>> failures_;
    std::deque<State> states_;
};

TEST_F(FailuresAlone, host_hears_of_a_failure_before_what_waited_for_the_peer_ends) {
    velo_peer& failed = peer(1);
    const Cookie pull = waits(failed, Op::Kind::kPullChunk);
    const Cookie atomic = waits(failed, Op::Kind::kAtomic);
    waits(failed, Op::Kind::kDeviceChunk);  // the device ends it
    waits(peer(2), Op::Kind::kPullChunk);
    ends(failed);
    ASSERT_EQ(core_.events.peer_ends.size(), 1u);
    EXPECT_EQ(core_.events.peer_ends[0].rank, 11u);
    EXPECT_EQ(core_.events.peer_ends[0].followed, 0);
    EXPECT_EQ(transfers_.ended,
              (decltype(transfers_.ended){{pull, Status::kPeerDead}, {atomic, Status::kPeerDead}}));
    EXPECT_TRUE(transfers_.told_before);
    EXPECT_EQ(failed.state, PeerState::kFailed);
    EXPECT_EQ(queue_.unparked, std::vector<velo_peer*>{&failed}) << "so that its messages fail";
    EXPECT_EQ(matching_.all_finished, std::vector<velo_peer*>{&failed});
    EXPECT_EQ(reserving_.failed.size() + coop_owner_.failed.size() + coop_reader_.failed.size(), 3u);
    failures_->report_end(failed);
    EXPECT_EQ(core_.events.peer_ends.size(), 1u) << "once";
}

TEST_F(FailuresAlone, peer_that_closed_is_not_missed_and_ends_when_all_that_it_sent_is_read) {
    velo_peer& closed = peer(1);
    core_.on_node.said[1] = Ending::kClosed;
    core_.on_node.with_messages = {1};
    ends(closed);
    poll();
    EXPECT_EQ(closed.state, PeerState::kClosed);
    EXPECT_TRUE(matching_.all_finished.empty()) << "its messages are still received";
    core_.on_node.with_messages.clear();
    poll();
    EXPECT_EQ(matching_.all_finished, std::vector<velo_peer*>{&closed});
    EXPECT_TRUE(core_.events.peer_ends.empty());
    EXPECT_TRUE(core_.jobs_ended.empty());
}

TEST_F(FailuresAlone, peer_of_the_device_that_closed_ends_when_the_mailbox_is_read_up_to_there) {
    velo_peer& closed = peer(1, VELO_PATH_DEVICE);
    core_.device->said[1] = Ending::kClosed;
    core_.device->own = {.mailbox_written = 50, .mailbox_read = 49};
    ends(closed);
    core_.device->own = {.mailbox_written = 90, .mailbox_read = 49};
    poll();
    EXPECT_TRUE(matching_.all_finished.empty());
    core_.device->own.mailbox_read = 50;
    poll();
    EXPECT_EQ(matching_.all_finished, std::vector<velo_peer*>{&closed});
    poll();
    EXPECT_EQ(matching_.all_finished.size(), 1u) << "an ended peer ends once";
}

TEST_F(FailuresAlone, only_peers_that_the_host_knows_are_reported_and_how_they_went) {
    velo_peer& unknown = peer(3);
    unknown.connected = false;
    ends(unknown);
    EXPECT_TRUE(core_.events.peer_ends.empty());
    core_.on_node.said[1] = Ending::kFollowed;
    ends(peer(1));
    ends(peer(4, VELO_PATH_DEVICE));
    ASSERT_EQ(core_.events.peer_ends.size(), 2u);
    EXPECT_EQ(core_.events.peer_ends[0].followed, 1) << "another one failed first";
    EXPECT_EQ(core_.events.peer_ends[1].unreached, 1);
}

TEST_F(FailuresAlone, message_that_can_never_be_received_ends_the_job_once_a_peer) {
    velo_peer& gone = peer(1);
    gone.job = 6;
    gone.state = PeerState::kClosed;
    failures_->report_lost(nullptr, Owed::kArrival, HostState::kPresent);
    failures_->report_lost(&gone, Owed::kArrival, HostState::kLeaving);
    EXPECT_TRUE(core_.jobs_ended.empty()) << "this process leaves as well";
    failures_->report_lost(&gone, Owed::kArrival, HostState::kPresent);
    failures_->report_lost(&gone, Owed::kSource, HostState::kPresent);
    ASSERT_EQ(core_.jobs_ended.size(), 1u);
    EXPECT_EQ(core_.jobs_ended[0].find("rank 11 of job 6 (pid 1000) has called MPI_Finalize and ended"), 0u);
    // Of the same job: its program has passed the barrier of MPI_Finalize, and so has this one's.
    velo_peer& mate = peer(2);
    mate.state = PeerState::kClosed;
    failures_->report_lost(&mate, Owed::kArrival, HostState::kPresent);
    EXPECT_EQ(core_.jobs_ended.size(), 1u);
    EXPECT_EQ(core_.lines.size(), 1u);
    velo_peer& alive = peer(3);
    failures_->report_lost(&alive, Owed::kArrival, HostState::kPresent);
    EXPECT_EQ(core_.lines.size(), 1u) << "it can still be received";
}

TEST_F(FailuresAlone, message_of_the_engines_own_is_no_loss) {
    velo_peer& gone = peer(1);
    gone.job = 6;
    core_.on_node.said[1] = Ending::kClosed;
    for (const Origin origin : {Origin::kControl, Origin::kPush, Origin::kMatchReply})
        failures_->peer_gone(gone, origin);
    EXPECT_TRUE(core_.jobs_ended.empty());
    EXPECT_TRUE(core_.events.peer_ends.empty()) << "it ended in good order";
    matching_.state = HostState::kGone;
    failures_->peer_gone(gone, Origin::kMatchSend);
    EXPECT_TRUE(core_.jobs_ended.empty()) << "of a part of the host that has left";
    failures_->peer_gone(gone, Origin::kCopy);
    EXPECT_EQ(core_.jobs_ended.size(), 1u);
    EXPECT_EQ(gone.state, PeerState::kPresent) << "the next poll deals with the end";
}

TEST_F(FailuresAlone, what_an_ended_peer_held_is_given_back_when_nothing_refers_to_it) {
    velo_peer& gone = peer(1);
    ends(gone);  // reclaimed by this poll, unless something refers to it
    EXPECT_EQ(core_.on_node.disconnected, std::vector<uint32_t>{1});
    EXPECT_TRUE(gone.reclaimed);
    EXPECT_EQ(core_.counters.peers_gone, 1u);
    EXPECT_EQ(peers_.on_node()[1], nullptr);
    EXPECT_TRUE(matching_.forgotten.empty()) << "the host still has it";
    velo_peer& unknown = peer(2);
    unknown.connected = false;
    ends(unknown);
    EXPECT_EQ(matching_.forgotten, std::vector<velo_peer*>{&unknown}) << "its place is for another";
}

TEST_F(FailuresAlone, each_thing_that_refers_to_a_peer_keeps_it) {
    velo_peer& gone = peer(1);
    gone.sending.listed = true;
    ends(gone);
    const auto kept = [&] {
        poll();
        return core_.on_node.disconnected.empty();
    };
    EXPECT_TRUE(kept()) << "messages wait";
    gone.sending.listed = false;
    coop_owner_.assisted = &gone;
    EXPECT_TRUE(kept()) << "a block of its";
    coop_owner_.assisted = nullptr;
    transfers_.waiting = atomics_.waiting = &state_of(gone);
    EXPECT_TRUE(kept()) << "a transfer and an atomic";
    transfers_.waiting = nullptr;
    EXPECT_TRUE(kept()) << "an atomic";
    atomics_.waiting = nullptr;
    const Cookie copy = waits(gone, Op::Kind::kDirectChunk);
    EXPECT_TRUE(kept()) << "a copy that another thread makes";
    pending_.release(*pending_.find(copy));
    core_.events.told = false;
    EXPECT_TRUE(kept()) << "the host has not heard all";
    core_.events.told = true;
    EXPECT_FALSE(kept());
}

TEST_F(FailuresAlone, one_process_reports_an_end) {
    EXPECT_TRUE(failures_->claim_report(peer(1)));
    core_.on_node.elected = false;
    EXPECT_FALSE(failures_->claim_report(peer(1)));
    velo_peer& far = peer(2, VELO_PATH_DEVICE);
    core_.device->elected = false;
    EXPECT_FALSE(failures_->claim_report(far));
    core_.device->with.elects = false;  // a network's: the processes of the host agree among themselves
    EXPECT_TRUE(failures_->claim_report(far));
    EXPECT_EQ(core_.on_node.announced, std::vector<Ending>{Ending::kFollowed});
    core_.on_node.said[1] = Ending::kFollowed;
    EXPECT_FALSE(failures_->claim_report(far)) << "another one of the host has said so";
}

TEST_F(FailuresAlone, child_of_fork_announces_nothing) {
    failures_->announce_ending(Ending::kClosed);
    EXPECT_EQ(core_.on_node.announced.size(), 1u);
    core_.on_node.own.segment.pid = 99;
    failures_->announce_ending(Ending::kClosed);
    EXPECT_EQ(core_.on_node.announced.size(), 1u);
}

TEST_F(FailuresAlone, lost_messages_of_the_node_end_the_job_and_name_the_process) {
    peer(1);
    core_.on_node.losses.push_back({.cause = shm::Loss::Cause::kGarbage,
                                    .known = true,
                                    .peer = shm::PeerIndex{1},
                                    .pid = 1000,
                                    .failure = {}});
    core_.on_node.losses.push_back({.cause = shm::Loss::Cause::kSenderGone, .pid = 2000, .failure = {}});
    poll();
    ASSERT_EQ(core_.jobs_ended.size(), 2u);
    EXPECT_EQ(core_.jobs_ended[0].find("rank 11 (pid 1000) wrote what cannot be"), 0u);
    EXPECT_EQ(core_.jobs_ended[1].find("process 2000 ended before its ring"), 0u);
}

TEST_F(FailuresAlone, contacts_that_wait_are_reported_once_they_have_waited_for_long) {
    core_.on_node.waiting_contacts = 2;
    for (int i = 0; i < 99; ++i) poll();
    core_.on_node.waiting_contacts = 0;
    poll();  // they were answered
    core_.on_node.waiting_contacts = 2;
    for (int i = 0; i < 99; ++i) poll();
    EXPECT_TRUE(core_.lines.empty());
    for (int i = 0; i < 200; ++i) poll();
    ASSERT_EQ(core_.lines.size(), 1u);
    EXPECT_EQ(core_.lines[0].find("2 processes wait to be attached"), 0u);
}

struct NetworkFailuresAlone : FailuresAlone {
    NetworkFailuresAlone() : FailuresAlone(false) {}
};

TEST_F(NetworkFailuresAlone, device_that_sees_no_processes_hears_for_whom_something_waits) {
    core_.device_event_ns = core_.clock.ns = 10'000'000'000;
    peer(1, VELO_PATH_DEVICE);
    velo_peer& waited_for = peer(2, VELO_PATH_DEVICE);
    waits(waited_for, Op::Kind::kPullChunk);
    velo_peer& ended = peer(3, VELO_PATH_DEVICE);
    ended.state = PeerState::kFailed;
    waits(ended, Op::Kind::kDeviceChunk);
    poll();
    EXPECT_EQ(core_.device->watched, std::vector<uint32_t>{2});
    poll();
    EXPECT_EQ(core_.device->watched.size(), 1u) << "not at each poll";
    core_.clock.ns += 2'000'000'000;
    poll();
    EXPECT_EQ(core_.device->watched, (std::vector<uint32_t>{2, kNoAddr, 2})) << "nothing came for long";
}

}  // namespace
}  // namespace velo
