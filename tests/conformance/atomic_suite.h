/// Conformance: operations that their target executes, and operations made of garbage.
#pragma once

#include <algorithm>

#include "tests/conformance/fabric.h"

namespace velo::conformance {

template <class Fabric>
class DeviceAtomic : public DeviceTest<Fabric> {
  protected:
    /// `from`'s operation on the 64-bit word `index` of device 0's `registration`.
    RmaOperation operation(size_t from, RmaKind kind, const Registration& registration, uint32_t index,
                           uint64_t operand, uint64_t compare = 0) {
        return {.kind = kind,
                .peer = this->name(from, 0),
                .nla = registration.nla + index * 8,
                .key = registration.key,
                .bytes = 8,
                .operand = operand,
                .compare = compare};
    }
};
TYPED_TEST_SUITE_P(DeviceAtomic);

TYPED_TEST_P(DeviceAtomic, an_immediate_put_writes_its_bytes_and_no_other) {
    this->open(2);
    for (uint32_t bytes = 1; bytes <= 8; ++bytes) {
        for (uint32_t offset = 0; offset < 9; ++offset) {
            alignas(8) std::array<std::byte, 24> memory;
            memory.fill(std::byte{0xee});
            std::array<std::byte, 24> expected = memory;
            const uint64_t operand = 0x0807060504030201;
            std::memcpy(expected.data() + offset, &operand, bytes);
            const Registration registration = this->registered(0, memory.data(), memory.size(), kAccessWrite);
            RmaOperation put = this->operation(1, RmaKind::kImmediatePut, registration, 0, operand);
            put.nla += offset;
            put.bytes = bytes;
            const Notification notification = this->run(1, put);
            EXPECT_EQ(notification.status, Status::kOk);
            EXPECT_EQ(notification.value, bytes);
            EXPECT_EQ(memory, expected);
            EXPECT_EQ(this->device(0).deregister(registration), Status::kOk);
        }
    }
}

TYPED_TEST_P(DeviceAtomic, fetch_add_and_compare_swap_notify_the_old_value) {
    this->open(2);
    std::array<uint64_t, 3> words = {5, UINT64_MAX, 10};
    const Registration registration = this->registered(0, words.data(), sizeof words, kAccessAtomic);
    const auto old_value = [&](RmaKind kind, uint32_t index, uint64_t operand, uint64_t compare) {
        const Notification notification =
            this->run(1, this->operation(1, kind, registration, index, operand, compare));
        EXPECT_EQ(notification.status, Status::kOk);
        EXPECT_EQ(notification.operation, kind);
        return notification.value;
    };
    EXPECT_EQ(old_value(RmaKind::kFetchAdd, 0, 7, 0), 5u);
    EXPECT_EQ(old_value(RmaKind::kFetchAdd, 1, 2, 0), UINT64_MAX);
    EXPECT_EQ(old_value(RmaKind::kCompareSwap, 2, 99, 11), 10u);
    EXPECT_EQ(words[2], 10u);
    EXPECT_EQ(old_value(RmaKind::kCompareSwap, 2, 99, 10), 10u);
    EXPECT_EQ(words, (std::array<uint64_t, 3>{12, 1, 99}));
}

TYPED_TEST_P(DeviceAtomic, a_lock_adds_only_while_the_word_is_at_most_the_limit) {
    this->open(2);
    uint64_t word = 0;
    const Registration registration = this->registered(0, &word, sizeof word, kAccessAtomic);
    // At most four holders: FCAA with limit 3 and operand 1.
    for (uint64_t holders = 0; holders < 7; ++holders) {
        const Notification taken = this->run(1, this->operation(1, RmaKind::kLock, registration, 0, 1, 3));
        EXPECT_EQ(taken.status, Status::kOk);
        EXPECT_EQ(taken.value, std::min<uint64_t>(holders, 4));
        EXPECT_EQ(word, std::min<uint64_t>(holders + 1, 4));
    }
    // A release always goes: the limit is the largest value.
    const Notification released =
        this->run(1, this->operation(1, RmaKind::kLock, registration, 0, uint64_t(-1), UINT64_MAX));
    EXPECT_EQ(released.value, 4u);
    EXPECT_EQ(word, 3u);
    EXPECT_EQ(this->run(1, this->operation(1, RmaKind::kLock, registration, 0, 1, 3)).value, 3u);
    EXPECT_EQ(word, 4u);
}

TYPED_TEST_P(DeviceAtomic, additions_of_many_requesters_sum_up) {
    constexpr size_t kRequesters = 4;
    constexpr uint64_t kEach = 3000;
    this->open(kRequesters + 1);
    std::array<uint64_t, 2> words = {};
    const Registration registration = this->registered(0, words.data(), sizeof words, kAccessAtomic);
    std::array<uint64_t, kRequesters> posted = {};
    std::array<uint64_t, kRequesters> ended = {};
    std::vector<bool> seen(kRequesters * kEach, false);
    const auto finished = [&] { return std::ranges::all_of(ended, [](uint64_t n) { return n == kEach; }); };
    this->drive([&] {
        for (size_t i = 0; i < kRequesters; ++i) {
            RmaOperation add = this->operation(i + 1, RmaKind::kFetchAdd, registration, 0, 1);
            add.port = static_cast<uint8_t>(posted[i] % 2);
            while (posted[i] < kEach && this->device(i + 1).post(add) == Status::kOk) {
                ++posted[i];
                add.port = static_cast<uint8_t>(posted[i] % 2);
            }
            Notification notification;
            while (this->device(i + 1).poll_notification(notification)) {
                EXPECT_EQ(notification.status, Status::kOk);
                EXPECT_LT(notification.value, seen.size());
                if (notification.value < seen.size()) {
                    EXPECT_FALSE(seen[notification.value]) << "each old value is seen once";
                    seen[notification.value] = true;
                }
                ++ended[i];
            }
        }
        return finished();
    });
    EXPECT_TRUE(finished());
    EXPECT_EQ(words[0], kRequesters * kEach);
    EXPECT_EQ(words[1], 0u);
}

TYPED_TEST_P(DeviceAtomic, two_devices_serve_each_other_while_they_wait) {
    this->open(2);
    uint64_t word = 1;
    const Registration registration = this->registered(1, &word, sizeof word);
    // Both ask each other at once, so that each is requester and target in one call of progress.
    uint64_t other = 2;
    const Registration other_registration = this->registered(0, &other, sizeof other);
    RmaOperation here = this->operation(1, RmaKind::kFetchAdd, other_registration, 0, 10);
    RmaOperation there = here;
    there.peer = this->name(0, 1);
    there.nla = registration.nla;
    there.key = registration.key;
    ASSERT_EQ(this->device(1).post(here), Status::kOk);
    ASSERT_EQ(this->device(0).post(there), Status::kOk);
    Notification notification;
    ASSERT_TRUE(this->notified(0, notification));
    EXPECT_EQ(notification.value, 1u);
    ASSERT_TRUE(this->notified(1, notification));
    EXPECT_EQ(notification.value, 2u);
    EXPECT_EQ(word, 11u);
    EXPECT_EQ(other, 12u);
}

TYPED_TEST_P(DeviceAtomic, what_cannot_be_an_atomic_is_a_bad_parameter) {
    this->open(2);
    alignas(8) std::array<std::byte, 64> memory = {};
    const Registration registration = this->registered(0, memory.data(), memory.size());
    std::vector<RmaOperation> bad(3, this->operation(1, RmaKind::kImmediatePut, registration, 0, 0));
    bad[0].bytes = 9;
    bad[1].kind = RmaKind::kFetchAdd, bad[1].nla += 4;
    bad[2].kind = RmaKind::kCompareSwap, bad[2].bytes = 4;
    for (const RmaOperation& operation : bad) EXPECT_EQ(this->device(1).post(operation), Status::kBadParam);
    EXPECT_EQ(this->device(1).counters().rma_posted, 0u);
}

/// For every request: memory that is not registered stays as it was, and each operation that was
/// accepted ends once.
TYPED_TEST_P(DeviceAtomic, garbage_touches_nothing_and_every_accepted_operation_ends_once) {
    this->open(2);
    constexpr size_t kBytes = 4096;
    alignas(64) std::array<std::byte, 3 * kBytes> memory;
    memory.fill(std::byte{0x5a});
    alignas(64) std::array<std::byte, 3 * kBytes> local;
    local.fill(std::byte{0x33});
    const Registration registration = this->registered(0, memory.data() + kBytes, kBytes);
    const Registration revoked = this->registered(0, memory.data(), kBytes);
    ASSERT_EQ(this->device(0).deregister(revoked), Status::kOk);
    for (const uint64_t seed : {1, 2, 3}) {
        std::mt19937_64 random(seed);
        const auto some = [&](uint64_t good, uint64_t near) {
            switch (random() % 8) {
                case 0: return random();
                case 1: return good - random() % 16;
                case 2: return good + near;
                default: return good + random() % (near + 1);
            }
        };
        uint64_t accepted = 0;
        uint64_t notified = 0;
        const auto take = [&] {
            Notification notification;
            while (this->device(1).poll_notification(notification)) {
                EXPECT_EQ(notification.kind, kNotifyRequester);
                EXPECT_TRUE(notification.status == Status::kOk || notification.status == Status::kAtuFault)
                    << to_string(notification.status);
                ++notified;
            }
            while (this->device(0).poll_notification(notification))
                EXPECT_NE(notification.kind, kNotifyRequester);
        };
        for (int i = 0; i < 20'000; ++i) {
            RmaOperation operation = {
                .kind = static_cast<RmaKind>(random() % 9),
                .port = static_cast<uint8_t>(random() % 3),
                .notify = static_cast<uint8_t>(kNotifyRequester | random() % 8),
                .cookie = static_cast<uint16_t>(random()),
                .peer = random() % 50 == 0 ? static_cast<DeviceAddr>(random()) : this->name(1, 0),
                .local = local.data() + kBytes,
                .nla = some(random() % 4 == 0 ? revoked.nla : registration.nla, kBytes),
                .key = static_cast<uint32_t>(some(registration.key, 1)),
                .bytes = static_cast<uint32_t>(some(8, random() % 2 == 0 ? 0 : kBytes)),
                .operand = random(),
                .compare = random()};
            // The local side is the caller's own: it is within its buffer, as a caller's is.
            operation.bytes =
                operation.bytes > kBytes && operation.bytes <= this->device(1).limits().rma_bytes_max
                    ? operation.bytes % kBytes
                    : operation.bytes;
            const Status status = this->device(1).post(operation);
            ASSERT_TRUE(status == Status::kOk || status == Status::kBadParam || status == Status::kAgain);
            accepted += status == Status::kOk;
            if (i % 8 == 0) {
                this->fabric_.step();
                take();
            }
        }
        this->drive([&] { return take(), notified == accepted; });
        this->step(3);
        take();
        EXPECT_EQ(notified, accepted) << "seed " << seed;
        EXPECT_GT(this->device(1).counters().rma_completed, 1000u) << "not all of it should be refused";
        EXPECT_GT(this->device(1).counters().atu_faults, 1000u);
    }
    const auto untouched = [](std::byte byte) { return byte == std::byte{0x5a}; };
    EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + kBytes, untouched));
    EXPECT_TRUE(std::all_of(memory.begin() + 2 * kBytes, memory.end(), untouched));
    const auto own = [](std::byte byte) { return byte == std::byte{0x33}; };
    EXPECT_TRUE(std::all_of(local.begin(), local.begin() + kBytes, own));
    EXPECT_TRUE(std::all_of(local.begin() + 2 * kBytes, local.end(), own));
}

REGISTER_TYPED_TEST_SUITE_P(DeviceAtomic, an_immediate_put_writes_its_bytes_and_no_other,
                            fetch_add_and_compare_swap_notify_the_old_value,
                            a_lock_adds_only_while_the_word_is_at_most_the_limit,
                            additions_of_many_requesters_sum_up, two_devices_serve_each_other_while_they_wait,
                            what_cannot_be_an_atomic_is_a_bad_parameter,
                            garbage_touches_nothing_and_every_accepted_operation_ends_once);

}  // namespace velo::conformance
