/// Conformance: registration, put, get and their notifications.
#pragma once

#include <algorithm>
#include <memory>

#include "tests/conformance/fabric.h"

namespace velo::conformance {

/// A buffer between guard bytes, which nothing may touch.
class Guarded {
  public:
    static constexpr size_t kGuard = 256;

    /// `offset` sets the alignment of data().
    Guarded(size_t bytes, size_t offset, uint32_t seed)
        : bytes_(bytes), offset_(offset), memory_(whole(), kMark) {
        std::mt19937 random(seed);
        for (size_t i = 0; i < bytes; ++i) data()[i] = static_cast<std::byte>(random());
    }
    [[nodiscard]] std::byte* data() { return memory_.data() + kGuard + offset_; }
    [[nodiscard]] size_t bytes() const { return bytes_; }
    [[nodiscard]] bool intact() {
        const auto marked = [](std::byte byte) { return byte == kMark; };
        return std::all_of(memory_.data(), data(), marked) &&
               std::all_of(data() + bytes_, memory_.data() + memory_.size(), marked);
    }
    [[nodiscard]] bool equals(Guarded& other) {
        return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), bytes_) == 0;
    }

  private:
    static constexpr std::byte kMark{0xa5};
    [[nodiscard]] size_t whole() const { return bytes_ + offset_ + 2 * kGuard; }

    size_t bytes_;
    size_t offset_;
    std::vector<std::byte> memory_;
};

template <class Fabric>
class DeviceRma : public DeviceTest<Fabric> {
  protected:
    /// An operation of device 0 on device 1's `registration`.
    RmaOperation operation(RmaKind kind, const Registration& registration, std::byte* local, uint32_t bytes,
                           uint64_t offset = 0) {
        return {.kind = kind,
                .peer = this->name(0, 1),
                .local = local,
                .nla = registration.nla + offset,
                .key = registration.key,
                .bytes = bytes};
    }
    /// An operation that the target's CPU executes, where there is one.
    RmaKind served_kind() { return this->device(0).traits().atomics ? RmaKind::kFetchAdd : RmaKind::kPut; }
    /// How an operation ends whose peer has ended. To a device that does not see processes, the network may
    /// report that it failed, before the peer's end is sure, and one with a thread of its own may have been
    /// done with it.
    testing::AssertionResult ended_with_peer(Status status) {
        if (status == Status::kPeerDead) return testing::AssertionSuccess();
        const bool early = status == Status::kFailed || status == Status::kOk;
        if (early && !this->device(0).traits().sees_processes) return testing::AssertionSuccess();
        return testing::AssertionFailure() << to_string(status);
    }
};
TYPED_TEST_SUITE_P(DeviceRma);

TYPED_TEST_P(DeviceRma, a_registration_says_what_was_registered) {
    this->open(1);
    std::array<std::byte, 100> memory;
    const Registration first = this->registered(0, memory.data(), 100, kAccessRead);
    EXPECT_EQ(first.bytes, 100u);
    EXPECT_EQ(first.access, uint32_t{kAccessRead});
    const Registration second = this->registered(0, memory.data(), 50, kAccessAny);
    EXPECT_FALSE(first.nla == second.nla && first.key == second.key);
    EXPECT_NE(second.key, 0u);
    EXPECT_EQ(this->device(0).counters().registrations, 2u);
    EXPECT_EQ(this->device(0).deregister(first), Status::kOk);
    EXPECT_EQ(this->device(0).deregister(first), Status::kBadParam);
    EXPECT_EQ(this->device(0).deregister({.nla = second.nla, .bytes = 50, .key = second.key + 1}),
              Status::kBadParam);
    EXPECT_EQ(this->device(0).deregister({.nla = UINT64_MAX, .bytes = 50, .key = second.key}),
              Status::kBadParam);
    EXPECT_EQ(this->device(0).deregister({}), Status::kBadParam);
    EXPECT_EQ(this->device(0).counters().registrations, 1u);
    EXPECT_EQ(this->device(0).deregister(second), Status::kOk);
}

