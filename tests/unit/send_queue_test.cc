// The queue of messages alone, over channels that take what the test lets them.
#include "velo/core/send_queue_impl.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/unit/fake_core.h"

namespace velo::test {
namespace {

/// The engine's core, as far as the queue uses it.
struct FakeCore : PlainCore {
    struct Packets {
        std::deque<DeviceAddr> ready;
        bool take_ready(DeviceAddr& peer) {
            if (ready.empty()) return false;
            peer = ready.front();
            ready.pop_front();
            return true;
        }
    };
    struct {
        static bool try_send_line(shm::PeerIndex, const MessageParts&, uint8_t) { return false; }
        static bool try_send_lines(shm::PeerIndex, const MessageParts&, uint8_t) { return false; }
        static shm::RingProducer* ready_ring(shm::PeerIndex) { return nullptr; }
    } on_node;
    std::optional<Packets> packets{Packets{}};
    FakeChannel channel;

    template <class Action>
    auto on_channel(const velo_peer&, Action&& action) {
        return action(channel);
    }
};

struct Owner : SendOwner {
    std::vector<std::pair<velo_send_t*, Status>> ended;
    const velo_send_t* revoked = nullptr;
    void send_ended(velo_send_t& send, Status status) override { ended.emplace_back(&send, status); }
    [[nodiscard]] bool is_revoked(const velo_send_t& send) const override { return &send == revoked; }
};

class SendQueueAlone : public testing::Test {
  protected:
    SendQueueAlone() {
        for (const Origin origin : {Origin::kControl, Origin::kPush, Origin::kMatchSend, Origin::kMatchReply})
            queue_.belongs(origin, owner_);
    }
    velo_peer& peer(uint32_t index) { return peers_.of(VELO_PATH_DEVICE, index); }
    velo_send_t& message(const char* text) {
        velo_send_t& made = messages_.emplace_back();
        made.data[0] = text;
        made.bytes[0] = static_cast<uint32_t>(std::strlen(text));
        return made;
    }
    static MessageParts parts_of(const char* text) {
        return {.header = text, .header_bytes = static_cast<uint32_t>(std::strlen(text))};
    }
    using Sent = std::vector<std::pair<uint32_t, std::string>>;

