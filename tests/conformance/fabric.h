/// Conformance: one suite over any device. The tests here hold a device to what velo/device/device.h says.
///
/// A device takes part through a `Fabric`, which opens devices that can reach each other:
///
///   struct Fabric {
///       using Device = ...;                  // models velo::Device
///       Device& open(const DeviceConfig&);   // the n-th call opens device n
///       Device& operator[](size_t n);
///       void close(size_t n);                // ends it as its process's end would
///       void step();                         // time goes on by kStepNs, and every open device progresses
///       uint64_t now_ns() const;
///       static constexpr uint64_t kDriveNs;  // where time is real: after which what has not come does not come
///   };
///
/// and a source file that instantiates the suites of what it promises (shim_test.cc): each suite says which of
/// DeviceTraits it is about, and those that say nothing are every device's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "velo/device/device.h"

namespace velo::conformance {

/// Short against the faults that tests inject, long against what a device takes for one thing.
inline constexpr uint64_t kStepNs = 100'000;

struct PublishedAddress {
    std::array<std::byte, kDeviceAddressBytesMax> bytes;
    size_t length = 0;
    [[nodiscard]] std::span<const std::byte> span() const { return {bytes.data(), length}; }
};

template <class D>
PublishedAddress address_of(const D& device) {
    PublishedAddress address;
    address.length = device.address(address.bytes);
    return address;
}

/// Content of a test packet: who sent it and as which, and bytes that follow from both.
struct TestPacket {
    static constexpr uint8_t kLengthMin = 12;

    static uint8_t length_of(uint64_t number) {
        return static_cast<uint8_t>(kLengthMin + number % (kPayloadBytes - kLengthMin + 1));
    }
    static PacketStatus write(uint32_t sender, uint64_t number, std::byte* payload) {
        const uint8_t length = length_of(number);
        std::memcpy(payload, &number, 8);
        std::memcpy(payload + 8, &sender, 4);
        for (uint32_t i = kLengthMin; i < length; ++i) payload[i] = pattern(sender, number, i);
        return {.message_class = static_cast<MessageClass>(number % 3),
                .piggyback = number % 5 == 0,
                .end_of_message = number % 7 == 0,
                .error = number % 11 == 0,
                .tag = static_cast<uint8_t>(number),
                .length = length};
    }
    /// Whether `packet` is the one that write() made.
    static testing::AssertionResult is(const Packet& packet, uint32_t sender, uint64_t number) {
        std::array<std::byte, kPayloadBytes> payload;
        PacketStatus expected = write(sender, number, payload.data());
        PacketStatus found = PacketStatus::unpack(packet.status);
        found.contact = false;  // says how it was sent, not what
        expected.node = found.node;
        expected.vpid = found.vpid;
        expected.lap = found.lap;
        uint64_t found_number = 0;
        std::memcpy(&found_number, packet.payload, 8);
        if (found == expected && std::memcmp(payload.data(), packet.payload, expected.length) == 0) {
            return testing::AssertionSuccess();
        }
        return testing::AssertionFailure() << "expected packet " << number << " of " << sender << ", found "
                                           << found_number << ", status " << std::hex << packet.status;
    }

  private:
    static std::byte pattern(uint32_t sender, uint64_t number, uint32_t i) {
        return static_cast<std::byte>(number * 31 + sender * 7 + i);
    }
};

/// Sends `count` packets of `sender`, numbered from `number`, in one call.
template <class D>
Status send_numbered(D& device, DeviceAddr to, uint32_t sender, uint64_t number, uint32_t count,
                     Admission admission = Admission::kCredited) {
    return device.send(to, count, admission, [&](uint32_t i, std::byte* payload) {
        PacketStatus status = TestPacket::write(sender, number + i, payload);
        status.contact = admission == Admission::kContact;
        return status;
    });
}

/// Opens devices that know each other, and drives them.
template <class Fabric>
class DeviceTest : public testing::Test {
  protected:
    using D = typename Fabric::Device;

    static DeviceConfig config(size_t index) {
        return {.node = static_cast<uint16_t>(100 + index),
                .vpid = static_cast<uint8_t>(index % 3),
                .host_name = 0xfeed0000 + index,
                .job_token = 77,
                .mailbox_slots = 32,
                .ports = 2,
                .faults = {}};
    }

