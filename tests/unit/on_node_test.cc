#include "velo/shm/on_node.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/numa.h"
#include "tests/unit/on_node_ends.h"

namespace velo::shm {
namespace {

/// Two processes, of which `a` has met `b`.
struct OnNodePair : testing::Test {
    OnNode a{config_for(1)};
    OnNode b{config_for(2)};
    PeerIndex peer = 99;
    Inbox inbox;

    OnNodePair() { EXPECT_EQ(a.connect(b.address(), peer), Status::kOk); }
};

TEST_F(OnNodePair, a_peer_that_was_never_met_gets_its_first_message_through) {
    ASSERT_EQ(send(a, peer, "hello"), Status::kOk);
    EXPECT_EQ(b.poll(16, inbox), 1u);
    ASSERT_EQ(inbox.messages.size(), 1u);
    EXPECT_EQ(inbox.messages[0].second, "hello");
    EXPECT_EQ(b.name(inbox.messages[0].first), 1u);
}

TEST(OnNode, meeting_from_both_sides_is_meeting_once) {
    OnNode a(config_for(1));
    OnNode b(config_for(2));
    PeerIndex to_b = 0;
    PeerIndex to_a = 0;
    ASSERT_EQ(a.connect(b.address(), to_b), Status::kOk);
    ASSERT_EQ(send(a, to_b, "x"), Status::kOk);
    Inbox inbox;
    b.poll(16, inbox);
    ASSERT_EQ(b.connect(a.address(), to_a), Status::kOk);
    EXPECT_EQ(to_a, inbox.messages[0].first);
    EXPECT_EQ(b.peers(), 1u);
    ASSERT_EQ(a.connect(b.address(), to_b), Status::kOk);
    EXPECT_EQ(a.peers(), 1u);
}

TEST_F(OnNodePair, an_idle_process_owns_no_ring) {
    EXPECT_EQ(a.counters().rings_created, 0u);
    ASSERT_EQ(send(a, peer, "x"), Status::kOk);
    EXPECT_EQ(a.counters().rings_created, 1u);
}

/// The node that the ring to `receiver` prefers, when it says that it is on the node that we are on.
int node_of_ring(bool place_rings, base::Place receivers) {
    OnNodeConfig config = config_for(1);
    config.place_rings = place_rings;
    OnNode a(config);
    config = config_for(2);
    config.place = receivers;
    OnNode b(config);
    PeerIndex peer = 0;
    EXPECT_EQ(a.connect(b.address(), peer), Status::kOk);
    EXPECT_EQ(a.place(peer).numa_node, receivers.numa_node);
    EXPECT_EQ(send(a, peer, "x"), Status::kOk);
    // The first ring lies behind the fixed part of the sender's segment.
    base::Mapping ring;
    base::SharedSegment segment;
    EXPECT_EQ(base::SharedSegment::attach(a.address().segment, segment), Status::kOk);
    EXPECT_EQ(segment.map(segment.address().bytes, ring_bytes(config.geometry), ring), Status::kOk);
    return ring ? test::preferred_node(ring.data()) : -2;
}

TEST(OnNode, a_ring_is_placed_where_its_reader_says_that_it_is) {
    const base::Place here = base::locality_by_kernel().place;
    base::SharedSegment segment = base::SharedSegment::create("velo-test", 4096);
    // If the kernel does not place anything, rings are made nevertheless.
    const bool placed = base::prefer_node(segment.bytes().data(), 4096, here.numa_node);
    EXPECT_EQ(node_of_ring(true, here), placed ? here.numa_node : -1);
    EXPECT_EQ(node_of_ring(false, here), -1);
    EXPECT_EQ(node_of_ring(true, {}), -1);
    EXPECT_EQ(node_of_ring(true, {.numa_node = 1023, .cache = -1}), -1) << "no such node";
}

TEST(OnNode, a_wrong_address_is_refused) {
    OnNode a(config_for(1));
    OnNode b(config_for(2));
    PeerIndex peer = 0;
    OnNodeAddress address = b.address();
    ++address.segment.token;
    EXPECT_EQ(a.connect(address, peer), Status::kUnsupported);
    address = b.address();
    address.segment.fd = 0;
    EXPECT_EQ(a.connect(address, peer), Status::kUnsupported);
    address = b.address();
    address.segment.pid = 1 << 30;
    EXPECT_EQ(a.connect(address, peer), Status::kUnsupported);
    address = b.address();
    address.registrations_max = UINT32_MAX;
    EXPECT_EQ(a.connect(address, peer), Status::kBadParam);
    EXPECT_EQ(a.peers(), 0u);
}

TEST(OnNode, a_contact_that_can_never_be_answered_is_dropped_and_not_kept) {
    OnNode victim(config_for(1));
    OnNode sender(config_for(2));
    PeerIndex peer = 0;
    ASSERT_EQ(sender.connect(victim.address(), peer), Status::kOk);
    Status status = Status::kOk;
    ASSERT_NE(sender.reserve_whole(peer, 8, status), nullptr);
    // The contact lies where victims read it: as damaged bytes it comes from process 0.
    base::SharedSegment segment;
    ASSERT_EQ(base::SharedSegment::attach(victim.address().segment, segment), Status::kOk);
    const base::SegmentAddress published = sender.address().segment;
    void* found = memmem(segment.bytes().data(), segment.bytes().size(), &published, sizeof published);
    ASSERT_NE(found, nullptr);
    const int32_t no_process = 0;
    std::memcpy(static_cast<std::byte*>(found) + offsetof(base::SegmentAddress, pid), &no_process, sizeof no_process);
    std::vector<PeerIndex> died;
    Inbox inbox;
    victim.poll(1, inbox);
    victim.poll_liveness(died);
    EXPECT_EQ(victim.counters().contacts_refused, 1u);
    EXPECT_EQ(victim.unanswered(), 0u);
    const std::vector<Loss> losses = victim.take_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].cause, Loss::Cause::kGarbage);
    EXPECT_EQ(losses[0].name, 2u);
}

