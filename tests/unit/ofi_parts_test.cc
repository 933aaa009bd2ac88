// A part of a message on the wire: runs and slots.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <span>
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

        const std::span part(bytes, written * kPacketBytes);
        const PartReading reading = read_part(part, lap, packets);
        ASSERT_EQ(reading.verdict, PartReading::Verdict::kWhole);
        ASSERT_EQ(reading.packets, count);
        ASSERT_FALSE(reading.contact);
        ASSERT_EQ(read_part(part, static_cast<uint8_t>(lap + 1), packets).verdict, PartReading::Verdict::kGap);
        if (count > 1) {
            ASSERT_EQ(read_part(part, lap, count - 1).verdict, PartReading::Verdict::kMalformed);
        }
    }
}

TEST(Parts, a_contact_packet_comes_alone) {
    const PacketStatus contact = {.node = 3, .vpid = 5, .contact = true, .length = 8};
    std::array<Packet, 2> slots = {};
    slots[0].status = contact.pack();
    slots[1].status = PacketStatus::with_lap(contact.pack(), 1);
    const std::span part = std::as_bytes(std::span(slots));
    const PartReading alone = read_part(part.first(kPacketBytes), 0, 16);
    EXPECT_EQ(alone.verdict, PartReading::Verdict::kWhole);
    EXPECT_TRUE(alone.contact);
    EXPECT_EQ(alone.packets, 1u);
    EXPECT_EQ(read_part(part, 0, 16).verdict, PartReading::Verdict::kMalformed);
}

TEST(Parts, slots_of_two_senders_are_no_part) {
    std::array<Packet, 2> slots = {};
    slots[0].status = PacketStatus{.node = 3, .vpid = 5}.pack();
    slots[1].status = PacketStatus{.node = 3, .vpid = 6, .lap = 1}.pack();
    const std::span part = std::as_bytes(std::span(slots));
    EXPECT_EQ(read_part(part, 0, 16).verdict, PartReading::Verdict::kMalformed);
    slots[1].status = PacketStatus{.node = 3, .vpid = 5, .lap = 1, .message_class = kDeviceClass}.pack();
    EXPECT_EQ(read_part(part, 0, 16).verdict, PartReading::Verdict::kMalformed);
}

/// The address sanitizer sees a read past the end.
TEST(Parts, any_bytes_are_read_within_their_bounds) {
    std::mt19937 random(11);
    for (int round = 0; round < 20'000; ++round) {
        std::vector<std::byte> part((1 + random() % 20) * kPacketBytes);
        for (std::byte& byte : part) byte = static_cast<std::byte>(random());
        for (size_t at = 0; at < part.size(); at += kPacketBytes) {
            if (random() % 2 != 0) continue;
            const uint32_t packets = random() % 30;
            const uint64_t word = with_length(status_at(&part[at]), kRunLength);
            std::memcpy(&part[at], &packets, sizeof packets);
            std::memcpy(&part[at + kPayloadBytes], &word, sizeof word);
        }
        const PartReading reading = read_part(part, static_cast<uint8_t>(random()), 16);
        EXPECT_TRUE(reading.verdict != PartReading::Verdict::kWhole || reading.packets <= 16);
    }
}

}  // namespace
}  // namespace velo::ofi
