/// Conformance: injected faults. They are for devices that inject all of velo/device/faults.h.
/// No fault loses a packet or reorders two of one source.
#pragma once

#include <string>

#include "tests/conformance/fabric.h"

namespace velo::conformance {

template <class Fabric>
class DeviceFaults : public DeviceTest<Fabric> {
  protected:
    /// Device 0 has the faults; of `count` devices.
    void open_with(const std::string& faults, size_t count = 2) {
        this->open(count, [&](DeviceConfig& config, size_t i) {
            if (i == 0) config.faults = faults;
        });
    }
    uint64_t injected() { return this->device(0).counters().faults_injected; }

    /// Device `from` sends `total` packets to the other by the admission given; the longest wait between two
    /// arrivals comes back, in ns.
    uint64_t stream(size_t from, uint64_t total, Admission admission) {
        const size_t to = 1 - from;
        uint64_t sent = 0;
        uint64_t read = 0;
        uint64_t longest_ns = 0;
        uint64_t last_ns = this->fabric_.now_ns();
        const uint64_t slots = this->device(to).limits().mailbox_slots;
        this->drive([&] {
            const bool room = admission == Admission::kGuarded || sent - read < slots;
            if (sent < total && room &&
                send_numbered(this->device(from), this->name(from, to), static_cast<uint32_t>(from), sent, 1,
                              admission) == Status::kOk) {
                ++sent;
            }
            DeviceAddr source = kNoAddr;
            while (const Packet* packet = this->device(to).peek(source)) {
                EXPECT_TRUE(TestPacket::is(*packet, static_cast<uint32_t>(from), read));
                longest_ns = std::max(longest_ns, this->fabric_.now_ns() - last_ns);
                last_ns = this->fabric_.now_ns();
                this->device(to).advance();
                ++read;
            }
            return read == total;
        });
        EXPECT_EQ(read, total);
        return longest_ns;
    }
};
TYPED_TEST_SUITE_P(DeviceFaults);

TYPED_TEST_P(DeviceFaults, delayed_packets_are_late_and_none_is_lost_or_reordered) {
    this->open_with("seed=1,delay=0.05:3ms");
    for (const Admission admission : {Admission::kCredited, Admission::kGuarded}) {
        EXPECT_GE(this->stream(0, 2000, admission), 2'900'000u);
    }
    EXPECT_GT(this->injected(), 50u);
    EXPECT_EQ(this->device(0).counters().packets_sent, 4000u);
    EXPECT_EQ(this->device(1).counters().mailbox_overflows, 0u);
    EXPECT_LT(this->stream(1, 500, Admission::kCredited), 1'000'000u) << "the other direction has no faults";
}

TYPED_TEST_P(DeviceFaults, a_delay_to_one_peer_holds_up_no_other) {
    this->open_with("delay=1:50ms", 3);
    ASSERT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, 0, 2), Status::kOk);
    const uint64_t before_ns = this->fabric_.now_ns();
    this->step(300);
    ASSERT_EQ(send_numbered(this->device(0), this->name(0, 2), 0, 0, 2), Status::kOk);
    DeviceAddr from = kNoAddr;
    EXPECT_EQ(this->device(1).peek(from), nullptr);
    ASSERT_TRUE(this->take(1, 0, 0));
    EXPECT_GE(this->fabric_.now_ns() - before_ns, 50'000'000u);
    EXPECT_LE(this->fabric_.now_ns() - before_ns, 51'000'000u);
    EXPECT_EQ(this->device(2).peek(from), nullptr);
    ASSERT_TRUE(this->take(2, 0, 0));
}

TYPED_TEST_P(DeviceFaults, a_stalled_mailbox_shows_nothing_for_a_while_and_then_everything) {
    this->open_with("seed=3,stall=0.02:5ms");
    EXPECT_GE(this->stream(1, 1000, Admission::kGuarded), 4'900'000u);
    EXPECT_GT(this->injected(), 5u);
}