TYPED_TEST_P(DeviceRma, a_full_table_refuses_until_something_is_revoked) {
    this->open(1);
    std::byte memory{};
    std::vector<Registration> all;
    const uint32_t most = this->device(0).limits().registrations_max;
    for (uint32_t i = 0; i < most; ++i) all.push_back(this->registered(0, &memory, 1));
    Registration refused;
    EXPECT_EQ(this->device(0).register_memory(&memory, 1, kAccessAny, refused), Status::kNoResource);
    EXPECT_EQ(this->device(0).deregister(all.back()), Status::kOk);
    const Registration successor = this->registered(0, &memory, 1);
    EXPECT_FALSE(successor.nla == all.back().nla && successor.key == all.back().key);
    all.back() = successor;
    for (const Registration& registration : all)
        EXPECT_EQ(this->device(0).deregister(registration), Status::kOk);
    EXPECT_EQ(this->device(0).counters().registrations, 0u);
}

TYPED_TEST_P(DeviceRma, puts_and_gets_move_exactly_their_bytes_at_any_alignment) {
    this->open(2);
    constexpr std::array<uint32_t, 14> kSizes = {1,  2,    3,    7,    8,     63,       64,
                                                 65, 4095, 4096, 4097, 65537, 1u << 20, 8u << 20};
    uint32_t seed = 0;
    for (const uint32_t bytes : kSizes) {
        if (bytes > this->device(0).limits().rma_bytes_max) continue;
        for (const size_t skew : {size_t{0}, size_t{1}, size_t{7}}) {
            Guarded remote(bytes + 3, skew, ++seed);
            Guarded target(bytes, 5 - skew / 2, ++seed);
            const Registration registration = this->registered(1, remote.data(), remote.bytes());
            const uint64_t offset = seed % 4;
            Notification notification =
                this->run(0, this->operation(RmaKind::kGet, registration, target.data(), bytes, offset));
            EXPECT_EQ(notification.status, Status::kOk);
            EXPECT_EQ(notification.value, bytes);
            EXPECT_EQ(notification.operation, RmaKind::kGet);
            EXPECT_EQ(std::memcmp(target.data(), remote.data() + offset, bytes), 0);
            EXPECT_TRUE(target.intact());

            Guarded source(bytes, skew, ++seed);
            std::vector<std::byte> before(remote.data(), remote.data() + remote.bytes());
            notification =
                this->run(0, this->operation(RmaKind::kPut, registration, source.data(), bytes, offset));
            EXPECT_EQ(notification.status, Status::kOk);
            EXPECT_EQ(notification.value, bytes);
            std::copy_n(source.data(), bytes, before.data() + offset);
            EXPECT_EQ(std::memcmp(before.data(), remote.data(), remote.bytes()), 0);
            EXPECT_TRUE(remote.intact() && source.intact());
            EXPECT_EQ(this->device(1).deregister(registration), Status::kOk);
        }
    }
}

TYPED_TEST_P(DeviceRma, what_cannot_be_an_operation_is_a_bad_parameter) {
    this->open(2);
    alignas(8) std::array<std::byte, 64> memory = {};
    const Registration registration = this->registered(1, memory.data(), memory.size());
    const RmaOperation good = this->operation(RmaKind::kGet, registration, memory.data(), 8);
    std::vector<RmaOperation> bad(6, good);
    bad[0].port = 2;
    bad[1].port = 255;
    bad[2].bytes = 0;
    bad[3].bytes = this->device(0).limits().rma_bytes_max + 1;
    bad[4].bytes = UINT32_MAX;
    bad[5].kind = static_cast<RmaKind>(7);
    for (const RmaOperation& operation : bad) {
        EXPECT_EQ(this->device(0).post(operation), Status::kBadParam);
    }
    this->step(5);
    Notification notification;
    EXPECT_FALSE(this->device(0).poll_notification(notification));
    EXPECT_EQ(this->device(0).counters().rma_posted, 0u);
    EXPECT_EQ(this->run(0, good).status, Status::kOk);
}