/// Sends from `a` to `b`, which has no descriptor left for the look at the contact and a second one.
std::vector<Loss> losses_without_descriptors(uint64_t timeout_ns, Inbox& inbox) {
    OnNode a(config_for(1));
    OnNodeConfig config = config_for(2);
    config.timeout_ns = timeout_ns;
    OnNode b(config);
    PeerIndex peer = 0;
    EXPECT_EQ(a.connect(b.address(), peer), Status::kOk);
    EXPECT_EQ(b.connect(a.address(), peer), Status::kOk);
    EXPECT_EQ(send(a, peer, "hello"), Status::kOk);
    rlimit before = {};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none = {3, before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    std::vector<PeerIndex> died;
    b.poll(16, inbox);
    b.poll_liveness(died);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(inbox.messages.empty());
    std::vector<Loss> losses = b.take_losses();
    b.poll_liveness(died);
    b.poll(16, inbox);
    return losses;
}

TEST(OnNode, a_ring_that_cannot_be_attached_is_tried_again_until_the_time_is_over) {
    Inbox inbox;
    EXPECT_TRUE(losses_without_descriptors(UINT64_MAX, inbox).empty());
    ASSERT_EQ(inbox.messages.size(), 1u);
    EXPECT_EQ(inbox.messages[0].second, "hello");

    inbox.messages.clear();
    const std::vector<Loss> losses = losses_without_descriptors(0, inbox);
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].cause, Loss::Cause::kNotAttached);
    EXPECT_TRUE(losses[0].known);
    EXPECT_EQ(losses[0].name, 1u);
    EXPECT_EQ(losses[0].failure.error, EMFILE);
    EXPECT_TRUE(inbox.messages.empty());
}

