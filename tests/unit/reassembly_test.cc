// Messages that come as packets, put together again.
#include "velo/channels/reassembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace velo {
namespace {

constexpr auto kPayload = static_cast<uint32_t>(kPayloadBytes);
constexpr uint32_t kBytesMax = 3 * kPayload + 5;
constexpr DeviceAddr kPeer{2};

struct ReassemblyOf : testing::Test {
    Reassembly reassembly{kBytesMax};
    std::array<std::byte, kPayloadBytes> payload;

    ReassemblyOf() {
        for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i + 1);
        reassembly.know(kPeer);
    }
    bool append(uint32_t bytes, DeviceAddr peer = kPeer) {
        return reassembly.append(reassembly.of(peer), payload.data(), bytes);
    }
    /// A device that shows this many packets of a message.
    uint32_t append_run(uint32_t shown) {
        return reassembly.append_run(reassembly.of(kPeer), [&](std::byte* to, uint32_t packets_max) {
            const uint32_t taken = std::min(shown, packets_max);
            std::memset(to, 7, size_t{taken} * kPayload);
            return taken;
        });
    }
};

TEST_F(ReassemblyOf, payloads_lie_one_behind_the_other) {
    EXPECT_TRUE(append(kPayload));
    EXPECT_TRUE(append(3));
    EXPECT_EQ(reassembly.partial_bytes(kPeer), kPayload + 3);
    const Reassembly::Message whole = reassembly.end(kPeer);
    ASSERT_EQ(whole.bytes, kPayload + 3);
    EXPECT_EQ(std::memcmp(whole.buffer.get(), payload.data(), kPayload), 0);
    EXPECT_EQ(std::memcmp(whole.buffer.get() + kPayload, payload.data(), 3), 0);
}

TEST_F(ReassemblyOf, nothing_is_left_of_a_message_that_has_ended) {
    EXPECT_TRUE(append(kPayload));
    EXPECT_FALSE(reassembly.of(kPeer).empty());
    reassembly.reuse(reassembly.end(kPeer));
    EXPECT_TRUE(reassembly.of(kPeer).empty());
    EXPECT_EQ(reassembly.partial_bytes(kPeer), 0u);
}

TEST_F(ReassemblyOf, a_message_that_is_too_long_is_broken_once_and_its_rest_dropped) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(append(kPayload));
    EXPECT_FALSE(append(6));
    EXPECT_TRUE(append(kPayload));
    EXPECT_EQ(append_run(1), 0u);
    EXPECT_TRUE(reassembly.end(kPeer).broken);
    EXPECT_FALSE(reassembly.of(kPeer).broken) << "the next message is whole again";
}

TEST_F(ReassemblyOf, the_longest_message_fits) {
    EXPECT_EQ(append_run(3), 3u);
    EXPECT_TRUE(append(5));
    EXPECT_EQ(reassembly.end(kPeer).bytes, kBytesMax);
}

TEST_F(ReassemblyOf, a_run_ends_where_the_buffer_does) {
    EXPECT_TRUE(append(1));
    EXPECT_EQ(append_run(9), 3u) << "three payloads of 56 bytes fit behind the first byte, and not four";
    EXPECT_EQ(append_run(9), 0u);
    const Reassembly::Message whole = reassembly.end(kPeer);
    ASSERT_EQ(whole.bytes, 1 + 3 * kPayload);
    EXPECT_EQ(whole.buffer[0], payload[0]);
    EXPECT_EQ(whole.buffer[1], std::byte{7});
}

TEST_F(ReassemblyOf, messages_of_two_peers_are_apart) {
    EXPECT_FALSE(reassembly.knows(DeviceAddr(3)));
    reassembly.know(DeviceAddr(3));
    EXPECT_TRUE(append(10));
    EXPECT_TRUE(append(20, DeviceAddr(3)));
    EXPECT_EQ(reassembly.partial_bytes(kPeer), 10u);
    EXPECT_EQ(reassembly.partial_bytes(DeviceAddr(3)), 20u);
}

TEST_F(ReassemblyOf, a_buffer_that_is_done_with_serves_the_next_message) {
    EXPECT_TRUE(append(10));
    Reassembly::Message whole = reassembly.end(kPeer);
    const std::byte* const buffer = whole.buffer.get();
    reassembly.reuse(std::move(whole));
    EXPECT_TRUE(append(10));
    EXPECT_EQ(reassembly.end(kPeer).buffer.get(), buffer);
}

}  // namespace
}  // namespace velo
