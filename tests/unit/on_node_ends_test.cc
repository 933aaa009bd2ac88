/// Peers of the on-node path that come twice, or have gone.
#include "tests/unit/on_node_ends.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace velo::shm {
namespace {

TEST(OnNodeEnds, a_second_ring_of_a_peer_is_refused_and_its_first_one_is_read) {
    OnNode receiver(config_for(1));
    OnNode sender(config_for(2));
    OnNode twin(config_for(3));
    PeerIndex to = 0;
    PeerIndex of_twin = 0;
    Inbox inbox;
    ASSERT_EQ(sender.connect(receiver.address(), to), Status::kOk);
    ASSERT_EQ(twin.connect(receiver.address(), of_twin), Status::kOk);
    ASSERT_EQ(send(sender, to, "first"), Status::kOk);
    receiver.poll(16, inbox);
    ASSERT_EQ(send(sender, to, "second"), Status::kOk);
    ASSERT_EQ(send(twin, of_twin, "of the twin"), Status::kOk);
    // The contact lies where the receiver reads it: as changed bytes it is of the first sender.
    base::SharedSegment segment;
    ASSERT_EQ(base::SharedSegment::attach(receiver.address().segment, segment), Status::kOk);
    const base::SegmentAddress published = twin.address().segment;
    const base::SegmentAddress instead = sender.address().segment;
    void* found = memmem(segment.bytes().data(), segment.bytes().size(), &published, sizeof published);
    ASSERT_NE(found, nullptr);
    std::memcpy(found, &instead, sizeof instead);
    receiver.poll(16, inbox);
    receiver.poll(16, inbox);
    ASSERT_EQ(inbox.messages.size(), 2u);
    EXPECT_EQ(inbox.messages[1].second, "second");
    const std::vector<Loss> losses = receiver.take_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].cause, Loss::Cause::kGarbage);
}

/// Sends "one", and when a byte comes through the pipe, "two", and ends.
[[noreturn]] void send_twice(const OnNodeAddress& address, int go) {
    OnNode sending(config_for(2));
    PeerIndex peer = 0;
    char byte = 0;
    const bool done = sending.connect(address, peer) == Status::kOk &&
                      send(sending, peer, "one") == Status::kOk && read(go, &byte, 1) == 1 &&
                      send(sending, peer, "two") == Status::kOk;
    _exit(done ? 0 : 1);
}

TEST(OnNodeEnds, a_peer_that_has_ended_stays_while_its_messages_are_unread_or_in_use) {
    OnNode receiver(config_for(1));
    int go[2] = {-1, -1};
    ASSERT_EQ(pipe(go), 0);
    const OnNodeAddress address = receiver.address();
    const pid_t sender = fork();
    if (sender == 0) send_twice(address, go[0]);
    Inbox inbox;
    while (inbox.messages.empty() && waitpid(sender, nullptr, WNOHANG) == 0) receiver.poll(16, inbox);
    ASSERT_EQ(inbox.messages.size(), 1u);
    ASSERT_EQ(write(go[1], "x", 1), 1);
    int status = 1;
    ASSERT_EQ(waitpid(sender, &status, 0), sender);
    ASSERT_EQ(status, 0);
    close(go[0]);
    close(go[1]);
    std::vector<PeerIndex> died;
    while (died.empty()) receiver.poll_liveness(died);
    const PeerIndex peer = inbox.messages[0].first;
    EXPECT_EQ(died, std::vector{peer});
    EXPECT_FALSE(receiver.disconnect(peer)) << "a message is unread";
    struct {
        OnNode& receiver;
        Inbox& inbox;
        bool accepts(const Message&) const { return true; }
        void deliver(PeerIndex from, const Message& message) {
            EXPECT_FALSE(receiver.disconnect(from)) << "a message is in use";
            inbox.deliver(from, message);
        }
    } reader{receiver, inbox};
    receiver.poll(16, reader);
    ASSERT_EQ(inbox.messages.size(), 2u);
    EXPECT_EQ(inbox.messages[1].second, "two");
    EXPECT_TRUE(receiver.disconnect(peer));
}

}  // namespace
}  // namespace velo::shm
