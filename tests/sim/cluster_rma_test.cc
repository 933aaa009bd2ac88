// The simulated cluster's RMA unit: times, order, faults and deaths. tests/conformance has the meaning of operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "sim_device/cluster/cluster.h"

namespace velo::cluster {
namespace {

constexpr uint32_t kBytes = 65'536;
constexpr uint64_t kDataNs = kBytes * uint64_t{1'280} / 1'024;

/// A notification, and the process that read it when.
struct Read {
    uint64_t at_ns = 0;
    uint32_t process = 0;
    Notification what;
};

/// Three processes of two ports, at nodes 0, 1 and 14 of a line. Each knows each.
class Rig {
  public:
    explicit Rig(const FaultConfig& faults = {}, uint64_t seed = 1, bool whole_payloads = true, uint32_t start_ns = 0)
        : cluster_({.topology = Topology({16, 1, 1}, false),
                    .rma = {.start_ns = start_ns},
                    .faults = faults,
                    .seed = seed,
                    .whole_payloads = whole_payloads}) {
        for (const uint32_t node : {0u, 1u, 14u}) {
            cluster_.open(node, {.node = static_cast<uint16_t>(node),
                                 .vpid = static_cast<uint8_t>(node + 1),
                                 .mailbox_slots = 8,
                                 .contact_slots = 1,
                                 .ports = 2,
                                 .faults = {}});
        }
        for (uint32_t i = 0; i < 3; ++i) {
            for (uint32_t j = 0; j < 3; ++j) {
                if (i != j) cluster_[i].meet(j);
            }
        }
    }

    Cluster& cluster() { return cluster_; }
    ClusterDevice& operator[](uint32_t process) { return cluster_[process]; }
    [[nodiscard]] uint64_t way_ns(uint32_t to) const { return cluster_.latency_ns(0, to == 1 ? 1 : 14); }

    Registration registered(uint32_t process, void* base, size_t bytes) {
        Registration out;
        EXPECT_EQ(cluster_[process].register_memory(base, bytes, kAccessAny, out), Status::kOk);
        return out;
    }
    /// An operation of process 0 on the first bytes of a registration of process `to`.
    RmaOperation operation(RmaKind kind, uint32_t to, const Registration& registration, void* local, uint32_t bytes) {
        return {.kind = kind,
                .peer = cluster_[0].meet(to),
                .local = static_cast<std::byte*>(local),
                .nla = registration.nla,
                .key = registration.key,
                .bytes = bytes,
                .operand = 1};
    }
    /// Everything up to `until_ns`, with all processes asleep whenever nothing wakes them.
    std::vector<Read> run(uint64_t until_ns = Cluster::kNever) {
        std::vector<Read> all;
        for (uint32_t i = 0; i < 3; ++i) cluster_[i].sleep();
        while (ClusterDevice* device = cluster_.next(until_ns)) {
            woken_.push_back({device->process(), device->clock_ns()});
            Read read = {.at_ns = device->clock_ns(), .process = device->process(), .what = {}};
            while (device->poll_notification(read.what)) all.push_back(read);
            device->sleep();
        }
        return all;
    }
    /// Posts, and tries again as often as the device wants; returns how often that was.
    uint32_t post(const RmaOperation& operation) {
        uint32_t again = 0;
        Status status = cluster_[0].post(operation);
        for (; status == Status::kAgain && again < 1'000; ++again) {
            cluster_[0].spend(10);
            status = cluster_[0].post(operation);
        }
        EXPECT_EQ(status, Status::kOk);
        return again;
    }
    [[nodiscard]] const std::vector<std::pair<uint32_t, uint64_t>>& woken() const { return woken_; }

  private:
    Cluster cluster_;
    std::vector<std::pair<uint32_t, uint64_t>> woken_;
};

std::vector<std::byte> filled(size_t bytes, uint8_t seed) {
    std::vector<std::byte> memory(bytes);
    for (size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i * 7 + seed);
    return memory;
}

TEST(ClusterRma, an_operation_takes_its_start_two_latencies_and_its_data) {
    for (const uint32_t to : {1u, 2u}) {
        for (const RmaKind kind : {RmaKind::kGet, RmaKind::kPut, RmaKind::kFetchAdd}) {
            Rig rig({}, 1, true, 100);
            std::vector<std::byte> remote = filled(kBytes, 1);
            std::vector<std::byte> local = filled(kBytes, 2);
            const Registration registration = rig.registered(to, remote.data(), remote.size());
            rig[0].spend(777);
            const bool block = kind != RmaKind::kFetchAdd;
            const RmaOperation operation = rig.operation(kind, to, registration, local.data(), block ? kBytes : 8);
            ASSERT_EQ(rig[0].post(operation), Status::kOk);
            EXPECT_EQ(rig[0].report(rig[0].meet(to)).operations, 1u);
            const std::vector<Read> read = rig.run();
            ASSERT_EQ(read.size(), 1u);
            EXPECT_EQ(read[0].process, 0u);
            EXPECT_EQ(read[0].what.status, Status::kOk);
            EXPECT_EQ(read[0].at_ns, 777 + 100 + (block ? kDataNs : 0) + 2 * rig.way_ns(to));
            EXPECT_EQ(remote == local, block);
            EXPECT_EQ(rig[0].report(rig[0].meet(to)).operations, 0u);
        }
    }
}

TEST(ClusterRma, a_port_moves_one_operations_data_after_another_and_latencies_overlap) {
    Rig rig;
    std::vector<std::byte> remote(kBytes);
    std::vector<std::byte> local(kBytes);
    const Registration near = rig.registered(1, remote.data(), remote.size());
    const Registration far = rig.registered(2, remote.data(), remote.size());
    for (uint16_t i = 0; i < 4; ++i) {
        RmaOperation get = rig.operation(RmaKind::kGet, i == 1 ? 2 : 1, i == 1 ? far : near, local.data(), kBytes);
        if (i == 2) get.bytes = 8;
        get.cookie = i;
        ASSERT_EQ(rig[0].post(get), Status::kOk);
    }
    const std::vector<Read> read = rig.run();
    ASSERT_EQ(read.size(), 4u);
    for (uint16_t i = 0; i < 4; ++i) EXPECT_EQ(read[i].what.cookie, i);
    EXPECT_EQ(read[0].at_ns, kDataNs + 2 * rig.way_ns(1));
    EXPECT_EQ(read[1].at_ns, 2 * kDataNs + 2 * rig.way_ns(2));
    EXPECT_EQ(read[2].at_ns, read[1].at_ns) << "a short one of a near peer waits for the long one before it";
    EXPECT_EQ(read[3].at_ns, 3 * kDataNs + 10 + 2 * rig.way_ns(1));
}

TEST(ClusterRma, ports_are_independent) {
    Rig rig;
    std::vector<std::byte> remote(kBytes);
    std::vector<std::byte> local(2 * kBytes);
    const Registration registration = rig.registered(1, remote.data(), remote.size());
    for (uint8_t port = 0; port < 2; ++port) {
        RmaOperation get = rig.operation(RmaKind::kGet, 1, registration, local.data() + port * kBytes, kBytes);
        get.port = port;
        ASSERT_EQ(rig[0].post(get), Status::kOk);
    }
    const std::vector<Read> read = rig.run();
    ASSERT_EQ(read.size(), 2u);
    for (const Read& one : read) EXPECT_EQ(one.at_ns, kDataNs + 2 * rig.way_ns(1));
}

/// A put of 64 bytes from process 0 to process 1 has been posted, of which both are to hear.
struct ClusterRmaPut : testing::Test {
    void SetUp() override {
        const Registration registration = rig.registered(1, remote.data(), remote.size());
        RmaOperation put = rig.operation(RmaKind::kPut, 1, registration, local.data(), 64);
        put.notify |= kNotifyCompleter;
        ASSERT_EQ(rig[0].post(put), Status::kOk);
    }

    Rig rig;
    std::vector<std::byte> remote = filled(64, 1);
    std::vector<std::byte> local = filled(64, 2);
    const std::vector<std::byte> before = remote;
};

TEST_F(ClusterRmaPut, memory_is_accessed_when_the_last_byte_is_at_the_target) {
    const uint64_t access_ns = 80 + rig.way_ns(1);
    EXPECT_TRUE(rig.run(access_ns - 1).empty());
    EXPECT_EQ(remote, before);
    Notification early;
    rig[1].advance_clock(access_ns - 1);
    EXPECT_FALSE(rig[1].poll_notification(early));
    const std::vector<Read> read = rig.run();
    EXPECT_EQ(remote, local);
    ASSERT_EQ(read.size(), 2u);
    EXPECT_EQ(read[0].process, 1u);
    EXPECT_EQ(read[0].at_ns, access_ns);
    EXPECT_EQ(read[0].what.kind, kNotifyCompleter);
    EXPECT_EQ(read[1].process, 0u);
    EXPECT_EQ(read[1].at_ns, access_ns + rig.way_ns(1));
}

TEST(ClusterRma, a_notification_is_not_seen_before_its_time_by_a_clock_that_lags) {
    Rig rig;
    uint64_t word = 5;
    const Registration registration = rig.registered(1, &word, sizeof word);
    ASSERT_EQ(rig[0].post(rig.operation(RmaKind::kFetchAdd, 1, registration, nullptr, 8)), Status::kOk);
    while (rig.cluster().next() != nullptr) {
    }
    Notification notification;
    EXPECT_FALSE(rig[0].poll_notification(notification));
    rig[0].advance_clock(2 * rig.way_ns(1) - 1);
    EXPECT_FALSE(rig[0].poll_notification(notification));
    rig[0].sleep();
    EXPECT_EQ(rig.cluster().next(), &rig[0]);
    EXPECT_EQ(rig[0].clock_ns(), 2 * rig.way_ns(1));
    EXPECT_TRUE(rig[0].poll_notification(notification));
    EXPECT_EQ(notification.value, 5u);
    EXPECT_EQ(word, 6u);
}

TEST(ClusterRma, a_registration_that_is_revoked_under_way_faults) {
    Rig rig;
    std::vector<std::byte> remote = filled(kBytes, 1);
    std::vector<std::byte> local = filled(kBytes, 2);
    const std::vector<std::byte> before = local;
    const Registration registration = rig.registered(1, remote.data(), remote.size());
    ASSERT_EQ(rig[0].post(rig.operation(RmaKind::kGet, 1, registration, local.data(), kBytes)), Status::kOk);
    EXPECT_TRUE(rig.run(kDataNs / 2).empty());
    ASSERT_EQ(rig[1].deregister(registration), Status::kOk);
    const std::vector<Read> read = rig.run();
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].what.status, Status::kAtuFault);
    EXPECT_EQ(local, before);
}

TEST(ClusterRma, without_whole_payloads_only_time_passes_and_keys_are_checked) {
    Rig rig({}, 1, false);
    // Neither address is memory.
    auto* const nowhere = reinterpret_cast<std::byte*>(uint64_t{1} << 50);
    uint64_t word = 1;
    const Registration registration = rig.registered(1, nowhere, kBytes);
    const Registration real = rig.registered(1, &word, sizeof word);
    RmaOperation stray = rig.operation(RmaKind::kPut, 1, registration, nowhere, kBytes);
    stray.nla += 1;
    const std::array<std::pair<RmaOperation, Status>, 4> rows = {{
        {rig.operation(RmaKind::kPut, 1, registration, nowhere, kBytes), Status::kOk},
        {rig.operation(RmaKind::kGet, 1, registration, nowhere, kBytes), Status::kOk},
        {stray, Status::kAtuFault},
        {rig.operation(RmaKind::kFetchAdd, 1, real, nullptr, 8), Status::kOk},
    }};
    for (const auto& [operation, status] : rows) {
        ASSERT_EQ(rig[0].post(operation), Status::kOk);
        const std::vector<Read> read = rig.run();
        ASSERT_EQ(read.size(), 1u);
        EXPECT_EQ(read[0].what.status, status);
    }
    EXPECT_EQ(word, 2u);
}

TEST(ClusterRma, a_port_is_full_until_notifications_are_read) {
    Rig rig;
    uint64_t word = 0;
    const Registration registration = rig.registered(1, &word, sizeof word);
    const RmaOperation add = rig.operation(RmaKind::kFetchAdd, 1, registration, nullptr, 8);
    for (uint32_t i = 0; i < RmaUnit::kPortOperationsMax; ++i) ASSERT_EQ(rig[0].post(add), Status::kOk);
    EXPECT_EQ(rig[0].post(add), Status::kAgain);
    while (rig.cluster().next() != nullptr) {
    }
    EXPECT_EQ(rig[0].post(add), Status::kAgain) << "none was read";
    EXPECT_EQ(rig.run().size(), RmaUnit::kPortOperationsMax);
    EXPECT_EQ(rig[0].post(add), Status::kOk);
    EXPECT_EQ(rig.run().size(), 1u);
    EXPECT_EQ(word, RmaUnit::kPortOperationsMax + 1);
}

TEST(ClusterRma, a_process_is_woken_by_operations_that_it_wants_no_notification_of) {
    Rig rig;
    uint64_t word = 0;
    const Registration registration = rig.registered(1, &word, sizeof word);
    RmaOperation add = rig.operation(RmaKind::kFetchAdd, 1, registration, nullptr, 8);
    add.notify = 0;
    ASSERT_EQ(rig[0].post(add), Status::kOk);
    EXPECT_TRUE(rig.run().empty());
    ASSERT_EQ(rig.woken().size(), 1u);
    EXPECT_EQ(rig.woken()[0], (std::pair<uint32_t, uint64_t>{0, 2 * rig.way_ns(1)}));
}

TEST(ClusterRma, a_process_has_no_unit_before_it_uses_one) {
    Rig rig;
    const auto fill = [](uint32_t, std::byte*) { return PacketStatus{}; };
    ASSERT_EQ(rig[0].send(rig[0].meet(1), 1, Admission::kCredited, fill), Status::kOk);
    EXPECT_EQ(rig[0].rma_if_used(), nullptr);
    EXPECT_EQ(rig[1].rma_if_used(), nullptr);
    EXPECT_EQ(rig[0].limits().registrations_max, RegistrationTable::kEntriesMax);
    EXPECT_THROW(rig.cluster().open(0, {.ports = 0, .faults = {}}), base::SetupError);
    EXPECT_THROW(rig.cluster().open(0, {.ports = RmaUnit::kPortsMax + 1, .faults = {}}), base::SetupError);
}

TEST(ClusterRma, operations_that_reach_a_dead_process_end_with_its_death) {
    Rig rig;
    std::array<uint64_t, 2> words = {};
    uint64_t alive = 0;
    const Registration registration = rig.registered(1, words.data(), sizeof words);
    const Registration other = rig.registered(2, &alive, sizeof alive);
    const uint64_t death_ns = rig.way_ns(1) + 1;
    // The first is at the target before its death, the second after it.
    RmaOperation add = rig.operation(RmaKind::kFetchAdd, 1, registration, nullptr, 8);
    ASSERT_EQ(rig[0].post(add), Status::kOk);
    rig[0].spend(10);
    add.nla += 8;
    ASSERT_EQ(rig[0].post(add), Status::kOk);
    ASSERT_EQ(rig[0].post(rig.operation(RmaKind::kFetchAdd, 2, other, nullptr, 8)), Status::kOk);
    rig.cluster().kill(1, death_ns);
    EXPECT_TRUE(rig.run(death_ns - 1).empty());
    EXPECT_TRUE(rig[0].alive(rig[0].meet(1)));

    const std::vector<Read> read = rig.run();
    ASSERT_EQ(read.size(), 3u);
    EXPECT_EQ(read[0].what.status, Status::kOk);
    EXPECT_EQ(read[1].what.status, Status::kPeerDead);
    EXPECT_EQ(read[2].what.status, Status::kOk);
    EXPECT_EQ(words, (std::array<uint64_t, 2>{1, 0}));
    EXPECT_EQ(alive, 1u);
    // Both that knew it are notified at once.
    ASSERT_GE(rig.woken().size(), 2u);
    EXPECT_EQ(rig.woken()[0].second, death_ns);
    EXPECT_EQ(rig.woken()[1].second, death_ns);
    EXPECT_NE(rig.woken()[0].first, rig.woken()[1].first);
    ASSERT_EQ(rig[0].post(add), Status::kOk);
    ASSERT_EQ(rig.run().back().what.status, Status::kPeerDead);
    const DeviceCounters counters = rig[0].counters();
    EXPECT_EQ(counters.rma_posted, counters.rma_completed + counters.rma_failed);
}

TEST(ClusterRma, a_dead_process_is_never_due_and_says_nothing) {
    Rig rig;
    const auto fill = [](uint32_t, std::byte*) { return PacketStatus{}; };
    ASSERT_EQ(rig[1].send(rig[1].meet(0), 1, Admission::kCredited, fill), Status::kOk);
    ASSERT_EQ(rig[0].send(rig[0].meet(1), 1, Admission::kCredited, fill), Status::kOk);
    rig.cluster().schedule(rig[1], 50'000);
    rig.cluster().kill(1, 100);
    EXPECT_EQ(rig.cluster().next(), nullptr);
    rig.cluster().schedule(rig[1], 60'000);
    EXPECT_EQ(rig.cluster().next(), nullptr);
    rig[1].announce_ending(base::Ending::kClosed);
    EXPECT_FALSE(rig[0].alive(rig[0].meet(1)));
    EXPECT_EQ(rig[0].announced_ending(rig[0].meet(1)), base::Ending::kNone);
    EXPECT_EQ(rig[0].send(rig[0].meet(1), 1, Admission::kGuarded, fill), Status::kPeerDead);
    DeviceAddr from = kNoAddr;
    rig[0].advance_clock(100'000);
    EXPECT_NE(rig[0].peek(from), nullptr) << "it had sent this one before";
    // A process that never met it finds it gone.
    ClusterDevice& stranger = rig.cluster().open(3, {.faults = {}});
    std::array<std::byte, kDeviceAddressBytesMax> address;
    const size_t length = rig[1].address(address);
    DeviceAddr peer = kNoAddr;
    EXPECT_EQ(stranger.connect({address.data(), length}, peer), Status::kUnsupported);
}

TEST_F(ClusterRmaPut, operations_of_a_dead_process_touch_nothing) {
    rig.cluster().kill(0, 0);
    EXPECT_TRUE(rig.run().empty());
    EXPECT_EQ(remote, before);
}

TEST(ClusterRma, the_death_of_a_full_receiver_lets_its_senders_go) {
    Rig rig;
    const auto fill = [](uint32_t, std::byte*) { return PacketStatus{}; };
    const DeviceAddr to = rig[0].meet(1);
    ASSERT_EQ(rig[0].send(to, 1, Admission::kContact, fill), Status::kOk);
    EXPECT_EQ(rig[0].send(to, 1, Admission::kContact, fill), Status::kAgain);
    ASSERT_EQ(rig[0].send(to, 7, Admission::kGuarded, fill), Status::kOk);
    ASSERT_EQ(rig[0].send(to, 1, Admission::kGuarded, fill), Status::kAgain);
    ASSERT_TRUE(rig.cluster().held(0));
    const uint64_t wakes = rig[0].contact_wakes();
    const uint64_t death_ns = rig[0].clock_ns() + 1'000;
    rig.cluster().kill(1, death_ns);
    for (uint32_t i = 0; i < 3; i += 2) rig[i].sleep();
    ASSERT_NE(rig.cluster().next(), nullptr);
    EXPECT_EQ(rig[0].clock_ns(), death_ns);
    EXPECT_FALSE(rig.cluster().held(0));
    EXPECT_EQ(rig[0].contact_wakes(), wakes + 1);
    EXPECT_EQ(rig[0].send(to, 1, Admission::kGuarded, fill), Status::kPeerDead);
}

TEST(ClusterRma, a_failed_operation_has_moved_a_prefix_or_nothing_or_all) {
    Rig rig({.until_ns = UINT64_MAX, .rma_fail_permille = 1'000});
    constexpr uint32_t kLength = 1'000;
    std::array<uint32_t, 3> seen = {};  // nothing, a part, all
    for (uint32_t i = 0; i < 200; ++i) {
        std::vector<std::byte> remote(kLength, std::byte{1});
        std::vector<std::byte> local(kLength, std::byte{2});
        const bool put = i % 2 == 0;
        const Registration registration = rig.registered(1, remote.data(), kLength);
        rig.post(rig.operation(put ? RmaKind::kPut : RmaKind::kGet, 1, registration, local.data(), kLength));
        const std::vector<Read> read = rig.run();
        ASSERT_EQ(read.size(), 1u);
        EXPECT_EQ(read[0].what.status, Status::kFailed);
        EXPECT_EQ(read[0].what.value, 0u);
        const std::vector<std::byte>& target = put ? remote : local;
        const std::byte is_new = put ? std::byte{2} : std::byte{1};
        const auto end = std::ranges::find_if(target, [is_new](std::byte byte) { return byte != is_new; });
        EXPECT_EQ(std::find(end, target.end(), is_new), target.end()) << "not a prefix";
        const auto moved = end - target.begin();
        ++seen[moved == 0 ? 0 : moved == kLength ? 2 : 1];
        ASSERT_EQ(rig[1].deregister(registration), Status::kOk);
    }
    for (const uint32_t count : seen) EXPECT_GT(count, 30u);

    uint64_t word = 0;
    const Registration registration = rig.registered(1, &word, sizeof word);
    for (uint32_t i = 0; i < 200; ++i) {
        rig.post(rig.operation(RmaKind::kFetchAdd, 1, registration, nullptr, 8));
        EXPECT_EQ(rig.run().at(0).what.status, Status::kFailed);
    }
    EXPECT_GT(word, 50u);
    EXPECT_LT(word, 190u);
    EXPECT_EQ(rig[0].counters().faults_injected, 400u);
}

TEST(ClusterRma, a_refused_operation_has_moved_nothing) {
    Rig rig({.until_ns = 1'000'000, .rma_refuse_permille = 1'000});
    std::array<uint64_t, 2> words = {1, 2};
    std::array<uint64_t, 2> local = {3, 4};
    const Registration registration = rig.registered(1, words.data(), sizeof words);
    const auto all = [&](Status expected) {
        for (const RmaKind kind : {RmaKind::kPut, RmaKind::kGet, RmaKind::kFetchAdd}) {
            rig.post(rig.operation(kind, 1, registration, local.data(), 8));
            EXPECT_EQ(rig.run().at(0).what.status, expected);
        }
    };
    all(Status::kUnsupported);
    EXPECT_EQ(words, (std::array<uint64_t, 2>{1, 2}));
    EXPECT_EQ(local, (std::array<uint64_t, 2>{3, 4}));
    rig[0].advance_clock(1'000'000);
    all(Status::kOk);
    EXPECT_EQ(words[0], 4u);
}

TEST(ClusterRma, late_operations_are_late_by_no_more_than_allowed_and_in_order) {
    constexpr uint64_t kLateNs = 50'000;
    constexpr uint16_t kCount = 100;
    Rig rig({.until_ns = UINT64_MAX, .rma_delay_permille = 300, .rma_delay_ns_max = kLateNs});
    uint64_t word = 0;
    const Registration registration = rig.registered(1, &word, sizeof word);
    uint32_t there = 0;
    uint32_t back = 0;
    for (int round = 0; round < 5; ++round) {
        RmaOperation add = rig.operation(RmaKind::kFetchAdd, 1, registration, nullptr, 8);
        const uint64_t begin_ns = rig[0].clock_ns();
        word = 0;
        for (add.cookie = 0; add.cookie < kCount; ++add.cookie) rig.post(add);
        const std::vector<Read> read = rig.run();
        ASSERT_EQ(read.size(), kCount);
        uint64_t late_ns = 0;
        for (uint16_t i = 0; i < kCount; ++i) {
            EXPECT_EQ(read[i].what.cookie, i);
            EXPECT_EQ(read[i].what.value, i) << "it reached the target in order";
            EXPECT_EQ(read[i].what.status, Status::kOk);
            const uint64_t now_late_ns = read[i].at_ns - begin_ns - 2 * rig.way_ns(1);
            EXPECT_LE(now_late_ns, late_ns + 2 * kLateNs);
            late_ns = std::max(late_ns, now_late_ns);
        }
        EXPECT_GT(late_ns, kLateNs);
        there += late_ns > 5 * kLateNs;
    }
    EXPECT_GT(rig[0].counters().faults_injected, 5 * kCount / 5);
    EXPECT_EQ(there, 5u) << "delays on the way there add up, because the port waits";
    // Alone, one that is late on its way back has accessed memory in time.
    for (int i = 0; i < 100; ++i) {
        word = 0;
        rig.post(rig.operation(RmaKind::kFetchAdd, 1, registration, nullptr, 8));
        const uint64_t begin_ns = rig[0].clock_ns();
        rig.run(begin_ns + 2 * rig.way_ns(1) - 1);
        const bool in_time = word == 1;
        const std::vector<Read> read = rig.run();
        ASSERT_EQ(read.size(), 1u);
        EXPECT_LE(read[0].at_ns, begin_ns + 2 * rig.way_ns(1) + kLateNs);
        back += in_time && read[0].at_ns > begin_ns + 2 * rig.way_ns(1);
    }
    EXPECT_GT(back, 5u);
}

TEST(ClusterRma, a_post_that_a_fault_refuses_wakes_its_process_to_try_again) {
    Rig rig({.until_ns = 100'000, .rma_again_permille = 500});
    uint64_t word = 0;
    const Registration registration = rig.registered(1, &word, sizeof word);
    const RmaOperation add = rig.operation(RmaKind::kFetchAdd, 1, registration, nullptr, 8);
    Status status = Status::kOk;
    uint64_t posted = 0;
    while ((status = rig[0].post(add)) == Status::kOk) ++posted;
    ASSERT_EQ(status, Status::kAgain);
    EXPECT_LT(posted, RmaUnit::kPortOperationsMax);
    rig.run(rig[0].clock_ns() + RmaUnit::kRetryNs);
    ASSERT_FALSE(rig.woken().empty());
    EXPECT_EQ(rig.woken().back(), (std::pair<uint32_t, uint64_t>{0, RmaUnit::kRetryNs}));
    uint32_t again = 0;
    for (int i = 0; i < 100; ++i) {
        again += rig.post(add);
        ++posted;
    }
    EXPECT_GT(again, 30u);
    rig[0].advance_clock(100'000);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(rig.post(add), 0u);
    rig.run();
    EXPECT_EQ(word, posted + 50);
    EXPECT_EQ(rig[0].counters().rma_posted, posted + 50);
}

TEST(ClusterRma, faults_of_one_process_wake_those_that_wait_for_them) {
    Cluster cluster({.topology = Topology({4, 1, 1}, false)});
    for (const char* faults : {"stall=1:5us,seed=1", "die_after=1", ""}) {
        cluster.open(cluster.processes(), {.mailbox_slots = 8, .faults = faults});
    }
    const auto fill = [](uint32_t, std::byte*) { return PacketStatus{}; };
    const DeviceAddr stalled = cluster[1].meet(0);
    ASSERT_EQ(cluster[1].send(stalled, 1, Admission::kCredited, fill), Status::kOk);
    cluster[0].sleep();
    ASSERT_EQ(cluster.next(), &cluster[0]);
    const uint64_t arrival_ns = cluster[0].clock_ns();
    DeviceAddr from = kNoAddr;
    EXPECT_EQ(cluster[0].peek(from), nullptr);
    cluster[0].sleep();
    ASSERT_EQ(cluster.next(), &cluster[0]);
    EXPECT_EQ(cluster[0].clock_ns(), arrival_ns + 5'000);
    EXPECT_NE(cluster[0].peek(from), nullptr);

    cluster[2].meet(1);
    cluster[2].sleep();
    cluster[1].advance_clock(50'000);
    EXPECT_EQ(cluster[1].send(stalled, 1, Admission::kCredited, fill), Status::kPeerDead);
    ASSERT_EQ(cluster.next(), &cluster[2]);
    EXPECT_EQ(cluster[2].clock_ns(), 50'000u);
    EXPECT_FALSE(cluster[2].alive(cluster[2].meet(1)));
}

/// A run of process 0's operations under all faults; its trace, and the arrivals of some packets in it.
std::pair<uint64_t, std::vector<uint64_t>> mixed_run(uint64_t seed, bool rma) {
    FaultConfig faults = {.delay_permille = 300, .delay_ns_max = 10'000, .until_ns = 10'000'000};
    faults.rma_fail_permille = faults.rma_refuse_permille = faults.rma_again_permille = 100;
    faults.rma_delay_permille = 100;
    faults.rma_delay_ns_max = 20'000;
    Rig rig(faults, seed);
    std::vector<std::byte> memory(4'096);
    std::vector<std::byte> local(4'096);
    const Registration registration = rig.registered(1, memory.data(), memory.size());
    std::vector<uint64_t> arrivals;
    const auto fill = [](uint32_t, std::byte*) { return PacketStatus{}; };
    uint64_t at_ns = 0;
    for (uint32_t i = 0; i < 200; ++i) {
        at_ns += 100'000;
        rig[0].advance_clock(at_ns);
        EXPECT_EQ(rig[0].send(rig[0].meet(1), 1, Admission::kCredited, fill), Status::kOk);
        if (rma) {
            RmaOperation operation =
                rig.operation(static_cast<RmaKind>(i % 4 == 3 ? 3 : i % 2), 1, registration, local.data(), 8);
            operation.port = i % 2;
            (void)rig[0].post(operation);
        }
        rig[1].sleep();
        while (ClusterDevice* device = rig.cluster().next(at_ns + 90'000)) {
            DeviceAddr from = kNoAddr;
            if (device->peek(from) != nullptr) {
                arrivals.push_back(device->clock_ns());
                device->advance();
            }
            Notification notification;
            while (device->poll_notification(notification)) {
            }
            device->sleep();
        }
    }
    return {rig.cluster().trace().value(), arrivals};
}

TEST(ClusterRma, one_seed_gives_one_trace_and_another_seed_another) {
    const auto first = mixed_run(1, true);
    EXPECT_EQ(first, mixed_run(1, true));
    EXPECT_NE(first.first, mixed_run(2, true).first);
}

TEST(ClusterRma, operations_and_their_faults_change_no_packets_time) {
    const auto [hash, arrivals] = mixed_run(1, false);
    const auto [other_hash, other_arrivals] = mixed_run(1, true);
    EXPECT_EQ(arrivals, other_arrivals);
    EXPECT_EQ(arrivals.size(), 200u);
    EXPECT_NE(hash, other_hash);
}

}  // namespace
}  // namespace velo::cluster
