// The path over a device that makes packets wait when the test says so.
#include "velo/channels/control_packets_impl.h"
#include "velo/channels/packet_channel_impl.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <variant>
#include <vector>

namespace velo {
namespace {

/// Keeps what is sent, shows what the test puts in, and refuses to send while the test says so.
class ScriptedDevice {
  public:
    [[nodiscard]] static DeviceTraits traits() { return {}; }
    struct PeerView {
        uint32_t mailbox_slots = 64;
    };
    struct Sent {
        PacketStatus status;
        std::array<std::byte, kPayloadBytes> payload;
        bool alike = false;  ///< not asked for one by one
        bool in_run = false;
    };

    template <class Fill>
    Status send(DeviceAddr, uint32_t packets, Admission admission, Fill&& fill) {
        if (packets > send_packets_max) return Status::kBadParam;
        if (refuses_contact && admission == Admission::kContact) return Status::kAgain;
        BodyPackets body;
        if constexpr (requires { fill.body(); }) body = fill.body();
        if (takes_runs) return send_by_runs(packets, fill);
        for (uint32_t i = 0; i < packets; ++i) {
            Sent packet;
            if (const uint32_t index = i - body.first; index < body.count) {
                packet.alike = true;
                packet.status = body.status;
                std::memcpy(packet.payload.data(), body.data + size_t{index} * kPayloadBytes, kPayloadBytes);
            } else {
                packet.status = fill(i, packet.payload.data());
            }
            if (refuses_control && packet.status.message_class == MessageClass::kCredit) return Status::kAgain;
            sent.push_back(packet);
        }
        ++sends;
        return Status::kOk;
    }
    template <class Fill>
    Status send_by_runs(uint32_t packets, Fill& fill) {
        for (uint32_t i = 0; i < packets;) {
            PacketRun run;
            if constexpr (requires { fill.run(0u); }) run = fill.run(i);
            EXPECT_EQ(run.bytes[0] + run.bytes[1], run.count * kPayloadBytes);
            if (run.count == 0) {
                Sent& packet = sent.emplace_back();
                packet.status = fill(i++, packet.payload.data());
                continue;
            }
            for (uint32_t of_run = 0; of_run < run.count && i < packets; ++of_run, ++i) {
                Sent& packet = sent.emplace_back();
                packet.in_run = true;
                packet.status = run.status;
                for (size_t byte = 0; byte < kPayloadBytes; ++byte) {
                    const size_t at = of_run * kPayloadBytes + byte;
                    packet.payload[byte] = at < run.bytes[0] ? run.data[0][at] : run.data[1][at - run.bytes[0]];
                }
            }
        }
        return Status::kOk;
    }
    [[nodiscard]] DeviceLimits limits() const { return {.send_packets_max = send_packets_max}; }
    const Packet* peek(DeviceAddr& from) {
        from = 0;
        return shown.empty() ? nullptr : &shown.front();
    }
    void advance() { shown.pop_front(); }
    uint32_t take_run(std::byte*, uint32_t) { return 0; }
    [[nodiscard]] PeerView peer(DeviceAddr) const { return view; }

    /// A packet of peer 0, which ends its message.
    void show(MessageClass message_class, uint8_t tag = 0) {
        PacketStatus status = {
            .message_class = message_class, .end_of_message = true, .tag = tag, .length = 4};
        shown.push_back({.payload = {}, .status = status.pack()});
    }

    PeerView view;
    uint32_t send_packets_max = UINT32_MAX;
    uint32_t sends = 0;
    bool refuses_control = false;
    bool refuses_contact = false;
    bool takes_runs = false;
    std::vector<Sent> sent;
    std::deque<Packet> shown;
};

struct Sink {
    [[nodiscard]] bool accepts(MessageClass, uint8_t) const { return true; }
    void deliver(DeviceAddr, MessageClass, uint8_t, const std::byte*, uint32_t) {}
};

/// One peer, with which 20 data slots are shared out at once, under the paper's stealing.
struct PacketChannelWaits : testing::Test {
    ScriptedDevice device;
    PacketChannel<ScriptedDevice> path{device, dynamic_plan(), 4096};
    std::array<std::byte, 40> data{};