TYPED_TEST_P(DeviceFaults, late_operations_end_late_and_well) {
    this->open_with("rma_late=1:4ms");
    std::array<std::byte, 64> memory;
    memory.fill(std::byte{3});
    const Registration registration = this->registered(1, memory.data(), memory.size());
    std::array<std::byte, 64> local = {};
    const uint64_t before_ns = this->fabric_.now_ns();
    const Notification notification = this->run(0, {.peer = this->name(0, 1),
                                                    .local = local.data(),
                                                    .nla = registration.nla,
                                                    .key = registration.key,
                                                    .bytes = 64});
    EXPECT_EQ(notification.status, Status::kOk);
    EXPECT_EQ(local, memory);
    EXPECT_GE(this->fabric_.now_ns() - before_ns, 3'900'000u);
    EXPECT_EQ(this->injected(), 1u);
}

TYPED_TEST_P(DeviceFaults, failed_operations_say_how_and_move_nothing) {
    struct Row {
        const char* faults;
        Status status;
    };
    const Row rows[] = {{"rma_fail=1", Status::kFailed},
                        {"rma_denied=1", Status::kUnsupported},
                        {"atu_fault=1", Status::kAtuFault}};
    for (const Row& row : rows) {
        const size_t index = static_cast<size_t>(&row - rows) * 2;
        DeviceConfig faulty = this->config(index);
        faulty.faults = row.faults;
        this->fabric_.open(faulty);
        this->fabric_.open(this->config(index + 1));
        const DeviceAddr peer = this->connect(index, index + 1);
        std::array<uint64_t, 2> memory = {1, 2};
        std::array<uint64_t, 2> local = {3, 4};
        const Registration registration = this->registered(index + 1, memory.data(), sizeof memory);
        for (const RmaKind kind : {RmaKind::kPut, RmaKind::kGet, RmaKind::kFetchAdd}) {
            const Notification notification =
                this->run(index, {.kind = kind,
                                  .peer = peer,
                                  .local = reinterpret_cast<std::byte*>(local.data()),
                                  .nla = registration.nla,
                                  .key = registration.key,
                                  .bytes = 8,
                                  .operand = 5});
            EXPECT_EQ(notification.status, row.status) << row.faults;
        }
        EXPECT_EQ(memory, (std::array<uint64_t, 2>{1, 2}));
        EXPECT_EQ(local, (std::array<uint64_t, 2>{3, 4}));
        EXPECT_EQ(this->device(index).counters().faults_injected, 3u);
        EXPECT_EQ(this->device(index).counters().rma_failed, 3u);
    }
}

TYPED_TEST_P(DeviceFaults, a_port_that_goes_down_fails_its_operations_and_no_other_ports) {
    this->open_with("port_down=1:3");
    uint64_t word = 0;
    const Registration registration = this->registered(1, &word, sizeof word);
    for (int i = 0; i < 6; ++i) {
        for (uint8_t port = 0; port < 2; ++port) {
            const Notification notification = this->run(0, {.kind = RmaKind::kFetchAdd,
                                                            .port = port,
                                                            .peer = this->name(0, 1),
                                                            .nla = registration.nla,
                                                            .key = registration.key,
                                                            .bytes = 8,
                                                            .operand = 1});
            EXPECT_EQ(notification.status, port == 1 && i >= 3 ? Status::kNotBegun : Status::kOk);
        }
    }
    EXPECT_EQ(word, 9u);
}

TYPED_TEST_P(DeviceFaults, a_process_that_dies_sends_no_more_and_is_dead_to_all) {
    this->open_with("die_after=10", 3);
    alignas(8) std::array<std::byte, 64> memory = {};
    const Registration own = this->registered(0, memory.data(), memory.size());
    for (uint64_t number = 0; number < 10; ++number) {
        ASSERT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, number, 1), Status::kOk);
    }
    EXPECT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, 10, 1), Status::kPeerDead);
    EXPECT_EQ(send_numbered(this->device(0), this->name(0, 2), 0, 0, 1), Status::kPeerDead);
    EXPECT_FALSE(this->device(0).alive(this->name(0, 1)));
    EXPECT_EQ(this->injected(), 1u);
    RmaOperation add = {.kind = RmaKind::kFetchAdd,
                        .peer = this->name(1, 0),
                        .nla = own.nla,
                        .key = own.key,
                        .bytes = 8,
                        .operand = 1};
    EXPECT_EQ(this->run(1, add).status, Status::kPeerDead);
    for (size_t i = 1; i < 3; ++i) {
        EXPECT_TRUE(this->drive([&] { return !this->device(i).alive(this->name(i, 0)); }));
    }
    for (uint64_t number = 0; number < 10; ++number) ASSERT_TRUE(this->take(1, 0, number));
    DeviceAddr from = kNoAddr;
    EXPECT_EQ(this->device(1).peek(from), nullptr);
    EXPECT_EQ(this->device(2).peek(from), nullptr);
}

