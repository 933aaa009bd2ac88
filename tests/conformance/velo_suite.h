/// Conformance: the VELO unit. Order, admission, and the mailbox's slots.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/conformance/fabric.h"

namespace velo::conformance {

template <class Fabric>
class DeviceVelo : public DeviceTest<Fabric> {
  protected:
    /// The lap in the status word has 8 bits. A fabric on which a packet takes milliseconds has its own kLaps.
    static constexpr uint64_t laps_max() {
        if constexpr (requires { Fabric::kLaps; }) {
            return Fabric::kLaps;
        } else {
            return 600;
        }
    }
};
TYPED_TEST_SUITE_P(DeviceVelo);

TYPED_TEST_P(DeviceVelo, packets_come_whole_and_in_order_with_their_status_and_source) {
    this->open(2);
    uint64_t number = 0;
    for (const uint32_t batch : {1u, 2u, 7u, 22u, 32u}) {
        ASSERT_EQ(this->send(0, this->name(0, 1), 0, number, batch), Status::kOk);
        for (uint32_t i = 0; i < batch; ++i) {
            DeviceAddr from = kNoAddr;
            const Packet* packet = this->receive(1, from);
            ASSERT_NE(packet, nullptr);
            EXPECT_EQ(from, this->name(1, 0));
            EXPECT_TRUE(TestPacket::is(*packet, 0, number));
            const PacketStatus status = PacketStatus::unpack(packet->status);
            EXPECT_EQ(status.node, this->config(0).node);
            EXPECT_EQ(status.vpid, this->config(0).vpid);
            this->device(1).advance();
            ++number;
        }
    }
    EXPECT_EQ(this->device(0).counters().packets_sent, number);
    EXPECT_EQ(this->device(1).counters().packets_received, number);
}

TYPED_TEST_P(DeviceVelo, every_payload_length_arrives) {
    this->open(2);
    for (uint32_t length = 0; length <= kPayloadBytes; ++length) {
        const auto fill = [length](uint32_t, std::byte* payload) {
            std::memset(payload, static_cast<int>(length + 1), length);
            return PacketStatus{.length = static_cast<uint8_t>(length)};
        };
        Status status = Status::kAgain;
        this->drive([&] {
            status = this->device(0).send(this->name(0, 1), 1, Admission::kGuarded, fill);
            return status != Status::kAgain;
        });
        ASSERT_EQ(status, Status::kOk);
        DeviceAddr from = kNoAddr;
        const Packet* packet = this->receive(1, from);
        ASSERT_NE(packet, nullptr);
        EXPECT_EQ(PacketStatus::unpack(packet->status).length, length);
        for (uint32_t i = 0; i < length; ++i) {
            ASSERT_EQ(packet->payload[i], static_cast<std::byte>(length + 1));
        }
        this->device(1).advance();
    }
}

/// Packets of which some lie one behind the other; a device may ask for the others alone.
struct PartlyAlike {
    const std::vector<std::byte>& data;
    uint32_t packets;
    uint32_t first;

