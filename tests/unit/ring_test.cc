#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "ring_ends.h"

namespace velo::shm {
namespace {

constexpr RingGeometry kSmall = {.lines = 4, .body_bytes = 4096};

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
    // However much of the lap the bodies before it left, an empty ring takes the longest message.
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
    for (uint64_t lie : {uint64_t{8}, uint64_t{1} << 40, UINT64_MAX}) {
        control->consumed.cells.store(lie);
        EXPECT_FALSE(ring.send(8, 9)) << lie;
    }
    control->consumed.cells.store(2);
    EXPECT_TRUE(ring.send(8, 9));
}

TEST(Ring, header_survives_packing) {
    const LineHeader header = {
        .message_class = MessageClass::kEngine, .tag = 0xef, .bytes = 0x12345678, .measure = true, .new_lap = true};
    const LineHeader again = LineHeader::unpack(header.pack());
    EXPECT_EQ(again.new_lap, true);
    EXPECT_EQ(again.kind, LineHeader::Kind::kMessage);
    EXPECT_EQ(again.measure, true);
    EXPECT_EQ(again.whole, false);
    EXPECT_EQ(again.message_class, header.message_class);
    EXPECT_EQ(again.tag, header.tag);
    EXPECT_EQ(again.bytes, header.bytes);
}

/// A message of the engine's that asks for data, which may be marked to be measured.
void request(Ring& ring) {
    ASSERT_NE(ring.producer.reserve(8, false).first, nullptr);
    std::memset(ring.producer.reserve(8, false).first, 0, 8);
    ring.producer.commit(MessageClass::kEngine, 0, 8);
}

TEST(Ring, marked_messages_that_are_taken_one_after_the_other_measure_once) {
    Ring ring({.lines = 16, .body_bytes = 4096});
    auto& consumed = RingView(ring.memory, ring.geometry).control->consumed;
    constexpr uint64_t kMarked = MeasurePlan::kFirst;
    std::array<uint64_t, kProbeLines> written{};
    for (uint64_t number = 1; number <= kMarked; ++number) {
        request(ring);
        for (const uint8_t line : probe_order(number)) written[line] = number;
    }
    uint64_t largest = 0, times = 0;
    for (uint64_t number = 1; number <= kMarked; ++number) {
        uint64_t found = 0;
        for (const uint8_t line : probe_order(number)) found = std::max(found, written[line]);
        consumed.last_ns.store(0);
        ASSERT_TRUE(ring.receive(8, 0));
        EXPECT_EQ(consumed.last_ns.load() != 0, found > largest) << number;
        largest = std::max(largest, found);
        times += consumed.last_ns.load() != 0 ? 1 : 0;
        EXPECT_EQ(consumed.measured.load(), largest);
    }
    EXPECT_LT(times, kMarked);
}

TEST(Ring, a_time_that_contradicts_is_measured_again_with_the_next_request) {
    Ring ring({.lines = 16, .body_bytes = 4096});
    RingControl& control = *RingView(ring.memory, ring.geometry).control;
    /// The last measurement that begins when one more request is sent; its time is then said to be `ns`.
    const auto begun_with_one_more = [&](uint32_t ns) {
        request(ring);
        EXPECT_TRUE(ring.receive(8, 0));
        control.consumed.last_ns.store(ns);
        uint64_t begun = 0;
        for (const ProbeLine& line : control.probe) begun = std::max(begun, line.word.load());
        return begun;
    };
    for (int i = 0; i < 10; ++i) EXPECT_EQ(begun_with_one_more(30), std::min(i + 1, 4)) << i;
    ring.producer.measure_next();
    EXPECT_EQ(begun_with_one_more(300), 5u);
    EXPECT_EQ(begun_with_one_more(300), 6u);
    EXPECT_EQ(begun_with_one_more(30), 7u);
    EXPECT_EQ(begun_with_one_more(30), 7u);
}

constexpr RingGeometry kDeep = {.lines = 256, .body_bytes = 1u << 20};

/// Bytes of a ring's body area that messages of `bytes` come to use, if each is read before the next one is written.
size_t depth_used(Ring& ring, uint32_t bytes, int messages) {
    const std::byte* const bodies = RingView(ring.memory, kDeep).bodies;
    size_t depth = 0;
    for (int i = 0; i < messages; ++i) {
        EXPECT_TRUE(ring.send(bytes, static_cast<uint8_t>(i)));
        Message message;
        EXPECT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kMessage);
        depth = std::max(depth, static_cast<size_t>(message.data + bytes - bodies));
        EXPECT_TRUE(ring.receive(bytes, static_cast<uint8_t>(i)));
    }
    return depth;
}