TEST(OnNode, messages_of_a_process_that_ends_before_it_is_attached_are_lost) {
    OnNode receiver(config_for(1));
    const OnNodeAddress address = receiver.address();
    const pid_t sender = fork();
    if (sender == 0) {
        OnNode sending(config_for(2));
        PeerIndex peer = 0;
        _exit(sending.connect(address, peer) == Status::kOk && send(sending, peer, "x") == Status::kOk ? 0
                                                                                                       : 1);
    }
    int status = 1;
    ASSERT_EQ(waitpid(sender, &status, 0), sender);
    ASSERT_EQ(status, 0);
    Inbox inbox;
    receiver.poll(16, inbox);
    const std::vector<Loss> losses = receiver.take_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].cause, Loss::Cause::kSenderGone);
    EXPECT_FALSE(losses[0].known);
    EXPECT_EQ(losses[0].pid, sender);
    EXPECT_EQ(receiver.unanswered(), 0u);
}

/// A consumer's writes are trusted no more than a producer's.
TEST_F(OnNodePair, a_reader_that_claims_to_have_read_what_was_not_written_is_a_loss) {
    ASSERT_EQ(send(a, peer, "x"), Status::kOk);
    base::Mapping memory;
    base::SharedSegment segment;
    ASSERT_EQ(base::SharedSegment::attach(a.address().segment, segment), Status::kOk);
    const RingGeometry geometry = config_for(1).geometry;
    ASSERT_EQ(segment.map(segment.address().bytes, ring_bytes(geometry), memory), Status::kOk);
    RingView(memory.data(), geometry).control->consumed.cells.store(1u << 30);
    for (uint32_t i = 0; i < 2 * geometry.lines; ++i) (void)!(send(a, peer, "x") == Status::kOk);
    const std::vector<Loss> losses = a.take_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].cause, Loss::Cause::kGarbage);
    EXPECT_EQ(losses[0].name, 2u);
}

/// Bytes of a process's segment.
off_t segment_bytes(const OnNode& process) {
    struct stat info = {};
    EXPECT_EQ(fstat(process.address().segment.fd, &info), 0);
    return info.st_size;
}

TEST(OnNode, a_ring_that_cannot_be_mapped_is_allocated_once_and_lost_once_the_time_is_over) {
    OnNodeConfig config = config_for(1);
    config.geometry.body_bytes = 256u << 20;
    config.timeout_ns = 0;
    OnNode a(config);
    OnNode b(config_for(2));
    PeerIndex peer = 0;
    ASSERT_EQ(a.connect(b.address(), peer), Status::kOk);
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
    const rlimit little = {1u << 20, before.rlim_max};
    off_t grown = 0;
    for (int tries = 0; tries < 2; ++tries) {
        ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
        const Status status = send(a, peer, "x");
        ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
        EXPECT_EQ(status, Status::kAgain);
        if (tries == 0) grown = segment_bytes(a);
        EXPECT_EQ(segment_bytes(a), grown);
        usleep(100'000);  // the next try is a real one
    }
    const std::vector<Loss> losses = a.take_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].cause, Loss::Cause::kNoRing);
    EXPECT_EQ(losses[0].name, 2u);
    EXPECT_EQ(losses[0].pid, getpid());
    EXPECT_EQ(losses[0].failure.error, ENOMEM);
    EXPECT_EQ(send(a, peer, "x"), Status::kOk) << "memory came back";
}

TEST_F(OnNodePair, a_message_that_is_not_accepted_stays) {
    ASSERT_EQ(send(a, peer, "one"), Status::kOk);
    ASSERT_EQ(send(a, peer, "two"), Status::kOk);
    inbox.open = false;
    EXPECT_EQ(b.poll(16, inbox), 0u);
    inbox.open = true;
    EXPECT_EQ(b.poll(16, inbox), 2u);
    EXPECT_EQ(inbox.messages[0].second, "one");
}