    [[nodiscard]] BodyPackets body() const {
        return {.data = data.data() + size_t{first} * kPayloadBytes,
                .status = {.message_class = MessageClass::kHost, .tag = 7, .length = kPayloadBytes},
                .first = first,
                .count = packets - first - 1};
    }
    /// The packets as a run in two places, unless it begins in the second.
    [[nodiscard]] PacketRun run(uint32_t index) const {
        if (index < first || index + 1 >= packets) return {};
        const std::byte* const at = data.data() + size_t{index} * kPayloadBytes;
        const size_t bytes = size_t{packets - index - 1} * kPayloadBytes;
        const size_t front = std::min<size_t>(bytes, 100);
        return {.data = {at, at + front},
                .bytes = {front, bytes - front},
                .status = body().status,
                .count = packets - index - 1};
    }
    PacketStatus operator()(uint32_t index, std::byte* payload) const {
        std::memcpy(payload, data.data() + size_t{index} * kPayloadBytes, kPayloadBytes);
        PacketStatus status = body().status;
        status.end_of_message = index + 1 == packets;
        return status;
    }
};

TYPED_TEST_P(DeviceVelo, packets_that_are_alike_come_like_others) {
    this->open(2);
    const DeviceLimits limits = this->device(1).limits();
    const uint32_t packets_max = std::min({80u, limits.mailbox_slots, limits.send_packets_max});
    uint8_t number = 0;
    for (uint32_t packets = 1; packets <= packets_max; ++packets) {
        for (uint32_t first = 0; first < std::min(packets, 3u); ++first) {
            std::vector<std::byte> data(size_t{packets} * kPayloadBytes);
            for (std::byte& byte : data) byte = static_cast<std::byte>(++number % 251);
            const PartlyAlike fill{data, packets, first};
            Status status = Status::kAgain;
            this->drive([&] {
                status = this->device(0).send(this->name(0, 1), packets, Admission::kCredited, fill);
                return status != Status::kAgain;
            });
            ASSERT_EQ(status, Status::kOk);
            for (uint32_t i = 0; i < packets; ++i) {
                DeviceAddr from = kNoAddr;
                const Packet* packet = this->receive(1, from);
                ASSERT_NE(packet, nullptr);
                const PacketStatus status = PacketStatus::unpack(packet->status);
                EXPECT_EQ(status.end_of_message, i + 1 == packets) << i << " of " << packets;
                EXPECT_EQ(status.tag, 7);
                EXPECT_EQ(status.length, kPayloadBytes);
                EXPECT_EQ(from, this->name(1, 0));
                EXPECT_EQ(std::memcmp(packet->payload, data.data() + size_t{i} * kPayloadBytes, kPayloadBytes), 0);
                this->device(1).advance();
            }
        }
    }
}

TYPED_TEST_P(DeviceVelo, a_packet_stays_until_advance) {
    this->open(2);
    ASSERT_EQ(this->send(0, this->name(0, 1), 0, 0, 2), Status::kOk);
    DeviceAddr from = kNoAddr;
    const Packet* first = this->receive(1, from);
    for (int i = 0; i < 20; ++i) {
        this->step(1);
        ASSERT_EQ(this->device(1).peek(from), first);
        ASSERT_TRUE(TestPacket::is(*first, 0, 0));
    }
    EXPECT_EQ(this->device(1).counters().packets_received, 0u);
    this->device(1).advance();
    EXPECT_TRUE(this->take(1, 0, 1));
    this->step(3);
    EXPECT_EQ(this->device(1).peek(from), nullptr);
}

TYPED_TEST_P(DeviceVelo, as_many_credited_packets_as_slots_fit_unread) {
    for (size_t i = 0; i < 2; ++i) this->fabric_.open(this->config(i));
    this->names_ = {{kNoAddr, this->connect(0, 1)}, {this->connect(1, 0), kNoAddr}};
    const uint32_t slots = this->device(1).limits().mailbox_slots;
    for (uint64_t round = 0; round < 20; ++round) {
        for (uint32_t i = 0; i < slots; ++i) {
            ASSERT_EQ(this->send(0, this->name(0, 1), 0, round * slots + i, 1), Status::kOk);
        }
        this->step(2);
        for (uint32_t i = 0; i < slots; ++i) ASSERT_TRUE(this->take(1, 0, round * slots + i));
    }
    EXPECT_EQ(this->device(1).counters().mailbox_overflows, 0u);
    EXPECT_EQ(this->device(0).counters().backpressure, 0u);
}

TYPED_TEST_P(DeviceVelo, slots_serve_for_many_laps_whatever_their_number) {
    constexpr std::array<uint32_t, 8> kSlots = {1, 2, 3, 7, 37, 64, 100, 255};
    this->open(kSlots.size() + 1, [&](DeviceConfig& config, size_t i) {
        if (i != 0) config.mailbox_slots = kSlots[i - 1];
    });
    for (size_t to = 1; to <= kSlots.size(); ++to) {
        const uint32_t slots = kSlots[to - 1];
        std::mt19937_64 random(slots);
        const uint64_t laps = this->laps_max();
        uint64_t sent = 0;
        uint64_t read = 0;
        DeviceAddr from = kNoAddr;
        while (read < laps * slots) {
            const uint64_t room = slots - (sent - read);
            if (room != 0) {
                const auto batch = static_cast<uint32_t>(1 + random() % room);
                const Admission admission = random() % 2 == 0 ? Admission::kCredited : Admission::kGuarded;
                ASSERT_EQ(this->send(0, this->name(0, to), 0, sent, batch, admission), Status::kOk);
                sent += batch;
            }
            for (uint64_t burst = 1 + random() % slots; burst != 0 && read < sent; --burst, ++read) {
                ASSERT_TRUE(this->take(to, 0, read)) << slots << " slots";
            }
        }
        for (; read < sent; ++read) ASSERT_TRUE(this->take(to, 0, read));
        this->step(1);
        EXPECT_EQ(this->device(to).peek(from), nullptr);
        EXPECT_EQ(this->device(to).counters().mailbox_overflows, 0u);
    }
}

TYPED_TEST_P(DeviceVelo, each_source_keeps_its_order_among_many) {
    constexpr size_t kSenders = 4;
    this->open(kSenders + 1);
    std::array<uint64_t, kSenders> sent = {};
    std::array<uint64_t, kSenders> seen = {};
    std::mt19937_64 random(4);
    constexpr uint64_t kEach = 2000;
    const auto finished = [&] { return std::ranges::all_of(seen, [](uint64_t n) { return n == kEach; }); };
    for (int round = 0; !finished() && round < 1'000'000; ++round) {
        const size_t sender = random() % kSenders;
        const auto batch = static_cast<uint32_t>(std::min<uint64_t>(1 + random() % 9, kEach - sent[sender]));
        const size_t device = sender + 1;
        if (batch != 0 &&
            send_numbered(this->device(device), this->name(device, 0), static_cast<uint32_t>(sender),
                          sent[sender], batch, Admission::kGuarded) == Status::kOk) {
            sent[sender] += batch;
        }
        this->fabric_.step();
        for (uint64_t burst = random() % 12; burst != 0; --burst) {
            DeviceAddr from = kNoAddr;
            const Packet* packet = this->device(0).peek(from);
            if (packet == nullptr) break;
            const size_t source =
                static_cast<size_t>(std::ranges::find(this->names_[0], from) - this->names_[0].begin()) - 1;
            ASSERT_LT(source, kSenders);
            ASSERT_TRUE(TestPacket::is(*packet, static_cast<uint32_t>(source), seen[source]));
            ++seen[source];
            this->device(0).advance();
        }
    }
    EXPECT_TRUE(finished());
}

TYPED_TEST_P(DeviceVelo, both_directions_flow_at_once) {
    this->open(2);
    std::array<uint64_t, 2> sent = {};
    for (uint64_t round = 0; round < 500; ++round) {
        for (size_t i = 0; i < 2; ++i) {
            ASSERT_EQ(
                this->send(i, this->name(i, 1 - i), static_cast<uint32_t>(i), sent[i], 3),
                Status::kOk);
        }
        for (size_t i = 0; i < 2; ++i) {
            for (uint64_t k = 0; k < 3; ++k) ASSERT_TRUE(this->take(1 - i, i, sent[i] + k));
            sent[i] += 3;
        }
    }
}

TYPED_TEST_P(DeviceVelo, contact_packets_of_many_come_once_and_in_order_and_are_bounded) {
    constexpr size_t kSenders = 5;
    constexpr uint32_t kContacts = 2;
    constexpr uint64_t kEach = 60;
    this->open(kSenders + 1, [](DeviceConfig& config, size_t) { config.contact_slots = kContacts; });
    std::array<uint64_t, kSenders + 1> sent = {};
    std::array<uint64_t, kSenders + 1> seen = {};
    std::mt19937_64 random(3);
    uint64_t taken = 0;
    EXPECT_TRUE(this->drive([&] {
        for (size_t i = 1; i <= kSenders; ++i) {
            // Every third packet has a credit, and must not overtake the others.
            const Admission admission = sent[i] % 3 == 2 ? Admission::kCredited : Admission::kContact;
            if (sent[i] == kEach) continue;
            const Status status = send_numbered(this->device(i), this->name(i, 0), static_cast<uint32_t>(i), sent[i],
                                                1, admission);
            EXPECT_TRUE(status == Status::kOk || status == Status::kAgain);
            sent[i] += status == Status::kOk;
        }
        if (random() % 8 != 0) return false;
        DeviceAddr from = kNoAddr;
        const Packet* packet = this->device(0).peek(from);
        if (packet == nullptr) return false;
        const uint16_t sender = PacketStatus::unpack(packet->status).node - this->config(0).node;
        EXPECT_EQ(from, this->name(0, sender));
        EXPECT_TRUE(TestPacket::is(*packet, sender, seen[sender]++));
        this->device(0).advance();
        return ++taken == kSenders * kEach;
    }));
    EXPECT_EQ(taken, kSenders * kEach);
    EXPECT_EQ(this->device(0).counters().packets_unknown_source, 0u);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceVelo, packets_come_whole_and_in_order_with_their_status_and_source,
                            every_payload_length_arrives, packets_that_are_alike_come_like_others,
                            a_packet_stays_until_advance,
                            contact_packets_of_many_come_once_and_in_order_and_are_bounded,
                            as_many_credited_packets_as_slots_fit_unread,
                            slots_serve_for_many_laps_whatever_their_number,
                            each_source_keeps_its_order_among_many, both_directions_flow_at_once);

/// Suites for devices with DeviceLimits::send_packets_max.
template <class Fabric>
class DeviceParts : public DeviceTest<Fabric> {};
TYPED_TEST_SUITE_P(DeviceParts);

TYPED_TEST_P(DeviceParts, more_packets_than_one_send_takes_are_a_bad_parameter) {
    this->open(2, [](DeviceConfig& config, size_t) {
        config.mailbox_slots = 256;
        config.contact_slots = 3;
    });
    ASSERT_EQ(this->send(0, this->name(0, 1), 0, 0, 1), Status::kOk);
    const uint32_t most = this->device(0).limits().send_packets_max;
    ASSERT_LT(most, UINT32_MAX);
    bool filled = false;
    const auto fill = [&filled](uint32_t, std::byte*) { return filled = true, PacketStatus{}; };
    for (const uint32_t packets : {0u, most + 1, UINT32_MAX}) {
        EXPECT_EQ(this->device(0).send(this->name(0, 1), packets, Admission::kCredited, fill), Status::kBadParam);
    }
    EXPECT_EQ(this->device(0).send(this->name(0, 1), 2, Admission::kContact, fill), Status::kBadParam);
    EXPECT_FALSE(filled);
    EXPECT_TRUE(this->take(1, 0, 0));
    EXPECT_EQ(this->send(0, this->name(0, 1), 0, 1, most), Status::kOk);
    for (uint64_t number = 1; number <= most; ++number) ASSERT_TRUE(this->take(1, 0, number));
}

TYPED_TEST_P(DeviceParts, mailboxes_of_all_sizes_take_long_sends_whole_and_in_order) {
    constexpr std::array<uint32_t, 4> kSlots = {100, 700, 5000, 40'000};
    this->open(kSlots.size(), [&](DeviceConfig& config, size_t index) { config.mailbox_slots = kSlots[index]; });
    for (size_t from = 0; from < kSlots.size(); ++from) {
        for (size_t to = 0; to < kSlots.size(); ++to) {
            if (from == to) continue;
            const uint32_t packets = std::min(this->device(from).limits().send_packets_max, kSlots[to]);
            ASSERT_EQ(this->send(from, this->name(from, to), from, 0, packets), Status::kOk);
            for (uint64_t number = 0; number < packets; ++number) {
                ASSERT_TRUE(this->take(to, static_cast<uint16_t>(from), number))
                    << number << " of " << packets << " from " << kSlots[from] << " to " << kSlots[to];
            }
        }
    }
}

REGISTER_TYPED_TEST_SUITE_P(DeviceParts, more_packets_than_one_send_takes_are_a_bad_parameter,
                            mailboxes_of_all_sizes_take_long_sends_whole_and_in_order);

/// With DeviceTraits::sees_room: the sender sees the receiver's mailbox.
template <class Fabric>
class DeviceRoom : public DeviceTest<Fabric> {};
TYPED_TEST_SUITE_P(DeviceRoom);

TYPED_TEST_P(DeviceRoom, a_guarded_send_to_a_full_mailbox_changes_nothing_and_recovers) {
    this->open(2);
    const uint32_t slots = this->device(1).limits().mailbox_slots;
    uint64_t sent = 0;
    while (sent < slots) {
        ASSERT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, sent, 1, Admission::kGuarded),
                  Status::kOk);
        ++sent;
    }
    for (uint64_t backpressure = 1; backpressure <= 3; ++backpressure) {
        bool filled = false;
        const auto fill = [&filled](uint32_t, std::byte*) {
            filled = true;
            return PacketStatus{};
        };
        EXPECT_EQ(this->device(0).send(this->name(0, 1), 1, Admission::kGuarded, fill), Status::kAgain);
        EXPECT_FALSE(filled);
        EXPECT_EQ(this->device(0).counters().backpressure, backpressure);
        EXPECT_EQ(this->device(0).counters().packets_sent, sent);
    }
    for (uint64_t read = 0; read < 5u * slots; ++read) {
        ASSERT_TRUE(this->take(1, 0, read));
        Status status = Status::kAgain;
        ASSERT_TRUE(this->drive([&] {
            status = send_numbered(this->device(0), this->name(0, 1), 0, sent, 1, Admission::kGuarded);
            return status != Status::kAgain;
        }));
        ASSERT_EQ(status, Status::kOk);
        ++sent;
    }
    EXPECT_EQ(this->device(1).counters().mailbox_overflows, 0u);
}

