// Faults on demand over a network's device. The network is the loopback interface; time is the test's.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/conformance/ofi_fabric.h"

namespace velo::ofi {
namespace {

using conformance::kStepNs;
using conformance::Net;
using conformance::send_numbered;
using conformance::TestPacket;

class TimedFabric {
  public:
    using Device = conformance::OfiTestDevice<Net>;
    static constexpr uint64_t kDriveNs = 1'000'000'000'000;

    Device& open(const DeviceConfig& config) { return *devices_.emplace_back(std::make_unique<Device>(config)); }
    Device& operator[](size_t index) { return *devices_[index]; }
    void step() {
        now_ns_ += kStepNs;
        for (const auto& device : devices_) device->progress(now_ns_);
    }
    [[nodiscard]] uint64_t now_ns() const { return now_ns_; }

  private:
    std::vector<std::unique_ptr<Device>> devices_;
    uint64_t now_ns_ = 0;
};

class OfiFaults : public conformance::DeviceTest<TimedFabric> {
  protected:
    /// Device 0 has the faults.
    void open_with(const std::string& faults) {
        open(2, [&](DeviceConfig& config, size_t index) { config.faults = index == 0 ? faults : ""; });
    }
    uint64_t injected() { return device(0).counters().faults_injected; }
    uint32_t held() { return device(0).report(name(0, 1)).held_packets; }
    [[nodiscard]] uint64_t now_ns() const { return fabric_.now_ns(); }
    bool shows(size_t index) {
        DeviceAddr from = kNoAddr;
        return device(index).peek(from) != nullptr;
    }
};

TEST_F(OfiFaults, a_delayed_message_comes_late_and_so_does_what_follows_it) {
    constexpr uint64_t kDelayNs = 50'000'000;
    open_with("delay=1:50ms");
    const uint64_t first_ns = now_ns();
    ASSERT_EQ(send_numbered(device(0), name(0, 1), 0, 0, 2), Status::kOk);
    step(100);
    const uint64_t second_ns = now_ns();
    ASSERT_EQ(send_numbered(device(0), name(0, 1), 0, 2, 1), Status::kOk);
    EXPECT_EQ(held(), 3u);
    EXPECT_EQ(device(0).counters().packets_sent, 0u);
    while (now_ns() + kStepNs < first_ns + kDelayNs) {
        step(1);
        ASSERT_FALSE(shows(1));
    }
    EXPECT_TRUE(take(1, 0, 0));
    EXPECT_TRUE(take(1, 0, 1));
    EXPECT_TRUE(take(1, 0, 2));
    EXPECT_GE(now_ns(), second_ns + kDelayNs);
    EXPECT_EQ(held(), 0u);
    EXPECT_EQ(device(0).counters().packets_sent, 3u);
    EXPECT_EQ(injected(), 2u);
}

TEST_F(OfiFaults, a_delay_holds_no_more_of_a_guarded_sender_than_the_mailbox_has_slots) {
    open_with("delay=1:1s");
    const uint32_t slots = config(1).mailbox_slots;
    for (uint32_t number = 0; number < slots; ++number) {
        ASSERT_EQ(send_numbered(device(0), name(0, 1), 0, number, 1, Admission::kGuarded), Status::kOk);
    }
    EXPECT_EQ(send_numbered(device(0), name(0, 1), 0, slots, 1, Admission::kGuarded), Status::kAgain);
    EXPECT_EQ(held(), slots);
    EXPECT_EQ(injected(), slots);
}

/// A stalled process is as one that is stopped: it takes nothing from the network either.
TEST_F(OfiFaults, a_stalled_device_does_nothing_for_a_while) {
    constexpr uint64_t kStallNs = 50'000'000;
    open_with("stall=1:50ms");
    ASSERT_EQ(send(1, name(1, 0), 1, 0, 1), Status::kOk);
    ASSERT_TRUE(drive([&] { return shows(0) || injected() != 0; }));
    EXPECT_FALSE(shows(0));
    const uint64_t stalled_ns = now_ns();
    ASSERT_EQ(send_numbered(device(1), name(1, 0), 1, 1, 1), Status::kOk);
    while (now_ns() + kStepNs < stalled_ns + kStallNs) {
        step(1);
        usleep(20);
        ASSERT_FALSE(shows(0));
    }
    EXPECT_EQ(device(0).report(kNoAddr).mailbox_written, 1u) << "the second one is not taken";
    EXPECT_TRUE(take(0, 1, 0));
    EXPECT_GE(now_ns(), stalled_ns + kStallNs);
    EXPECT_TRUE(take(0, 1, 1));
    EXPECT_EQ(injected(), 2u);
}

TEST_F(OfiFaults, a_failed_operation_says_so_and_moves_nothing) {
    open_with("seed=1,rma_fail=0.5");
    constexpr uint16_t kOperations = 40;
    std::array<uint64_t, 2> remote = {};
    uint64_t local = 0;
    const Registration registration = registered(1, remote.data(), sizeof remote);
    uint64_t failed = 0;
    for (uint16_t cookie = 1; cookie <= kOperations; ++cookie) {
        const bool put = cookie % 2 == 0;
        const uint64_t before = put ? remote[1] : local;
        if (put) local = cookie;
        if (!put) remote[1] = cookie;
        const Notification notification = run(0, {.kind = put ? RmaKind::kPut : RmaKind::kGet,
                                                  .cookie = cookie,
                                                  .peer = name(0, 1),
                                                  .local = reinterpret_cast<std::byte*>(&local),
                                                  .nla = registration.nla + sizeof(uint64_t),
                                                  .key = registration.key,
                                                  .bytes = sizeof(uint64_t)});
        const bool well = notification.status == Status::kOk;
        EXPECT_EQ(notification.status, well ? Status::kOk : Status::kFailed);
        EXPECT_EQ(put ? remote[1] : local, well ? cookie : before);
        EXPECT_EQ(notification.cookie, cookie);
        EXPECT_EQ(notification.node, config(1).node);
        EXPECT_EQ(notification.vpid, config(1).vpid);
        EXPECT_EQ(notification.operation, put ? RmaKind::kPut : RmaKind::kGet);
        failed += !well;
    }
    EXPECT_GT(failed, 5u);
    EXPECT_LT(failed, 35u);
    EXPECT_EQ(injected(), failed);
    EXPECT_EQ(device(0).counters().rma_failed, failed);
    EXPECT_EQ(device(0).counters().rma_posted, kOperations);
}

TEST_F(OfiFaults, an_operation_that_cannot_be_is_refused_and_meets_no_fault) {
    open_with("rma_fail=1");
    std::array<std::byte, 8> local = {};
    const RmaOperation good = {.peer = name(0, 1), .local = local.data(), .key = 1, .bytes = 8};
    RmaOperation port = good, bytes = good, kind = good;
    port.port = 7;
    bytes.bytes = 0;
    kind.kind = RmaKind::kLock;
    EXPECT_EQ(device(0).post(port), Status::kBadParam);
    EXPECT_EQ(device(0).post(bytes), Status::kBadParam);
    EXPECT_EQ(device(0).post(kind), Status::kUnsupported);
    EXPECT_EQ(injected(), 0u);
}

TEST_F(OfiFaults, together_they_lose_and_reorder_nothing) {
    open(2, [](DeviceConfig& config, size_t index) {
        config.faults = "seed=" + std::to_string(index) + ",delay=0.05:700us,stall=0.05:900us";
    });
    constexpr uint64_t kTotal = 2000;
    std::array<uint64_t, 2> sent = {};
    std::array<uint64_t, 2> read = {};
    ASSERT_TRUE(drive([&] {
        for (size_t i = 0; i < 2; ++i) {
            const bool room = sent[i] - read[1 - i] < config(i).mailbox_slots - 2;
            if (sent[i] < kTotal && room &&
                send_numbered(device(i), name(i, 1 - i), static_cast<uint32_t>(i), sent[i], 2) == Status::kOk) {
                sent[i] += 2;
            }
            DeviceAddr from = kNoAddr;
            while (const Packet* packet = device(i).peek(from)) {
                EXPECT_TRUE(TestPacket::is(*packet, static_cast<uint32_t>(1 - i), read[i]++));
                device(i).advance();
            }
        }
        return read[0] == kTotal && read[1] == kTotal;
    }));
    EXPECT_GT(injected(), 80u);
}

/// However often the network refuses a message.
TEST_F(OfiFaults, the_messages_that_a_seed_delays_are_the_same_each_time) {
    std::array<std::vector<uint64_t>, 3> delayed;
    for (size_t run = 0; run < 3; ++run) {
        TimedFabric fabric;
        DeviceConfig sender = config(0);
        sender.faults = std::string("delay=0.3:100us,seed=") + (run == 2 ? "6" : "5");
        fabric.open(sender);
        fabric.open(config(1));
        DeviceAddr to = kNoAddr;
        ASSERT_EQ(fabric[0].connect(conformance::address_of(fabric[1]).span(), to), Status::kOk);
        uint64_t refused = 0;
        for (uint64_t number = 0; number < 200;) {
            const uint64_t before = fabric[0].counters().faults_injected;
            const Status status = send_numbered(fabric[0], to, 0, number, 1);
            if (fabric[0].counters().faults_injected != before) delayed[run].push_back(number);
            number += status == Status::kOk;
            refused += status == Status::kAgain;
            // Not connected yet: in the second run it is tried ten times more.
            if (run == 1 && number == 0 && refused < 10) continue;
            fabric.step();
            DeviceAddr from = kNoAddr;
            while (fabric[1].peek(from) != nullptr) fabric[1].advance();
        }
    }
    EXPECT_GT(delayed[0].size(), 30u);
    EXPECT_NE(delayed[0][0], 0u) << "the first message has to come to the network";
    EXPECT_EQ(delayed[0], delayed[1]);
    EXPECT_NE(delayed[0], delayed[2]);
}

/// However often the device's queue is full.
TEST_F(OfiFaults, the_operations_that_a_seed_fails_are_the_same_each_time) {
    std::array<std::vector<uint16_t>, 2> failed;
    std::array<std::byte, 8> remote = {};
    std::array<std::byte, 8> local = {};
    for (const size_t run : {0, 1}) {
        fabric_ = {};
        open_with("seed=5,rma_fail=0.3");
        const Registration registration = registered(1, remote.data(), remote.size());
        uint16_t ended = 0;
        int refused = 0;
        for (uint16_t cookie = 0; ended < 300;) {
            const uint64_t before = injected();
            const Status status = cookie == 300 ? Status::kAgain
                                                : device(0).post({.cookie = cookie,
                                                                  .peer = name(0, 1),
                                                                  .local = local.data(),
                                                                  .nla = registration.nla,
                                                                  .key = registration.key,
                                                                  .bytes = 8});
            if (injected() != before) failed[run].push_back(cookie);
            cookie += status == Status::kOk;
            // In the second run it is tried more often before notifications are read, which frees the queue.
            if (status == Status::kOk || (run == 1 && ++refused % 10 != 0)) continue;
            Notification notification;
            while (device(0).poll_notification(notification)) ++ended;
            fabric_.step();
        }
        EXPECT_LT(failed[run].size(), 150u);
        EXPECT_EQ(device(0).counters().rma_failed, failed[run].size());
    }
    EXPECT_GT(failed[0].size(), 50u);
    EXPECT_EQ(failed[0], failed[1]);
}

TEST_F(OfiFaults, closing_ends_every_delay) {
    open_with("delay=1:10ms");
    ASSERT_EQ(send_numbered(device(0), name(0, 1), 0, 0, 1), Status::kOk);
    ASSERT_TRUE(take(1, 0, 0));
    ASSERT_EQ(send_numbered(device(0), name(0, 1), 0, 1, 2), Status::kOk);
    EXPECT_EQ(held(), 2u);
    device(0).announce_ending(base::Ending::kClosed);
    EXPECT_EQ(held(), 0u);
    EXPECT_TRUE(take(1, 0, 1));
    EXPECT_TRUE(take(1, 0, 2));
}

TEST_F(OfiFaults, those_of_the_software_device_alone_are_refused_by_name) {
    DeviceConfig faulty = config(0);
    faulty.faults = "delay=0.1:1ms,die_after=7";
    try {
        fabric_.open(faulty);
        FAIL() << "it opened";
    } catch (const base::SetupError& error) {
        EXPECT_NE(std::string(error.what()).find("'die_after=7'"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace velo::ofi