TYPED_TEST_P(DeviceRma, each_cookie_comes_back_once) {
    this->open(2);
    std::vector<std::byte> remote(4096);
    std::vector<std::byte> local(4096);
    const Registration registration = this->registered(1, remote.data(), remote.size());
    std::vector<int> seen(65536, 0);
    const auto take = [&] {
        Notification notification;
        while (this->device(0).poll_notification(notification)) {
            EXPECT_EQ(notification.status, Status::kOk);
            ++seen[notification.cookie];
        }
    };
    for (uint32_t cookie = 0; cookie < 65536; cookie += 13) {
        const auto kind = cookie % 2 == 0 ? RmaKind::kGet : this->served_kind();
        RmaOperation operation = this->operation(kind, registration, local.data() + cookie % 4096 / 8 * 8, 8);
        operation.cookie = static_cast<uint16_t>(cookie);
        operation.port = static_cast<uint8_t>(cookie % 2);
        ASSERT_TRUE(this->drive([&] {
            take();
            return this->device(0).post(operation) == Status::kOk;
        }));
    }
    this->drive([&] {
        take();
        return this->device(0).counters().rma_completed == this->device(0).counters().rma_posted;
    });
    this->step(2);
    take();
    for (uint32_t cookie = 0; cookie < 65536; ++cookie) {
        ASSERT_EQ(seen[cookie], cookie % 13 == 0 ? 1 : 0) << cookie;
    }
}

TYPED_TEST_P(DeviceRma, a_full_port_refuses_and_leaves_the_others_open) {
    this->open(2);
    std::array<std::byte, 64> memory = {};
    const Registration registration = this->registered(1, memory.data(), memory.size());
    const uint32_t most = this->device(0).limits().rma_outstanding_max;
    std::array<std::byte, 64> local = {};
    RmaOperation operation = this->operation(RmaKind::kGet, registration, local.data(), 8);
    uint32_t accepted = 0;
    while (accepted <= most && this->device(0).post(operation) == Status::kOk) ++accepted;
    ASSERT_GT(accepted, 0u);
    ASSERT_LE(accepted, most);
    EXPECT_EQ(this->device(0).counters().rma_posted, accepted);
    operation.port = 1;
    EXPECT_EQ(this->device(0).post(operation), Status::kOk);
    operation.port = 0;
    Notification notification;
    for (uint32_t i = 0; i <= accepted; ++i) {
        ASSERT_TRUE(this->notified(0, notification));
        EXPECT_EQ(notification.status, Status::kOk);
    }
    EXPECT_FALSE(this->device(0).poll_notification(notification));
    EXPECT_EQ(this->run(0, operation).status, Status::kOk);
}

TYPED_TEST_P(DeviceRma, operations_that_notify_nobody_are_not_outstanding_for_ever) {
    this->open(2);
    alignas(8) std::array<std::byte, 64> memory = {};
    const Registration registration = this->registered(1, memory.data(), memory.size());
    std::array<std::byte, 64> local = {};
    const uint32_t count = 5 * this->device(0).limits().rma_outstanding_max;
    for (uint32_t i = 0; i < count; ++i) {
        const auto kind = i % 3 == 0 ? RmaKind::kGet : i % 3 == 1 ? RmaKind::kPut : this->served_kind();
        RmaOperation operation = this->operation(kind, registration, local.data(), 8);
        operation.notify = 0;
        ASSERT_TRUE(this->drive([&] { return this->device(0).post(operation) == Status::kOk; }));
    }
    EXPECT_TRUE(this->drive([&] { return this->device(0).counters().rma_completed == count; }));
}

