// The sending side of matching, alone: answers of a receiver that breaks the rules, over a queue that takes a number of
// messages.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/matching/match_peers_impl.h"
#include "velo/matching/match_sending_impl.h"

namespace velo {
namespace {

struct FakeCore : test::PlainCore {
    FakeCore() { channel.bytes_max = 1032; }
    test::FakeChannel channel;
    struct {
        [[nodiscard]] static uint64_t now_ns() { return 1; }
    } system;
    template <class Action>
    auto on_channel(const velo_peer& /*peer*/, Action&& action) {
        return action(channel);
    }
};

}  // namespace

/// Takes a number of messages at once; those that have an owner wait otherwise.
template <>
class SendQueue<FakeCore> {
  public:
    struct Sent {
        uint8_t tag;
        std::string bytes;
    };
    void belongs(Origin origin, SendOwner& owner) { owners[static_cast<size_t>(origin)] = &owner; }
    Status try_send(velo_peer& /*peer*/, const MessageParts& parts, uint8_t tag) {
        if (takes == 0) return Status::kAgain;
        --takes;
        std::string bytes(static_cast<const char*>(parts.header), parts.header_bytes);
        if (parts.payload_bytes != 0)
            bytes.append(static_cast<const char*>(parts.payload), parts.payload_bytes);
        sent.push_back({tag, bytes});
        return Status::kOk;
    }
    Status try_send_whole(velo_peer& peer, const MessageParts& parts, uint8_t tag) {
        return try_send(peer, parts, tag);
    }
    bool queue_send(velo_peer& peer, velo_send_t& send, MessageClass /*of*/, Origin origin) {
        send.origin = static_cast<uint8_t>(origin);
        const MessageParts parts = {.header = send.data[0],
                                    .payload = send.data[1],
                                    .header_bytes = send.bytes[0],
                                    .payload_bytes = send.bytes[1]};
        if (try_send(peer, parts, send.tag) == Status::kOk) return true;
        waiting.push_back(&send);
        return false;
    }
    void end(Status status) {
        velo_send_t& send = *waiting.front();
        waiting.erase(waiting.begin());
        owners[send.origin]->send_ended(send, status);
    }
    int takes = 1000;
    std::vector<Sent> sent;
    std::vector<velo_send_t*> waiting;
    std::array<SendOwner*, kOrigins> owners{};
};

template <>
class rma::Registrations<FakeCore> {
  public:
    Status add(void* base, size_t bytes, uint32_t /*access*/, velo_handle_t& handle) {
        if (full) return Status::kNoResource;
        handle.base = reinterpret_cast<uint64_t>(base);
        handle.bytes = bytes;
        ++registered;
        return Status::kOk;
    }
    void remove(const velo_handle_t& /*handle*/) { --registered; }
    bool full = false;
    int registered = 0;
};

namespace {

using match::WireTag;
using Head = match::EagerHeader;
using Answer = match::AnswerHeader;

class SendingAlone : public testing::Test {
  protected:
    SendingAlone() { peers_.open(); }
    MatchPeer& to(velo_peer& peer) { return peers_.of(&peer); }
    /// A message that waits to be accepted. Gives its number, which the request has.
    uint64_t request(uint64_t bytes = 8, bool synchronous = false) {
        velo_match_send_t& face = faces_.emplace_back();
        EXPECT_FALSE(sending_.send(to(peer_), {1, 0, 5}, data_.data(), bytes, synchronous, face));
        if (queue_.sent.empty()) return 0;
        match::RequestHeader header;
        EXPECT_EQ(queue_.sent.back().tag, static_cast<uint8_t>(WireTag::kRequest));
        std::memcpy(&header, queue_.sent.back().bytes.data(), sizeof header);
        age_ = header.age;
        return header.number;
    }
    void answer(const Answer& answer, velo_peer* from = nullptr) {
        sending_.on_answer(to(from == nullptr ? peer_ : *from), reinterpret_cast<const std::byte*>(&answer),
                           sizeof answer);
    }
    void done(uint64_t number, velo_peer* from = nullptr) {
        const match::DoneHeader header = {number};
        sending_.on_done(to(from == nullptr ? peer_ : *from), reinterpret_cast<const std::byte*>(&header),
                         sizeof header);
    }
    void clear_to_send(uint64_t number, uint64_t receive = 44) {
        const match::ClearToSendHeader header = {number, receive};
        sending_.on_clear_to_send(to(peer_), reinterpret_cast<const std::byte*>(&header), sizeof header);
    }
    [[nodiscard]] velo_match_send_t* last() { return &faces_.back(); }
    [[nodiscard]] size_t ended() const { return core_.events.matched_sends.size(); }
    uint64_t malformed() { return std::exchange(core_.counters.engine_malformed, 0); }