TYPED_TEST_P(DeviceFaults, all_faults_together_lose_and_reorder_nothing) {
    this->open(2, [&](DeviceConfig& config, size_t i) {
        config.faults = "seed=" + std::to_string(17 + i) +
                        ",delay=0.01:700us,stall=0.01:900us,rma_late=0.1:1ms," +
                        "rma_fail=0.05,rma_denied=0.05,atu_fault=0.05";
    });
    uint64_t words[2] = {};
    std::array<Registration, 2> registrations;
    for (size_t i = 0; i < 2; ++i) registrations[i] = this->registered(i, &words[i], 8);
    uint64_t posted = 0;
    uint64_t done = 0;
    uint64_t ended = 0;
    constexpr uint64_t kTotal = 3000;
    std::array<uint64_t, 2> sent = {};
    std::array<uint64_t, 2> read = {};
    this->drive([&] {
        for (size_t i = 0; i < 2; ++i) {
            if (sent[i] < kTotal &&
                send_numbered(this->device(i), this->name(i, 1 - i), static_cast<uint32_t>(i), sent[i], 2,
                              Admission::kGuarded) == Status::kOk) {
                sent[i] += 2;
            }
            DeviceAddr from = kNoAddr;
            while (const Packet* packet = this->device(i).peek(from)) {
                EXPECT_TRUE(TestPacket::is(*packet, static_cast<uint32_t>(1 - i), read[i]++));
                this->device(i).advance();
            }
            const RmaOperation add = {.kind = RmaKind::kFetchAdd,
                                      .peer = this->name(i, 1 - i),
                                      .nla = registrations[1 - i].nla,
                                      .key = registrations[1 - i].key,
                                      .bytes = 8,
                                      .operand = 1};
            if (posted < kTotal && this->device(i).post(add) == Status::kOk) ++posted;
            Notification notification;
            while (this->device(i).poll_notification(notification)) {
                ++ended;
                done += notification.status == Status::kOk;
            }
        }
        return read[0] == kTotal && read[1] == kTotal && ended == kTotal;
    });
    EXPECT_EQ(read[0], kTotal);
    EXPECT_EQ(read[1], kTotal);
    EXPECT_EQ(ended, kTotal);
    EXPECT_EQ(words[0] + words[1], done) << "what was reported failed did not happen";
    EXPECT_LT(done, kTotal);
}

TYPED_TEST_P(DeviceFaults, one_seed_gives_one_sequence) {
    std::array<std::vector<uint64_t>, 3> arrivals;
    for (size_t run = 0; run < 3; ++run) {
        TypeParam fabric;
        DeviceConfig sender = this->config(0);
        sender.faults = std::string("delay=0.1:1500us,seed=") + (run == 2 ? "6" : "5");
        fabric.open(sender);
        fabric.open(this->config(1));
        DeviceAddr to = kNoAddr;
        ASSERT_EQ(fabric[0].connect(address_of(fabric[1]).span(), to), Status::kOk);
        for (uint64_t number = 0; number < 300; ++number) {
            fabric.step();
            ASSERT_EQ(send_numbered(fabric[0], to, 0, number, 1), Status::kOk);
            DeviceAddr from = kNoAddr;
            while (fabric[1].peek(from) != nullptr) {
                arrivals[run].push_back(fabric.now_ns());
                fabric[1].advance();
            }
        }
    }
    EXPECT_EQ(arrivals[0], arrivals[1]);
    EXPECT_NE(arrivals[0], arrivals[2]);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceFaults, delayed_packets_are_late_and_none_is_lost_or_reordered,
                            a_delay_to_one_peer_holds_up_no_other,
                            a_stalled_mailbox_shows_nothing_for_a_while_and_then_everything,
                            late_operations_end_late_and_well, failed_operations_say_how_and_move_nothing,
                            a_port_that_goes_down_fails_its_operations_and_no_other_ports,
                            a_process_that_dies_sends_no_more_and_is_dead_to_all,
                            all_faults_together_lose_and_reorder_nothing, one_seed_gives_one_sequence);

}  // namespace velo::conformance
