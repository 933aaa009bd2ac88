// The receiving side of matching, alone: a peer that sends whatever it likes, over a queue that keeps what is answered.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/matching/match_peers_impl.h"
#include "velo/matching/match_receiving_impl.h"
#include "velo/matching/match_sending_impl.h"

namespace velo {
namespace {

struct FakeCore : test::PlainCore {
    FakeCore() {
        options.params.unexpected_records = 64 * sizeof(match::Record);
        options.params.unexpected_bytes = 64 * match::DataCells::kCellBytes;
        options.params.unexpected_granted = 4;
        options.identity.job_size = 2;
    }
    test::FakeChannel channel;
    template <class Action>
    auto on_channel(const velo_peer& /*peer*/, Action&& action) {
        return action(channel);
    }
};

}  // namespace

/// All leaves at once.
template <>
class SendQueue<FakeCore> {
  public:
    struct Sent {
        uint8_t tag;
        std::string bytes;
    };
    void belongs(Origin /*origin*/, SendOwner& /*owner*/) {}
    Status try_send_whole(velo_peer& /*peer*/, const MessageParts& parts, uint8_t tag) {
        sent.push_back({tag, std::string(static_cast<const char*>(parts.header), parts.header_bytes)});
        return Status::kOk;
    }
    bool queue_send(velo_peer& /*peer*/, velo_send_t& /*send*/, MessageClass /*of*/, Origin /*origin*/) {
        return true;
    }
    std::vector<Sent> sent;
};
/// Fetches nothing, and keeps what it was to fetch.
template <>
class rma::Transfers<FakeCore> {
  public:
    void post(velo_peer& peer, velo_rma_t& op) { posted.emplace_back(&peer, &op); }
    std::vector<std::pair<velo_peer*, velo_rma_t*>> posted;
};
template <>
class MatchSending<FakeCore> {
  public:
    [[nodiscard]] const void* data_of(const MatchPeer& /*self*/, uint64_t /*number*/) const { return this; }
};

namespace {

using match::WireTag;
using Head = match::EagerHeader;
using Answer = match::AnswerHeader;

class ReceivingAlone : public testing::Test {
  protected:
    ReceivingAlone() {
        receiving_.open();
        peers_.open();
    }
    MatchPeer& from(velo_peer& peer) { return peers_.of(&peer); }
    /// Posts a receive for messages of this tag.
    velo_match_receive_t& post(int32_t tag, uint64_t capacity = 64) {
        velo_match_receive_t& face = faces_.emplace_back();
        EXPECT_FALSE(receiving_.post(&from(peer_), {1, 0, tag}, buffer_.data(), capacity, face));
        return face;
    }
    static Head head(int32_t tag, uint32_t flags = 0) { return Head::of({1, 0, tag}, flags); }
    static std::vector<std::byte> bytes_of(const auto&... parts) {
        std::vector<std::byte> bytes;
        const auto append = [&bytes](const auto& part) {
            const auto* at = reinterpret_cast<const std::byte*>(&part);
            bytes.insert(bytes.end(), at, at + sizeof part);
        };
        (append(parts), ...);
        return bytes;
    }
    void eager(const std::vector<std::byte>& bytes, velo_peer* peer = nullptr) {
        receiving_.on_eager(from(peer == nullptr ? peer_ : *peer), bytes.data(),
                            static_cast<uint32_t>(bytes.size()));
    }
    void request(const std::vector<std::byte>& bytes) {
        receiving_.on_request(from(peer_), bytes.data(), static_cast<uint32_t>(bytes.size()));
    }
    static match::RequestHeader to_request(int32_t tag, uint64_t number, uint64_t bytes,
                                           uint32_t flags = Head::kFirst) {
        return {.head = head(tag, flags), .number = number, .bytes = bytes};
    }
    /// The peer has been granted room: a message that was accepted brings it.
    void make_granted() {
        post(99);
        request(bytes_of(to_request(99, 1, 8, Head::kFirst | Head::kHasData), uint64_t{0}));
        ASSERT_FALSE(from(peer_).in.granted.told().empty());
        queue_.sent.clear();
        core_.events.received.clear();
    }
    /// The only message that was sent.
    template <class Header>
    Header sent(WireTag tag) {
        Header header{};
        EXPECT_EQ(queue_.sent.size(), 1u);
        if (queue_.sent.empty()) return header;
        EXPECT_EQ(queue_.sent[0].tag, static_cast<uint8_t>(tag));
        EXPECT_GE(queue_.sent[0].bytes.size(), sizeof header);
        std::memcpy(&header, queue_.sent[0].bytes.data(), sizeof header);
        queue_.sent.clear();
        return header;
    }
    uint64_t malformed() { return std::exchange(core_.counters.engine_malformed, 0); }
    /// Nothing was answered, received or written.
    [[nodiscard]] bool nothing_happened() const {
        return queue_.sent.empty() && core_.events.received.empty() && transfers_.posted.empty() &&
               std::ranges::all_of(buffer_, [](std::byte one) { return one == std::byte{}; });
    }