/// By try_send_line, as the engine sends what fits one line.
bool try_send_line(OnNode& from, PeerIndex to, const std::string& text) {
    return from.try_send_line(to, {text.data(), nullptr, static_cast<uint32_t>(text.size()), 0}, 0);
}

TEST_F(OnNodePair, short_messages_arrive_in_order_and_leave_nothing_unread) {
    ASSERT_EQ(send(a, peer, "first"), Status::kOk);
    std::vector<std::string> sent = {"first"};
    for (int i = 0; i < 100; ++i) {
        // One to four at a time, every seventh too long to share a line, every eleventh not by try_send_line.
        for (int k = 0; k <= i % 4; ++k) {
            const size_t number = sent.size();
            sent.push_back(std::to_string(number) + std::string(number % 7 == 0 ? 40 : 0, 'x'));
            if (number % 11 == 0) {
                ASSERT_EQ(send(a, peer, sent.back()), Status::kOk);
            } else {
                ASSERT_TRUE(try_send_line(a, peer, sent.back()));
            }
        }
        b.poll(16, inbox);
        RingFill fill;
        ASSERT_TRUE(a.fill(peer, fill));
        EXPECT_EQ(fill.lines_written, fill.lines_read) << i;
        EXPECT_FALSE(b.unread(inbox.messages[0].first)) << i;
    }
    ASSERT_EQ(inbox.messages.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(inbox.messages[i].second, sent[i]);
}

TEST_F(OnNodePair, a_message_in_a_second_cell_is_unread_until_it_is_taken) {
    ASSERT_EQ(send(a, peer, "first"), Status::kOk);
    b.poll(16, inbox);
    ASSERT_TRUE(try_send_line(a, peer, "one"));
    ASSERT_EQ(b.poll(16, inbox), 1u);
    ASSERT_TRUE(try_send_line(a, peer, "two"));
    RingFill fill;
    ASSERT_TRUE(a.fill(peer, fill));
    EXPECT_EQ(fill.lines_written - fill.lines_read, 1u);
    EXPECT_TRUE(b.unread(inbox.messages[0].first));
    inbox.open = false;
    EXPECT_EQ(b.poll(16, inbox), 0u);
    inbox.open = true;
    EXPECT_EQ(b.poll(16, inbox), 1u);
    EXPECT_EQ(inbox.messages.back().second, "two");
}

TEST_F(OnNodePair, a_short_message_that_was_waited_for_is_handed_up_at_once_and_the_next_ones_follow) {
    ASSERT_EQ(send(a, peer, "first"), Status::kOk);
    EXPECT_EQ(b.poll(16, inbox), 1u);
    EXPECT_EQ(b.poll(16, inbox), 0u);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(try_send_line(a, peer, std::to_string(i)));
    EXPECT_EQ(b.poll(16, inbox), 1u);
    EXPECT_EQ(b.poll(16, inbox), 2u);
    EXPECT_EQ(b.poll(16, inbox), 0u);
    ASSERT_EQ(send(b, inbox.messages[0].first, "answer"), Status::kOk);
    Inbox answers;
    ASSERT_EQ(a.poll(16, answers), 1u);
    const std::string longer(150, 'x');  // of more lines: the lines of those behind it are asked for at once
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(a.try_send_lines(peer, {longer.data(), longer.data() + 8, 8, 142}, 0));
    EXPECT_EQ(b.poll(16, inbox), 3u);
    EXPECT_EQ(inbox.messages.back().second, longer);
}

TEST_F(OnNodePair, only_a_peer_that_keeps_up_gets_messages_in_more_than_a_few_lines) {
    const std::string text(kFewLinesBytesMax + 1, 'x');
    const auto try_send_lines = [&](uint32_t bytes = kFewLinesBytesMax + 1) {
        return a.try_send_lines(peer, {text.data(), text.data() + 8, 8, bytes - 8}, 0);
    };
    EXPECT_FALSE(try_send_lines()) << "there is no ring yet";
    for (int i = 0; i < 8; ++i) ASSERT_EQ(send(a, peer, "x"), Status::kOk);
    EXPECT_FALSE(try_send_lines()) << "a stream";
    EXPECT_TRUE(try_send_lines(kFewLinesBytesMax));
    b.poll(16, inbox);
    ASSERT_EQ(send(b, inbox.messages[0].first, "answer"), Status::kOk);
    Inbox answers;
    ASSERT_EQ(a.poll(16, answers), 1u);
    EXPECT_TRUE(try_send_lines());
}

TEST_F(OnNodePair, room_of_a_message_of_many_lines_is_given_back_before_the_next_one_and_of_few_ones_together) {
    ASSERT_EQ(send(a, peer, "first"), Status::kOk);
    ASSERT_EQ(b.poll(16, inbox), 1u);
    ASSERT_EQ(send(b, inbox.messages[0].first, "answer"), Status::kOk);
    Inbox answers;
    ASSERT_EQ(a.poll(16, answers), 1u);
    const std::string text(1000, 'x');
    struct Reader : Inbox {
        OnNode* sender = nullptr;
        PeerIndex peer;
        std::vector<uint64_t> unread;  // lines that the sender takes for unread, as each message is handed up
        void deliver(PeerIndex from, const Message& message) {
            Inbox::deliver(from, message);
            RingFill fill;
            ASSERT_TRUE(sender->fill(peer, fill));
            unread.push_back(fill.lines_written - fill.lines_read);
        }
    } reader;
    reader.sender = &a;
    reader.peer = peer;
    for (const uint32_t bytes : {1000u, 200u, 200u, 200u}) {
        ASSERT_TRUE(a.try_send_lines(peer, {text.data(), text.data() + 8, 8, bytes - 8}, 0));
    }
    ASSERT_EQ(b.poll(16, reader), 4u);
    EXPECT_EQ(reader.unread, (std::vector<uint64_t>{28, 12, 12, 12}));
    EXPECT_FALSE(b.unread(inbox.messages[0].first));
}

TEST_F(OnNodePair, poll_takes_no_more_of_a_ring_than_its_budget) {
    for (int i = 0; i < 10; ++i) ASSERT_EQ(send(a, peer, std::to_string(i)), Status::kOk);
    EXPECT_EQ(b.poll(4, inbox), 4u);
    EXPECT_EQ(b.poll(4, inbox), 4u);
    EXPECT_EQ(b.poll(4, inbox), 2u);
}

TEST(OnNode, garbage_in_one_ring_closes_that_ring_only_even_when_a_nested_poll_finds_it) {
    OnNode receiver(config_for(1));
    OnNode bad(config_for(2));
    OnNode good(config_for(3));
    PeerIndex from_bad = 0;
    PeerIndex from_good = 0;
    ASSERT_EQ(bad.connect(receiver.address(), from_bad), Status::kOk);
    ASSERT_EQ(good.connect(receiver.address(), from_good), Status::kOk);
    Inbox inbox;
    ASSERT_EQ(send(bad, from_bad, "first"), Status::kOk);
    receiver.poll(16, inbox);
    ASSERT_EQ(send(good, from_good, "first"), Status::kOk);
    receiver.poll(16, inbox);
    Status status = Status::kOk;
    std::byte* room = bad.reserve_whole(from_bad, 8, status);
    ASSERT_NE(room, nullptr);
    bad.commit(from_bad, MessageClass::kHost, 0, 8);
    // The header word of the line that follows: a length that cannot be.
    auto* header = reinterpret_cast<std::atomic<uint64_t>*>(room - sizeof(uint64_t) + kLineBytes);
    header->store(LineHeader{.bytes = UINT32_MAX}.pack());
    struct {
        OnNode& receiver;
        Inbox& inbox;
        bool accepts(const Message&) const { return true; }
        void deliver(PeerIndex from, const Message& message) {
            inbox.deliver(from, message);
            receiver.poll(16, inbox);
        }
    } nested{receiver, inbox};
    receiver.poll(16, nested);
    ASSERT_EQ(send(good, from_good, "second"), Status::kOk);
    receiver.poll(16, inbox);
    EXPECT_EQ(inbox.messages.back().second, "second");
    EXPECT_EQ(receiver.counters().garbage, 1u);
    const std::vector<Loss> losses = receiver.take_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].cause, Loss::Cause::kGarbage);
    EXPECT_EQ(losses[0].name, 2u);
}

