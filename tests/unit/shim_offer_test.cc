// Puts and gets that requester and target move together: the order, the ends, and what garbage does.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "sim_device/shim/shim_device.h"

namespace velo::shim {
namespace {

constexpr uint32_t kLong = 8u << 20;

/// A requester and its target, in one process and one thread: who makes progress when is the test's choice.
class Offers : public testing::Test {
  protected:
    Offers() { reopen(); }
    void reopen() {
        requester_ = open(1);
        target_ = open(2);
        std::byte bytes[kDeviceAddressBytesMax];
        const size_t length = target_->address(bytes);
        EXPECT_EQ(requester_->connect({bytes, length}, peer_), Status::kOk);
        requester_segment_ = attached(*requester_);
        target_segment_ = attached(*target_);
    }
    static std::unique_ptr<ShimDevice> open(uint16_t node) {
        return std::make_unique<ShimDevice>(
            DeviceConfig{.node = node, .job_token = 5, .mailbox_slots = 16, .faults = {}});
    }
    static base::SharedSegment attached(const ShimDevice& device) {
        std::byte bytes[kDeviceAddressBytesMax];
        device.address(bytes);
        base::SegmentAddress address;
        std::memcpy(&address, bytes + sizeof(uint64_t), sizeof address);
        base::SharedSegment segment;
        EXPECT_EQ(base::SharedSegment::attach(address, segment), Status::kOk);
        return segment;
    }
    static std::vector<std::byte> random_bytes(size_t bytes, uint32_t seed) {
        std::mt19937 random(seed);
        std::vector<std::byte> out(bytes);
        for (std::byte& byte : out) byte = static_cast<std::byte>(random());
        return out;
    }
    static SegmentView view(base::SharedSegment& segment) { return {segment.bytes().data(), Layout(16, 1)}; }
    void share(std::vector<std::byte>& memory) {
        ASSERT_EQ(target_->register_memory(memory.data(), memory.size(), kAccessAny, registration_),
                  Status::kOk);
    }
    RmaOperation operation(RmaKind kind, std::byte* local, uint32_t bytes, uint64_t offset = 0) {
        return {.kind = kind,
                .peer = peer_,
                .local = local,
                .nla = registration_.nla + offset,
                .key = registration_.key,
                .bytes = bytes};
    }
    void requester() { requester_->progress(now_ns_ += 1'000'000); }
    void target() { target_->progress(now_ns_ += 1'000'000); }
    /// False while the operation lasts.
    bool ended() { return requester_->poll_notification(notification_); }
    bool drive(bool both, int steps = 1'000) {
        for (int i = 0; i < steps; ++i) {
            if (ended()) return true;
            requester();
            if (both) target();
        }
        return ended();
    }
    /// The slot that the one operation is offered in, after the requester's first step.
    OfferSlot& slot(uint16_t& generation) {
        for (uint32_t i = 0; i < kOfferSlots; ++i) {
            OfferSlot& slot = view(requester_segment_).offers()[i];
            const OfferTerms terms = OfferTerms::unpack(slot.terms.load());
            if (terms.bytes == 0) continue;
            generation = terms.generation;
            return slot;
        }
        ADD_FAILURE() << "nothing is on offer";
        return view(requester_segment_).offers()[0];
    }
    /// A get of all of `remote`, of which the target has the first `chunks` and does not move them.
    OfferSlot& get_with_a_part_taken(std::vector<std::byte>& remote, std::vector<std::byte>& local,
                                     uint32_t chunks, uint16_t& generation) {
        share(remote);
        EXPECT_EQ(requester_->post(operation(RmaKind::kGet, local.data(), kLong)), Status::kOk);
        requester();
        OfferSlot& offer = slot(generation);
        const base::SharedBlock block(kLong, generation);
        for (uint32_t i = 0; i < chunks; ++i) EXPECT_NE(block.claim_front(offer.claims).bytes, 0u);
        return offer;
    }
    std::atomic<uint64_t>& targets_copying() { return view(target_segment_).header().copying; }