    FakeCore core_;
    Peers peers_;
    Owner owner_;
    SendQueue<FakeCore> queue_{core_, peers_};
    std::deque<velo_send_t> messages_;
};

TEST_F(SendQueueAlone, messages_of_a_peer_leave_in_their_order_and_end_with_their_owner) {
    velo_send_t& host = message("a");
    velo_send_t& control = message("b");
    velo_send_t& matched = message("c");
    EXPECT_FALSE(queue_.send(peer(3), host));
    EXPECT_FALSE(queue_.queue_send(peer(3), control, MessageClass::kEngine, Origin::kControl));
    core_.channel.takes[3] = 2;
    EXPECT_FALSE(queue_.queue_send(peer(3), matched, MessageClass::kHost, Origin::kMatchSend)) << "it would overtake";
    EXPECT_EQ(queue_.try_send_whole(peer(3), parts_of("d"), 1), Status::kAgain) << "it would overtake";
    EXPECT_EQ(queue_.drive(UINT32_MAX), 2u);
    EXPECT_EQ(core_.channel.sent, (Sent{{3, "a"}, {3, "b"}}));
    EXPECT_EQ(core_.events.ended, (decltype(core_.events.ended){{&host, Status::kOk}}));
    EXPECT_EQ(owner_.ended, (decltype(owner_.ended){{&control, Status::kOk}}));
    core_.channel.takes[3] = 2;
    EXPECT_EQ(queue_.drive(UINT32_MAX), 1u);
    EXPECT_EQ(owner_.ended.back().first, &matched);
    EXPECT_TRUE(queue_.empty());
    EXPECT_EQ(queue_.try_send_whole(peer(3), parts_of("d"), 1), Status::kOk);
}

TEST_F(SendQueueAlone, peers_take_turns) {
    for (const char* text : {"a", "b"}) {
        for (uint32_t index = 0; index < 3; ++index) queue_.send(peer(index), message(text));
    }
    for (uint32_t index = 0; index < 3; ++index) core_.channel.takes[index] = 1;
    EXPECT_EQ(queue_.drive(2), 2u);
    EXPECT_EQ(queue_.drive(2), 1u);
    EXPECT_EQ(core_.channel.sent, (Sent{{0, "a"}, {1, "a"}, {2, "a"}}));
}

TEST_F(SendQueueAlone, a_peer_without_credits_is_not_tried_until_it_is_ready) {
    core_.channel.short_of_credits = {1};
    queue_.send(peer(1), message("a"));
    EXPECT_EQ(queue_.drive(UINT32_MAX), 0u);
    core_.channel.takes[1] = 1;
    EXPECT_EQ(queue_.drive(UINT32_MAX), 0u) << "credits have not come";
    core_.packets->ready = {7, 1};  // of which 7 is not known
    EXPECT_EQ(queue_.drive(UINT32_MAX), 1u);
    EXPECT_EQ(core_.channel.sent, (Sent{{1, "a"}}));
}

TEST_F(SendQueueAlone, messages_for_a_peer_that_has_ended_are_reported_by_what_they_are_and_end) {
    velo_send_t& host = message("a");
    velo_send_t& reply = message("b");
    queue_.send(peer(2), host);
    queue_.queue_send(peer(2), reply, MessageClass::kHost, Origin::kMatchReply);
    peer(2).reclaimed = true;
    core_.channel.takes[2] = 9;
    EXPECT_EQ(queue_.drive(UINT32_MAX), 2u);
    EXPECT_EQ(core_.ends.gone, (decltype(core_.ends.gone){{2, Origin::kHost}, {2, Origin::kMatchReply}}));
    EXPECT_EQ(core_.events.ended, (decltype(core_.events.ended){{&host, Status::kPeerDead}}));
    EXPECT_EQ(owner_.ended, (decltype(owner_.ended){{&reply, Status::kPeerDead}}));
    EXPECT_TRUE(core_.channel.sent.empty());
    EXPECT_EQ(queue_.try_send_whole(peer(2), parts_of("c"), 1), Status::kPeerDead);
}

TEST_F(SendQueueAlone, memory_that_was_revoked_is_not_sent) {
    velo_send_t& push = message("a");
    velo_send_t& next = message("b");
    queue_.queue_send(peer(0), push, MessageClass::kEngine, Origin::kPush);
    queue_.queue_send(peer(0), next, MessageClass::kEngine, Origin::kPush);
    owner_.revoked = &push;
    core_.channel.takes[0] = 9;
    EXPECT_EQ(queue_.drive(UINT32_MAX), 2u);
    EXPECT_EQ(core_.channel.sent, (Sent{{0, "b"}}));
    EXPECT_EQ(owner_.ended, (decltype(owner_.ended){{&push, Status::kAtuFault}, {&next, Status::kOk}}));
}

/// Each message of the host's that waits lets a number of short ones be copied behind it.
TEST_F(SendQueueAlone, short_messages_are_copied_behind_one_that_waits) {
    EXPECT_EQ(queue_.try_send_or_copy(peer(0), parts_of("x"), 1), Status::kAgain) << "none waits";
    queue_.send(peer(0), message("a"));
    uint32_t copied = 0;
    std::string text = "c";
    while (queue_.try_send_or_copy(peer(0), parts_of(text.c_str()), 1) == Status::kOk) ++copied;
    text = "overwritten";
    EXPECT_EQ(copied, 16u);
    core_.channel.takes[0] = 100;
    EXPECT_EQ(queue_.drive(UINT32_MAX), 1 + copied);
    EXPECT_EQ(core_.channel.sent.back().second, "c");
    EXPECT_EQ(core_.events.ended.size(), 1u) << "copies have no owner";
    EXPECT_EQ(queue_.try_send_or_copy(peer(0), parts_of("x"), 1), Status::kOk);
}

}  // namespace
}  // namespace velo::test
