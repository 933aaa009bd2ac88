#include "velo/shm/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace velo::shm {
namespace {

constexpr RingGeometry kSmall = {.lines = 4, .body_bytes = 4096};

/// A zeroed ring and its two ends.
struct Ring {
    explicit Ring(RingGeometry geometry)
        : memory(static_cast<std::byte*>(std::aligned_alloc(4096, ring_bytes(geometry)))),
          geometry(geometry) {
        std::memset(memory, 0, ring_bytes(geometry));
        producer = RingProducer(RingView(memory, geometry));
        consumer = RingConsumer(RingView(memory, geometry));
    }
    ~Ring() { std::free(memory); }

    bool send(uint32_t bytes, uint8_t fill, uint8_t tag = 0, bool streaming = false) {
        const RingProducer::Room room = producer.reserve(bytes, streaming);
        if (room.first == nullptr) return false;
        std::memset(room.first, fill, std::min(bytes, kInlineBytesMax));
        if (bytes > kInlineBytesMax) std::memset(room.rest, fill, bytes - kInlineBytesMax);
        producer.commit(MessageClass::kHost, tag, bytes);
        return true;
    }
    /// Takes one message and checks its content; false when there is none.
    bool receive(uint32_t bytes, uint8_t fill) {
        Message message;
        if (consumer.peek(message) != RingConsumer::Peek::kMessage) return false;
        EXPECT_EQ(message.bytes, bytes);
        for (uint32_t i = 0; i < message.bytes; ++i) EXPECT_EQ(message.data[i], std::byte{fill});
        consumer.take(message);
        consumer.release();
        return true;
    }

    std::byte* memory;
    RingGeometry geometry;
    RingProducer producer;
    RingConsumer consumer;
};

TEST(Ring, starts_empty) {
    Ring ring(kSmall);
    Message message;
    EXPECT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kNothing);
}

TEST(Ring, short_message_is_one_line_and_needs_no_body) {
    Ring ring(kSmall);
    ASSERT_TRUE(ring.send(kInlineBytesMax, 7));
    Message message;
    ASSERT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kMessage);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(message.data) / kLineBytes,
              (reinterpret_cast<uintptr_t>(message.data) + kInlineBytesMax - 1) / kLineBytes);
}

TEST(Ring, long_message_is_contiguous_and_its_rest_aligned) {
    Ring ring(kSmall);
    for (uint32_t round = 0; round < 100; ++round) {
        ASSERT_TRUE(ring.send(700 + round, static_cast<uint8_t>(round)));
        Message message;
        ASSERT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kMessage);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(message.data + kInlineBytesMax) % kLineBytes, 0u);
        ASSERT_TRUE(ring.receive(700 + round, static_cast<uint8_t>(round)));
    }
}