    std::unique_ptr<ShimDevice> requester_, target_;
    base::SharedSegment requester_segment_, target_segment_;
    DeviceAddr peer_ = kNoAddr;
    Registration registration_;
    Notification notification_;
    uint64_t now_ns_ = 0;
};

TEST_F(Offers, both_sides_move_a_part_of_a_long_operation) {
    std::vector<std::byte> remote = random_bytes(kLong, 1);
    std::vector<std::byte> local(kLong);
    share(remote);
    uint64_t helped = 0;
    for (const RmaKind kind : {RmaKind::kGet, RmaKind::kPut}) {
        if (kind == RmaKind::kPut) local = random_bytes(kLong, 2);
        ASSERT_EQ(requester_->post(operation(kind, local.data(), kLong)), Status::kOk);
        ASSERT_TRUE(drive(true));
        EXPECT_EQ(notification_.status, Status::kOk);
        EXPECT_EQ(notification_.value, kLong);
        EXPECT_EQ(remote, local);
        const uint64_t moved = target_->counters().helped_bytes - helped;
        EXPECT_GT(moved, 0u);
        EXPECT_LT(moved, kLong);
        helped += moved;
    }
    EXPECT_EQ(requester_->counters().rma_bytes, 2u * kLong);
    EXPECT_EQ(requester_->shim_counters().malformed + target_->shim_counters().malformed, 0u);
}

TEST_F(Offers, a_target_that_computes_delays_nothing_and_is_asked_less) {
    std::vector<std::byte> remote = random_bytes(kLong, 1);
    std::vector<std::byte> local(kLong);
    share(remote);
    for (int i = 0; i < 40; ++i) {
        std::fill(local.begin(), local.end(), std::byte{0});
        ASSERT_EQ(requester_->post(operation(RmaKind::kGet, local.data(), 64u << 10)), Status::kOk);
        ASSERT_TRUE(drive(false, 2));
        EXPECT_EQ(notification_.status, Status::kOk);
        EXPECT_EQ(std::memcmp(local.data(), remote.data(), 64u << 10), 0);
    }
    EXPECT_EQ(target_->counters().helped_bytes, 0u);
    EXPECT_LT(view(target_segment_).requests(0).occupied(), 20u);
    // It comes back, finds that all has been done, and takes part again after some operations.
    for (int i = 0; i < 40; ++i) target();
    for (int i = 0; i < 20 && target_->counters().helped_bytes == 0; ++i) {
        ASSERT_EQ(requester_->post(operation(RmaKind::kGet, local.data(), kLong)), Status::kOk);
        ASSERT_TRUE(drive(true));
    }
    EXPECT_GT(target_->counters().helped_bytes, 0u);
}

/// For any overlap and any order: the result is what one after the other would leave.
TEST_F(Offers, operations_of_a_port_have_the_effects_of_their_order) {
    constexpr uint32_t kBytes = 1u << 20;
    for (uint32_t seed = 0; seed < 150; ++seed) {
        std::mt19937 random(seed);
        std::vector<std::byte> remote = random_bytes(kBytes, seed + 1);
        std::vector<std::byte> local = random_bytes(kBytes, seed + 2);
        std::vector<std::byte> remote_model = remote;
        std::vector<std::byte> local_model = local;
        share(remote);
        const bool apart = random() % 2 == 0;  // long rows of operations without overlap, too
        uint16_t expected = 0;
        const auto take = [&] {
            while (ended()) {
                EXPECT_EQ(notification_.status, Status::kOk);
                EXPECT_EQ(notification_.cookie, expected++) << "in the order posted";
            }
        };
        for (uint16_t cookie = 0; cookie < 12; ++cookie) {
            const uint32_t bytes = 1 + static_cast<uint32_t>(random() % (apart               ? kBytes / 12
                                                                         : random() % 2 == 0 ? 400'000
                                                                                             : 9'000));
            const uint32_t at =
                apart ? cookie * (kBytes / 12) : static_cast<uint32_t>(random() % (kBytes - bytes));
            const uint32_t here = apart ? at : static_cast<uint32_t>(random() % (kBytes - bytes));
            const RmaKind kind = (apart ? seed / 2 : random()) % 2 == 0 ? RmaKind::kGet : RmaKind::kPut;
            RmaOperation what = operation(kind, local.data() + here, bytes, at);
            what.cookie = cookie;
            ASSERT_EQ(requester_->post(what), Status::kOk);
            if (kind == RmaKind::kGet) {
                std::copy_n(remote_model.data() + at, bytes, local_model.data() + here);
            } else {
                std::copy_n(local_model.data() + here, bytes, remote_model.data() + at);
            }
            // A put's memory must not change before its end: gets into it would.
            for (auto steps = random() % 3; steps != 0; --steps) random() % 2 == 0 ? requester() : target();
            const auto drained = [&] {
                return requester_->counters().rma_completed == requester_->counters().rma_posted;
            };
            if (!apart) {
                for (int i = 0; i < 1000 && kind == RmaKind::kPut && !drained(); ++i) requester(), target();
            }
            take();
        }
        for (int i = 0; i < 1'000 && expected < 12; ++i, take()) random() % 2 == 0 ? requester() : target();
        ASSERT_EQ(expected, 12) << seed;
        EXPECT_TRUE(local == local_model && remote == remote_model) << seed;
        ASSERT_EQ(target_->deregister(registration_), Status::kOk);
    }
    EXPECT_GT(target_->counters().helped_bytes, 0u);
}

TEST_F(Offers, a_range_that_is_revoked_in_the_middle_is_a_fault_and_touched_no_more) {
    for (const RmaKind kind : {RmaKind::kGet, RmaKind::kPut}) {
        for (int steps = 1; steps < 16; steps += 2) {
            std::vector<std::byte> remote = random_bytes(kLong, 1);
            std::vector<std::byte> local(kLong);
            share(remote);
            ASSERT_EQ(requester_->post(operation(kind, local.data(), kLong)), Status::kOk);
            for (int i = 0; i < steps; ++i) i % 2 == 0 ? requester() : target();
            ASSERT_EQ(target_->deregister(registration_), Status::kOk);
            const std::vector<std::byte> before(kLong, std::byte{0x5a});
            remote = before;
            const bool target_first = steps % 4 == 1;
            if (target_first) target();
            ASSERT_TRUE(drive(true));
            EXPECT_EQ(notification_.status, Status::kAtuFault);
            EXPECT_EQ(remote, before);
        }
    }
}

TEST_F(Offers, a_target_that_ends_in_the_middle_of_its_part_ends_the_operation) {
    std::vector<std::byte> remote(kLong);
    std::vector<std::byte> local(kLong);
    uint16_t generation = 0;
    get_with_a_part_taken(remote, local, 1, generation);
    targets_copying() = 77;
    EXPECT_FALSE(drive(false)) << "its memory may still be written to";
    target_.reset();
    ASSERT_TRUE(drive(false));
    EXPECT_EQ(notification_.status, Status::kPeerDead);
    EXPECT_FALSE(requester_->alive(peer_));
}

TEST_F(Offers, a_part_that_was_taken_and_never_came_is_done_again) {
    std::vector<std::byte> remote = random_bytes(kLong, 1);
    std::vector<std::byte> local(kLong);
    uint16_t generation = 0;
    get_with_a_part_taken(remote, local, 5, generation);
    ASSERT_TRUE(drive(false));
    EXPECT_EQ(notification_.status, Status::kOk);
    EXPECT_EQ(local, remote);
    EXPECT_EQ(requester_->shim_counters().malformed, 1u);
    EXPECT_EQ(requester_->counters().rma_bytes, kLong);
}

TEST_F(Offers, a_target_that_may_not_copy_is_done_without) {
    std::vector<std::byte> remote = random_bytes(kLong, 1);
    std::vector<std::byte> local(kLong);
    uint16_t generation = 0;
    OfferSlot& offer = get_with_a_part_taken(remote, local, 1, generation);
    targets_copying() = 77;
    EXPECT_FALSE(drive(false));
    offer.report = OfferReport{generation, Status::kUnsupported, 0}.pack();
    ASSERT_TRUE(drive(false));
    EXPECT_EQ(notification_.status, Status::kOk);
    EXPECT_EQ(local, remote);
    EXPECT_EQ(requester_->shim_counters().malformed, 0u);
    const uint64_t asked = view(target_segment_).requests(0).occupied();
    ASSERT_EQ(requester_->post(operation(RmaKind::kGet, local.data(), kLong)), Status::kOk);
    ASSERT_TRUE(drive(false));
    EXPECT_EQ(view(target_segment_).requests(0).occupied(), asked) << "it is not asked again";
}

/// Anything in the slots, the target's word and its requests: every operation ends, and nothing else is
/// touched.
TEST_F(Offers, garbage_ends_operations_and_touches_nothing_else) {
    constexpr uint32_t kBytes = 600'000;
    constexpr uint32_t kGuard = 4096;
    for (uint32_t seed = 0; seed < 400; ++seed) {
        std::mt19937_64 random(seed);
        reopen();  // who has sent garbage is not relied on again
        std::vector<std::byte> local(kBytes + 2 * kGuard, std::byte{2});
        std::vector<std::byte> shared(kBytes + 2 * kGuard, std::byte{1});
        Registration registration;
        ASSERT_EQ(target_->register_memory(shared.data() + kGuard, kBytes, kAccessAny, registration),
                  Status::kOk);
        RmaOperation what =
            operation(random() % 2 == 0 ? RmaKind::kGet : RmaKind::kPut, local.data() + kGuard, kBytes);
        what.nla = registration.nla;
        what.key = registration.key;
        ASSERT_EQ(requester_->post(what), Status::kOk);
        bool over = false;
        for (int i = 0; i < 2'000 && !over; ++i) {
            const auto slots = reinterpret_cast<std::atomic<uint64_t>*>(view(requester_segment_).offers());
            const uint64_t word =
                random() % 3 == 0 ? random() : random() % 8 << 48 | random() % 16 << 24 | random() % 16;
            // Most of it where it can do harm: in the slot that is in use.
            if (i < 8 && random() % 2 == 0) slots[random() % (sizeof(OfferSlot) / 8)] = word;
            if (i < 8 && random() % 8 == 0) slots[random() % (kOfferSlots * sizeof(OfferSlot) / 8)] = word;
            if (i < 8 && random() % 8 == 0) targets_copying() = random();
            if (i < 8 && random() % 4 == 0) {
                (void)view(target_segment_)
                    .requests(0)
                    .push({.nla = registration.nla + random() % kBytes,
                           .operand = random(),
                           .compare = random() & 0x1ffff3fffffff,
                           .key = static_cast<uint32_t>(registration.key),
                           .node = 1,
                           .kind = static_cast<uint8_t>(random() % 2)});
            }
            random() % 2 == 0 ? requester() : target();
            over = ended();
        }
        ASSERT_TRUE(over) << seed;
        const auto intact = [](const std::vector<std::byte>& memory, std::byte mark) {
            const auto marked = [mark](std::byte byte) { return byte == mark; };
            return std::all_of(memory.begin(), memory.begin() + kGuard, marked) &&
                   std::all_of(memory.end() - kGuard, memory.end(), marked);
        };
        EXPECT_TRUE(intact(local, std::byte{2}) && intact(shared, std::byte{1})) << seed;
        ASSERT_EQ(target_->deregister(registration), Status::kOk);
    }
}

TEST_F(Offers, two_threads_share_out_a_row_of_operations) {
    constexpr uint32_t kEach = 128u << 10;
    constexpr uint32_t kCount = 16;
    std::vector<std::byte> remote = random_bytes(kEach * kCount, 1);
    std::vector<std::byte> local(kEach * kCount);
    share(remote);
    std::atomic<bool> stop = false;
    std::thread helper([&] {
        for (uint64_t now_ns = 0; !stop; ++now_ns) {
            if (target_->progress(now_ns) == 0) sched_yield();
        }
    });
    for (int round = 0; round < 20; ++round) {
        std::fill(local.begin(), local.end(), std::byte{0});
        for (uint32_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(requester_->post(operation(RmaKind::kGet, local.data() + i * kEach, kEach, i * kEach)),
                      Status::kOk);
        }
        for (uint32_t left = kCount; left != 0;) {
            if (requester_->progress(++now_ns_) == 0) sched_yield();
            while (ended()) {
                EXPECT_EQ(notification_.status, Status::kOk);
                --left;
            }
        }
        EXPECT_TRUE(local == remote);
    }
    stop = true;
    helper.join();
}

}  // namespace
}  // namespace velo::shim
