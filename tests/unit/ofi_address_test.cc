// Addresses, hellos and signals as bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "velo/ofi/wire.h"

namespace velo::ofi {
namespace {

Address sample(size_t name_bytes) {
    Address address;
    address.head.token = 0x1122334455667788;
    address.head.job_token = 3;
    address.head.mailbox_slots = 4096;
    address.head.node = 513;
    address.head.vpid = 255;
    address.head.name_bytes = static_cast<uint16_t>(name_bytes);
    address.set_provider("verbs;ofi_rxm;ofi_mrail");
    for (size_t i = 0; i < name_bytes; ++i) address.name[i] = static_cast<std::byte>(i + 1);
    return address;
}

TEST(OfiAddress, comes_back_as_it_was_written) {
    for (size_t name_bytes = 0; name_bytes <= kEndpointNameBytesMax; ++name_bytes) {
        std::array<std::byte, kAddressBytesMax> bytes;
        const size_t length = write_address(sample(name_bytes), bytes);
        ASSERT_EQ(length, sizeof(AddressHead) + name_bytes);
        Address read;
        ASSERT_EQ(read_address(std::span(bytes).first(length), read), Status::kOk);
        EXPECT_EQ(read.provider(), "verbs;ofi_rxm;ofi_mrail");
        EXPECT_EQ(read.head.token, 0x1122334455667788u);
        EXPECT_EQ(read.head.node, 513);
        EXPECT_EQ(std::memcmp(read.name.data(), sample(name_bytes).name.data(), name_bytes), 0);
        EXPECT_EQ(write_address(sample(name_bytes), std::span(bytes).first(length - 1)), 0u) << "no room";
    }
}

TEST(OfiAddress, no_damaged_byte_gets_through) {
    std::array<std::byte, kAddressBytesMax> bytes;
    const size_t length = write_address(sample(28), bytes);
    Address read;
    for (size_t at = 0; at < length; ++at) {
        for (int value = 1; value < 256; ++value) {
            auto damaged = bytes;
            damaged[at] ^= static_cast<std::byte>(value);
            EXPECT_NE(read_address(std::span(damaged).first(length), read), Status::kOk);
        }
    }
}

RailsAddress sample_of_rails(size_t others, size_t name_bytes) {
    RailsAddress address = {.first = sample(name_bytes), .others = {}};
    for (size_t rail = 0; rail < others; ++rail) {
        address.others.emplace_back(name_bytes, static_cast<std::byte>(0x40 + rail));
    }
    return address;
}

TEST(OfiAddress, several_rails_come_back_as_they_were_written) {
    for (size_t others = 0; others < kRailsMax; ++others) {
        for (const size_t name_bytes : {0, 16, 28, 64}) {
            const RailsAddress written = sample_of_rails(others, name_bytes);
            std::array<std::byte, kDeviceAddressBytesMax> bytes;
            const size_t length = write_rails_address(written, bytes);
            RailsAddress read;
            ASSERT_EQ(read_rails_address(std::span(bytes).first(length), read), Status::kOk);
            EXPECT_EQ(read.first.head.token, written.first.head.token);
            EXPECT_EQ(read.others, written.others);
            for (size_t cut = 0; cut < length; ++cut) {
                EXPECT_EQ(read_rails_address(std::span(bytes).first(cut), read), Status::kBadParam);
            }
        }
    }
}

TEST(OfiAddress, one_rail_is_published_as_before) {
    std::array<std::byte, kDeviceAddressBytesMax> one;
    std::array<std::byte, kDeviceAddressBytesMax> of_rails;
    const size_t length = write_address(sample(28), one);
    ASSERT_EQ(write_rails_address(sample_of_rails(0, 28), of_rails), length);
    EXPECT_EQ(std::memcmp(one.data(), of_rails.data(), length), 0);
}

TEST(OfiAddress, rails_that_find_no_room_are_left_out) {
    const RailsAddress written = sample_of_rails(kRailsMax - 1, kEndpointNameBytesMax);
    std::array<std::byte, kDeviceAddressBytesMax> bytes;
    const size_t length = write_rails_address(written, bytes);
    RailsAddress read;
    ASSERT_EQ(read_rails_address(std::span(bytes).first(length), read), Status::kOk);
    EXPECT_EQ(read.others.size(), 2u);
    const size_t first = sizeof(AddressHead) + kEndpointNameBytesMax;
    EXPECT_EQ(write_rails_address(written, std::span(bytes).first(first)), first);
    EXPECT_EQ(write_rails_address(written, std::span(bytes).first(first - 1)), 0u);
}

TEST(OfiAddress, no_damaged_byte_of_several_rails_gets_through) {
    std::array<std::byte, kDeviceAddressBytesMax> bytes;
    const size_t length = write_rails_address(sample_of_rails(3, 16), bytes);
    RailsAddress read;
    for (size_t at = 0; at < length; ++at) {
        for (int value = 1; value < 256; ++value) {
            auto damaged = bytes;
            damaged[at] ^= static_cast<std::byte>(value);
            EXPECT_NE(read_rails_address(std::span(damaged).first(length), read), Status::kOk);
        }
    }
}

/// A process that writes checksums as velo does, and lies about its rails.
TEST(OfiAddress, lies_about_rails_are_refused_and_read_nothing_outside) {
    std::mt19937_64 random(7);
    RailsAddress read;
    for (int i = 0; i < 20'000; ++i) {
        Address first = sample(16);
        first.head.other_rails = static_cast<uint8_t>(random() % (kRailsMax + 2));
        std::vector<std::byte> bytes(kAddressBytesMax);
        bytes.resize(write_address(first, bytes));
        const size_t tail = random() % 80;
        for (size_t at = 0; at < tail; ++at) bytes.push_back(static_cast<std::byte>(random()));
        const Status status = read_rails_address(bytes, read);
        EXPECT_EQ(status, tail == 0 && first.head.other_rails == 0 ? Status::kOk : Status::kBadParam);
    }
}

TEST(OfiAddress, a_hello_comes_back_and_none_that_is_cut_or_damaged_does) {
    for (size_t name_bytes = 0; name_bytes <= kEndpointNameBytesMax; ++name_bytes) {
        std::array<Packet, kHelloSlotsMax> slots;
        const uint32_t count =
            write_hello({.receiver_token = 99, .sender = sample(name_bytes)}, source_of(513, 255), slots);
        const std::span<const std::byte> message(reinterpret_cast<const std::byte*>(slots.data()),
                                                 count * kPacketBytes);
        Hello hello;
        ASSERT_EQ(read_hello(message, hello), Status::kOk);
        EXPECT_EQ(hello.receiver_token, 99u);
        EXPECT_EQ(hello.sender.head.name_bytes, name_bytes);
        for (size_t bytes = 0; bytes < message.size(); ++bytes) {
            EXPECT_NE(read_hello(message.first(bytes), hello), Status::kOk);
        }
    }
}

TEST(OfiAddress, random_messages_are_no_hello_and_read_nothing_outside) {
    std::mt19937_64 random(5);
    Hello hello;
    Signal signal;
    for (int i = 0; i < 20'000; ++i) {
        std::vector<std::byte> message(random() % (kHelloSlotsMax + 2) * kPacketBytes);
        for (std::byte& byte : message) byte = static_cast<std::byte>(random());
        for (size_t at = kPayloadBytes; at < message.size() && i % 2 == 0; at += kPacketBytes) {
            const uint64_t word = PacketStatus{.message_class = kDeviceClass,
                                               .tag = static_cast<uint8_t>(1 + random() % 2),
                                               .length = static_cast<uint8_t>(random() % 128)}
                                      .pack();
            std::memcpy(message.data() + at, &word, sizeof word);
        }
        EXPECT_NE(read_hello(message, hello), Status::kOk);
        (void)read_signal(message, signal);
    }
}

TEST(OfiAddress, a_signal_is_one_slot) {
    std::array<Packet, 2> slots = {};
    write_signal({.receiver_token = 5, .bits = kPing | kClosing, .ending = 2}, source_of(1, 2), slots[0]);
    slots[1] = slots[0];
    const auto* bytes = reinterpret_cast<const std::byte*>(slots.data());
    Signal signal;
    ASSERT_EQ(read_signal({bytes, kPacketBytes}, signal), Status::kOk);
    EXPECT_EQ(signal.receiver_token, 5u);
    EXPECT_EQ(signal.bits, uint32_t{kPing} | kClosing);
    EXPECT_EQ(source_of(slots[0].status), source_of(1, 2));
    EXPECT_NE(read_signal({bytes, 2 * kPacketBytes}, signal), Status::kOk);
}

}  // namespace
}  // namespace velo::ofi