    static flowctl::Plan dynamic_plan() {
        return std::get<flowctl::Plan>(flowctl::plan({.mode = flowctl::Mode::kDynamic,
                                                      .peers = 1,
                                                      .mailbox_slots = 22,
                                                      .stealing = flowctl::Stealing::kPaper}));
    }
    Status send() {
        velo_send_t send = {};
        send.data[0] = data.data();
        send.bytes[0] = send.total = static_cast<uint32_t>(data.size());
        return path.send(0, send);
    }
    void receive(uint32_t packets) {
        for (uint32_t i = 0; i < packets; ++i) device.show(MessageClass::kHost);
        EXPECT_EQ(path.poll(packets, Sink{}), packets);
    }
};

TEST_F(PacketChannelWaits, no_data_overtake_a_response) {
    device.refuses_control = true;
    device.show(MessageClass::kCredit, static_cast<uint8_t>(CreditTag::kReturnRequest));
    EXPECT_EQ(path.poll(1, Sink{}), 1u);
    EXPECT_TRUE(path.control_deferred());
    EXPECT_EQ(send(), Status::kAgain);
    EXPECT_TRUE(device.sent.empty());

    device.refuses_control = false;
    EXPECT_EQ(send(), Status::kOk);
    // The request's own slot goes back as well.
    ASSERT_EQ(device.sent.size(), 3u);
    EXPECT_EQ(device.sent[1].status.message_class, MessageClass::kCredit);
    EXPECT_EQ(device.sent[1].status.tag, static_cast<uint8_t>(CreditTag::kReturnResponse));
    EXPECT_EQ(device.sent[2].status.message_class, MessageClass::kHost);
    // It is not sent a second time.
    path.resend_control();
    EXPECT_FALSE(path.control_deferred());
    EXPECT_EQ(device.sent.size(), 3u);
    EXPECT_EQ(path.counters().responses_sent, 1u);
}

TEST_F(PacketChannelWaits, no_piggyback_overtakes_a_return) {
    device.refuses_control = true;
    receive(8);
    EXPECT_TRUE(path.control_deferred());
    const uint32_t owed = path.flow().deferred_credits(0);
    EXPECT_NE(owed, 0u);
    EXPECT_EQ(send(), Status::kOk) << "data wait for no return";
    ASSERT_EQ(device.sent.size(), 1u);
    EXPECT_FALSE(device.sent[0].status.piggyback);

    device.refuses_control = false;
    path.resend_control();
    ASSERT_EQ(device.sent.size(), 2u);
    EXPECT_EQ(device.sent[1].status.tag, static_cast<uint8_t>(CreditTag::kCredits));
    uint16_t credits = 0;
    std::memcpy(&credits, device.sent[1].payload.data(), sizeof credits);
    EXPECT_EQ(credits, owed);
    EXPECT_EQ(send(), Status::kOk);
    EXPECT_TRUE(device.sent[2].status.piggyback) << "what was retrieved beyond it";
}

// The host tries a message at once, and queues it where that fails: it waits once.
TEST(PacketChannelStalls, a_message_that_finds_no_contact_slot_at_once_is_counted_when_it_is_queued) {
    ScriptedDevice device;
    PacketChannel<ScriptedDevice> path(device,
                                  std::get<flowctl::Plan>(flowctl::plan({.mode = flowctl::Mode::kDynamic,
                                                                         .peers = 1,
                                                                         .mailbox_slots = 41,
                                                                         .contact_slots = 1})),
                                  4096);
    device.refuses_contact = true;
    std::array<std::byte, 40> data{};
    velo_send_t send = {};
    send.data[0] = data.data();
    send.bytes[0] = send.total = static_cast<uint32_t>(data.size());
    EXPECT_EQ(path.send_whole(0, send), Status::kAgain);
    EXPECT_EQ(path.stalls().count(), 0u);
    EXPECT_EQ(path.send(0, send), Status::kAgain);
    EXPECT_EQ(path.send(0, send), Status::kAgain);
    EXPECT_EQ(path.stalls().count(), 1u);
    device.refuses_contact = false;
    EXPECT_EQ(path.send(0, send), Status::kOk);
    EXPECT_FALSE(path.stalls().any_waits());
}

/// Two processes' paths, each with a device of its own. Neither has heard of the other.
struct PacketChannelContact : testing::Test {
    ScriptedDevice device;
    PacketChannel<ScriptedDevice> path{device,
                                  std::get<flowctl::Plan>(flowctl::plan({.mode = flowctl::Mode::kDynamic,
                                                                         .peers = 1,
                                                                         .mailbox_slots = 41,
                                                                         .contact_slots = 1})),
                                  4096};
    std::array<std::byte, 200> data{};