TYPED_TEST_P(DeviceRma, operations_on_an_ended_peer_end_with_its_death) {
    this->open(3);
    alignas(8) std::array<std::byte, 64> memory = {};
    const Registration registration = this->registered(1, memory.data(), memory.size());
    const Registration other = this->registered(2, memory.data(), memory.size());
    std::array<std::byte, 64> local = {};
    // Pending when it ends, some of them at the target: it does not progress in between.
    constexpr int kPending = 20;
    for (int i = 0; i < kPending; ++i) {
        if (i == kPending / 2) this->device(0).progress(this->fabric_.now_ns());
        const bool notifies = this->device(0).traits().notifies_targets;
        const auto kind = i % 2 == 0 ? this->served_kind() : notifies ? RmaKind::kNotification : RmaKind::kGet;
        ASSERT_EQ(this->device(0).post(this->operation(kind, registration, local.data(), 8)), Status::kOk);
    }
    this->fabric_.close(1);
    Notification notification;
    for (int i = 0; i < kPending; ++i) {
        ASSERT_TRUE(this->drive_watching(0, this->name(0, 1),
                                         [&] { return this->device(0).poll_notification(notification); }));
        EXPECT_TRUE(this->ended_with_peer(notification.status));
    }
    EXPECT_TRUE(this->drive_watching(0, this->name(0, 1),
                                     [&] { return !this->device(0).alive(this->name(0, 1)); }));
    for (const RmaKind kind : {RmaKind::kPut, RmaKind::kGet, this->served_kind()}) {
        EXPECT_EQ(this->run(0, this->operation(kind, registration, local.data(), 8)).status,
                  Status::kPeerDead);
    }
    RmaOperation live = this->operation(this->served_kind(), other, local.data(), 8);
    live.peer = this->name(0, 2);
    EXPECT_EQ(this->run(0, live).status, Status::kOk);
    EXPECT_FALSE(this->device(0).poll_notification(notification));
    const DeviceCounters counters = this->device(0).counters();
    EXPECT_EQ(counters.rma_posted, counters.rma_completed + counters.rma_failed);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceRma, a_registration_says_what_was_registered,
                            a_full_table_refuses_until_something_is_revoked,
                            puts_and_gets_move_exactly_their_bytes_at_any_alignment,
                            what_cannot_be_an_operation_is_a_bad_parameter, each_cookie_comes_back_once,
                            a_full_port_refuses_and_leaves_the_others_open,
                            operations_that_notify_nobody_are_not_outstanding_for_ever,
                            operations_on_an_ended_peer_end_with_its_death);

/// Suites for devices with DeviceTraits::checks_keys (and atomics).
template <class Fabric>
class DeviceKeys : public DeviceRma<Fabric> {};
TYPED_TEST_SUITE_P(DeviceKeys);

TYPED_TEST_P(DeviceKeys, an_access_outside_the_range_or_its_rights_faults_and_moves_nothing) {
    this->open(2);
    Guarded remote(64, 0, 1);
    Guarded local(64, 0, 2);
    const Guarded remote_before = remote;
    const Guarded local_before = local;
    const Registration all = this->registered(1, remote.data(), 64);
    const Registration readable = this->registered(1, remote.data(), 64, kAccessRead);
    const Registration writable = this->registered(1, remote.data(), 64, kAccessWrite);
    struct Row {
        RmaKind kind;
        Registration registration;
        uint64_t offset;
        uint32_t bytes;
    };
    const Row rows[] = {
        {RmaKind::kGet, all, 0, 65},
        {RmaKind::kPut, all, 0, 65},
        {RmaKind::kGet, all, 64, 1},
        {RmaKind::kGet, all, 63, 2},
        {RmaKind::kGet, all, uint64_t(-1), 1},
        {RmaKind::kPut, all, uint64_t(-1), 8},
        {RmaKind::kGet, all, uint64_t{1} << 39, 1},
        {RmaKind::kGet, all, UINT64_MAX - 4, 8},
        {RmaKind::kPut, all, 32, 8u << 20},
        {RmaKind::kPut, readable, 0, 8},
        {RmaKind::kImmediatePut, readable, 0, 8},
        {RmaKind::kFetchAdd, readable, 0, 8},
        {RmaKind::kGet, writable, 0, 8},
        {RmaKind::kCompareSwap, writable, 0, 8},
        {RmaKind::kLock, writable, 0, 8},
        {RmaKind::kFetchAdd, all, 64, 8},
        {RmaKind::kImmediatePut, all, 60, 8},
    };
    uint64_t faults = 0;
    for (const Row& row : rows) {
        RmaOperation operation =
            this->operation(row.kind, row.registration, local.data(), row.bytes, row.offset);
        operation.bytes = std::min(operation.bytes, this->device(0).limits().rma_bytes_max);
        operation.notify = kNotifyRequester | kNotifyResponder | kNotifyCompleter;
        EXPECT_EQ(this->run(0, operation).status, Status::kAtuFault) << "kind " << int(row.kind);
        EXPECT_EQ(this->device(0).counters().atu_faults, ++faults);
    }
    Notification notification;
    this->step(3);
    EXPECT_FALSE(this->device(1).poll_notification(notification)) << "a fault is the requester's alone";
    EXPECT_EQ(std::memcmp(Guarded(remote_before).data(), remote.data(), 64), 0);
    EXPECT_EQ(std::memcmp(Guarded(local_before).data(), local.data(), 64), 0);
    EXPECT_TRUE(remote.intact() && local.intact());
}

