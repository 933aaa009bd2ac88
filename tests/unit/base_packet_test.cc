// The status word: its bit positions are EXTOLL's, and any 64 bits are read without harm.
#include <gtest/gtest.h>

#include <random>

#include "velo/wire/packet.h"

namespace velo {
namespace {

TEST(PacketStatus, fields_lie_where_extoll_has_them) {
    EXPECT_EQ(PacketStatus{.node = 0xffff}.pack(), 0xffffull);
    EXPECT_EQ(PacketStatus{.vpid = 0xff}.pack(), 0xffull << 16);
    EXPECT_EQ(PacketStatus{.message_class = MessageClass::kCredit}.pack(), 2ull << 32);
    EXPECT_EQ(PacketStatus{.end_of_message = true}.pack(), 1ull << 36);
    EXPECT_EQ(PacketStatus{.error = true}.pack(), 1ull << 37);
    EXPECT_EQ(PacketStatus{.tag = 0xff}.pack(), 0xffull << 40);
    EXPECT_EQ(PacketStatus{.length = 0x7f}.pack(), 0x7full << 48);
    EXPECT_EQ(PacketStatus{.opens = PacketStatus::kOpensMax}.pack(), 0x1ffull << 55);
}

TEST(PacketStatus, packing_and_unpacking_are_inverse) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 100'000; ++i) {
        const PacketStatus status = {
            .node = static_cast<uint16_t>(random()),
            .vpid = static_cast<uint8_t>(random()),
            .lap = static_cast<uint8_t>(random()),
            .message_class = static_cast<MessageClass>(random() % 3),
            .piggyback = random() % 2 == 0,
            .end_of_message = random() % 2 == 0,
            .error = random() % 2 == 0,
            .tag = static_cast<uint8_t>(random()),
            .length = static_cast<uint8_t>(random() % (kPayloadBytes + 1)),
            .opens = static_cast<uint16_t>(random() % (PacketStatus::kOpensMax + 1))};
        ASSERT_EQ(PacketStatus::unpack(status.pack()), status);
    }
}

TEST(PacketStatus, bits_that_no_field_has_do_not_reach_the_fields) {
    std::mt19937_64 random(2);
    const uint64_t used = PacketStatus::unpack(UINT64_MAX).pack();
    for (int i = 0; i < 100'000; ++i) {
        const uint64_t word = random();
        ASSERT_EQ(PacketStatus::unpack(word).pack(), word & used);
    }
}

TEST(Packets, a_message_takes_as_many_as_its_bytes_need) {
    EXPECT_EQ(packets_for(0), 1u);
    EXPECT_EQ(packets_for(1), 1u);
    EXPECT_EQ(packets_for(kPayloadBytes), 1u);
    EXPECT_EQ(packets_for(kPayloadBytes + 1), 2u);
    EXPECT_EQ(packets_for(2048 + 16), 37u);
}

}  // namespace
}  // namespace velo