    Status send(velo_send_t& send, uint32_t bytes) {
        send.data[0] = data.data();
        send.bytes[0] = send.total = bytes;
        return path.send(0, send);
    }
    void show(PacketStatus status) { device.shown.push_back({.payload = {}, .status = status.pack()}); }
};

TEST_F(PacketChannelContact, our_opening_rides_in_the_packet_that_makes_the_contact) {
    velo_send_t message = {};
    ASSERT_EQ(send(message, 40), Status::kOk);
    ASSERT_EQ(device.sent.size(), 1u);
    EXPECT_TRUE(device.sent[0].status.contact);
    EXPECT_EQ(device.sent[0].status.opens, path.flow().granted(0));
    EXPECT_EQ(path.counters().opens_sent, 1u);
    velo_send_t second = {};
    ASSERT_EQ(send(second, 40), Status::kOk);
    ASSERT_EQ(device.sent.size(), 2u);
    EXPECT_EQ(device.sent[1].status.opens, 0u);
}

// Of a message of several packets, the first one's payload is full: the opening is in the status.
TEST_F(PacketChannelContact, an_opening_rides_in_a_long_message_too) {
    velo_send_t message = {};
    EXPECT_EQ(send(message, 200), Status::kOk);
    ASSERT_EQ(device.sent.size(), 4u);
    EXPECT_EQ(device.sent[0].status.length, kPayloadBytes);
    EXPECT_EQ(device.sent[0].status.opens, path.flow().granted(0));
    for (size_t i = 1; i < 4; ++i) EXPECT_EQ(device.sent[i].status.opens, 0u) << i;
}

TEST_F(PacketChannelContact, an_opening_whose_packet_is_refused_rides_in_the_next_try) {
    device.refuses_contact = true;
    velo_send_t message = {};
    EXPECT_EQ(send(message, 40), Status::kAgain);
    EXPECT_EQ(path.send(0, message), Status::kAgain);
    EXPECT_EQ(path.counters().opens_sent, 0u);
    device.refuses_contact = false;
    EXPECT_EQ(path.send(0, message), Status::kOk);
    ASSERT_EQ(device.sent.size(), 1u);
    EXPECT_NE(device.sent[0].status.opens, 0u);
    EXPECT_EQ(path.counters().opens_sent, 1u);
}

TEST_F(PacketChannelContact, an_opening_that_rides_is_taken_with_its_packet) {
    show({.contact = true, .length = kPayloadBytes, .opens = 5});
    EXPECT_EQ(path.poll(1, Sink{}), 1u);
    EXPECT_EQ(path.counters().opens_received, 1u);
    EXPECT_EQ(path.counters().malformed, 0u);
    // The message goes on, so it was opened to the peer as well.
    EXPECT_EQ(path.flow().link(0), flowctl::LinkState::kOpen);
    EXPECT_EQ(path.flow().credits(0), 5u);
}

TEST_F(PacketChannelContact, an_opening_in_any_other_packet_is_malformed) {
    uint64_t malformed = 0;
    for (const PacketStatus status :
         {PacketStatus{.end_of_message = true, .length = 4, .opens = 5},
          PacketStatus{.message_class = MessageClass::kCredit, .contact = true, .tag = 3, .length = 4, .opens = 5},
          PacketStatus{.end_of_message = true, .contact = true, .length = kPayloadBytes + 1, .opens = 5},
          PacketStatus{.end_of_message = true, .contact = true, .length = 4, .opens = PacketStatus::kOpensMax}}) {
        show(status);
        EXPECT_EQ(path.poll(1, Sink{}), 1u);
        EXPECT_EQ(path.counters().malformed, ++malformed);
    }
    EXPECT_EQ(path.flow().link(0), flowctl::LinkState::kUnknown);
}

/// Every division of a message into two parts, of lengths around whole packets, sent at once and in pieces of three
/// packets: the packets are those of the bytes in a row, and the device is not asked for each one where the last part
/// that has bytes holds all of it. A message that the host queued has one part, the first.
/// Messages of different lengths, each filled with its own number.
struct PacketChannelTogether : testing::Test {
    ScriptedDevice device;
    std::vector<std::vector<std::byte>> data;
    std::vector<velo_send_t> messages;
    std::vector<velo_send_t*> sends;

