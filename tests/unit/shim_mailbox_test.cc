// The mailbox by itself, and with many writers at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "sim_device/shim/mailbox.h"

namespace velo::shim {
namespace {

/// A mailbox in private memory.
struct Box {
    explicit Box(uint32_t slots) : packets(slots), reader(&control, packets.data(), slots) {}
    [[nodiscard]] MailboxWriter writer() {
        return {&control, packets.data(), static_cast<uint32_t>(packets.size())};
    }

    MailboxControl control = {};
    std::vector<Packet> packets;
    MailboxReader reader;
};

auto numbered(uint64_t number) {
    return [number](uint32_t i, std::byte* payload) {
        const uint64_t value = number + i;
        for (size_t at = 0; at < kPayloadBytes; at += 8) std::memcpy(payload + at, &value, 8);
        return PacketStatus{.length = kPayloadBytes};
    };
}

/// The number in a packet, or UINT64_MAX when its bytes are of different packets.
uint64_t number_in(const Packet& packet) {
    std::array<uint64_t, kPayloadBytes / 8> values;
    std::memcpy(values.data(), packet.payload, kPayloadBytes);
    for (const uint64_t value : values) {
        if (value != values[0]) return UINT64_MAX;
    }
    return values[0];
}

TEST(MailboxPlace, stepping_and_moving_agree_with_division) {
    for (const uint32_t slots : {1u, 2u, 3u, 7u, 64u, 100u}) {
        MailboxPlace stepped(slots);
        MailboxPlace moved(slots);
        for (uint64_t position = 0; position < 300ull * slots; ++position, stepped.step()) {
            ASSERT_EQ(stepped.position(), position);
            ASSERT_EQ(stepped.slot(), position % slots);
            ASSERT_EQ(stepped.lap(), static_cast<uint8_t>(1 + position / slots));
            if (position % 5 != 0) continue;
            moved.move_to(position);
            ASSERT_EQ(moved.slot(), stepped.slot());
            ASSERT_EQ(moved.lap(), stepped.lap());
        }
        moved.move_to(uint64_t{1} << 60);
        ASSERT_EQ(moved.slot(), (uint64_t{1} << 60) % slots);
        moved.move_to(5);
        ASSERT_EQ(moved.slot(), 5 % slots);
    }
}

TEST(Mailbox, slots_that_were_never_written_show_nothing) {
    Box box(3);
    EXPECT_EQ(box.reader.peek(), nullptr);
    EXPECT_FALSE(box.reader.readable());
}

TEST(Mailbox, a_run_of_alike_packets_ends_where_the_status_does_and_wraps_around) {
    constexpr uint32_t kSlots = 7;
    Box box(kSlots);
    MailboxWriter writer = box.writer();
    std::array<std::byte, kSlots * kPayloadBytes + 1> to;
    uint64_t number = 0;
    // So that runs begin at every slot, and laps wrap.
    for (uint32_t message = 0; message < 600 * kSlots; ++message) {
        const uint32_t run = 1 + message % (kSlots - 1);
        writer.write(run + 1, 9, [&](uint32_t i, std::byte* payload) {
            PacketStatus status = numbered(number)(i, payload);
            status.end_of_message = i == run;
            return status;
        });
        ASSERT_NE(box.reader.peek(), nullptr);
        const uint32_t max = message % 2 == 0 ? kSlots : run / 2 + 1;
        const uint32_t expected = std::min(run, max);
        to[expected * kPayloadBytes] = std::byte{0x5a};
        ASSERT_EQ(box.reader.take_run(to.data(), max), expected) << "message " << message;
        ASSERT_EQ(to[expected * kPayloadBytes], std::byte{0x5a}) << "more was written than was taken";
        for (uint32_t i = 0; i < expected; ++i) {
            Packet packet;
            std::memcpy(packet.payload, to.data() + i * kPayloadBytes, kPayloadBytes);
            ASSERT_EQ(number_in(packet), number + i);
        }
        for (uint32_t i = expected; i <= run; ++i, box.reader.advance()) {
            const Packet* packet = box.reader.peek();
            ASSERT_NE(packet, nullptr);
            ASSERT_EQ(number_in(*packet), number + i);
        }
        ASSERT_EQ(box.reader.peek(), nullptr);
        number += run + 1;
    }
    EXPECT_EQ(box.reader.overflows(), 0u);
}

TEST(Mailbox, overwritten_packets_are_counted_exactly_and_the_newest_stand) {
    for (const uint32_t slots : {1u, 5u, 64u}) {
        for (const uint32_t extra : {1u, 2u, 4u, 5u, 11u, 64u, 150u, 1000u}) {
            Box box(slots);
            MailboxWriter writer = box.writer();
            for (uint64_t number = 0; number < slots + extra; ++number) writer.write(1, 0, numbered(number));
            for (uint64_t number = extra; number < slots + extra; ++number) {
                const Packet* packet = box.reader.peek();
                ASSERT_NE(packet, nullptr);
                ASSERT_EQ(number_in(*packet), number);
                ASSERT_EQ(box.reader.overflows(), extra);
                box.reader.advance();
            }
            EXPECT_EQ(box.reader.peek(), nullptr);
            EXPECT_EQ(box.reader.overflows(), extra);
            writer.write(1, 0, numbered(77));
            ASSERT_NE(box.reader.peek(), nullptr);
        }
    }
}

TEST(Mailbox, being_passed_by_any_number_of_laps_is_found_by_the_write_index) {
    for (const uint32_t laps : {255u, 256u, 512u, 10'000u}) {
        Box box(3);
        MailboxWriter writer = box.writer();
        for (uint64_t number = 0; number < 3ull * laps; ++number) writer.write(1, 0, numbered(number));
        box.reader.skip_overwritten();
        EXPECT_EQ(box.reader.overflows(), 3ull * (laps - 1));
        for (uint64_t number = 3ull * (laps - 1); number < 3ull * laps; ++number) {
            ASSERT_NE(box.reader.peek(), nullptr);
            EXPECT_EQ(number_in(*box.reader.peek()), number);
            box.reader.advance();
        }
    }
}

TEST(Mailbox, a_packet_overwritten_while_it_is_shown_is_counted) {
    Box box(2);
    MailboxWriter writer = box.writer();
    writer.write(2, 0, numbered(0));
    ASSERT_NE(box.reader.peek(), nullptr);
    writer.write(1, 0, numbered(2));
    box.reader.advance();
    EXPECT_EQ(box.reader.overflows(), 1u);
    ASSERT_NE(box.reader.peek(), nullptr);
    EXPECT_EQ(number_in(*box.reader.peek()), 1u);
}

TEST(Mailbox, a_lap_that_cannot_be_waits_for_the_rightful_packet) {
    for (int lap = 0; lap < 256; ++lap) {
        if (lap == 1) continue;  // this one is due
        Box box(4);
        box.packets[0].status = PacketStatus{.lap = static_cast<uint8_t>(lap)}.pack();
        EXPECT_EQ(box.reader.peek(), nullptr);
        MailboxWriter writer = box.writer();
        writer.write(1, 0, numbered(5));
        ASSERT_NE(box.reader.peek(), nullptr);
        EXPECT_EQ(number_in(*box.reader.peek()), 5u);
        EXPECT_EQ(box.reader.overflows(), 0u);
    }
}

TEST(Mailbox, garbage_indices_refuse_guarded_senders_and_end_every_call) {
    for (const uint64_t garbage : {uint64_t{1} << 63, UINT64_MAX, uint64_t{9}}) {
        Box box(4);
        MailboxWriter writer = box.writer();
        ASSERT_EQ(writer.write_guarded(4, 0, numbered(0)), Status::kOk);
        box.control.read = garbage;
        EXPECT_EQ(writer.write_guarded(1, 0, numbered(0)), Status::kAgain);
        box.control.written = garbage;
        box.reader.abandon_before(box.reader.claimed());
        for (int i = 0; i < 20; ++i) {
            if (box.reader.peek() != nullptr) box.reader.advance();
            writer.write(3, 0, numbered(0));
        }
    }
}

TEST(Mailbox, abandoned_slots_are_passed_over_and_filled_ones_among_them_are_not) {
    Box box(8);
    MailboxWriter writer = box.writer();
    writer.write(1, 0, numbered(0));
    box.control.written += 3;  // a sender claims and dies
    writer.write(1, 0, numbered(4));
    ASSERT_EQ(number_in(*box.reader.peek()), 0u);
    box.reader.advance();
    EXPECT_EQ(box.reader.peek(), nullptr);
    EXPECT_EQ(box.reader.claimed(), 5u);
    box.reader.abandon_before(5);
    ASSERT_NE(box.reader.peek(), nullptr);
    EXPECT_EQ(number_in(*box.reader.peek()), 4u);
    box.reader.advance();
    for (uint64_t number = 5; number < 3000; ++number) {
        ASSERT_EQ(box.reader.peek(), nullptr);
        ASSERT_EQ(writer.write_guarded(1, 0, numbered(number)), Status::kOk);
        ASSERT_EQ(number_in(*box.reader.peek()), number);
        box.reader.advance();
    }
    EXPECT_EQ(box.reader.overflows(), 0u);
}

TEST(Mailbox, guarded_writers_at_once_lose_and_reorder_nothing) {
    constexpr uint64_t kWriters = 3;
    constexpr uint64_t kEach = 15'000;
    Box box(7);
    std::vector<std::thread> threads;
    for (uint64_t w = 0; w < kWriters; ++w) {
        threads.emplace_back([&box, w] {
            MailboxWriter writer = box.writer();
            for (uint64_t sent = 0; sent < kEach;) {
                const auto batch = static_cast<uint32_t>(std::min<uint64_t>(1 + sent % 4, kEach - sent));
                if (writer.write_guarded(batch, static_cast<uint32_t>(w), numbered(sent)) == Status::kOk) {
                    sent += batch;
                } else {
                    std::this_thread::yield();
                }
            }
        });
    }
    std::array<uint64_t, kWriters> next = {};
    for (uint64_t read = 0; read < kWriters * kEach;) {
        const Packet* packet = box.reader.peek();
        if (packet == nullptr) {
            std::this_thread::yield();
            continue;
        }
        const uint16_t source = PacketStatus::unpack(box.reader.shown_status()).node;
        ASSERT_LT(source, kWriters);
        ASSERT_EQ(number_in(*packet), next[source]++);
        box.reader.advance();
        ++read;
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(box.reader.overflows(), 0u);
}

/// Each writer holds a share of the slots as credits, gets them back by a plain counter, and looks at no
/// index of the reader.
TEST(Mailbox, credited_writers_at_once_never_overwrite) {
    constexpr uint64_t kWriters = 3;
    constexpr uint64_t kCredits = 5;
    constexpr uint64_t kEach = 15'000;
    Box box(kWriters * kCredits);
    std::array<std::atomic<uint64_t>, kWriters> returned = {};
    std::vector<std::thread> threads;
    for (uint64_t w = 0; w < kWriters; ++w) {
        threads.emplace_back([&, w] {
            MailboxWriter writer = box.writer();
            for (uint64_t sent = 0; sent < kEach; ++sent) {
                while (sent - returned[w].load(std::memory_order_acquire) >= kCredits)
                    std::this_thread::yield();
                writer.write(1, static_cast<uint32_t>(w), numbered(sent));
            }
        });
    }
    std::array<uint64_t, kWriters> next = {};
    for (uint64_t read = 0; read < kWriters * kEach;) {
        const Packet* packet = box.reader.peek();
        if (packet == nullptr) {
            std::this_thread::yield();
            continue;
        }
        const uint16_t source = PacketStatus::unpack(box.reader.shown_status()).node;
        ASSERT_LT(source, kWriters);
        ASSERT_EQ(number_in(*packet), next[source]++);
        box.reader.advance();
        returned[source].store(next[source], std::memory_order_release);
        ++read;
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(box.reader.overflows(), 0u);
}

}  // namespace
}  // namespace velo::shim
