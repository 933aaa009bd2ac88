/// Messages of all kinds through one ring, by one thread and by two.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "ring_ends.h"

namespace velo::shm {
namespace {

/// A message of any kind, as sent and as expected.
struct Mixed {
    uint32_t bytes = 0;
    bool line = false;   ///< by try_send_line
    bool lines = false;  ///< by try_send_lines, where that takes it
    bool whole = false;
    bool streaming = false;

    template <class Random>
    static Mixed draw(Random& random, uint32_t bytes_max) {
        const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
        switch (below(9)) {
            case 8: return {.bytes = below(std::min(2104u, bytes_max) + 1), .lines = true};
            case 0: return {.bytes = below(bytes_max + 1), .streaming = below(2) != 0};
            case 1: return {.bytes = below(bytes_max + 1), .whole = true, .streaming = below(2) != 0};
            case 2: return {.bytes = below(std::min(300u, bytes_max))};
            case 3: return {.bytes = below(kInlineBytesMax + 1), .line = true};
            default: return {.bytes = below(kCellBytesMax + 1), .line = true};
        }
    }
    bool send(Ring& ring, uint32_t number) const {
        const auto fill = static_cast<uint8_t>(number % 251 + 1);
        const auto tag = static_cast<uint8_t>(number);
        if (line) return ring.try_send_line(bytes, fill, tag);
        if (lines && ring.try_send_lines(bytes, fill, tag)) return true;
        if (!whole) return ring.send(bytes, fill, tag, streaming);
        std::byte* room = ring.producer.reserve_whole(bytes, streaming);
        if (room == nullptr) return false;
        std::memset(room, fill, bytes);
        ring.producer.commit(MessageClass::kHost, tag, bytes, true);
        return true;
    }
    void check(const Message& message, uint32_t number) const {
        ASSERT_EQ(message.bytes, bytes) << number;
        ASSERT_EQ(message.tag, static_cast<uint8_t>(number));
        const std::byte fill{static_cast<uint8_t>(number % 251 + 1)};
        for (uint32_t i = 0; i < bytes; ++i) ASSERT_EQ(message.data[i], fill) << number << ", byte " << i;
    }
};

/// Steps past the next message as OnNode::poll does, or by peek(); false when there is none.
bool take_any(RingConsumer& consumer, bool by_word, Message& message) {
    const uint64_t word = by_word ? consumer.word() : 0;
    if (word != 0 && consumer.is_of_line(word)) {
        message = {.tag = LineHeader::tag_of(word), .bytes = LineHeader::bytes_of(word)};
        message.data = consumer.take_line(word);
        return true;
    }
    if (word != 0 && consumer.is_of_lines(word)) {
        message = {.tag = LineHeader::tag_of(word), .bytes = LineHeader::bytes_of(word)};
        message.data = consumer.take_lines(word, message.lines);
        return true;
    }
    const RingConsumer::Peek seen = consumer.peek(message);
    EXPECT_NE(seen, RingConsumer::Peek::kGarbage);
    if (seen != RingConsumer::Peek::kMessage) return false;
    consumer.take(message);
    return true;
}

TEST(Ring, a_message_of_several_lines_is_what_a_reserved_one_is) {
    for (const uint32_t bytes : {57u, 78u, 120u, 121u, 2104u}) {
        Ring reserved({.lines = 256, .body_bytes = 8192});
        Ring direct({.lines = 256, .body_bytes = 8192});
        ASSERT_TRUE(reserved.send(bytes, 7, 3));
        ASSERT_TRUE(direct.try_send_lines(bytes, 7, 3));
        EXPECT_EQ(std::memcmp(reserved.memory, direct.memory, ring_bytes(direct.geometry)), 0) << bytes;
        EXPECT_TRUE(direct.receive(bytes, 7));
    }
}

TEST(Ring, what_does_not_fit_the_lines_ahead_is_refused_and_changes_nothing) {
    Ring ring({.lines = 16, .body_bytes = 4096});
    const uint32_t most = ring.geometry.short_bytes_max();  // 4 lines
    EXPECT_FALSE(ring.try_send_lines(most + 1, 1));
    for (int i = 0; i < 14; ++i) {
        ASSERT_TRUE(ring.send(20, 1));
        ASSERT_TRUE(ring.receive(20, 1));
    }
    EXPECT_FALSE(ring.try_send_lines(most, 2)) << "two lines to the end of the area";
    EXPECT_TRUE(ring.send(most, 2)) << "reserve() skips them";
    EXPECT_TRUE(ring.receive(most, 2));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ring.try_send_lines(most, 3));
    EXPECT_FALSE(ring.try_send_lines(most, 4)) << "the ring is full";
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(ring.receive(most, 3));
    EXPECT_FALSE(ring.receive(most, 4));
}

TEST(Ring, any_mix_arrives_in_order_and_stays_while_in_use) {
    for (const uint32_t lines : {4u, 8u, 64u}) {
        const RingGeometry geometry = {.lines = lines, .body_bytes = 8192};
        Ring ring(geometry);
        std::mt19937 random(lines);
        std::deque<Mixed> unread;
        struct Taken {
            Mixed mixed;
            Message message;
            uint32_t number = 0;
        };
        std::vector<Taken> in_use;  // nested, the innermost last
        uint32_t sent = 0;
        uint32_t received = 0;
        for (uint32_t step = 0; step < 100000; ++step) {
            switch (random() % 4) {
                case 0:
                case 1: {
                    const Mixed mixed = Mixed::draw(random, geometry.message_bytes_max());
                    const bool done = mixed.send(ring, sent);
                    ASSERT_TRUE(done || !unread.empty() || !in_use.empty()) << "an empty ring has no room";
                    if (!done) break;
                    unread.push_back(mixed);
                    ++sent;
                    break;
                }
                case 2: {
                    Taken taken;
                    const bool some = take_any(ring.consumer, random() % 2 != 0, taken.message);
                    ASSERT_EQ(some, !unread.empty()) << step;
                    if (!some) break;
                    taken.mixed = unread.front();
                    taken.number = received++;
                    unread.pop_front();
                    in_use.push_back(taken);
                    break;
                }
                case 3:
                    while (!in_use.empty()) {
                        const Taken& last = in_use.back();
                        ASSERT_NO_FATAL_FAILURE(last.mixed.check(last.message, last.number));
                        in_use.pop_back();
                        ring.consumer.release();
                        if (random() % 3 == 0) break;
                    }
                    break;
            }
        }
        EXPECT_GT(received, 10000u);
    }
}

TEST(Ring, two_threads_exchange_any_mix_intact) {
    for (const uint32_t lines : {4u, 16u, 256u}) {
        Ring ring({.lines = lines, .body_bytes = 16384});
        constexpr uint32_t kMessages = 100000;
        // Both threads draw the same messages.
        const auto draws = [lines] { return std::minstd_rand(lines); };
        std::thread producer([&] {
            auto random = draws();
            for (uint32_t i = 0; i < kMessages; ++i) {
                const Mixed mixed = Mixed::draw(random, 1500);
                while (!mixed.send(ring, i)) std::this_thread::yield();
            }
        });
        auto random = draws();
        for (uint32_t i = 0; i < kMessages && !testing::Test::HasFatalFailure(); ++i) {
            const Mixed mixed = Mixed::draw(random, 1500);
            Message message;
            while (!take_any(ring.consumer, i % 16 != 0, message)) std::this_thread::yield();
            mixed.check(message, i);
            ring.consumer.release();
        }
        if (testing::Test::HasFatalFailure()) std::abort();  // the producer would wait without end
        producer.join();
    }
}

TEST(Ring, two_threads_exchange_every_message_intact) {
    Ring ring({.lines = 16, .body_bytes = 16384});
    constexpr uint32_t kMessages = 60000;
    const auto size_of = [](uint32_t i) { return i * 37 % 3000; };
    std::thread producer([&] {
        for (uint32_t i = 0; i < kMessages; ++i) {
            while (!ring.send(size_of(i), static_cast<uint8_t>(i))) std::this_thread::yield();
        }
    });
    for (uint32_t i = 0; i < kMessages; ++i) {
        Message message;
        while (ring.consumer.peek(message) != RingConsumer::Peek::kMessage) std::this_thread::yield();
        ASSERT_EQ(message.bytes, size_of(i));
        for (uint32_t at = 0; at < message.bytes; at += 97) {
            ASSERT_EQ(message.data[at], std::byte{static_cast<uint8_t>(i)});
        }
        ring.consumer.take(message);
        ring.consumer.release();
    }
    producer.join();
}

}  // namespace
}  // namespace velo::shm
