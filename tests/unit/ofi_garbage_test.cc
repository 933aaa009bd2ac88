// Strangers and peers that do not keep to the protocol: what they write is dropped and counted, and the messages of
// others go on.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/ofi_fabric.h"
#include "velo/ofi/wire.h"

namespace velo::ofi {
namespace {

/// To a small mailbox.
constexpr size_t kMessageBytesMax = kPartPacketsMin * kPacketBytes;

using conformance::address_of;
using conformance::Net;
using conformance::OfiFabric;
using conformance::send_numbered;
using conformance::TestPacket;

constexpr NetworkOptions kNetOptions = {.provider_include = conformance::kTcpProvider, .interface_include = "lo"};

/// A bare endpoint that writes whatever it likes to one device.
class Hostile {
  public:
    Hostile(const Endpoint& endpoint, const conformance::PublishedAddress& victim) : endpoint_(endpoint) {
        EXPECT_EQ(read_address(victim.span(), victim_), Status::kOk);
        to_ = endpoint_.insert(victim_.endpoint());
    }
    /// Steps until the provider has taken and written it.
    template <class Step>
    void write(const void* message, size_t bytes, Step&& step) {
        Context context(Context::Kind::kFrame);
        for (;;) {
            const ssize_t result = fi_send(endpoint_.ep(), message, bytes, nullptr, to_, &context);
            if (result == 0) break;
            ASSERT_EQ(result, -FI_EAGAIN);
            poll();
            step();
        }
        while (poll() == 0) step();
    }
    [[nodiscard]] const Address& victim() const { return victim_; }
    /// Its own address, as of a process of the victim's job.
    [[nodiscard]] Address own(uint16_t node) const {
        Address own;
        own.head = victim_.head;
        own.head.token = 4711 + node;
        own.head.node = node;
        own.head.name_bytes = static_cast<uint16_t>(endpoint_.name().size());
        std::memcpy(own.name.data(), endpoint_.name().data(), endpoint_.name().size());
        return own;
    }

  private:
    ssize_t poll() {
        fi_cq_data_entry entry;
        const ssize_t count = fi_cq_read(endpoint_.cq(), &entry, 1);
        return count > 0 ? count : 0;
    }

    const Endpoint& endpoint_;
    Address victim_;
    fi_addr_t to_ = FI_ADDR_NOTAVAIL;
};

class OfiGarbage : public testing::Test {
  protected:
    OfiGarbage() {
        for (uint16_t node = 1; node <= 2; ++node) {
            fabric_.open({.node = node, .job_token = 7, .mailbox_slots = 64, .contact_slots = 2, .faults = {}});
        }
        EXPECT_EQ(device(0).connect(address_of(device(1)).span(), name_), Status::kOk);
        talk(3);
    }
    OfiFabric<Net>::Device& device(size_t index) { return fabric_[index]; }
    OfiCounters seen() { return device(1).ofi().ofi_counters(); }
    void step() { fabric_.step(); }
    void write(Hostile& hostile, const void* message, size_t bytes) {
        hostile.write(message, bytes, [this] { step(); });
        for (int i = 0; i < 20; ++i) step();
    }
    /// Packets of device 0 come to device 1 as if nothing were.
    void talk(uint32_t count) {
        for (uint32_t i = 0; i < count; ++i, ++number_) {
            while (send_numbered(device(0), name_, 0, number_, 1) == Status::kAgain) step();
            DeviceAddr from = kNoAddr;
            const Packet* packet = nullptr;
            for (int tries = 0; tries < 100'000 && packet == nullptr; ++tries) {
                step();
                packet = device(1).peek(from);
            }
            ASSERT_NE(packet, nullptr);
            EXPECT_TRUE(TestPacket::is(*packet, 0, number_));
            device(1).advance();
        }
    }
    Packet packet_of(uint16_t node, uint8_t lap, bool contact = false) {
        Packet packet = {};
        PacketStatus status = TestPacket::write(9, 1, packet.payload);
        status.node = node;
        status.lap = lap;
        status.contact = contact;
        packet.status = status.pack();
        return packet;
    }
    /// `hostile` becomes a peer of device 1, as a process of its job that was given the address.
    void introduce(Hostile& hostile, uint16_t node) {
        const uint64_t before = seen().hellos_received;
        std::array<Packet, kHelloSlotsMax> slots;
        const Hello hello = {.receiver_token = hostile.victim().head.token, .sender = hostile.own(node)};
        const uint32_t count = write_hello(hello, source_of(node, 0), slots);
        write(hostile, slots.data(), count * kPacketBytes);
        EXPECT_EQ(seen().hellos_received, before + 1);
    }

