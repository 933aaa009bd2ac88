/// A peer that answers what it was not asked: each such message counts as malformed, and changes nothing.
///
/// Rank 1 matches. The others do not, so that its messages come to them as a host's, and they write what they
/// like.
#include <deque>

#include "tests/unit/job.h"
#include "velo/velo_match.h"
#include "velo/wire/match_wire.h"

namespace velo::test {
namespace {

using match::AnswerHeader;
using match::DoneHeader;
using match::EagerHeader;
using match::GrantHeader;
using match::ReadyHeader;
using match::RequestHeader;
using match::WireTag;

velo_params_t with_small_rings() {
    velo_params_t params = default_params();
    params.ring_bytes = 131072;
    return params;
}

class MatchLiar : public testing::Test {
  protected:
    MatchLiar() : job_(3, with_small_rings(), {.ring_lines = 16}) {
        host_ = {.context = this,
                 .send_done = [](void* self, velo_match_send_t*) { ++static_cast<MatchLiar*>(self)->sends_; },
                 .receive_done = [](void* self,
                                    velo_match_receive_t*) { ++static_cast<MatchLiar*>(self)->receives_; },
                 .wait = nullptr};
        velo_match_open(victim(), &host_);
        for (const size_t rank : {0, 2}) peers_[rank] = velo_match_peer_of(victim(), job_[1].peers[rank]);
    }
    velo_engine_t* victim() { return job_[1].engine; }

    template <class Header>
    void tell(size_t from, WireTag tag, const Header& header, const std::vector<std::byte>& data = {}) {
        Message& message = messages_.emplace_back();
        message.bytes.resize(sizeof header);
        std::memcpy(message.bytes.data(), &header, sizeof header);
        message.bytes.insert(message.bytes.end(), data.begin(), data.end());
        message.send.data[0] = message.bytes.data();
        message.send.bytes[0] = static_cast<uint32_t>(message.bytes.size());
        velo_send(job_[from].engine, job_[from].peers[1], &message.send, static_cast<uint8_t>(tag));
    }
    /// Only the victim reads.
    void victim_reads() {
        for (int i = 0; i < 20; ++i) velo_progress(victim());
    }
    void all_read() {
        for (int i = 0; i < 20; ++i) {
            for (auto& rank : job_.ranks) velo_progress(rank->engine);
        }
    }
    void send(size_t to, const std::vector<std::byte>& data, bool synchronous = false) {
        EXPECT_FALSE(velo_match_send(victim(), peers_[to], velo_place(3, 1), 5, data.data(), data.size(),
                                     synchronous, &faces_.emplace_back()));
    }
    uint64_t malformed() { return job_[1].counters().engine_malformed; }
    /// The number by which the victim named its message, as it came to that rank.
    uint64_t number_at(size_t rank) {
        RequestHeader header;
        for (const Received& message : job_[rank].inbox) {
            if (message.tag != static_cast<uint8_t>(WireTag::kRequest)) continue;
            std::memcpy(&header, message.data.data(), sizeof header);
            return header.number;
        }
        ADD_FAILURE() << "no request came";
        return 0;
    }
    /// That of the victim's next message after one with this number: each is in a place of its own.
    static uint64_t next(uint64_t number) { return number + 1; }

    Job job_;
    velo_match_host_t host_{};
    std::array<velo_match_peer_t*, 3> peers_{};
    int sends_ = 0;
    int receives_ = 0;