TEST(Ring, a_ring_that_carries_little_stays_shallow) {
    for (const uint32_t bytes : {4096u, 16384u, 32814u}) {
        Ring ring(kDeep);
        EXPECT_LE(depth_used(ring, bytes, static_cast<int>((3u << 20) / bytes)), 128u << 10);
        EXPECT_GT(depth_used(ring, bytes, static_cast<int>((8u << 20) / bytes)), 900u << 10);
    }
}

TEST(Ring, a_message_that_needs_more_pages_than_there_are_gets_them) {
    Ring ring(kDeep);
    EXPECT_LE(depth_used(ring, 4096, 10), 128u << 10);
    EXPECT_GT(depth_used(ring, kDeep.message_bytes_max(), 3), 500u << 10);
}

TEST(Ring, unread_messages_take_the_whole_depth_at_once) {
    Ring ring(kDeep);
    constexpr uint32_t kBytes = 16384;
    EXPECT_LE(depth_used(ring, kBytes, 20), 128u << 10);
    uint8_t sent = 0;
    while (ring.send(kBytes, sent)) ++sent;
    EXPECT_GE(sent, 60u);
    // The consumer stands before what the new lap skipped.
    EXPECT_FALSE(ring.producer.garbled());
    EXPECT_LE(ring.producer.fill().body_written - ring.producer.fill().body_read, kDeep.body_bytes);
    for (uint8_t i = 0; i < sent; ++i) ASSERT_TRUE(ring.receive(kBytes, i));
}

TEST(Ring, what_is_unread_behind_a_lap_that_began_early_is_within_the_ring) {
    Ring ring(kDeep);
    constexpr uint32_t kBytes = 10000;
    // To just below the pages that there are, and all is read.
    for (uint8_t i = 0; i < 12; ++i) {
        ASSERT_TRUE(ring.send(kBytes, i));
        ASSERT_TRUE(ring.receive(kBytes, i));
    }
    ASSERT_TRUE(ring.send(2 * kBytes, 99));
    uint8_t sent = 0;
    while (sent < 200 && ring.send(kBytes, sent)) {
        ++sent;
        ASSERT_FALSE(ring.producer.garbled()) << "after message " << int{sent};
        ASSERT_LE(ring.producer.fill().body_written - ring.producer.fill().body_read, kDeep.body_bytes);
    }
    EXPECT_GE(sent, 12u);
    EXPECT_TRUE(ring.receive(2 * kBytes, 99));
    for (uint8_t i = 0; i < sent; ++i) ASSERT_TRUE(ring.receive(kBytes, i));
}

TEST(Ring, a_line_is_ready_for_the_next_message_when_the_one_behind_it_is_clear) {
    std::mt19937 random(7);
    Ring ring({.lines = 8, .body_bytes = 4096});
    std::deque<std::pair<uint32_t, uint8_t>> unread;
    for (int step = 0; step < 100'000; ++step) {
        if (random() % 2 != 0) {
            const uint32_t bytes = random() % 2 != 0 ? 8 : kInlineBytesMax;
            const auto fill = static_cast<uint8_t>(step % 251);
            if (ring.try_send_ready_line(bytes, fill) || (random() % 2 != 0 && ring.try_send_line(bytes, fill)))
                unread.emplace_back(bytes, fill);
        } else if (!unread.empty()) {
            ASSERT_TRUE(ring.receive(unread.front().first, unread.front().second)) << step;
            unread.pop_front();
        } else {
            Message message;
            ASSERT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kNothing) << step;
        }
    }
}