TEST(Ring, full_ring_refuses_and_takes_again_after_a_release) {
    Ring ring(kSmall);
    for (uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(ring.send(8, i));
    EXPECT_FALSE(ring.send(8, 3)) << "one line stays clear";
    ASSERT_TRUE(ring.receive(8, 0));
    EXPECT_TRUE(ring.send(8, 3));
    for (uint8_t i = 1; i < 4; ++i) ASSERT_TRUE(ring.receive(8, i));
}

TEST(Ring, longest_message_finds_room_from_every_position) {
    // Whatever the bodies before it left of the lap, an empty ring takes the longest message.
    for (uint32_t before = 64; before <= 4096 * 2; before += 64) {
        Ring ring(kSmall);
        for (uint32_t sent = 0; sent < before; sent += 64) {
            ASSERT_TRUE(ring.send(64, 1));
            ASSERT_TRUE(ring.receive(64, 1));
        }
        ASSERT_TRUE(ring.send(ring.producer.message_bytes_max(), 2)) << before;
        ASSERT_TRUE(ring.receive(ring.producer.message_bytes_max(), 2));
    }
}

TEST(Ring, what_is_in_use_is_not_given_back_even_when_later_messages_are_done) {
    Ring ring(kSmall);
    for (uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(ring.send(8, i));
    Message first;
    ASSERT_EQ(ring.consumer.peek(first), RingConsumer::Peek::kMessage);
    ring.consumer.take(first);
    ASSERT_TRUE(ring.receive(8, 1));  // nested
    EXPECT_FALSE(ring.send(8, 9)) << "the first message was overwritten while in use";
    EXPECT_EQ(first.data[0], std::byte{0});
    ring.consumer.release();
    EXPECT_TRUE(ring.send(8, 9));
}

TEST(Ring, what_earlier_laps_left_is_never_taken_for_a_message) {
    // Every line of a message begins like the header of one; lengths walk through all offsets.
    constexpr RingGeometry kGeometry = {.lines = 64, .body_bytes = 16384};
    Ring ring(kGeometry);
    const uint64_t looks_like_a_message = LineHeader{.bytes = 8}.pack();
    const uint32_t longest = kGeometry.short_bytes_max() + 200;
    for (uint32_t i = 0; i < 20000; ++i) {
        Message message;
        ASSERT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kNothing) << i;
        const uint32_t bytes = i * 71 % longest;
        std::vector<std::byte> data(bytes);
        for (uint32_t at = kInlineBytesMax; at + 8 <= bytes; at += kLineBytes) {
            std::memcpy(&data[at], &looks_like_a_message, 8);
        }
        const RingProducer::Room room = ring.producer.reserve(bytes, i % 3 == 0);
        ASSERT_NE(room.first, nullptr) << i;
        const uint32_t first = std::min(bytes, kInlineBytesMax);
        std::copy_n(data.data(), first, room.first);
        if (bytes > first) std::copy_n(data.data() + first, bytes - first, room.rest);
        ring.producer.commit(MessageClass::kHost, 0, bytes);
        ASSERT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kMessage) << i;
        ASSERT_EQ(message.bytes, bytes);
        ASSERT_TRUE(std::equal(data.begin(), data.end(), message.data)) << i;
        ring.consumer.take(message);
        ring.consumer.release();
    }
}

TEST(Ring, a_message_written_in_one_piece_is_read_in_one_piece) {
    Ring ring({.lines = 64, .body_bytes = 16384});
    for (uint32_t bytes : {1u, 56u, 57u, 1000u, 1100u, 8000u}) {
        std::byte* room = ring.producer.reserve_whole(bytes, false);
        ASSERT_NE(room, nullptr);
        std::memset(room, 0x5a, bytes);
        ring.producer.commit(MessageClass::kHost, 0, bytes, true);
        ASSERT_TRUE(ring.receive(bytes, 0x5a)) << bytes;
    }
}

TEST(Ring, impossible_length_is_garbage) {
    Ring ring(kSmall);
    const LineHeader header = {.bytes = kSmall.message_bytes_max() + 1};
    RingView(ring.memory, kSmall).lines[0].header.store(header.pack());
    Message message;
    EXPECT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kGarbage);
}

TEST(Ring, impossible_progress_of_the_consumer_is_not_believed) {
    Ring ring(kSmall);
    for (uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(ring.send(8, i));
    RingControl* control = RingView(ring.memory, kSmall).control;
    for (uint64_t lie : {uint64_t{4}, uint64_t{1} << 40, UINT64_MAX}) {
        control->consumed.lines.store(lie);
        EXPECT_FALSE(ring.send(8, 9)) << lie;
    }
    control->consumed.lines.store(1);
    EXPECT_TRUE(ring.send(8, 9));
}

TEST(Ring, header_survives_packing) {
    const LineHeader header = {
        .message_class = MessageClass::kEngine, .tag = 0xef, .bytes = 0x12345678, .measure = true};
    const LineHeader again = LineHeader::unpack(header.pack());
    EXPECT_EQ(again.kind, LineHeader::Kind::kMessage);
    EXPECT_EQ(again.measure, true);
    EXPECT_EQ(again.whole, false);
    EXPECT_EQ(again.message_class, header.message_class);
    EXPECT_EQ(again.tag, header.tag);
    EXPECT_EQ(again.bytes, header.bytes);
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
