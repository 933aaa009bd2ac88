// Messages between engines that leave, alone: memory that is sent in messages, what is answered, and the limits of what
// one peer can have queued here.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/rendezvous/engine_messages_impl.h"

namespace velo {
namespace {

struct FakeCore : test::PlainCore {
    FakeCore() { options.tuning.copy_bytes = 1000; }
    struct {
        alignas(8) std::array<std::byte, base::AtuTable::bytes_for(4)> shared{};
        base::AtuTable table{shared.data(), 4};
        [[nodiscard]] const base::AtuTable& atu() const { return table; }
    } on_node;
    test::FakeChannel channel;
    Status copies = Status::kOk;  ///< guarded ones

    template <class Action>
    auto on_channel(const velo_peer& /*peer*/, Action&& action) {
        return action(channel);
    }
    Status copy_out(const std::byte* from, std::byte* to, size_t bytes) {
        if (copies == Status::kOk) std::memcpy(to, from, bytes);
        return copies;
    }
};

}  // namespace

/// Takes a number of messages at once; the others wait.
template <>
class SendQueue<FakeCore> {
  public:
    struct Sent {
        std::vector<std::byte> head;
        std::vector<std::byte> data;
        [[nodiscard]] Opcode opcode() const { return static_cast<Opcode>(head[0]); }
    };
    void belongs(Origin origin, SendOwner& owner) { owners[static_cast<size_t>(origin)] = &owner; }
    bool queue_send(velo_peer& /*peer*/, velo_send_t& send, MessageClass message_class, Origin origin) {
        EXPECT_EQ(message_class, MessageClass::kEngine);
        send.origin = static_cast<uint8_t>(origin);
        send.done = 0;
        if (takes == 0) {
            waiting.push_back(&send);
            return false;
        }
        --takes;
        record(send);
        return true;
    }
    void record(const velo_send_t& send) {
        const auto* head = static_cast<const std::byte*>(send.data[0]);
        const auto* data = static_cast<const std::byte*>(send.data[1]);
        Sent& one = sent.emplace_back();
        one.head.assign(head, head + send.bytes[0]);
        if (send.bytes[1] != 0) one.data.assign(data, data + send.bytes[1]);
    }
    /// The oldest that waits ends; its owner may go on with more.
    void end(Status status) {
        velo_send_t& send = *waiting.front();
        waiting.erase(waiting.begin());
        if (status == Status::kOk) record(send);
        owners[send.origin]->send_ended(send, status);
    }

    int takes = 1000;
    std::vector<Sent> sent;
    std::vector<velo_send_t*> waiting;
    std::array<SendOwner*, kOrigins> owners{};
};

namespace {

struct Ended : CookieOwner {
    std::vector<std::pair<Cookie, Status>> ended;
    void end(Cookie cookie, Status status, uint64_t /*value*/) override {
        ended.emplace_back(cookie, status);
    }
};

class MessagesAlone : public testing::Test {
  protected:
    MessagesAlone() {
        messages_.reports_to(operations_);
        for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i);
        EXPECT_EQ(core_.on_node.table.add(memory_.data(), memory_.size(), kAccessRead, registration_),
                  Status::kOk);
    }
    bool answer(uint64_t bytes, bool guarded = false) {
        const PullHeader pull = {.guarded = guarded, .cookie = Cookie{7}, .bytes = bytes};
        return messages_.answer_pull(peer_, pull, registration_.nla, static_cast<uint32_t>(registration_.key),
                                     reinterpret_cast<uint64_t>(memory_.data()));
    }
    [[nodiscard]] rma::PendingOp<velo_peer>& put(uint64_t bytes, bool guarded = false) {
        auto& op = *pending_.take();
        op.pushing = true;
        messages_.put(peer_, {.guarded = guarded, .cookie = op.cookie, .nla = 0x500, .key = 9},
                      reinterpret_cast<uint64_t>(memory_.data()), bytes);
        return op;
    }
    /// A message that was sent.
    template <class Header>
    [[nodiscard]] Header sent(size_t i) const {
        Header header{};
        EXPECT_LT(i, queue_.sent.size());
        EXPECT_EQ(queue_.sent[i].head.size(), sizeof header);
        std::memcpy(&header, queue_.sent[i].head.data(), sizeof header);
        EXPECT_EQ(header.opcode, Header::kOpcode);
        return header;
    }
    using All = decltype(Ended::ended);

