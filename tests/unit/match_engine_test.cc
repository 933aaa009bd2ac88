/// Matching in whole engines: every way that a message can take, and what a peer that breaks the protocol can
/// do.
#include <deque>
#include <random>
#include <span>

#include "tests/unit/match_engine.h"
#include "velo/core/peer.h"
#include "velo/shm/on_node.h"
#include "velo/wire/match_wire.h"

namespace velo::test {
namespace {

using match::WireTag;

class EachSize : public MatchEngine, public testing::WithParamInterface<size_t> {};

TEST_P(EachSize, arrives_posted_and_unexpected) {
    for (const bool posted_first : {true, false}) {
        for (const bool synchronous : {false, true}) {
            const std::vector<std::byte> data = pattern(GetParam(), 5);
            std::vector<std::byte> buffer(GetParam() + 8);
            velo_match_send_t send;
            velo_match_receive_t receive;
            done_ = {};
            bool received = false;
            if (posted_first) received = this->receive(9, buffer, receive);
            const bool sent = this->send(9, data, send, synchronous);
            progress();
            EXPECT_FALSE(synchronous && sent);
            if (!posted_first) {
                EXPECT_TRUE(done_[0].sends.empty() || !synchronous);
                received = this->receive(9, buffer, receive);
            }
            progress();
            EXPECT_EQ(done_[0].sends.size(), sent ? 0u : 1u);
            EXPECT_EQ(done_[1].receives.size(), received ? 0u : 1u);
            EXPECT_EQ(receive.bytes, GetParam());
            EXPECT_EQ(receive.source, 0);
            EXPECT_EQ(receive.tag, 9);
            EXPECT_TRUE(std::equal(data.begin(), data.end(), buffer.begin()));
            EXPECT_EQ(buffer[GetParam()], std::byte{});
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, EachSize,
                         testing::Values(0, 1, 8, 24, 25, 248, 249, 1000, 4096, 30000, 32768, 70000,
                                         3000000));

TEST_F(MatchEngine, later_messages_leave_eagerly) {
    velo_match_send_t first;
    EXPECT_FALSE(send(1, pattern(8, 1), first));  // no room is granted yet
    progress();
    EXPECT_EQ(done_[0].sends.size(), 1u);
    velo_match_send_t second;
    EXPECT_TRUE(send(1, pattern(8, 1), second));
    progress();
    EXPECT_EQ(job_[0].counters().match_tx_eager, 1u);
    EXPECT_EQ(job_[0].counters().match_tx_requests, 1u);
    EXPECT_GT(job_[1].counters().match_records_hwm, 0u);
}

TEST_F(MatchEngine, a_short_message_leaves_now_where_nothing_waits_before_it) {
    const std::vector<std::byte> data = pattern(8, 1);
    EXPECT_FALSE(try_send(1, data)) << "no room is granted yet";
    velo_match_send_t first;
    EXPECT_FALSE(send(1, data, first));
    progress();
    for (const size_t bytes : {8, 0, 24, 25, 1000}) EXPECT_TRUE(try_send(1, pattern(bytes, 1))) << bytes;
    const std::vector<std::byte> longer = pattern(200'000, 2);
    EXPECT_FALSE(try_send(1, longer)) << "it is fetched";
    velo_match_send_t waits;
    EXPECT_FALSE(send(1, longer, waits));
    EXPECT_FALSE(try_send(1, data)) << "it would overtake the one that waits";
}

TEST_F(MatchEngine, a_send_that_waits_returns_when_its_message_is_done) {
    const auto place = velo_place(3, 0);
    std::deque<std::vector<std::byte>> buffers;
    std::deque<velo_match_receive_t> receives;
    const auto post = [&](int tag, size_t bytes) {
        (void)receive(tag, buffers.emplace_back(bytes), receives.emplace_back());
    };
    const auto send_wait = [&](int tag, size_t bytes) {
        const std::vector<std::byte> data = pattern(bytes, 1);
        EXPECT_EQ(velo_match_send_wait(job_[0].engine, peer_[0], place, tag, data.data(), bytes), VELO_OK);
    };
    send_wait(4, 8);
    EXPECT_EQ(done_[0].waits, 1u) << "no room is granted yet";
    for (const size_t bytes : {8, 0, 24, 25, 1000}) send_wait(1, bytes);
    EXPECT_EQ(done_[0].waits, 1u);
    post(5, 200'000);
    send_wait(5, 200'000);
    EXPECT_EQ(done_[0].waits, 2u) << "it is fetched";
    EXPECT_EQ(buffers[0], pattern(200'000, 1));
    post(6, 8);
    const std::vector<std::byte> data = pattern(8, 6);
    EXPECT_EQ(velo_match_ssend_wait(job_[0].engine, peer_[0], place, 6, data.data(), data.size()), VELO_OK);
    EXPECT_EQ(done_[0].waits, 3u) << "it is done when it has matched";
    EXPECT_EQ(buffers[1], data);
    EXPECT_TRUE(done_[0].sends.empty()) << "the host is notified of none of them";
}

TEST_F(MatchEngine, a_posted_receive_is_done_here_where_its_message_has_come_before) {
    std::vector<std::byte> buffer(8);
    velo_match_receive_t receive;
    velo_match_send_t sent;
    const auto post = [&](velo_match_peer_t* from, int32_t source, int tag) {
        receive.from = from;
        EXPECT_EQ(velo_match_post(job_[1].engine, velo_place(3, source), tag, buffer.data(), buffer.size(), &receive),
                  VELO_OK);
    };
    post(peer_[1], 0, 1);
    EXPECT_TRUE(done_[1].receives.empty());
    (void)send(1, pattern(8, 1), sent);
    progress();
    EXPECT_EQ(done_[1].receives, std::vector{&receive});
    EXPECT_EQ(buffer, pattern(8, 1));
    for (const bool named : {true, false}) {
        done_[1].receives.clear();
        (void)send(2, pattern(8, 2), sent);
        progress();
        post(named ? peer_[1] : nullptr, named ? 0 : -1, 3);
        EXPECT_TRUE(done_[1].receives.empty()) << "another message waits";
        EXPECT_TRUE(velo_match_cancel(job_[1].engine, &receive));
        post(named ? peer_[1] : nullptr, named ? 0 : -1, 2);
        EXPECT_EQ(done_[1].receives, std::vector{&receive});
        EXPECT_EQ(receive.source, 0);
        EXPECT_EQ(buffer, pattern(8, 2));
    }
}

/// Of all lengths, by whichever call takes them, through a ring that is full at times; some before their receives, some
/// after them.
TEST_F(MatchEngine, messages_keep_their_order_whichever_call_sends_them) {
    std::mt19937 random(7);
    constexpr size_t kMessages = 20'000;
    constexpr size_t kLengthMax = 120;
    std::deque<std::vector<std::byte>> sent;
    std::deque<std::vector<std::byte>> received;
    std::deque<velo_match_receive_t> receives;
    std::deque<velo_match_send_t> sends;
    size_t now = 0;
    while (received.size() < kMessages) {
        if (sent.size() < kMessages && (sent.size() < received.size() + 100 || random() % 4 == 0)) {
            const size_t length = random() % 3 != 0 ? random() % 25 : random() % kLengthMax;
            const auto& data = sent.emplace_back(pattern(length, static_cast<uint32_t>(sent.size())));
            if (try_send(1, data)) {
                ++now;
            } else {
                (void)velo_match_send(job_[0].engine, peer_[0], velo_place(3, 0), 1, data.data(), data.size(),
                                      random() % 64 == 0, &sends.emplace_back());
            }
        } else {
            (void)receive(1, received.emplace_back(kLengthMax), receives.emplace_back());
        }
        if (random() % 8 == 0) velo_progress(job_[0].engine);
        if (random() % 64 == 0) progress();
    }
    progress();
    EXPECT_GT(now, kMessages / 10);
    for (size_t i = 0; i < kMessages; ++i) {
        ASSERT_EQ(receives[i].bytes, sent[i].size()) << i;
        received[i].resize(sent[i].size());
        ASSERT_EQ(received[i], sent[i]) << i;
    }
}

/// A burst is received when all of it has come, from the last message to the first, and repeated.
class Bursts : public MatchEngine {
  protected:
    explicit Bursts(const velo_params_t& params = default_params()) : MatchEngine(params) {}

    /// How many of the messages had to ask.
    uint64_t burst(int messages, size_t bytes) {
        const uint64_t before = job_[0].counters().match_tx_requests;
        std::deque<velo_match_send_t> sends(static_cast<size_t>(messages));
        const std::vector<std::byte> data = pattern(bytes, 3);
        for (int tag = 0; tag < messages; ++tag) (void)send(tag, data, sends[static_cast<size_t>(tag)]);
        for (int i = 0; i < messages / 100; ++i) progress();
        for (int tag = messages; tag-- != 0;) {
            std::vector<std::byte> buffer(bytes);
            velo_match_receive_t receive;
            done_[1].receives.clear();
            if (!this->receive(tag, buffer, receive)) {
                for (int i = 0; i < 10 && done_[1].receives.empty(); ++i) progress();
                EXPECT_EQ(done_[1].receives.size(), 1u) << tag;
            }
            EXPECT_EQ(buffer, data);
        }
        progress();
        return job_[0].counters().match_tx_requests - before;
    }
};
class FewRecords : public Bursts {
  protected:
    FewRecords() : Bursts(with_room(400, 64 << 20)) {}
};
class AsksAlways : public Bursts {
  protected:
    static velo_params_t params() {
        velo_params_t params = default_params();
        params.unexpected_granted = 0;
        return params;
    }
    AsksAlways() : Bursts(params()) {}
};

TEST_F(Bursts, who_ran_out_of_room_is_granted_as_much_as_waited) {
    for (const int messages : {1000, 3000}) {
        EXPECT_GT(burst(messages, 8), 500u) << messages;
        // Free room is reported when it is half of all.
        for (int i = 0; i < 3; ++i) (void)burst(messages, 8);
        EXPECT_EQ(burst(messages, 8), 0u) << messages;
    }
}

TEST_F(Bursts, the_room_for_data_stays_what_it_was) {
    for (int i = 0; i < 4; ++i) EXPECT_GT(burst(1000, 1000), 400u);
}

TEST_F(FewRecords, a_peer_is_granted_its_share_and_no_more) {
    // Of 400 records half is for the grants, and a half of that for each of two processes.
    for (int i = 0; i < 4; ++i) EXPECT_GE(burst(300, 8), 200u);
    EXPECT_LE(job_[1].counters().match_records_hwm, 400u * 64);
}

TEST_F(AsksAlways, nothing_is_granted) {
    EXPECT_EQ(burst(300, 8), 300u);
    EXPECT_EQ(burst(300, 8), 300u);
    EXPECT_EQ(burst(300, 1000), 300u);
}

/// A request, an answer, and the word that it was fetched; without memory for data also the wish for its handle, and
/// that. The copy, which both ends make, takes three.
class UnexpectedLong : public MatchEngine, public testing::WithParamInterface<int> {
  protected:
    UnexpectedLong() : MatchEngine(with_room(100, GetParam())) {}
};

TEST_P(UnexpectedLong, takes_two_messages_more_without_memory_for_its_handle) {
    const std::vector<std::byte> data = pattern(100000, 7);
    std::vector<std::byte> buffer(data.size());
    velo_match_send_t send;
    velo_match_receive_t receive;
    EXPECT_FALSE(this->send(1, data, send));
    progress();
    (void)this->receive(1, buffer, receive);
    progress();
    EXPECT_EQ(done_[0].sends.size(), 1u);
    EXPECT_EQ(buffer, data);
    const bool room = GetParam() != 0;
    // A cell for its handle, and no more.
    EXPECT_EQ(job_[1].counters().match_data_hwm, static_cast<uint64_t>(GetParam()));
    EXPECT_EQ(job_[0].counters().on_node_tx_messages + job_[1].counters().on_node_tx_messages, room ? 6u : 8u);
}

INSTANTIATE_TEST_SUITE_P(Bytes, UnexpectedLong, testing::Values(256, 0));

TEST_F(MatchEngine, a_message_that_is_too_long_is_cut) {
    for (const size_t bytes : {size_t{100}, size_t{100000}}) {
        const std::vector<std::byte> data = pattern(bytes, 3);
        std::vector<std::byte> buffer(64);
        velo_match_send_t send;
        velo_match_receive_t receive;
        done_ = {};
        EXPECT_FALSE(this->receive(2, buffer, receive));
        const bool sent = this->send(2, data, send);
        progress();
        EXPECT_EQ(done_[0].sends.size(), sent ? 0u : 1u);
        EXPECT_EQ(receive.bytes, bytes);
        EXPECT_TRUE(std::equal(buffer.begin(), buffer.end(), data.begin()));
    }
}

TEST_F(MatchEngine, a_process_sends_to_itself) {
    for (const size_t bytes : {size_t{0}, size_t{8}, size_t{5000}, size_t{200000}}) {
        const std::vector<std::byte> data = pattern(bytes, 3);
        std::vector<std::byte> buffer(bytes);
        velo_match_send_t send;
        velo_match_receive_t receive;
        done_ = {};
        const bool sent = velo_match_send(job_[0].engine, self_[0], velo_place(1, 0), 4, data.data(), bytes,
                                          bytes == 8, &send);
        progress();
        const bool received =
            velo_match_receive(job_[0].engine, self_[0], velo_place(1, 0), 4, buffer.data(), bytes, &receive);
        progress();
        EXPECT_EQ(done_[0].sends.size(), sent ? 0u : 1u);
        EXPECT_EQ(done_[0].receives.size(), received ? 0u : 1u);
        EXPECT_EQ(buffer, data);
    }
}

TEST_F(MatchEngine, a_receive_is_cancelled_unless_it_has_matched) {
    std::vector<std::byte> buffer(8);
    velo_match_receive_t receive;
    EXPECT_FALSE(this->receive(2, buffer, receive));
    EXPECT_TRUE(velo_match_cancel(job_[1].engine, &receive));
    EXPECT_FALSE(this->receive(2, buffer, receive));
    velo_match_send_t send;
    (void)this->send(2, pattern(8, 1), send);
    progress();
    EXPECT_FALSE(velo_match_cancel(job_[1].engine, &receive));
    EXPECT_EQ(done_[1].receives.size(), 1u);
}

/// A host may cancel a receive as often as it likes, until the memory of it has another use.
TEST_F(MatchEngine, a_second_cancel_of_a_receive_changes_nothing) {
    std::vector<std::byte> buffer(8);
    std::vector<std::byte> other(8);
    velo_match_receive_t receive;
    velo_match_receive_t second;
    for (const int source : {0, -1}) {
        done_ = {};
        EXPECT_FALSE(this->receive(2, buffer, receive, source));
        EXPECT_FALSE(this->receive(2, other, second, source));
        EXPECT_TRUE(velo_match_cancel(job_[1].engine, &receive));
        EXPECT_FALSE(velo_match_cancel(job_[1].engine, &receive));
        EXPECT_FALSE(velo_match_cancel(job_[1].engine, &receive));
        velo_match_send_t send;
        (void)this->send(2, pattern(8, 1), send);
        progress();
        EXPECT_EQ(done_[1].receives, std::vector{&second});
        EXPECT_EQ(other, pattern(8, 1));
        EXPECT_EQ(buffer, std::vector<std::byte>(8));
    }
}

TEST_P(EachSize, is_not_cancelled_once_it_has_come) {
    for (const bool posted_first : {true, false}) {
        for (const bool synchronous : {false, true}) {
            const std::vector<std::byte> data = pattern(GetParam(), 5);
            std::vector<std::byte> buffer(GetParam());
            velo_match_send_t send;
            velo_match_receive_t receive;
            done_ = {};
            bool received = posted_first && this->receive(9, buffer, receive);
            const bool sent = this->send(9, data, send, synchronous);
            progress();
            // Its data may still be with its sender then.
            if (!posted_first) received = this->receive(9, buffer, receive);
            EXPECT_FALSE(velo_match_cancel(job_[1].engine, &receive));
            progress();
            EXPECT_FALSE(velo_match_cancel(job_[1].engine, &receive));
            EXPECT_EQ(done_[0].sends.size(), sent ? 0u : 1u);
            EXPECT_EQ(done_[1].receives.size(), received ? 0u : 1u);
            EXPECT_EQ(buffer, data);
        }
    }
}

class WithoutMemory : public MatchEngine {
  protected:
    WithoutMemory() : MatchEngine(with_room(0, 0)) {}
};

TEST_F(WithoutMemory, messages_wait_with_their_sender_and_come_in_the_order_of_receives) {
    constexpr int kMessages = 50;
    std::deque<velo_match_send_t> sends(kMessages);
    std::vector<std::vector<std::byte>> data;
    for (int tag = 0; tag < kMessages; ++tag) {
        data.push_back(pattern(static_cast<size_t>(tag) * 2000, static_cast<uint8_t>(tag)));
        EXPECT_FALSE(send(tag, data.back(), sends[static_cast<size_t>(tag)], tag % 3 == 0));
    }
    progress();
    EXPECT_TRUE(done_[0].sends.empty());
    for (int tag = kMessages - 1; tag >= 0; --tag) {
        std::vector<std::byte> buffer(data[static_cast<size_t>(tag)].size());
        velo_match_receive_t receive;
        EXPECT_FALSE(this->receive(tag, buffer, receive, tag % 2 == 0 ? 0 : -1));
        progress();
        ASSERT_EQ(done_[1].receives.size(), static_cast<size_t>(kMessages - tag));
        EXPECT_EQ(buffer, data[static_cast<size_t>(tag)]);
    }
    EXPECT_EQ(done_[0].sends.size(), static_cast<size_t>(kMessages));
    EXPECT_EQ(job_[1].counters().match_records_hwm, 0u);
    EXPECT_EQ(job_[1].counters().match_data_hwm, 0u);
    EXPECT_FALSE(velo_busy(job_[0].engine));
}

TEST_F(WithoutMemory, a_probe_finds_a_message_that_is_with_its_sender) {
    for (const bool takes : {false, true}) {
        for (const bool late : {false, true}) {
            const std::vector<std::byte> data = pattern(5000, 8);
            velo_match_send_t send;
            done_ = {};
            EXPECT_FALSE(this->send(6, data, send));
            velo_match_status_t status;
            velo_match_message_t* message = nullptr;
            int tries = 0;
            while (!velo_match_probe(job_[1].engine, nullptr, velo_place(3, -1), -1, &status,
                                     takes ? &message : nullptr)) {
                ASSERT_LT(++tries, 20);
                progress();
            }
            EXPECT_EQ(status.bytes, 5000u);
            EXPECT_EQ(status.tag, 6);
            if (late) progress();
            std::vector<std::byte> buffer(5000);
            velo_match_receive_t receive;
            const bool received = takes ? velo_match_receive_message(job_[1].engine, message, buffer.data(),
                                                                     buffer.size(), &receive)
                                        : this->receive(6, buffer, receive);
            if (takes) {
                EXPECT_FALSE(velo_match_cancel(job_[1].engine, &receive)) << "a probe has matched it";
            }
            progress();
            EXPECT_FALSE(velo_match_cancel(job_[1].engine, &receive)) << "it has come";
            EXPECT_EQ(done_[1].receives.size(), received ? 0u : 1u);
            EXPECT_EQ(receive.bytes, 5000u);
            EXPECT_EQ(buffer, data);
            EXPECT_EQ(done_[0].sends.size(), 1u);
        }
    }
}

/// A ring that is soon full keeps back what is reported to a peer.
class WithoutMemoryByShortRings : public MatchEngine {
  protected:
    WithoutMemoryByShortRings() : MatchEngine(with_room(0, 0), {.ring_lines = 16}) {}
};

TEST_F(WithoutMemoryByShortRings, the_longest_offer_of_receives_and_probes_waits_and_arrives) {
    constexpr int kReceives = 4;
    constexpr int kProbes = 4;
    const std::vector<std::byte> data = pattern(40, 8);
    velo_match_send_t refused;
    EXPECT_FALSE(send(99, data, refused));
    progress();
    // Messages of the host back fill the ring, which is not read.
    std::array<std::byte, 1000> filling = {};
    std::deque<velo_send_t> back;
    do {
        back.emplace_back();
        back.back().data[0] = filling.data();
        back.back().bytes[0] = filling.size();
    } while (velo_send(job_[1].engine, job_[1].peers[0], &back.back(), 0x41));
    std::array<velo_match_receive_t, kReceives> receives;
    std::vector<std::vector<std::byte>> buffers(kReceives, std::vector<std::byte>(40));
    for (int tag = 0; tag < kReceives; ++tag)
        EXPECT_FALSE(receive(tag, buffers[static_cast<size_t>(tag)], receives[static_cast<size_t>(tag)]));
    velo_match_status_t status;
    for (int tag = 10; tag < 10 + kProbes; ++tag)
        EXPECT_FALSE(velo_match_probe(job_[1].engine, peer_[1], velo_place(3, 0), tag, &status, nullptr));
    const uint64_t offers = job_[1].counters().match_offers;
    velo_progress(job_[1].engine);
    EXPECT_EQ(job_[1].counters().match_offers, offers + 1);
    progress();
    std::deque<velo_match_send_t> sends(kReceives + kProbes);
    for (int i = 0; i < kReceives + kProbes; ++i)
        send(i < kReceives ? i : 10 + i - kReceives, data, sends[static_cast<size_t>(i)]);
    progress();
    EXPECT_EQ(done_[1].receives.size(), size_t{kReceives});
    for (const std::vector<std::byte>& buffer : buffers) EXPECT_EQ(buffer, data);
    for (int tag = 10; tag < 10 + kProbes; ++tag)
        EXPECT_TRUE(velo_match_probe(job_[1].engine, peer_[1], velo_place(3, 0), tag, &status, nullptr)) << tag;
}

/// A peer that writes what it likes to a process which has receives posted and messages under way to others.
TEST_F(MatchEngine, a_peer_that_breaks_the_protocol_breaks_nothing) {
    std::mt19937 random(20261124);
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    EngineAddress address;
    ASSERT_TRUE(address.parse(bytes.data(), velo_address(job_[1].engine, bytes.data(), bytes.size())));
    shm::OnNode liar({.name = (uint64_t{77} << 32) + 9});
    shm::PeerIndex to = 0;
    ASSERT_EQ(liar.connect(address.on_node, to), Status::kOk);
    std::vector<std::byte> target(1 << 16);
    std::deque<velo_match_receive_t> receives;
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
    struct Sink {
        std::vector<std::vector<std::byte>> seen;
        bool accepts(const shm::Message&) { return true; }
        void deliver(shm::PeerIndex, const shm::Message& message) {
            if (seen.size() < 64) seen.emplace_back(message.data, message.data + message.bytes);
        }
    } sink;
    for (int step = 0; step < 40000; ++step) {
        std::array<std::byte, 512> message = {};
        uint32_t length = below(160);
        for (uint32_t i = 0; i < 128; ++i)
            message[i] = static_cast<std::byte>(below(4) == 0 ? random() : below(3));
        const auto tag = static_cast<uint8_t>(match::kFirstWireTag + below(12));
        match::RequestHeader header;
        std::memcpy(&header, message.data(), sizeof header);
        if (below(2) == 0) {
            const auto tag_of_it = static_cast<int32_t>(below(4));
            header.head = match::EagerHeader::of({.context = 3, .source = 0, .tag = tag_of_it}, below(16));
            header.age = below(3);
            header.bytes = below(300);
            if (below(2) == 0) length = static_cast<uint32_t>(sizeof header + header.bytes);
            if (below(4) == 0) length = sizeof header + sizeof(match::Place);
            std::memcpy(message.data(), &header, sizeof header);
        }
        // A message that the process has sent to it, somewhat changed: there are numbers in it.
        if (!sink.seen.empty() && below(3) == 0) {
            const auto& seen = sink.seen[below(static_cast<uint32_t>(sink.seen.size()))];
            length = static_cast<uint32_t>(std::min(seen.size(), message.size()));
            std::memcpy(message.data(), seen.data(), length);
            if (length != 0) message[below(length)] ^= static_cast<std::byte>(random());
        }
        Status status = Status::kOk;
        if (std::byte* room = liar.reserve_whole(to, std::min<uint32_t>(length, message.size()), status)) {
            std::memcpy(room, message.data(), std::min<size_t>(length, message.size()));
            liar.commit(to, MessageClass::kHost, tag, std::min<uint32_t>(length, message.size()), true);
        }
        if (below(8) == 0 && receives.size() < 200) {
            (void)velo_match_receive(job_[1].engine, nullptr, velo_place(3, -1), -1, target.data(), 64,
                                     &receives.emplace_back());
        }
        velo_progress(job_[1].engine);
        liar.poll(64, sink);
        if (sink.seen.size() >= 64) sink.seen.clear();
    }
    const velo_counters_t counters = job_[1].counters();
    EXPECT_GT(counters.engine_malformed, 1000u);
    EXPECT_LE(counters.match_records_hwm, static_cast<uint64_t>(default_params().unexpected_records));
    // Others are served as before.
    std::vector<std::byte> buffer(100);
    velo_match_receive_t receive;
    velo_match_send_t send;
    (void)velo_match_receive(job_[1].engine, peer_[1], velo_place(4, 0), 1, buffer.data(), 100, &receive);
    (void)velo_match_send(job_[0].engine, peer_[0], velo_place(4, 0), 1, pattern(100, 2).data(), 0, false,
                          &send);
    progress();
    EXPECT_EQ(receive.bytes, 0u);
    EXPECT_EQ(receive.tag, 1);
}

}  // namespace
}  // namespace velo::test