    std::array<std::byte, 5000> data_{};
    FakeCore core_;
    SendQueue<FakeCore> queue_;
    rma::Registrations<FakeCore> registrations_;
    MatchPeers<FakeCore> peers_{core_, queue_};
    MatchSending<FakeCore> sending_{core_, peers_, queue_, registrations_};
    velo_peer peer_, other_;
    uint32_t age_ = 0;
    std::deque<velo_match_send_t> faces_;
};

TEST_F(SendingAlone, message_leaves_eagerly_in_granted_room_alone) {
    velo_match_send_t face;
    EXPECT_FALSE(sending_.try_send(to(peer_), {1, 0, 5}, data_.data(), 8));
    sending_.on_grant(to(peer_), {1, 0});
    EXPECT_TRUE(sending_.try_send(to(peer_), {1, 0, 5}, data_.data(), 8));
    EXPECT_EQ(queue_.sent.size(), 1u);
    EXPECT_EQ(queue_.sent[0].bytes.size(), sizeof(Head) + 8);
    EXPECT_FALSE(sending_.try_send(to(peer_), {1, 0, 5}, data_.data(), 8)) << "it is used";
    EXPECT_FALSE(sending_.send(to(peer_), {1, 0, 5}, data_.data(), 8, false, face));
    EXPECT_EQ(queue_.sent.back().tag, static_cast<uint8_t>(WireTag::kRequest));
}

TEST_F(SendingAlone, room_of_a_message_that_could_not_leave_is_there_for_the_next) {
    sending_.on_grant(to(peer_), {1, 1});
    queue_.takes = 0;
    EXPECT_FALSE(sending_.try_send(to(peer_), {1, 0, 5}, data_.data(), 200));
    queue_.takes = 1;
    EXPECT_TRUE(sending_.try_send(to(peer_), {1, 0, 5}, data_.data(), 200));
}

TEST_F(SendingAlone, grant_of_more_than_a_receiver_can_have_is_malformed) {
    sending_.on_grant(to(peer_), {match::Room::kMax, 0});
    EXPECT_EQ(malformed(), 0u);
    sending_.on_grant(to(peer_), {1, 0});
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(to(peer_).out.room().records(), match::Room::kMax);
}

TEST_F(SendingAlone, answer_that_nobody_waits_for_ends_nothing) {
    const uint64_t number = request();
    answer({.number = number + 1, .outcome = Answer::Outcome::kMatched});
    answer({.number = number + (uint64_t{1} << 32), .outcome = Answer::Outcome::kMatched});
    answer({.number = number | uint64_t{1} << 63, .outcome = Answer::Outcome::kMatched});
    answer({.number = 0, .outcome = Answer::Outcome::kMatched});
    answer({.number = number, .outcome = Answer::Outcome::kMatched}, &other_);
    sending_.on_answer(to(peer_), data_.data(), sizeof(Answer) - 1);
    EXPECT_EQ(malformed(), 6u);
    EXPECT_EQ(ended(), 0u);
    answer({.number = number, .outcome = Answer::Outcome::kMatched});
    EXPECT_EQ(core_.events.matched_sends, std::vector<velo_match_send_t*>{last()});
    answer({.number = number, .outcome = Answer::Outcome::kMatched});
    EXPECT_EQ(malformed(), 1u) << "twice";
    EXPECT_EQ(ended(), 1u);
    EXPECT_FALSE(sending_.busy());
}

TEST_F(SendingAlone, data_that_was_not_sent_cannot_have_been_received) {
    const uint64_t number = request(5000);  // longer than a message
    answer({.number = number, .outcome = Answer::Outcome::kMatched});
    answer({.number = number, .outcome = Answer::Outcome::kAccepted});
    EXPECT_EQ(malformed(), 2u);
    EXPECT_EQ(ended(), 0u);
    EXPECT_EQ(registrations_.registered, 1) << "its handle went along";
    answer({.number = number, .outcome = Answer::Outcome::kDataless});
    done(number);
    EXPECT_EQ(ended(), 1u);
    EXPECT_EQ(registrations_.registered, 0);
}

TEST_F(SendingAlone, request_that_is_still_leaving_has_no_answer) {
    queue_.takes = 0;
    request(8);
    ASSERT_EQ(queue_.waiting.size(), 1u);
    match::RequestHeader header;
    std::memcpy(&header, queue_.waiting[0]->data[0], sizeof header);
    answer({.number = header.number, .outcome = Answer::Outcome::kMatched});
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(ended(), 0u) << "its data is still being read";
    queue_.end(Status::kOk);
    answer({.number = header.number, .outcome = Answer::Outcome::kMatched});
    EXPECT_EQ(ended(), 1u);
}

TEST_F(SendingAlone, message_that_leaves_when_its_receiver_is_told_to_have_left_is_settled_then) {
    queue_.takes = 0;
    request(8);
    ASSERT_EQ(queue_.waiting.size(), 1u);
    peer_.state = PeerState::kLeft;
    sending_.settle(to(peer_));
    EXPECT_TRUE(core_.ends.lost.empty()) << "it is still being read";
    queue_.end(Status::kOk);
    EXPECT_EQ(core_.ends.lost, (decltype(core_.ends.lost){{&peer_, Owed::kReceive}}));
}

TEST_F(SendingAlone, refused_message_stays_and_is_requested_again_when_it_is_asked_for) {
    const uint64_t number = request();
    answer({.number = number, .age = age_, .outcome = Answer::Outcome::kRefused});
    EXPECT_EQ(core_.counters.match_refused, 1u);
    answer({.number = number, .age = age_, .outcome = Answer::Outcome::kRefused});
    EXPECT_EQ(malformed(), 1u) << "nothing was asked";
    EXPECT_TRUE(sending_.owes());
    queue_.sent.clear();
    const match::OffersHeader all = {.age = 1, .count = 0, .resend_all = 1};
    sending_.on_offers(to(peer_), reinterpret_cast<const std::byte*>(&all), sizeof all);
    ASSERT_FALSE(queue_.sent.empty());
    EXPECT_EQ(queue_.sent[0].tag, static_cast<uint8_t>(WireTag::kRequest));
}

TEST_F(SendingAlone, offers_whose_length_is_not_what_they_say_are_malformed) {
    request();
    queue_.sent.clear();
    std::vector<std::byte> bytes(4096);
    const auto offers = [&](uint8_t count, size_t length) {
        const match::OffersHeader header = {.age = 1, .count = count};
        std::memcpy(bytes.data(), &header, sizeof header);
        sending_.on_offers(to(peer_), bytes.data(), static_cast<uint32_t>(length));
    };
    offers(0, sizeof(match::OffersHeader) - 1);
    offers(1, sizeof(match::OffersHeader));
    offers(2, sizeof(match::OffersHeader) + sizeof(match::Envelope));
    offers(0, sizeof(match::OffersHeader) + sizeof(match::Envelope));
    offers(255, sizeof(match::OffersHeader) + 255 * sizeof(match::Envelope));
    EXPECT_EQ(malformed(), 5u);
    EXPECT_TRUE(queue_.sent.empty());
}

TEST_F(SendingAlone, place_is_told_for_messages_that_were_accepted_without_data_alone) {
    const uint64_t number = request(5000);
    queue_.sent.clear();
    clear_to_send(number);
    clear_to_send(number + 1);
    clear_to_send(0);
    EXPECT_EQ(malformed(), 3u) << "not accepted";
    EXPECT_TRUE(queue_.sent.empty());
    answer({.number = number, .outcome = Answer::Outcome::kDataless});
    clear_to_send(number);
    ASSERT_EQ(queue_.sent.size(), 1u);
    match::ReadyHeader ready;
    std::memcpy(&ready, queue_.sent[0].bytes.data(), sizeof ready);
    EXPECT_EQ(ready.receive, 44u);
    EXPECT_EQ(ready.place.address, reinterpret_cast<uint64_t>(data_.data()));
    done(number);
    clear_to_send(number);
    EXPECT_EQ(malformed(), 1u) << "it has gone";
}

TEST_F(SendingAlone, data_that_cannot_be_registered_now_is_told_later) {
    registrations_.full = true;
    const uint64_t number = request(5000);
    answer({.number = number, .outcome = Answer::Outcome::kDataless});
    queue_.sent.clear();
    clear_to_send(number);
    EXPECT_TRUE(queue_.sent.empty());
    EXPECT_TRUE(sending_.due());
    sending_.drive();
    EXPECT_TRUE(sending_.due());
    registrations_.full = false;
    sending_.drive();
    EXPECT_EQ(queue_.sent.size(), 1u);
    EXPECT_FALSE(sending_.due());
}

TEST_F(SendingAlone, synchronous_message_is_done_when_it_has_matched_and_not_before) {
    const uint64_t number = request(8, true);
    done(number);
    EXPECT_EQ(malformed(), 1u) << "it was not even accepted";
    answer({.number = number, .outcome = Answer::Outcome::kAccepted});
    EXPECT_EQ(ended(), 0u);
    done(number, &other_);
    EXPECT_EQ(malformed(), 1u);
    done(number);
    EXPECT_EQ(ended(), 1u);
    done(number);
    EXPECT_EQ(malformed(), 1u);
}

TEST_F(SendingAlone, message_that_was_accepted_cannot_be_refused_in_the_place_of_another) {
    const uint64_t accepted = request(8, true);
    answer({.number = accepted, .outcome = Answer::Outcome::kAccepted});
    request();  // has no answer yet
    answer({.number = accepted, .age = 77, .outcome = Answer::Outcome::kRefused});
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(core_.counters.match_refused, 0u);
}

TEST_F(SendingAlone, receiver_that_has_ended_is_told_nothing_and_what_it_owes_is_lost_or_void) {
    request();
    peer_.state = PeerState::kFailed;
    sending_.settle(to(peer_));
    EXPECT_TRUE(core_.ends.lost.empty()) << "the host hears of the failure";
    EXPECT_FALSE(sending_.owes());
    EXPECT_EQ(ended(), 0u);
    velo_match_send_t face;
    EXPECT_FALSE(sending_.send(to(other_), {1, 0, 5}, data_.data(), 8, false, face));
    other_.state = PeerState::kClosed;
    sending_.settle(to(other_));
    EXPECT_EQ(core_.ends.lost, (decltype(core_.ends.lost){{&other_, Owed::kReceive}}));
    peers_.leave();
    sending_.settle(to(other_));
    EXPECT_EQ(core_.events.matched_sends, std::vector<velo_match_send_t*>{&face})
        << "of no use to a host that leaves";
}

}  // namespace
}  // namespace velo