    std::array<std::byte, 2500> memory_{};
    Registration registration_;
    FakeCore core_;
    SendQueue<FakeCore> queue_;
    rma::CookieTable<rma::PendingOp<velo_peer>> pending_{8};
    EngineMessages<FakeCore> messages_{core_, queue_, pending_};
    Ended operations_;
    velo_peer peer_;
};

TEST_F(MessagesAlone, pull_is_answered_in_pieces_that_say_where_they_belong) {
    ASSERT_TRUE(answer(2500));
    ASSERT_EQ(queue_.sent.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(sent<PullDataHeader>(i).offset, 1000 * i);
        EXPECT_EQ(sent<PullDataHeader>(i).cookie, Cookie{7});
        EXPECT_EQ(queue_.sent[i].data.size(), i == 2 ? 500u : 1000u);
        EXPECT_EQ(queue_.sent[i].data[0], memory_[1000 * i]);
    }
    EXPECT_EQ(peer_.serving.pulls, 0u) << "answered";
}

TEST_F(MessagesAlone, pieces_fit_the_messages_of_the_way) {
    core_.channel.bytes_max = 540;
    ASSERT_TRUE(answer(1200));
    for (const auto& piece : queue_.sent) EXPECT_LE(piece.data.size() + piece.head.size(), 540u);
    EXPECT_EQ(sent<PullDataHeader>(queue_.sent.size() - 1).offset + queue_.sent.back().data.size(), 1200u);
}

TEST_F(MessagesAlone, put_goes_to_one_place_after_another_and_marks_its_end) {
    auto& op = put(2000);
    ASSERT_EQ(queue_.sent.size(), 2u);
    EXPECT_EQ(sent<PutDataHeader>(0).nla, 0x500u);
    EXPECT_EQ(sent<PutDataHeader>(1).nla, 0x500u + 1000);
    EXPECT_EQ(sent<PutDataHeader>(0).last, 0);
    EXPECT_EQ(sent<PutDataHeader>(1).last, 1);
    EXPECT_FALSE(op.pushing) << "its memory is free again";
    EXPECT_TRUE(operations_.ended.empty()) << "the owner answers";
}

TEST_F(MessagesAlone, memory_that_is_deregistered_meanwhile_is_not_sent) {
    queue_.takes = 1;
    ASSERT_TRUE(answer(2500));
    ASSERT_EQ(queue_.waiting.size(), 1u);
    EXPECT_FALSE(messages_.is_revoked(*queue_.waiting[0]));
    ASSERT_EQ(core_.on_node.table.remove(registration_), Status::kOk);
    EXPECT_TRUE(messages_.is_revoked(*queue_.waiting[0]));
    queue_.waiting[0]->done = 64;
    EXPECT_FALSE(messages_.is_revoked(*queue_.waiting[0])) << "a message that is half gone goes on";
    queue_.waiting[0]->done = 0;
    queue_.takes = 10;
    queue_.end(Status::kAtuFault);
    ASSERT_EQ(queue_.sent.size(), 2u) << "a piece, and the word that no other follows";
    EXPECT_EQ(sent<DoneHeader>(1).status, Status::kAtuFault);
    EXPECT_EQ(sent<DoneHeader>(1).cookie, Cookie{7});
    EXPECT_EQ(core_.counters.atu_faults, 1u);
    EXPECT_EQ(peer_.serving.pulls, 0u);
}

TEST_F(MessagesAlone, memory_that_is_deregistered_between_two_pieces_is_not_sent) {
    queue_.takes = 0;
    ASSERT_TRUE(answer(2500));
    ASSERT_EQ(core_.on_node.table.remove(registration_), Status::kOk);
    queue_.takes = 10;
    queue_.end(Status::kOk);  // the first piece has left before
    ASSERT_EQ(queue_.sent.size(), 2u);
    EXPECT_EQ(sent<DoneHeader>(1).status, Status::kAtuFault);
}

TEST_F(MessagesAlone, peer_cannot_ask_for_more_at_a_time_than_it_has_cookies) {
    peer_.serving.pulls = rma::kPendingOpsMax;
    EXPECT_FALSE(answer(100));
    EXPECT_TRUE(queue_.sent.empty());
    EXPECT_EQ(peer_.serving.pulls, rma::kPendingOpsMax);
    --peer_.serving.pulls;
    EXPECT_TRUE(answer(100));
}

TEST_F(MessagesAlone, answers_to_a_peer_that_takes_none_are_dropped_beyond_their_limit) {
    peer_.serving.answers = 2 * rma::kPendingOpsMax;
    messages_.send_control(peer_, DoneHeader{.cookie = Cookie{1}});
    EXPECT_TRUE(queue_.sent.empty());
    EXPECT_EQ(core_.counters.engine_malformed, 1u);
    messages_.send_control(peer_, PullHeader{.cookie = Cookie{1}});
    EXPECT_EQ(queue_.sent.size(), 1u) << "a request is no answer";
}

TEST_F(MessagesAlone, answers_and_words_about_rails_count_while_they_wait) {
    queue_.takes = 0;
    messages_.send_control(peer_, DoneHeader{});
    messages_.send_control(peer_, RailHeader{});
    messages_.send_control(peer_, AtomicHeader{});
    EXPECT_EQ(peer_.serving.answers, 2u);
    for (int i = 0; i < 3; ++i) queue_.end(Status::kOk);
    EXPECT_EQ(peer_.serving.answers, 0u);
    queue_.takes = 1;
    messages_.send_control(peer_, DoneHeader{});
    EXPECT_EQ(peer_.serving.answers, 0u) << "gone at once";
}

TEST_F(MessagesAlone, request_that_does_not_get_there_ends_its_operation_and_an_answer_ends_nothing) {
    queue_.takes = 0;
    messages_.send_control(peer_, PullHeader{.cookie = Cookie{1}});
    messages_.send_control(peer_, AtomicHeader{.cookie = Cookie{2}});
    messages_.send_control(peer_, CoopCallHeader{.cookie = Cookie{3}});
    messages_.send_control(peer_, CoopPartHeader{.cookie = Cookie{4}});
    messages_.send_control(peer_, DoneHeader{.cookie = Cookie{5}});
    messages_.send_control(peer_, CoopWrittenHeader{.cookie = Cookie{6}});
    messages_.send_control(peer_, RailHeader{});
    while (!queue_.waiting.empty()) queue_.end(Status::kPeerDead);
    EXPECT_EQ(operations_.ended, (All{{Cookie{1}, Status::kPeerDead},
                                      {Cookie{2}, Status::kPeerDead},
                                      {Cookie{3}, Status::kPeerDead},
                                      {Cookie{4}, Status::kPeerDead}}));
}

TEST_F(MessagesAlone, put_that_is_refused_ends_when_its_memory_is_no_longer_read) {
    queue_.takes = 0;
    auto& op = put(1000);
    op.refused = Status::kAtuFault;  // the owner has said so meanwhile
    EXPECT_TRUE(operations_.ended.empty());
    const Cookie cookie = op.cookie;
    queue_.end(Status::kOk);
    EXPECT_EQ(operations_.ended, (All{{cookie, Status::kAtuFault}}));
}

TEST_F(MessagesAlone, push_to_a_peer_that_is_gone_ends_without_an_answer) {
    queue_.takes = 0;
    ASSERT_TRUE(answer(2000));
    auto& op = put(1000);
    const Cookie cookie = op.cookie;
    queue_.takes = 9;
    queue_.end(Status::kPeerDead);
    EXPECT_EQ(peer_.serving.pulls, 0u);
    queue_.end(Status::kPeerDead);
    EXPECT_TRUE(queue_.sent.empty());
    EXPECT_EQ(operations_.ended, (All{{cookie, Status::kPeerDead}}));
}

TEST_F(MessagesAlone, guarded_piece_whose_memory_is_gone_is_answered_and_not_read) {
    core_.copies = Status::kBadMemory;
    ASSERT_TRUE(answer(2000, true));
    ASSERT_EQ(queue_.sent.size(), 1u);
    EXPECT_EQ(sent<DoneHeader>(0).status, Status::kBadMemory);
    const Cookie cookie = put(1000, true).cookie;
    EXPECT_EQ(operations_.ended, (All{{cookie, Status::kBadLocalMemory}}));
    core_.copies = Status::kOk;
    ASSERT_TRUE(answer(1500, true));
    EXPECT_EQ(queue_.sent[2].data[0], memory_[1000]);
}

}  // namespace
}  // namespace velo