TYPED_TEST_P(DeviceRoom, a_guarded_batch_goes_whole_or_not_at_all) {
    this->open(2, [](DeviceConfig& config, size_t) { config.mailbox_slots = 8; });
    ASSERT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, 0, 5, Admission::kGuarded), Status::kOk);
    EXPECT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, 5, 4, Admission::kGuarded), Status::kAgain);
    ASSERT_TRUE(this->take(1, 0, 0));
    ASSERT_TRUE(this->drive([&] {
        return send_numbered(this->device(0), this->name(0, 1), 0, 5, 4, Admission::kGuarded) == Status::kOk;
    }));
    for (uint64_t number = 1; number < 9; ++number) ASSERT_TRUE(this->take(1, 0, number));
}

TYPED_TEST_P(DeviceRoom, contact_slots_bound_the_packets_that_have_no_credit) {
    this->open(2, [](DeviceConfig& config, size_t) { config.contact_slots = 3; });
    const auto send = [this](uint64_t number) {
        return send_numbered(this->device(0), this->name(0, 1), 0, number, 1, Admission::kContact);
    };
    for (uint64_t number = 0; number < 3; ++number) ASSERT_EQ(send(number), Status::kOk);
    EXPECT_EQ(send(3), Status::kAgain);
    // Credits are not concerned, and their packets' slots are others.
    ASSERT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, 3, 1), Status::kOk);
    EXPECT_EQ(send(4), Status::kAgain);
    ASSERT_TRUE(this->take(1, 0, 0));
    ASSERT_TRUE(this->drive([&] { return send(4) == Status::kOk; }));
    EXPECT_EQ(send(5), Status::kAgain);
    for (uint64_t number = 1; number < 5; ++number) ASSERT_TRUE(this->take(1, 0, number));
    for (uint64_t number = 5; number < 8; ++number) ASSERT_EQ(send(number), Status::kOk);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceRoom, a_guarded_send_to_a_full_mailbox_changes_nothing_and_recovers,
                            a_guarded_batch_goes_whole_or_not_at_all,
                            contact_slots_bound_the_packets_that_have_no_credit);

}  // namespace velo::conformance