TEST(Ring, messages_of_all_lengths_arrive_whole_while_the_ring_becomes_deep) {
    Ring ring(kDeep);
    std::mt19937 random(5);
    std::deque<std::pair<uint32_t, uint8_t>> unread;
    for (uint64_t carried = 0; carried < 24u << 20;) {
        const auto bytes = static_cast<uint32_t>(random() % (random() % 16 == 0 ? kDeep.message_bytes_max() : 40'000));
        const auto fill = static_cast<uint8_t>(random());
        if (ring.send(bytes, fill, 0, random() % 2 == 0)) {
            unread.emplace_back(bytes, fill);
            carried += bytes;
        }
        const size_t left = random() % 4 == 0 ? 0 : random() % 8;
        for (; unread.size() > left; unread.pop_front())
            ASSERT_TRUE(ring.receive(unread.front().first, unread.front().second)) << carried;
    }
}

TEST(Ring, two_short_messages_share_a_line_and_a_third_does_not) {
    Ring ring(kSmall);
    for (uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(ring.try_send_line(kCellBytesMax, i));
    uintptr_t line[3];
    for (uint8_t i = 0; i < 3; ++i) {
        Message message;
        ASSERT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kMessage);
        line[i] = reinterpret_cast<uintptr_t>(message.data) / kLineBytes;
        ASSERT_TRUE(ring.receive(kCellBytesMax, i));
    }
    EXPECT_EQ(line[0], line[1]);
    EXPECT_EQ(line[1] + 1, line[2]);
}

TEST(Ring, a_message_that_does_not_fit_a_cell_follows_in_the_next_line) {
    for (const bool line : {true, false}) {
        Ring ring(kSmall);
        ASSERT_TRUE(ring.try_send_line(8, 1));
        ASSERT_TRUE(line ? ring.try_send_line(kCellBytesMax + 1, 2) : ring.send(kCellBytesMax + 1, 2));
        // The cell behind the first is not for one that comes later.
        ASSERT_TRUE(ring.try_send_line(8, 3));
        ASSERT_TRUE(ring.receive(8, 1));
        ASSERT_TRUE(ring.receive(kCellBytesMax + 1, 2));
        ASSERT_TRUE(ring.receive(8, 3));
    }
}

TEST(Ring, a_line_whose_second_cell_is_open_is_not_written_again) {
    Ring ring(kSmall);
    ASSERT_TRUE(ring.try_send_line(8, 1));
    ASSERT_TRUE(ring.receive(8, 1));
    // Two lines more and the one that is clear: the first would be the next.
    ASSERT_TRUE(ring.send(8, 2));
    ASSERT_TRUE(ring.send(8, 3));
    EXPECT_FALSE(ring.send(8, 4));
    ASSERT_TRUE(ring.receive(8, 2));
    EXPECT_TRUE(ring.send(8, 4)) << "it is given back with the line behind it";
    ASSERT_TRUE(ring.receive(8, 3));
    ASSERT_TRUE(ring.receive(8, 4));
}

TEST(Ring, every_message_finds_room_while_a_second_cell_stays_open) {
    for (const uint32_t lines : {4u, 8u, 16u, 64u}) {
        const RingGeometry geometry = {.lines = lines, .body_bytes = 4096};
        const uint32_t shorts = geometry.short_bytes_max();
        for (uint32_t before = 0; before < 2 * lines; ++before) {
            for (const uint32_t bytes : {0u, kInlineBytesMax, shorts, geometry.message_bytes_max()}) {
                Ring ring(geometry);
                for (uint32_t i = 0; i < before; ++i) {
                    ASSERT_TRUE(ring.send(8, 1));
                    ASSERT_TRUE(ring.receive(8, 1));
                }
                ASSERT_TRUE(ring.try_send_line(8, 2));
                ASSERT_TRUE(ring.receive(8, 2));
                ASSERT_TRUE(ring.send(bytes, 3)) << lines << " lines, " << before << " before, " << bytes;
                ASSERT_TRUE(ring.receive(bytes, 3));
            }
        }
    }
}

TEST(Ring, fill_counts_what_is_unread_whether_a_second_cell_is_open_or_not) {
    Ring ring(kSmall);
    const auto unread = [&] { return ring.producer.fill().lines_written - ring.producer.fill().lines_read; };
    EXPECT_EQ(unread(), 0u);
    ASSERT_TRUE(ring.try_send_line(8, 1));
    EXPECT_EQ(unread(), 1u);
    ASSERT_TRUE(ring.receive(8, 1));
    EXPECT_EQ(unread(), 0u) << "the cell is open and empty";
    ASSERT_TRUE(ring.try_send_line(8, 2));
    EXPECT_EQ(unread(), 1u);
    ASSERT_TRUE(ring.receive(8, 2));
    EXPECT_EQ(unread(), 0u);
    ASSERT_TRUE(ring.try_send_line(8, 3));
    ASSERT_TRUE(ring.receive(8, 3));
    ASSERT_TRUE(ring.send(8, 4));
    EXPECT_GE(unread(), 1u);
    ASSERT_TRUE(ring.receive(8, 4));
    EXPECT_EQ(unread(), 0u) << "the cell was never used";
}

TEST(Ring, a_cell_in_use_is_not_given_back_by_nested_messages) {
    Ring ring(kSmall);
    ASSERT_TRUE(ring.try_send_line(8, 1));
    ASSERT_TRUE(ring.try_send_line(8, 2));
    ASSERT_TRUE(ring.send(8, 3));
    Message outer;
    ASSERT_EQ(ring.consumer.peek(outer), RingConsumer::Peek::kMessage);
    ring.consumer.take(outer);
    ASSERT_TRUE(ring.receive(8, 2));
    ASSERT_TRUE(ring.receive(8, 3));
    ASSERT_TRUE(ring.try_send_line(8, 4));
    ASSERT_TRUE(ring.receive(8, 4));
    EXPECT_FALSE(ring.try_send_line(kInlineBytesMax, 9));
    EXPECT_EQ(outer.data[7], std::byte{1});
    ring.consumer.release();
    EXPECT_TRUE(ring.try_send_line(kInlineBytesMax, 9));
    EXPECT_TRUE(ring.receive(kInlineBytesMax, 9));
}

TEST(Ring, nothing_is_passed_over_when_the_producer_acts_between_two_looks) {
    // Messages that the producer sends before the consumer's looks at header words: of a cell, or of a line.
    const uint32_t kCell = 8;
    const uint32_t kLine = 40;
    const std::vector<std::vector<uint32_t>> sent = {{kCell},        {kLine},        {kCell, kCell},
                                                     {kCell, kLine}, {kLine, kCell}, {kCell, kCell, kCell}};
    for (const std::vector<uint32_t>& messages : sent) {
        // The first `early` of them before look `first`, the others before look `second`.
        for (size_t early = 0; early <= messages.size(); ++early) {
            for (uint32_t first = 0; first < 4; ++first) {
                for (uint32_t second = first; second < 4; ++second) {
                    Ring ring({.lines = 8, .body_bytes = 4096});
                    ASSERT_TRUE(ring.try_send_line(kCell, 99));
                    ASSERT_TRUE(ring.receive(kCell, 99));
                    size_t done = 0;
                    uint32_t looks = 0;
                    const auto send_to = [&](size_t end) {
                        for (; done < end; ++done) {
                            ASSERT_TRUE(ring.try_send_line(messages[done], static_cast<uint8_t>(done)));
                        }
                    };
                    const uint64_t word = ring.consumer.word([&](const std::atomic<uint64_t>& header) {
                        if (looks >= first) send_to(early);
                        if (looks++ >= second) send_to(messages.size());
                        return header.load();
                    });
                    if (word != 0) {
                        EXPECT_EQ(LineHeader::bytes_of(word), messages[0]);
                    }
                    send_to(messages.size());
                    for (size_t i = 0; i < messages.size(); ++i) {
                        ASSERT_TRUE(ring.receive(messages[i], static_cast<uint8_t>(i)));
                    }
                }
            }
        }
    }
}

TEST(Ring, what_cannot_be_in_a_second_cell_is_garbage) {
    const LineHeader impossible[] = {
        {.kind = LineHeader::Kind::kSkip},
        {.kind = static_cast<LineHeader::Kind>(3), .bytes = 8},
        {.message_class = MessageClass::kEngine, .bytes = 8},
        {.bytes = kCellBytesMax + 1},
        {.bytes = kInlineBytesMax},
        {.bytes = UINT32_MAX},
        {.bytes = 8, .measure = true},
        {.bytes = kInlineBytesMax + 8, .in_body = true},
        {.bytes = 8, .whole = true},
        {.bytes = 0, .half = true},
        {.bytes = 8, .half = true},
    };
    for (const LineHeader& header : impossible) {
        Ring ring(kSmall);
        ASSERT_TRUE(ring.try_send_line(8, 1));
        ASSERT_TRUE(ring.receive(8, 1));
        Cell::second_of(RingView(ring.memory, kSmall).lines[0]).header.store(header.pack());
        Message message;
        EXPECT_FALSE(ring.consumer.is_of_line(ring.consumer.word())) << std::hex << header.pack();
        EXPECT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kGarbage) << std::hex << header.pack();
    }
}

TEST(Ring, a_line_in_halves_that_holds_more_than_a_cell_is_garbage) {
    for (const uint32_t bytes : {kCellBytesMax + 1, kInlineBytesMax, kInlineBytesMax + 1, 2000u}) {
        Ring ring({.lines = 256, .body_bytes = 16384});
        for (const bool in_body : {false, true}) {
            const LineHeader header = {.bytes = bytes, .in_body = in_body, .half = true};
            RingView(ring.memory, ring.geometry).lines[0].header.store(header.pack());
            Message message;
            EXPECT_FALSE(ring.consumer.is_of_line(ring.consumer.word())) << bytes;
            EXPECT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kGarbage) << bytes;
        }
    }
}