    /// It becomes node 5, and its first packet is read. Returns device 1's name of it.
    DeviceAddr first_packet_of(Hostile& hostile) {
        introduce(hostile, 5);
        const Packet first = packet_of(5, 0);
        write(hostile, &first, sizeof first);
        DeviceAddr from = kNoAddr;
        if (device(1).peek(from) == nullptr) {
            ADD_FAILURE() << "its first packet did not come";
            return 0;
        }
        EXPECT_EQ(device(1).peer(from).node, 5);
        device(1).advance();
        return from;
    }

    OfiFabric<Net> fabric_;
    DeviceAddr name_ = kNoAddr;
    uint64_t number_ = 0;
    Endpoint bare_{choose_provider(kNetOptions), 64, 64};
};

TEST_F(OfiGarbage, messages_of_any_length_and_content_harm_nobody) {
    Hostile hostile(bare_, address_of(device(1)));
    std::mt19937_64 random(1);
    std::vector<std::byte> message(kMessageBytesMax);
    for (int round = 0; round < 400; ++round) {
        for (std::byte& byte : message) byte = static_cast<std::byte>(random());
        const size_t bytes = round % 3 == 0 ? random() % (kMessageBytesMax + 1) : random() % 65 * kPacketBytes;
        write(hostile, message.data(), bytes);
        if (round % 8 == 0) talk(3);
    }
    EXPECT_GT(seen().malformed, 50u);
    EXPECT_GT(device(1).counters().packets_unknown_source + seen().strangers, 50u);
    EXPECT_EQ(device(1).counters().packets_received, number_);
    EXPECT_TRUE(device(1).alive(0));
    talk(50);
}

TEST_F(OfiGarbage, nobody_speaks_in_a_peers_name) {
    Hostile hostile(bare_, address_of(device(1)));
    const uint64_t unknown = device(1).counters().packets_unknown_source;
    for (int lap = 0; lap < 256; ++lap) {
        const Packet packet = packet_of(1, static_cast<uint8_t>(lap));
        write(hostile, &packet, sizeof packet);
    }
    EXPECT_EQ(device(1).counters().packets_unknown_source, unknown + 256);
    Packet slot;
    write_signal({.receiver_token = hostile.victim().head.token,
                  .bits = kClosing,
                  .ending = static_cast<uint32_t>(base::Ending::kClosed)},
                 source_of(1, 0), slot);
    write(hostile, &slot, sizeof slot);
    EXPECT_TRUE(device(1).alive(0)) << "a closing signal of another process";
    talk(5);
}

TEST_F(OfiGarbage, a_hello_needs_the_receivers_token_and_an_address_of_its_sender) {
    Hostile hostile(bare_, address_of(device(1)));
    std::array<Packet, kHelloSlotsMax> slots;
    const auto say = [&](uint64_t token, const Address& sender) {
        const uint32_t count = write_hello({.receiver_token = token, .sender = sender}, source_of(5, 0), slots);
        write(hostile, slots.data(), count * kPacketBytes);
    };
    const uint64_t hellos = seen().hellos_received;
    say(hostile.victim().head.token ^ 1, hostile.own(5));
    Address taken = hostile.own(1);
    say(hostile.victim().head.token, taken);
    EXPECT_EQ(seen().strangers, 2u);
    EXPECT_EQ(seen().hellos_received, hellos);
    introduce(hostile, 5);
    talk(5);
}

TEST_F(OfiGarbage, a_peer_says_no_hello_for_another_one) {
    Hostile hostile(bare_, address_of(device(1)));
    first_packet_of(hostile);
    Hello hello = {.receiver_token = hostile.victim().head.token, .sender = {}};
    ASSERT_EQ(read_address(address_of(device(0)).span(), hello.sender), Status::kOk);
    std::array<Packet, kHelloSlotsMax> slots;
    const uint32_t count = write_hello(hello, source_of(1, 0), slots);
    const OfiCounters before = seen();
    write(hostile, slots.data(), count * kPacketBytes);
    EXPECT_EQ(seen().hellos_received, before.hellos_received);
    EXPECT_EQ(seen().strangers, before.strangers + 1);
    talk(5);
}

TEST_F(OfiGarbage, a_signal_needs_the_receivers_token) {
    Hostile hostile(bare_, address_of(device(1)));
    const DeviceAddr from = first_packet_of(hostile);
    const auto close_with = [&](uint64_t token) {
        Packet slot;
        write_signal({.receiver_token = token,
                      .bits = kClosing,
                      .ending = static_cast<uint32_t>(base::Ending::kClosed),
                      .messages = 1},
                     source_of(5, 0), slot);
        write(hostile, &slot, sizeof slot);
    };
    const uint64_t strangers = seen().strangers;
    close_with(hostile.victim().head.token ^ 1);
    EXPECT_TRUE(device(1).alive(from));
    EXPECT_EQ(seen().strangers, strangers + 1);
    close_with(hostile.victim().head.token);
    EXPECT_FALSE(device(1).alive(from));
}

/// Its slot is one of the contact slots, which only advance() gives back.
TEST_F(OfiGarbage, a_contact_packet_is_in_no_run) {
    Hostile hostile(bare_, address_of(device(1)));
    introduce(hostile, 5);
    const Packet contact = packet_of(5, 0, true);
    write(hostile, &contact, sizeof contact);
    DeviceAddr from = kNoAddr;
    ASSERT_NE(device(1).peek(from), nullptr);
    std::array<std::byte, 8 * kPayloadBytes> to;
    EXPECT_EQ(device(1).take_run(to.data(), 8), 0u);
    EXPECT_NE(device(1).peek(from), nullptr);
    device(1).advance();
    EXPECT_EQ(device(1).peek(from), nullptr);
}

/// No process of this version writes it, so it is no sign of a loss.
TEST_F(OfiGarbage, a_message_that_is_too_long_is_dropped) {
    Hostile hostile(bare_, address_of(device(1)));
    const DeviceAddr from = first_packet_of(hostile);
    const OfiCounters before = seen();
    const std::vector<Packet> packets(kPartPacketsMin + 1, packet_of(5, 9));
    write(hostile, packets.data(), packets.size() * kPacketBytes);
    EXPECT_EQ(seen().malformed, before.malformed + 1);
    EXPECT_EQ(seen().broken_streams, before.broken_streams);
    EXPECT_TRUE(device(1).alive(from));
}

/// The place of a peer is known from its first message on.
TEST_F(OfiGarbage, a_stranger_ends_no_peer_of_which_only_the_hello_came) {
    Hostile peer(bare_, address_of(device(1)));
    introduce(peer, 5);
    const Endpoint elsewhere(choose_provider(kNetOptions), 64, 64);
    Hostile stranger(elsewhere, address_of(device(1)));
    const OfiCounters before = seen();
    const Packet late = packet_of(5, 2);
    write(stranger, &late, sizeof late);
    EXPECT_EQ(seen().broken_streams, before.broken_streams);
    EXPECT_EQ(seen().malformed, before.malformed + 1);
    const Packet first = packet_of(5, 0);
    write(peer, &first, sizeof first);
    DeviceAddr from = kNoAddr;
    EXPECT_NE(device(1).peek(from), nullptr) << "its own first packet";
}

TEST_F(OfiGarbage, a_peer_whose_packets_have_a_gap_has_ended) {
    Hostile hostile(bare_, address_of(device(1)));
    const DeviceAddr from = first_packet_of(hostile);
    const Packet third = packet_of(5, 2);
    write(hostile, &third, sizeof third);
    DeviceAddr none = kNoAddr;
    EXPECT_EQ(device(1).peek(none), nullptr);
    EXPECT_FALSE(device(1).alive(from));
    EXPECT_EQ(seen().broken_streams, 1u);
    talk(5);
}

TEST_F(OfiGarbage, a_lost_message_that_nothing_follows_is_found_by_the_next_signal) {
    Hostile hostile(bare_, address_of(device(1)));
    const DeviceAddr from = first_packet_of(hostile);
    Packet slot;
    for (const uint32_t messages : {1u, 2u, 4u}) {
        EXPECT_TRUE(device(1).alive(from));
        write_signal({.receiver_token = hostile.victim().head.token, .bits = kPing, .messages = messages},
                     source_of(5, 0), slot);
        write(hostile, &slot, sizeof slot);
    }
    EXPECT_FALSE(device(1).alive(from));
    EXPECT_EQ(seen().broken_streams, 1u);
    talk(5);
}

TEST_F(OfiGarbage, a_flood_of_contacts_takes_the_contact_slots_and_no_more) {
    Hostile hostile(bare_, address_of(device(1)));
    introduce(hostile, 5);
    for (uint32_t i = 0; i < 500; ++i) {
        const Packet packet = packet_of(5, static_cast<uint8_t>(std::min(i, 2u)), true);
        write(hostile, &packet, sizeof packet);
    }
    EXPECT_EQ(device(1).counters().contacts_refused, 498u);
    for (uint32_t i = 0; i < 2; ++i) {
        DeviceAddr from = kNoAddr;
        ASSERT_NE(device(1).peek(from), nullptr);
        EXPECT_EQ(device(1).peer(from).node, 5);
        device(1).advance();
    }
    talk(200);
}

TEST_F(OfiGarbage, messages_with_packets_of_two_kinds_are_dropped_whole) {
    Hostile hostile(bare_, address_of(device(1)));
    introduce(hostile, 5);
    std::array<Packet, 2> packets = {packet_of(5, 0), packet_of(5, 1, true)};
    const uint64_t malformed = seen().malformed;
    write(hostile, packets.data(), sizeof packets);
    packets[1] = packet_of(6, 1);
    write(hostile, packets.data(), sizeof packets);
    write_signal({}, source_of(5, 0), packets[1]);
    packets[1].status = PacketStatus::with_lap(packets[1].status, 1);
    write(hostile, packets.data(), sizeof packets);
    EXPECT_EQ(seen().malformed, malformed + 3);
    DeviceAddr from = kNoAddr;
    EXPECT_EQ(device(1).peek(from), nullptr);
    talk(5);
}

TEST(OfiLog, a_stranger_is_told_of_once) {
    std::string log;
    const NetworkOptions options = {
        .provider_include = conformance::kTcpProvider,
        .interface_include = "lo"};
    const auto write = [](void* to, int, const char* line) { *static_cast<std::string*>(to) += line; };
    OfiDevice device({.node = 1, .mailbox_slots = 8, .faults = {}, .log = {.write = write, .context = &log}}, options);
    const Endpoint bare(choose_provider(kNetOptions), 64, 64);
    Hostile hostile(bare, address_of(device));
    const Packet packet = {.payload = {}, .status = PacketStatus{.node = 3}.pack()};
    for (int i = 0; i < 5; ++i) {
        hostile.write(&packet, sizeof packet, [&] { device.progress(base::monotonic_ns()); });
        for (int k = 0; k < 2000; ++k) device.progress(base::monotonic_ns());
    }
    EXPECT_EQ(device.counters().packets_unknown_source, 5u);
    EXPECT_NE(log.find("was not given"), std::string::npos);
    EXPECT_EQ(log.find("was not given"), log.rfind("was not given"));
}

}  // namespace
}  // namespace velo::ofi