  private:
    struct Message {
        velo_send_t send{};
        std::vector<std::byte> bytes;
    };
    std::deque<Message> messages_;
    std::deque<velo_match_send_t> faces_;
};

TEST_F(MatchLiar, a_message_whose_data_did_not_fit_is_not_accepted_with_it) {
    const std::vector<std::byte> data = pattern(200'000, 1);
    send(0, data);
    all_read();
    tell(0, WireTag::kAnswer,
         AnswerHeader{.number = number_at(0), .outcome = AnswerHeader::Outcome::kAccepted});
    all_read();
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(sends_, 0);
}

TEST_F(MatchLiar, a_message_that_is_still_leaving_is_not_accepted) {
    const std::vector<std::byte> data = pattern(30'000, 1);
    send(0, data);
    all_read();
    uint64_t last = number_at(0);
    for (int i = 0; i < 12; ++i, last = next(last)) send(0, data);
    EXPECT_TRUE(velo_busy(victim()));
    tell(0, WireTag::kAnswer, AnswerHeader{.number = last, .outcome = AnswerHeader::Outcome::kMatched});
    victim_reads();
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(sends_, 0);
    all_read();
}

TEST_F(MatchLiar, a_synchronous_message_that_is_still_leaving_is_not_done) {
    const std::vector<std::byte> data = pattern(3000, 1);
    send(0, data);
    all_read();
    uint64_t last = number_at(0);
    tell(0, WireTag::kAnswer, AnswerHeader{.number = last, .outcome = AnswerHeader::Outcome::kMatched});
    tell(0, WireTag::kGrant, GrantHeader{.records = 1000, .cells = 20000});
    all_read();
    EXPECT_EQ(sends_, 1);
    // The first of them has the place of the message that is done, and a number of its own.
    for (int i = 0; i < 200; ++i) send(0, data, true);
    EXPECT_EQ(job_[1].counters().match_tx_eager, 200u);
    tell(0, WireTag::kDone, DoneHeader{last + 199});
    victim_reads();
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(sends_, 1);
    all_read();
}

TEST_F(MatchLiar, a_message_is_answered_by_its_receiver_only) {
    const std::vector<std::byte> data = pattern(100, 1);
    send(2, data);
    all_read();
    const uint64_t number = number_at(2);
    tell(0, WireTag::kAnswer, AnswerHeader{.number = number, .outcome = AnswerHeader::Outcome::kMatched});
    all_read();
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(sends_, 0);
    tell(2, WireTag::kAnswer, AnswerHeader{.number = number, .outcome = AnswerHeader::Outcome::kMatched});
    all_read();
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(sends_, 1);
}

TEST_F(MatchLiar, the_place_of_data_is_taken_from_its_sender_only) {
    std::vector<std::byte> buffer(1000);
    velo_match_receive_t receive;
    receive.from = peers_[2];
    ASSERT_EQ(velo_match_post(victim(), velo_place(3, 2), 5, buffer.data(), buffer.size(), &receive), VELO_OK);
    tell(2, WireTag::kRequest,
         RequestHeader{.head = EagerHeader::of({3, 2, 5}, EagerHeader::kFirst), .number = 7, .bytes = 1000});
    all_read();
    match::ClearToSendHeader clear;
    bool found = false;
    for (const Received& message : job_[2].inbox) {
        if (message.tag != static_cast<uint8_t>(WireTag::kClearToSend)) continue;
        std::memcpy(&clear, message.data.data(), sizeof clear);
        found = true;
    }
    ASSERT_TRUE(found);
    tell(0, WireTag::kReady, ReadyHeader{.receive = clear.receive});
    all_read();
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(receives_, 0);
    EXPECT_EQ(job_[1].counters().rma_failed, 0u);
}

TEST_F(MatchLiar, a_number_that_says_more_than_a_number_is_refused) {
    RequestHeader header = {
        .head = EagerHeader::of({3, 0, 5}, EagerHeader::kFirst), .number = (1ull << 63) + 5, .bytes = 0};
    tell(0, WireTag::kRequest, header);
    all_read();
    EXPECT_EQ(malformed(), 1u);
    EXPECT_TRUE(job_[0].inbox.empty()) << "it is not answered";
    header.number = 5;
    tell(0, WireTag::kRequest, header);
    all_read();
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(job_[0].inbox.size(), 1u);
}

TEST_F(MatchLiar, requests_of_a_peer_that_reads_no_answers_are_not_answered_past_a_bound) {
    constexpr uint64_t kRequests = 2000;
    for (uint64_t number = 1; number <= kRequests; ++number) {
        tell(0, WireTag::kRequest,
             RequestHeader{
                 .head = EagerHeader::of({3, 0, 5}, EagerHeader::kFirst), .number = number, .bytes = 0});
        velo_progress(victim());
        if (number % 8 == 0) victim_reads();
    }
    victim_reads();
    EXPECT_GT(malformed(), 0u);
}

}  // namespace
}  // namespace velo::test
