// A part of a message on the wire: runs and slots.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "velo/ofi/parts.h"

namespace velo::ofi {
namespace {

constexpr uint32_t kSource = source_of(3, 5);

/// Messages one behind the other, each of which may be asked for as a run but for its last packet.
struct Messages {
    const std::vector<std::byte>& data;   ///< of all packets
    const std::vector<uint32_t>& lengths;  ///< in packets

    [[nodiscard]] uint32_t left(uint32_t index) const {
        for (const uint32_t length : lengths) {
            if (index < length) return length - index;
            index -= length;
        }
        return 0;
    }
    [[nodiscard]] PacketStatus status() const { return {.tag = 9, .length = kPayloadBytes}; }
    [[nodiscard]] PacketRun run(uint32_t index) const {
        const uint32_t count = left(index) - 1;
        const std::byte* const at = &data[index * kPayloadBytes];
        const size_t bytes = count * kPayloadBytes;
        const size_t front = bytes / 3;
        return {.data = {at, at + front}, .bytes = {front, bytes - front}, .status = status(), .count = count};
    }
    PacketStatus operator()(uint32_t index, std::byte* payload) const {
        std::memcpy(payload, &data[index * kPayloadBytes], kPayloadBytes);
        PacketStatus last = status();
        last.end_of_message = left(index) == 1;
        return last;
    }
};

TEST(Parts, a_run_is_no_longer_than_its_packets) {
    for (uint32_t packets = kRunPacketsMin; packets < 10'000; ++packets) {
        EXPECT_LE(run_bytes(packets), packets * kPacketBytes) << packets;
        EXPECT_GE(run_bytes(packets), kPacketBytes + packets * kPayloadBytes) << packets;
        EXPECT_EQ(run_bytes(packets) % kPacketBytes, 0u);
    }
}

TEST(Parts, any_part_of_messages_reads_as_it_was_written) {
    std::mt19937 random(7);
    for (int round = 0; round < 3000; ++round) {
        std::vector<uint32_t> lengths(1 + random() % 4);
        uint32_t packets = 0;
        for (uint32_t& length : lengths) packets += length = 1 + random() % 100;
        std::vector<std::byte> data(packets * kPayloadBytes);
        for (std::byte& byte : data) byte = static_cast<std::byte>(random());
        const Messages messages = {data, lengths};
        const uint32_t first = random() % packets;
        const uint32_t count = 1 + random() % (packets - first);
        const auto lap = static_cast<uint8_t>(random());

        std::vector<Packet> slots(count);
        const uint32_t written = write_part(slots.data(), PacketFill(messages), first, count, kSource, lap);
        ASSERT_LE(written, count);

        const auto* const bytes = reinterpret_cast<const std::byte*>(slots.data());
        uint32_t read = 0;
        for (size_t at = 0; at < written * kPacketBytes;) {
            const uint64_t word = status_at(bytes + at);
            const PacketStatus status = PacketStatus::unpack(word);
            ASSERT_EQ(source_of(word), kSource);
            ASSERT_EQ(status.lap, static_cast<uint8_t>(lap + read));
            ASSERT_EQ(status.tag, 9);
            const bool run = is_run(word);
            const uint32_t here = run ? run_packets(bytes + at) : 1;
            ASSERT_TRUE(!run || here >= kRunPacketsMin);
            ASSERT_LE(read + here, count);
            const std::byte* const payload = bytes + at + (run ? kPacketBytes : 0);
            ASSERT_EQ(std::memcmp(payload, &data[(first + read) * kPayloadBytes], here * kPayloadBytes), 0);
            ASSERT_EQ(status.end_of_message, !run && messages.left(first + read) == 1);
            read += here;
            at += run ? run_bytes(here) : kPacketBytes;
        }
        ASSERT_EQ(read, count);
    }
}

}  // namespace
}  // namespace velo::ofi