    void make(std::initializer_list<uint32_t> lengths) {
        data.reserve(lengths.size());
        messages.reserve(lengths.size());
        for (const uint32_t length : lengths) {
            data.emplace_back(length, static_cast<std::byte>(data.size() + 1));
            velo_send_t& message = messages.emplace_back();
            message = {};
            message.data[0] = data.back().data();
            message.bytes[0] = message.total = length;
            message.tag = static_cast<uint8_t>(messages.size());
            sends.push_back(&message);
        }
    }
    static flowctl::Plan static_plan(uint32_t slots) {
        return std::get<flowctl::Plan>(
            flowctl::plan({.mode = flowctl::Mode::kStatic, .peers = 1, .slots_per_peer = slots}));
    }
};

TEST_F(PacketChannelTogether, messages_that_go_together_are_one_send_of_whole_messages_in_order) {
    PacketChannel<ScriptedDevice> path(device, static_plan(32), 4096);
    make({8, 150, 0, 56, 57});
    ASSERT_EQ(path.send_together(0, sends), Status::kOk);
    EXPECT_EQ(device.sends, 1u);
    ASSERT_EQ(device.sent.size(), 8u);
    size_t at = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
        EXPECT_EQ(messages[i].done, messages[i].total);
        uint32_t bytes = 0;
        for (uint32_t left = packets_for(messages[i].total); left != 0; --left, ++at) {
            const ScriptedDevice::Sent& packet = device.sent[at];
            EXPECT_EQ(packet.status.tag, messages[i].tag);
            EXPECT_EQ(packet.status.end_of_message, left == 1);
            bytes += packet.status.length;
            if (packet.status.length != 0) {
                EXPECT_EQ(packet.payload[packet.status.length - 1], data[i][0]);
            }
        }
        EXPECT_EQ(bytes, messages[i].total);
    }
    EXPECT_EQ(path.counters().messages_sent, messages.size());
    EXPECT_EQ(path.flow().credits(0), path.plan().quota - 8);
}

TEST_F(PacketChannelTogether, messages_go_together_only_where_all_can_go) {
    PacketChannel<ScriptedDevice> path(device, static_plan(10), 4096);
    make({300, 300});
    ASSERT_EQ(path.plan().quota, 8u);
    EXPECT_TRUE(path.prepare_packets(0, 6));
    EXPECT_FALSE(path.prepare_packets(0, 12));
    EXPECT_EQ(path.send_together(0, sends), Status::kAgain);
    EXPECT_TRUE(device.sent.empty());
    EXPECT_EQ(messages[0].done + messages[1].done, 0u);
}

TEST_F(PacketChannelTogether, a_message_longer_than_one_send_goes_in_several) {
    device.send_packets_max = 5;
    PacketChannel<ScriptedDevice> path(device, static_plan(32), 4096);
    make({56 * 12 + 1});
    EXPECT_EQ(path.send_whole(0, messages[0]), Status::kAgain) << "a sender that waits for nothing queues it";
    ASSERT_EQ(path.send(0, messages[0]), Status::kOk);
    EXPECT_EQ(device.sends, 3u);
    EXPECT_EQ(device.sent.size(), 13u);
    EXPECT_FALSE(messages[0].stalled);
}

constexpr auto kPayload = static_cast<uint32_t>(kPayloadBytes);

flowctl::Plan uncredited(uint32_t slots) {
    return std::get<flowctl::Plan>(
        flowctl::plan({.mode = flowctl::Mode::kNone, .peers = 1, .mailbox_slots = slots}));
}

/// A message of `total` bytes in two parts, at `data`.
velo_send_t message_of(std::byte* data, uint32_t head, uint32_t total) {
    velo_send_t send = {};
    send.data[0] = data;
    send.data[1] = data + head;
    send.bytes[0] = head;
    send.bytes[1] = total - head;
    send.total = total;
    return send;
}

class PacketChannelPackets : public testing::TestWithParam<bool> {
  protected:
    PacketChannelPackets() : data(6 * kPayload) {
        for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
    }
    /// Packets [first, ...) are those of a message of `total` bytes at `data`.
    void expect_message(const std::vector<ScriptedDevice::Sent>& sent, uint32_t first, uint32_t total) {
        for (uint32_t i = 0; i < packets_for(total); ++i) {
            ASSERT_LT(first + i, sent.size());
            const ScriptedDevice::Sent& packet = sent[first + i];
            const uint32_t length = std::min(kPayload, total - i * kPayload);
            EXPECT_EQ(packet.status.length, length);
            EXPECT_EQ(packet.status.end_of_message, i + 1 == packets_for(total));
            EXPECT_EQ(std::memcmp(packet.payload.data(), &data[i * kPayload], length), 0) << "packet " << i;
        }
    }