/// Twelve senders, more than are always polled, unless a test wants another number.
struct Crowd {
    OnNode receiver{config_for(1'000'000)};
    std::vector<std::unique_ptr<OnNode>> senders;
    std::vector<PeerIndex> to;
    Inbox inbox;

    explicit Crowd(uint64_t count = 12) {
        for (uint64_t i = 0; i < count; ++i) {
            senders.push_back(std::make_unique<OnNode>(config_for(i)));
            to.push_back(0);
            EXPECT_EQ(senders[i]->connect(receiver.address(), to[i]), Status::kOk);
            // The others' contacts may fill the ring for them.
            while (send(*senders[i], to[i], "first") == Status::kAgain) receiver.poll(16, inbox);
        }
        receiver.poll(16, inbox);
        EXPECT_EQ(inbox.messages.size(), count);
        inbox.messages.clear();
        for (int i = 0; i < 10000; ++i) receiver.poll(16, inbox);
    }
    uint64_t bells() const {
        uint64_t bells = 0;
        for (const auto& sender : senders) bells += sender->counters().doorbells_rung;
        return bells;
    }
};

TEST(OnNode, a_silent_sender_of_many_falls_asleep_and_wakes_the_receiver_by_its_bell) {
    Crowd crowd;
    for (size_t i = 0; i < crowd.senders.size(); ++i) {
        ASSERT_EQ(send(*crowd.senders[i], crowd.to[i], "again"), Status::kOk);
    }
    EXPECT_EQ(crowd.bells(), 4u) << "all beyond the eight that are always polled";
    crowd.receiver.poll(16, crowd.inbox);
    EXPECT_EQ(crowd.inbox.messages.size(), 12u);
}

