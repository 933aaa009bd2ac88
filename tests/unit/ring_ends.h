/// A ring with both of its ends in one process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "velo/shm/ring.h"

namespace velo::shm {

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
    /// Sends by try_send_line, in two parts; bytes <= kInlineBytesMax. False: the ring is full.
    bool try_send_line(uint32_t bytes, uint8_t fill, uint8_t tag = 0) {
        std::byte data[kInlineBytesMax];
        std::memset(data, fill, sizeof data);
        bool wake = false;
        return producer.try_send_line({data, data, bytes / 3, bytes - bytes / 3}, tag, wake);
    }
    /// Sends by try_send_ready_line. False: the next line is not clear.
    bool try_send_ready_line(uint32_t bytes, uint8_t fill, uint8_t tag = 0) {
        bool wake = false;
        return producer.try_send_ready_line(bytes, tag, wake, [&](std::byte* to) { std::memset(to, fill, bytes); });
    }
    /// Sends by try_send_lines, in two parts. False: the message does not fit the lines.
    bool try_send_lines(uint32_t bytes, uint8_t fill, uint8_t tag = 0) {
        const std::vector<std::byte> data(bytes, std::byte{fill});
        const uint32_t header = std::min(bytes, 14u);
        bool wake = false;
        return producer.try_send_lines({data.data(), data.data() + header, header, bytes - header}, tag, wake);
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

}  // namespace velo::shm