TEST(Ring, a_message_of_lines_is_known_by_its_word) {
    for (const uint32_t bytes : {kInlineBytesMax + 1, 120u, 121u, kFewLinesBytesMax, 2104u}) {
        Ring ring({.lines = 256, .body_bytes = 8192});
        ASSERT_TRUE(ring.try_send_lines(bytes, 5, 9));
        const uint64_t word = ring.consumer.word();
        EXPECT_FALSE(ring.consumer.is_of_line(word)) << bytes;
        ASSERT_TRUE(ring.consumer.is_of_lines(word)) << bytes;
        uint32_t lines = 0;
        const std::byte* const data = ring.consumer.take_lines(word, lines);
        EXPECT_EQ(lines, RingGeometry::lines_of(bytes));
        EXPECT_EQ(ring.consumer.position(), lines);
        for (uint32_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], std::byte{5});
        ring.consumer.release();
        EXPECT_TRUE(ring.send(bytes, 6));
        EXPECT_TRUE(ring.receive(bytes, 6));
    }
}

TEST(Ring, messages_of_few_lines_stay_in_the_lines_in_streams_too) {
    for (const uint32_t lines : {8u, 256u}) {
        Ring ring({.lines = lines, .body_bytes = 8192});
        const uint32_t most = std::min(kFewLinesBytesMax, ring.geometry.short_bytes_max());
        for (const uint32_t bytes : {kInlineBytesMax + 1, most}) {
            ASSERT_TRUE(ring.send(bytes, 5, 9, true));
            EXPECT_TRUE(ring.consumer.is_of_lines(ring.consumer.word())) << bytes;
            EXPECT_TRUE(ring.receive(bytes, 5));
        }
        ASSERT_TRUE(ring.send(most + 1, 6, 9, true));
        EXPECT_FALSE(ring.consumer.is_of_lines(ring.consumer.word()));
        EXPECT_TRUE(ring.receive(most + 1, 6));
    }
}