/// A producer may look at the flag of a ring just before its reader sets it, and rings no bell then.
TEST(OnNode, a_message_whose_bell_was_not_rung_is_found) {
    Crowd crowd;
    std::vector<base::Mapping> rings(crowd.senders.size());
    for (size_t i = 0; i < crowd.senders.size(); ++i) {
        // The first ring lies behind the fixed part of the sender's segment.
        base::SharedSegment segment;
        ASSERT_EQ(base::SharedSegment::attach(crowd.senders[i]->address().segment, segment), Status::kOk);
        const RingGeometry geometry = config_for(0).geometry;
        ASSERT_EQ(segment.map(segment.address().bytes, ring_bytes(geometry), rings[i]), Status::kOk);
        RingView(rings[i].data(), geometry).control->sleep.dormant.store(0);
        ASSERT_EQ(send(*crowd.senders[i], crowd.to[i], "again"), Status::kOk);
    }
    EXPECT_EQ(crowd.bells(), 0u);
    for (int i = 0; i < 64; ++i) crowd.receiver.poll(16, crowd.inbox);
    EXPECT_EQ(crowd.inbox.messages.size(), 12u);
}

/// Peers beyond the doorbells, and the descriptors for two processes a peer in one.
struct Host : testing::Test {
    static constexpr uint64_t kSenders = 1040;
    rlimit before{};

    Host() {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
        const rlimit most = {before.rlim_max, before.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &most), 0);
    }
    ~Host() override { setrlimit(RLIMIT_NOFILE, &before); }
};