    /// Opens `count` devices with `change(config, index)` and connects each to each; name(i, j) is i's name
    /// of j.
    template <class Change>
    void open(size_t count, Change&& change) {
        for (size_t i = 0; i < count; ++i) {
            DeviceConfig wanted = config(i);
            change(wanted, i);
            fabric_.open(wanted);
        }
        names_.assign(count, std::vector<DeviceAddr>(count, kNoAddr));
        for (size_t i = 0; i < count; ++i) {
            for (size_t j = 0; j < count; ++j) {
                if (i != j) names_[i][j] = connect(i, j);
            }
        }
    }
    void open(size_t count) {
        open(count, [](DeviceConfig&, size_t) {});
    }

    D& device(size_t index) { return fabric_[index]; }
    [[nodiscard]] DeviceAddr name(size_t of, size_t whom) const { return names_[of][whom]; }

    DeviceAddr connect(size_t from, size_t to) {
        const PublishedAddress address = address_of(device(to));
        DeviceAddr peer = kNoAddr;
        Status status = Status::kAgain;
        const bool settled = drive([&] {
            status = device(from).connect(address.span(), peer);
            return status != Status::kAgain;
        });
        EXPECT_TRUE(settled);
        EXPECT_EQ(status, Status::kOk) << to_string(status);
        return peer;
    }

    /// Steps until `done()`; false when it does not come to be.
    template <class Done>
    bool drive(Done&& done, int steps = 20'000) {
        const uint64_t begin_ns = fabric_.now_ns();
        for (int i = 0; more(begin_ns, i, steps); ++i) {
            if (done()) return true;
            fabric_.step();
        }
        return done();
    }
    /// Steps until `done()`, while device `index` waits for `peer`; false when it does not come to be.
    template <class Done>
    bool drive_watching(size_t index, DeviceAddr peer, Done&& done) {
        return drive([&] { return health::watch(device(index), peer), done(); });
    }
    /// Sends `count` packets of `sender`, in as many calls as the device wants, each again until it takes it.
    Status send(size_t from, DeviceAddr to, uint32_t sender, uint64_t number, uint32_t count,
                Admission admission = Admission::kCredited) {
        while (count != 0) {
            const uint32_t here = std::min(count, device(from).limits().send_packets_max);
            Status status = Status::kAgain;
            drive([&] {
                status = send_numbered(device(from), to, sender, number, here, admission);
                return status != Status::kAgain;
            });
            if (status != Status::kOk) return status;
            number += here;
            count -= here;
        }
        return Status::kOk;
    }
    void step(int steps) {
        for (int i = 0; i < steps; ++i) fabric_.step();
    }

    /// The next packet at `index`, or nullptr when none comes.
    const Packet* receive(size_t index, DeviceAddr& from) {
        const Packet* packet = nullptr;
        drive([&] { return (packet = device(index).peek(from)) != nullptr; });
        return packet;
    }

    /// Takes the next packet, which must be number `number` of device `sender`.
    testing::AssertionResult take(size_t index, size_t sender, uint64_t number) {
        DeviceAddr from = kNoAddr;
        const Packet* packet = receive(index, from);
        if (packet == nullptr) return testing::AssertionFailure() << "packet " << number << " did not come";
        if (from != name(index, sender)) return testing::AssertionFailure() << "it came from " << from;
        const testing::AssertionResult result =
            TestPacket::is(*packet, static_cast<uint32_t>(sender), number);
        device(index).advance();
        return result;
    }

    /// The next notification at `index`.
    bool notified(size_t index, Notification& notification) {
        return drive([&] { return device(index).poll_notification(notification); });
    }

    /// Posts, and waits for the requester's notification.
    Notification run(size_t index, RmaOperation operation) {
        Notification notification = {.status = Status::kProtocol};
        Status status = Status::kAgain;
        drive([&] { return (status = device(index).post(operation)) != Status::kAgain; });
        EXPECT_EQ(status, Status::kOk) << to_string(status);
        EXPECT_TRUE(notified(index, notification));
        return notification;
    }

    Registration registered(size_t index, void* base, size_t bytes, uint32_t access = kAccessAny) {
        Registration registration;
        EXPECT_EQ(device(index).register_memory(base, bytes, static_cast<Access>(access), registration),
                  Status::kOk);
        return registration;
    }

    [[nodiscard]] bool more(uint64_t begin_ns, int step, int steps) const {
        if constexpr (requires { Fabric::kDriveNs; }) {
            return fabric_.now_ns() - begin_ns < Fabric::kDriveNs;
        } else {
            return step < steps;
        }
    }

    Fabric fabric_;
    std::vector<std::vector<DeviceAddr>> names_;
};

}  // namespace velo::conformance
