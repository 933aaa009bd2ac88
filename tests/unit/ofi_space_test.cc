// The geometry of receive buffers, and when a buffer may be posted again.
#include <gtest/gtest.h>

#include <random>

#include "velo/ofi/receive_space.h"

namespace velo::ofi {
namespace {

TEST(ReceiveSpace, posted_bytes_keep_the_bound_for_every_size) {
    for (uint32_t slots = 0; slots <= 1u << 24; slots += 1 + slots / 7) {
        for (const size_t control : {size_t{0}, size_t{64}, size_t{832}, size_t{53'248}, size_t{1} << 20}) {
            const ReceiveSpace space(slots, control);
            EXPECT_GE(space.posted_bytes(), space.bytes_needed()) << slots << " slots, " << control << " bytes";
            EXPECT_GE(space.buffer_bytes(), space.part_bytes());
            EXPECT_EQ(space.buffer_bytes() % kPacketBytes, 0u);
            EXPECT_GE(space.buffers(), ReceiveSpace::kBuffersMin);
            EXPECT_LE(space.buffers(), ReceiveSpace::kBuffersMax);
        }
    }
}

TEST(ReceiveSpace, no_part_is_longer_than_the_provider_takes) {
    for (const uint32_t packets_max : {kPartPacketsMin, 128u, kPartPacketsMax}) {
        for (uint32_t slots = 0; slots <= 1u << 24; slots += 1 + slots / 7) {
            const uint32_t packets = std::min(ReceiveSpace::part_packets(slots), packets_max);
            EXPECT_EQ(ReceiveSpace::part_packets(slots, packets_max), packets) << slots << " slots";
            const ReceiveSpace space(slots, 832, packets_max);
            EXPECT_EQ(space.part_bytes(), packets * kPacketBytes) << slots << " slots";
            EXPECT_GE(space.posted_bytes(), space.bytes_needed()) << slots << " slots";
        }
    }
}

TEST(ReceiveSpace, tails_waste_under_an_eighth_of_a_mailbox) {
    for (uint32_t slots = ReceiveSpace::kWasteSlots; slots <= 1u << 24; slots += 1 + slots / 7) {
        const ReceiveSpace space(slots, 0);
        EXPECT_LE(space.tail_bytes() * ReceiveSpace::kWasteShare, uint64_t{slots} * kPacketBytes) << slots;
    }
}

TEST(ReceiveSpace, a_large_mailbox_is_posted_with_half_more_at_most) {
    for (uint32_t slots = 1u << 14; slots <= 1u << 24; slots *= 2) {
        const ReceiveSpace space(slots, 0);
        EXPECT_LE(space.posted_bytes(), uint64_t{slots} * kPacketBytes * 3 / 2 + space.part_bytes() * 5) << slots;
    }
}

/// The worst that a provider and a reader can do: messages of the longest part and others, a reader that leaves one
/// packet in a buffer, senders that use all their credits at once.
TEST(ReceiveSpace, credited_packets_always_find_room) {
    for (const uint32_t slots : {1u, 5u, 64u, 200u, 2016u, 9000u, 40'000u}) {
        std::mt19937 random(slots);
        const ReceiveSpace space(slots, 0);
        struct Buffer {
            size_t left;
            uint32_t unread;
        };
        std::vector<Buffer> posted(space.buffers(), {space.buffer_bytes(), 0});
        std::vector<Buffer> filled;
        uint32_t unread = 0;
        for (int round = 0; round < 20'000; ++round) {
            const uint32_t credits = slots - unread;
            if (credits != 0 && random() % 3 != 0) {
                const uint32_t longest = std::min(credits, ReceiveSpace::part_packets(slots));
                const uint32_t packets = random() % 2 == 0 ? longest : 1 + random() % longest;
                ASSERT_FALSE(posted.empty()) << slots << " slots, round " << round;
                Buffer& buffer = posted.front();
                buffer.left -= packets * kPacketBytes;
                buffer.unread += packets;
                unread += packets;
                if (buffer.left < space.part_bytes()) {
                    filled.push_back(buffer);
                    posted.erase(posted.begin());
                }
            }
            // Most of the time the reader stops at a buffer's last packet.
            uint32_t reads = random() % 4 == 0 ? random() % (unread + 1) : 0;
            while (reads-- != 0) {
                --unread;
                if (filled.empty()) {
                    --posted.front().unread;
                    continue;
                }
                if (--filled.front().unread != 0) continue;
                filled.erase(filled.begin());
                posted.push_back({space.buffer_bytes(), 0});
            }
        }
    }
}

TEST(BufferState, is_spent_when_it_was_given_back_and_read) {
    BufferState state;
    EXPECT_FALSE(state.spent());
    state.arrived(0, 128, 2);
    state.arrived(128, 64, 1);
    state.read(1);
    state.given_back();
    EXPECT_FALSE(state.spent());
    state.read(2);
    EXPECT_TRUE(state.spent());
    state.posted();
    EXPECT_FALSE(state.spent());
}

TEST(BufferState, given_back_without_a_message_is_spent) {
    BufferState state;
    state.given_back();
    EXPECT_TRUE(state.spent());
}

TEST(BufferState, is_not_spent_while_an_earlier_message_is_still_on_its_way) {
    BufferState state;
    state.arrived(4096, 64, 1);  // the last one was reported first
    state.given_back();
    state.read(1);
    EXPECT_FALSE(state.spent());
    state.arrived(0, 4096, 0);
    EXPECT_TRUE(state.spent());
}

TEST(BufferState, one_with_a_lost_message_is_spent_and_not_used_again_at_once) {
    BufferState state;
    state.arrived(64, 64, 1);
    state.damaged();
    state.given_back();
    EXPECT_FALSE(state.spent());
    state.read(1);
    EXPECT_TRUE(state.spent());
    EXPECT_TRUE(state.is_damaged());
    state.replaced();
    EXPECT_FALSE(state.spent());
}

TEST(BufferState, messages_of_odd_lengths_count_whole_slots) {
    BufferState state;
    state.arrived(0, 1, 0);
    state.arrived(1, 65, 0);
    state.arrived(66, 64, 1);
    state.given_back();
    state.read(1);
    EXPECT_TRUE(state.spent());
}

}  // namespace
}  // namespace velo::ofi