TYPED_TEST_P(DeviceKeys, a_revoked_key_faults_even_when_its_place_is_taken_again) {
    this->open(2);
    Guarded remote(64, 0, 1);
    Guarded local(64, 0, 2);
    Registration registration = this->registered(1, remote.data(), 64);
    for (int i = 0; i < 100; ++i) {
        const RmaOperation old = this->operation(RmaKind::kGet, registration, local.data(), 64);
        ASSERT_EQ(this->run(0, old).status, Status::kOk);
        ASSERT_EQ(this->device(1).deregister(registration), Status::kOk);
        ASSERT_EQ(this->run(0, old).status, Status::kAtuFault);
        registration = this->registered(1, remote.data(), 64);
        ASSERT_EQ(this->run(0, old).status, Status::kAtuFault);
        RmaOperation wrong = this->operation(RmaKind::kPut, registration, local.data(), 64);
        wrong.key ^= 1u << i % 32;
        ASSERT_EQ(this->run(0, wrong).status, Status::kAtuFault);
    }
}

REGISTER_TYPED_TEST_SUITE_P(DeviceKeys, an_access_outside_the_range_or_its_rights_faults_and_moves_nothing,
                            a_revoked_key_faults_even_when_its_place_is_taken_again);

/// Suites for devices with DeviceTraits::notifies_targets (and atomics).
template <class Fabric>
class DeviceNotify : public DeviceRma<Fabric> {};
TYPED_TEST_SUITE_P(DeviceNotify);

TYPED_TEST_P(DeviceNotify, notifications_go_where_they_were_asked_to_go) {
    this->open(2);
    alignas(8) std::array<std::byte, 64> remote = {};
    alignas(8) std::array<std::byte, 64> local = {};
    const Registration registration = this->registered(1, remote.data(), remote.size());
    for (const RmaKind kind : {RmaKind::kPut, RmaKind::kGet, RmaKind::kImmediatePut, RmaKind::kFetchAdd}) {
        for (uint8_t notify = 0; notify < 8; ++notify) {
            RmaOperation operation = this->operation(kind, registration, local.data(), 8);
            operation.notify = notify;
            operation.cookie = 4711;
            const uint64_t completed = this->device(0).counters().rma_completed;
            ASSERT_EQ(this->device(0).post(operation), Status::kOk);
            ASSERT_TRUE(this->drive([&] { return this->device(0).counters().rma_completed > completed; }));
            this->step(2);
            Notification notification;
            ASSERT_EQ(this->device(0).poll_notification(notification), (notify & kNotifyRequester) != 0);
            if ((notify & kNotifyRequester) != 0) {
                EXPECT_EQ(notification.kind, kNotifyRequester);
                EXPECT_EQ(notification.cookie, 4711);
                EXPECT_EQ(notification.operation, kind);
                EXPECT_EQ(notification.node, this->config(1).node);
                EXPECT_EQ(notification.vpid, this->config(1).vpid);
            }
            const bool put = kind == RmaKind::kPut || kind == RmaKind::kImmediatePut;
            const uint8_t far = put ? kNotifyCompleter : kind == RmaKind::kGet ? kNotifyResponder : 0;
            ASSERT_EQ(this->device(1).poll_notification(notification), (notify & far) != 0);
            if ((notify & far) != 0) {
                EXPECT_EQ(notification.kind, far);
                EXPECT_EQ(notification.operation, kind);
                EXPECT_EQ(notification.value, 8u);
                EXPECT_EQ(notification.status, Status::kOk);
                EXPECT_EQ(notification.node, this->config(0).node);
                EXPECT_EQ(notification.vpid, this->config(0).vpid);
            }
            EXPECT_FALSE(this->device(0).poll_notification(notification));
            EXPECT_FALSE(this->device(1).poll_notification(notification));
        }
    }
}