TEST_F(Host, a_process_talks_with_1040_others_both_ways_asleep_or_not) {
    Crowd crowd(kSenders);
    EXPECT_EQ(crowd.receiver.peers(), kSenders);
    for (size_t i = 0; i < kSenders; ++i) ASSERT_EQ(send(*crowd.senders[i], crowd.to[i], "again"), Status::kOk);
    EXPECT_EQ(crowd.bells(), kSenders - 8) << "all beyond the eight that are always polled";
    crowd.receiver.poll(16, crowd.inbox);
    ASSERT_EQ(crowd.inbox.messages.size(), kSenders);
    std::set<uint64_t> heard;
    for (const auto& [from, text] : crowd.inbox.messages) heard.insert(crowd.receiver.name(from));
    EXPECT_EQ(heard.size(), kSenders);
    Inbox answers;
    for (uint32_t index = 0; index < kSenders; ++index) {
        ASSERT_EQ(send(crowd.receiver, PeerIndex(index), "answer"), Status::kOk);
        crowd.senders[crowd.receiver.name(PeerIndex(index))]->poll(16, answers);
    }
    EXPECT_EQ(answers.messages.size(), kSenders);
    std::vector<PeerIndex> died;
    for (int i = 0; i < 2000; ++i) crowd.receiver.poll_liveness(died);
    EXPECT_TRUE(died.empty());
}

TEST_F(Host, peers_that_share_a_bell_are_woken_by_it) {
    Crowd crowd(kSenders);
    // The index of a peer is the order in which it was met: the first, and the one past the last bell.
    for (const size_t index : {size_t{0}, size_t{1024}}) {
        const size_t sender = crowd.receiver.name(PeerIndex(static_cast<uint32_t>(index)));
        ASSERT_EQ(send(*crowd.senders[sender], crowd.to[sender], "again"), Status::kOk);
        // Others fall asleep in its place meanwhile. The sweep would come to it after a thousand polls.
        for (int i = 0; i < 3; ++i) crowd.receiver.poll(16, crowd.inbox);
        ASSERT_EQ(crowd.inbox.messages.size(), 1u) << index;
        EXPECT_EQ(crowd.inbox.messages[0].first, PeerIndex(static_cast<uint32_t>(index)));
        crowd.inbox.messages.clear();
    }
}

TEST(OnNode, many_threads_meet_and_talk_at_once) {
    constexpr int kSenders = 4;
    constexpr int kMessages = 4000;
    OnNode receiver(config_for(1000));
    const OnNodeAddress address = receiver.address();
    std::vector<std::thread> threads;
    std::atomic<bool> all_received{false};  // a sender's segment must not go before it was attached
    for (int t = 0; t < kSenders; ++t) {
        threads.emplace_back([&address, &all_received, t] {
            OnNode sender(config_for(static_cast<uint64_t>(t)));
            PeerIndex peer = 0;
            ASSERT_EQ(sender.connect(address, peer), Status::kOk);
            for (int i = 0; i < kMessages; ++i) {
                const std::string text = std::to_string(i) + std::string(static_cast<size_t>(i % 300), 'x');
                while (send(sender, peer, text) != Status::kOk) std::this_thread::yield();
            }
            while (!all_received) std::this_thread::yield();
        });
    }
    std::vector<int> next(kSenders);
    struct {
        OnNode& receiver;
        std::vector<int>& next;
        int total = 0;
        bool accepts(const Message&) const { return true; }
        void deliver(PeerIndex from, const Message& message) {
            int& expected = next[receiver.name(from)];
            ASSERT_EQ(std::stoi(std::string(reinterpret_cast<const char*>(message.data), message.bytes)),
                      expected);
            ++expected;
            ++total;
        }
    } handler{receiver, next};
    while (handler.total < kSenders * kMessages) {
        if (receiver.poll(16, handler) == 0) std::this_thread::yield();
    }
    all_received = true;
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace velo::shm
