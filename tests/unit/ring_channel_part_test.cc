// The channel over a node's rings, alone: over rings that are a buffer, have room, or have none.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "velo/channels/ring_channel_impl.h"

namespace velo {
namespace {

struct FakeRings {
    /// As the rings': the first line, and, for longer messages, the rest.
    struct Room {
        std::byte* first = nullptr;
        std::byte* rest = nullptr;
    };
    struct Committed {
        MessageClass message_class;
        uint8_t tag;
        uint32_t bytes;
        bool operator==(const Committed&) const = default;
    };
    Room reserve(shm::PeerIndex /*to*/, uint32_t bytes, Status& status) {
        status = says;
        if (says != Status::kOk) return {};
        return {line.data(), bytes > shm::kInlineBytesMax ? body.data() : nullptr};
    }
    void commit(shm::PeerIndex /*to*/, MessageClass message_class, uint8_t tag, uint32_t bytes) {
        committed.push_back({message_class, tag, bytes});
    }
    [[nodiscard]] bool nontemporal(shm::PeerIndex /*to*/, uint32_t bytes) const {
        return bytes >= nontemporal_min;
    }
    [[nodiscard]] static uint32_t message_bytes_max() { return 4096; }
    [[nodiscard]] static base::Ending announced_ending(shm::PeerIndex /*peer*/) {
        return base::Ending::kClosed;
    }

    Status says = Status::kOk;
    uint32_t nontemporal_min = UINT32_MAX;
    alignas(64) std::array<std::byte, shm::kInlineBytesMax> line{};
    alignas(64) std::array<std::byte, 4096> body{};
    std::vector<Committed> committed;
};

class RingChannelAlone : public testing::Test {
  protected:
    Status send(uint32_t header_bytes, uint32_t payload_bytes, uint8_t tag = 9) {
        message_ = {};
        message_.data[0] = text_.data();
        message_.bytes[0] = header_bytes;
        message_.data[1] = text_.data() + header_bytes;
        message_.bytes[1] = payload_bytes;
        message_.total = header_bytes + payload_bytes;
        message_.tag = tag;
        message_.message_class = static_cast<uint8_t>(MessageClass::kEngine);
        return channel_.send(shm::PeerIndex{1}, message_);
    }
    /// Bytes of the ring: the line, then the body.
    [[nodiscard]] std::string written(uint32_t bytes) const {
        const uint32_t first = std::min(bytes, shm::kInlineBytesMax);
        return std::string(reinterpret_cast<const char*>(rings_.line.data()), first) +
               std::string(reinterpret_cast<const char*>(rings_.body.data()), bytes - first);
    }

    std::string text_ = [] {
        std::string text(3000, ' ');
        for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
        return text;
    }();
    FakeRings rings_;
    RingChannel<FakeRings> channel_{rings_};
    velo_send_t message_{};
};

TEST_F(RingChannelAlone, message_lies_in_the_ring_as_one_however_it_was_in_parts) {
    constexpr uint32_t kLine = shm::kInlineBytesMax;
    for (const uint32_t total : {0u, 1u, kLine - 1, kLine, kLine + 1, 2 * kLine, 3000u}) {
        for (const uint32_t header : {0u, 1u, kLine - 1, kLine, kLine + 1, total}) {
            if (header > total) continue;
            rings_.line.fill({});
            rings_.body.fill({});
            rings_.nontemporal_min = total % 2 == 0 ? 0 : UINT32_MAX;
            ASSERT_EQ(send(header, total - header), Status::kOk);
            ASSERT_EQ(written(total), text_.substr(0, total)) << header << " of " << total;
            ASSERT_EQ(rings_.body[total > kLine ? total - kLine : 0], std::byte{}) << "nothing behind it";
        }
    }
}

TEST_F(RingChannelAlone, message_is_visible_once_with_its_class_tag_and_length) {
    ASSERT_EQ(send(12, 500, 0xf3), Status::kOk);
    EXPECT_EQ(rings_.committed, (std::vector<FakeRings::Committed>{{MessageClass::kEngine, 0xf3, 512}}));
}

TEST_F(RingChannelAlone, full_ring_or_a_dead_peer_takes_nothing) {
    for (const Status status : {Status::kAgain, Status::kPeerDead}) {
        rings_.says = status;
        EXPECT_EQ(send(12, 500), status);
        EXPECT_EQ(channel_.send_whole(shm::PeerIndex{1}, message_), status);
    }
    EXPECT_TRUE(rings_.committed.empty());
    EXPECT_EQ(rings_.line[0], std::byte{});
    EXPECT_EQ(message_.done, 0u);
}

TEST_F(RingChannelAlone, ring_takes_messages_one_by_one_and_reports_nothing_later) {
    constexpr shm::PeerIndex kPeer{1};
    EXPECT_EQ(channel_.send_together(kPeer, {}), Status::kAgain);
    EXPECT_FALSE(channel_.gathers());
    EXPECT_FALSE(channel_.waits(kPeer));
    EXPECT_FALSE(channel_.prepare_packets(kPeer, 1));
    EXPECT_EQ(channel_.message_bytes_max(), 4096u);
    EXPECT_EQ(channel_.announced_ending(kPeer), base::Ending::kClosed);
}

}  // namespace
}  // namespace velo