    std::vector<std::byte> data;
};

TEST_P(PacketChannelPackets, whole_packets_need_not_be_asked_for) {
    const bool runs = GetParam();
    for (const uint32_t total : {1u, 55u, 56u, 57u, 112u, 113u, 200u, 6 * kPayload - 1, 6 * kPayload}) {
        for (const uint32_t head : {0u, 1u, 14u, 55u, 56u, 57u, 111u, 112u, total}) {
            for (const uint32_t slots : {3u, 64u}) {
                if (head > total) continue;
                SCOPED_TRACE(testing::Message() << total << " bytes, " << head << " first, " << slots << " slots");
                ScriptedDevice device;
                device.view.mailbox_slots = slots;
                device.takes_runs = runs;
                PacketChannel<ScriptedDevice> path(device, uncredited(64), 4096);
                velo_send_t send = message_of(data.data(), head, total);
                ASSERT_EQ(path.send(0, send), Status::kOk);
                ASSERT_EQ(device.sent.size(), packets_for(total));
                expect_message(device.sent, 0, total);
                const uint32_t last_part = head == total ? 0 : head;
                for (uint32_t i = 0; i < device.sent.size(); ++i) {
                    const bool last = i + 1 == device.sent.size();
                    EXPECT_EQ(device.sent[i].in_run, runs && !last) << "packet " << i;
                    EXPECT_EQ(device.sent[i].alike, !runs && i * kPayload >= last_part && !last) << "packet " << i;
                }
            }
        }
    }
}

TEST_P(PacketChannelPackets, messages_that_leave_together_are_whole) {
    ScriptedDevice device;
    device.takes_runs = GetParam();
    PacketChannel<ScriptedDevice> path(device, uncredited(64), 4096);
    const std::array<uint32_t, 4> totals = {200, 8, 6 * kPayload, 57};
    std::array<velo_send_t, 4> messages;
    std::array<velo_send_t*, 4> sends;
    for (size_t i = 0; i < totals.size(); ++i) {
        messages[i] = message_of(data.data(), std::min(14u, totals[i]), totals[i]);
        sends[i] = &messages[i];
    }
    ASSERT_EQ(path.send_together(0, sends), Status::kOk);
    uint32_t first = 0;
    for (const uint32_t total : totals) {
        expect_message(device.sent, first, total);
        first += packets_for(total);
    }
    EXPECT_EQ(device.sent.size(), first);
}

INSTANTIATE_TEST_SUITE_P(Fills, PacketChannelPackets, testing::Bool(), [](const testing::TestParamInfo<bool>& info) {
    return info.param ? "runs" : "alike";
});

}  // namespace
}  // namespace velo