    std::array<std::byte, 256> buffer_{};
    FakeCore core_;
    SendQueue<FakeCore> queue_;
    rma::Transfers<FakeCore> transfers_;
    MatchSending<FakeCore> sending_;
    MatchPeers<FakeCore> peers_{core_, queue_};
    MatchReceiving<FakeCore> receiving_{core_, peers_, sending_, transfers_};
    velo_peer peer_, other_;
    std::deque<velo_match_receive_t> faces_;
};

TEST_F(ReceivingAlone, eager_message_without_room_is_its_senders_mistake) {
    post(5);
    eager(bytes_of(head(5), uint64_t{7}));
    eager(bytes_of(head(6), uint64_t{7}));
    EXPECT_EQ(malformed(), 2u);
    EXPECT_TRUE(nothing_happened());
}

TEST_F(ReceivingAlone, eager_messages_that_cannot_be_are_malformed) {
    make_granted();
    post(5);
    const std::vector<std::byte> whole = bytes_of(head(5));
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
        eager({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)});
    eager(bytes_of(head(match::kAnyTag)));
    eager(bytes_of(Head::of({1, match::kAnySource, 5}, 0)));
    eager(bytes_of(head(5, Head::kTellsNumber), uint32_t{1}));  // half a number
    EXPECT_EQ(malformed(), whole.size() + 3);
    EXPECT_TRUE(nothing_happened());
}

TEST_F(ReceivingAlone, eager_message_fills_its_receive_and_no_more_of_it_than_there_is_room_for) {
    make_granted();
    velo_match_receive_t& face = post(5, 4);
    eager(bytes_of(head(5), uint64_t{UINT64_MAX}));
    EXPECT_EQ(core_.events.received, std::vector<velo_match_receive_t*>{&face});
    EXPECT_EQ(face.bytes, 8u) << "as long as it was";
    EXPECT_EQ(buffer_[3], std::byte{0xff});
    EXPECT_EQ(buffer_[4], std::byte{});
    EXPECT_EQ(malformed(), 0u);
}

TEST_F(ReceivingAlone, peer_that_sends_more_than_its_room_is_stopped_there) {
    make_granted();
    const uint32_t room = from(peer_).in.granted.told().records();
    ASSERT_NE(room, 0u);
    for (uint32_t i = 0; i < room + 3; ++i) eager(bytes_of(head(7), uint64_t{i}));
    EXPECT_EQ(malformed(), 3u);
    EXPECT_EQ(receiving_.receiver()->unexpected(), room);
    eager(bytes_of(head(7), uint64_t{1}), &other_);
    EXPECT_EQ(malformed(), 1u) << "the room is the peer's alone";
}

TEST_F(ReceivingAlone, requests_that_cannot_be_are_malformed_and_not_answered) {
    post(5);
    const auto request_of = [&](const match::RequestHeader& header, size_t behind) {
        std::vector<std::byte> bytes = bytes_of(header);
        bytes.resize(bytes.size() + behind);
        request(bytes);
    };
    const uint32_t data = Head::kFirst | Head::kHasData;
    const uint32_t handle = Head::kFirst | Head::kHasHandle;
    request(std::vector<std::byte>(sizeof(match::RequestHeader) - 1));
    request_of(to_request(5, 0, 8, data), 8);                  // no number
    request_of(to_request(5, uint64_t{1} << 63, 8, data), 8);  // a bit that is this process's
    request_of(to_request(5, 1, 8, data), 7);                  // less than it says
    request_of(to_request(5, 1, 8, data), 9);                  // more than it says
    request_of(to_request(5, 1, UINT64_MAX, data), 8);
    request_of(to_request(5, 1, 8, handle), sizeof(match::Place) - 1);
    request_of(to_request(5, 1, 8, data | handle), sizeof(match::Place));
    request_of(to_request(5, 1, 8), 1);  // neither data nor a handle
    request_of(to_request(match::kAnyTag, 1, 8, data), 8);
    EXPECT_EQ(malformed(), 10u);
    EXPECT_TRUE(nothing_happened());
}

TEST_F(ReceivingAlone, request_is_answered_once_by_what_became_of_it) {
    velo_match_receive_t& face = post(5);
    request(bytes_of(to_request(5, 3, 8, Head::kFirst | Head::kHasData), uint64_t{UINT64_MAX}));
    EXPECT_EQ(core_.events.received, std::vector<velo_match_receive_t*>{&face});
    const auto matched = sent<Answer>(WireTag::kAnswer);
    EXPECT_EQ(matched.number, 3u);
    EXPECT_EQ(matched.outcome, Answer::Outcome::kMatched);
    request(bytes_of(to_request(6, 4, 8, Head::kFirst | Head::kHasData), uint64_t{1}));
    EXPECT_EQ(sent<Answer>(WireTag::kAnswer).outcome, Answer::Outcome::kAccepted);
    request(bytes_of(to_request(6, 5, 8, Head::kHasData), uint64_t{1}));
    EXPECT_EQ(sent<Answer>(WireTag::kAnswer).outcome, Answer::Outcome::kAccepted);
}

TEST_F(ReceivingAlone, peer_that_takes_no_answers_is_not_listened_to) {
    from(peer_).replies = 4 * kMatchWindow;
    post(5);
    request(bytes_of(to_request(5, 3, 8, Head::kFirst | Head::kHasData), uint64_t{1}));
    EXPECT_EQ(malformed(), 1u);
    EXPECT_TRUE(nothing_happened());
}

TEST_F(ReceivingAlone, request_of_an_age_that_is_not_the_present_one_is_refused) {
    post(5);
    match::RequestHeader late = to_request(5, 3, 8, Head::kFirst | Head::kHasData);
    late.age = 9;
    request(bytes_of(late, uint64_t{1}));
    EXPECT_EQ(sent<Answer>(WireTag::kAnswer).outcome, Answer::Outcome::kRefused);
    EXPECT_TRUE(core_.events.received.empty());
}

TEST_F(ReceivingAlone, place_that_nobody_asked_for_is_malformed_and_fetched_from_nobody) {
    const auto ready = [&](uint64_t receive, velo_peer& peer) {
        const match::ReadyHeader header = {.receive = receive, .place = {}};
        receiving_.on_ready(from(peer), reinterpret_cast<const std::byte*>(&header), sizeof header);
    };
    velo_match_receive_t& face = post(5);
    request(bytes_of(to_request(5, 3, 5000)));  // its data stays with the sender
    ASSERT_EQ(queue_.sent.size(), 2u);
    EXPECT_EQ(queue_.sent[1].tag, static_cast<uint8_t>(WireTag::kClearToSend));
    match::ClearToSendHeader asked;
    std::memcpy(&asked, queue_.sent[1].bytes.data(), sizeof asked);
    EXPECT_EQ(asked.number, 3u);
    ready(asked.receive + 1, peer_);
    ready(asked.receive + (uint64_t{1} << 32), peer_);
    ready(0, peer_);
    ready(asked.receive, other_);
    receiving_.on_ready(from(peer_), reinterpret_cast<const std::byte*>(&asked), sizeof asked);  // too short
    EXPECT_EQ(malformed(), 5u);
    EXPECT_TRUE(transfers_.posted.empty());
    ready(asked.receive, peer_);
    ready(asked.receive, peer_);
    EXPECT_EQ(malformed(), 1u) << "twice";
    ASSERT_EQ(transfers_.posted.size(), 1u);
    EXPECT_EQ(transfers_.posted[0].first, &peer_);
    EXPECT_EQ(transfers_.posted[0].second->bytes, 64u) << "as much as the receive has room for";
    EXPECT_TRUE(receiving_.owes());
    queue_.sent.clear();
    receiving_.fetched(*transfers_.posted[0].second, Status::kOk);
    EXPECT_EQ(sent<match::DoneHeader>(WireTag::kDone).number, 3u);
    EXPECT_EQ(core_.events.received, std::vector<velo_match_receive_t*>{&face});
    EXPECT_FALSE(receiving_.owes());
}

TEST_F(ReceivingAlone, receive_whose_source_failed_goes_on_waiting) {
    post(5);
    request(bytes_of(to_request(5, 3, 5000, Head::kFirst | Head::kHasHandle), match::Place{}));
    ASSERT_EQ(transfers_.posted.size(), 1u);
    receiving_.fetched(*transfers_.posted[0].second, Status::kPeerDead);
    EXPECT_TRUE(core_.events.received.empty()) << "the host hears of the peer's end";
    post(6);
    peer_.state = PeerState::kFailed;
    request(bytes_of(to_request(6, 4, 5000, Head::kFirst | Head::kHasHandle), match::Place{}));
    EXPECT_EQ(transfers_.posted.size(), 1u) << "nothing is fetched from the dead";
    EXPECT_EQ(core_.ends.lost, (decltype(core_.ends.lost){{&peer_, Owed::kSource}}));
}

TEST_F(ReceivingAlone, peer_that_closed_with_data_that_was_asked_for_is_a_loss_and_one_without_is_none) {
    receiving_.closed(from(other_));
    EXPECT_TRUE(core_.ends.lost.empty());
    post(5);
    request(bytes_of(to_request(5, 3, 5000)));
    receiving_.closed(from(peer_));
    EXPECT_EQ(core_.ends.lost, (decltype(core_.ends.lost){{&peer_, Owed::kSource}}));
}

TEST_F(ReceivingAlone, end_of_a_pass_that_is_not_open_is_malformed) {
    const match::EndHeader end = {.age = 0};
    receiving_.on_end(from(peer_), reinterpret_cast<const std::byte*>(&end), sizeof end);
    receiving_.on_end(from(peer_), reinterpret_cast<const std::byte*>(&end), 0);
    EXPECT_EQ(malformed(), 2u);
}

TEST_F(ReceivingAlone, receive_is_withdrawn_once_and_not_after_it_matched) {
    velo_match_receive_t& face = post(5);
    EXPECT_TRUE(receiving_.cancel(face));
    EXPECT_FALSE(receiving_.cancel(face));
    velo_match_receive_t& matched = post(6);
    request(bytes_of(to_request(6, 3, 5000)));
    EXPECT_FALSE(receiving_.cancel(matched)) << "its data is on its way";
}

}  // namespace
}  // namespace velo