TEST(Ring, lines_that_would_pass_the_end_of_the_area_or_hold_something_else_are_not_taken) {
    const LineHeader others[] = {{.message_class = MessageClass::kEngine, .bytes = 100},
                                 {.bytes = 100, .measure = true},
                                 {.bytes = 100, .in_body = true},
                                 {.bytes = 100, .whole = true},
                                 {.bytes = 100, .half = true},
                                 {.bytes = 2105},
                                 {.kind = LineHeader::Kind::kSkip, .bytes = 100}};
    for (const LineHeader& header : others) {
        Ring ring({.lines = 64, .body_bytes = 8192});
        RingView(ring.memory, ring.geometry).lines[0].header.store(header.pack());
        EXPECT_FALSE(ring.consumer.is_of_lines(ring.consumer.word())) << std::hex << header.pack();
    }
    Ring ring({.lines = 16, .body_bytes = 4096});
    for (int i = 0; i < 14; ++i) {
        ASSERT_TRUE(ring.send(30, 1));
        ASSERT_TRUE(ring.receive(30, 1));
    }
    const auto store = [&ring](uint32_t bytes) {
        RingView(ring.memory, ring.geometry).lines[14].header.store(LineHeader{.bytes = bytes}.pack());
    };
    store(120);
    EXPECT_TRUE(ring.consumer.is_of_lines(ring.consumer.word()));
    store(121);
    EXPECT_FALSE(ring.consumer.is_of_lines(ring.consumer.word())) << "three lines, two before the end";
    Message message;
    EXPECT_EQ(ring.consumer.peek(message), RingConsumer::Peek::kGarbage);
}

}  // namespace
}  // namespace velo::shm