TYPED_TEST_P(DeviceNotify, a_notification_operation_follows_the_put_before_it) {
    this->open(2);
    std::vector<std::byte> remote(3u << 20);
    std::vector<std::byte> local(3u << 20, std::byte{9});
    const Registration registration = this->registered(1, remote.data(), remote.size());
    RmaOperation put = this->operation(RmaKind::kPut, registration, local.data(), 3u << 20);
    put.notify = 0;
    ASSERT_EQ(this->device(0).post(put), Status::kOk);
    RmaOperation signal = this->operation(RmaKind::kNotification, {}, nullptr, 0);
    signal.operand = 0x1122334455667788;
    ASSERT_EQ(this->device(0).post(signal), Status::kOk);
    Notification notification;
    ASSERT_TRUE(this->notified(1, notification));
    EXPECT_EQ(notification.kind, kNotifyCompleter);
    EXPECT_EQ(notification.operation, RmaKind::kNotification);
    EXPECT_EQ(notification.value, 0x1122334455667788u);
    EXPECT_EQ(remote, local);
    ASSERT_TRUE(this->notified(0, notification));
    EXPECT_EQ(notification.kind, kNotifyRequester);
}

TYPED_TEST_P(DeviceNotify, a_target_that_reads_no_notifications_gets_all_of_them_later) {
    this->open(2);
    std::array<std::byte, 64> memory = {};
    const Registration registration = this->registered(1, memory.data(), memory.size());
    std::array<std::byte, 64> local = {};
    for (const RmaKind kind : {RmaKind::kPut, RmaKind::kImmediatePut, RmaKind::kNotification}) {
        constexpr uint32_t kCount = 3000;
        uint32_t posted = 0;
        uint32_t own = 0;
        uint32_t far = 0;
        Notification notification;
        RmaOperation operation = this->operation(kind, registration, local.data(), 1);
        operation.notify = kNotifyRequester | kNotifyCompleter;
        const auto turn = [&] {
            if (posted < kCount && this->device(0).post(operation) == Status::kOk) {
                operation.cookie = static_cast<uint16_t>(++posted);
            }
            while (this->device(0).poll_notification(notification)) {
                EXPECT_EQ(notification.status, Status::kOk);
                ++own;
            }
        };
        this->drive([&] { return turn(), own == kCount; }, 5000);
        const auto finish = [&] {
            turn();
            while (this->device(1).poll_notification(notification)) {
                EXPECT_EQ(notification.kind, kNotifyCompleter);
                EXPECT_EQ(notification.cookie, static_cast<uint16_t>(far));
                ++far;
            }
            return own == kCount && far == kCount;
        };
        EXPECT_TRUE(this->drive(finish));
        EXPECT_EQ(own, kCount);
        EXPECT_EQ(far, kCount);
    }
}

REGISTER_TYPED_TEST_SUITE_P(DeviceNotify, notifications_go_where_they_were_asked_to_go,
                            a_notification_operation_follows_the_put_before_it,
                            a_target_that_reads_no_notifications_gets_all_of_them_later);

/// Without them: such operations are refused, so that the engine sends messages instead.
template <class Fabric>
class DeviceRefusals : public DeviceRma<Fabric> {};
TYPED_TEST_SUITE_P(DeviceRefusals);

TYPED_TEST_P(DeviceRefusals, operations_that_the_device_does_not_do_are_unsupported) {
    this->open(2);
    alignas(8) std::array<std::byte, 64> memory = {};
    const Registration registration = this->registered(1, memory.data(), memory.size());
    for (const RmaKind kind : {RmaKind::kImmediatePut, RmaKind::kFetchAdd, RmaKind::kCompareSwap, RmaKind::kLock,
                               RmaKind::kNotification}) {
        const RmaOperation operation = this->operation(kind, registration, memory.data(), 8);
        EXPECT_EQ(this->device(0).post(operation), Status::kUnsupported);
    }
    for (const Notify notify : {kNotifyResponder, kNotifyCompleter}) {
        RmaOperation operation = this->operation(RmaKind::kGet, registration, memory.data(), 8);
        operation.notify = kNotifyRequester | notify;
        EXPECT_EQ(this->device(0).post(operation), Status::kUnsupported);
    }
    EXPECT_EQ(this->device(0).counters().rma_posted, 0u);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceRefusals, operations_that_the_device_does_not_do_are_unsupported);

}  // namespace velo::conformance
