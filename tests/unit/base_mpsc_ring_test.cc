// The ring of many producers: nothing lost, repeated, reordered per producer, or overwritten.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "velo/base/mpsc_ring.h"

namespace velo::base {
namespace {

struct Item {
    uint64_t producer;
    uint64_t number;
    uint64_t check;
};
using Ring = MpscRing<Item, 32>;

/// Zeroed memory for one ring.
class Memory {
  public:
    explicit Memory(size_t capacity)
        : bytes_(Ring::bytes_for(capacity)), data_(static_cast<std::byte*>(std::aligned_alloc(64, bytes_))) {
        std::memset(data_, 0, bytes_);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { std::free(data_); }
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::atomic<uint64_t>& tail() const {
        return *reinterpret_cast<std::atomic<uint64_t>*>(data_);
    }
    [[nodiscard]] std::atomic<uint64_t>& head() const {
        return *reinterpret_cast<std::atomic<uint64_t>*>(data_ + 64);
    }

  private:
    size_t bytes_;
    std::byte* data_;
};

TEST(MpscRing, a_full_ring_refuses_and_keeps_what_it_has) {
    Memory memory(4);
    Ring ring(memory.data(), 4);
    Item item = {};
    EXPECT_FALSE(ring.pop(item));
    for (uint64_t lap = 0; lap < 100; ++lap) {
        for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(ring.push({0, lap * 4 + i, 0}), Status::kOk);
        ASSERT_EQ(ring.push({9, 9, 9}), Status::kAgain);
        EXPECT_EQ(ring.occupied(), 4u);
        for (uint64_t i = 0; i < 4; ++i) {
            ASSERT_TRUE(ring.pop(item));
            EXPECT_EQ(item.number, lap * 4 + i);
        }
        ASSERT_FALSE(ring.pop(item));
    }
}

TEST(MpscRing, concurrent_producers_lose_and_reorder_nothing) {
    constexpr uint64_t kProducers = 3;
    constexpr uint64_t kEach = 20'000;
    Memory memory(8);
    std::vector<std::thread> threads;
    for (uint64_t producer = 0; producer < kProducers; ++producer) {
        threads.emplace_back([&memory, producer] {
            Ring ring(memory.data(), 8);
            for (uint64_t number = 0; number < kEach;) {
                if (ring.push({producer, number, producer * 31 + number}) == Status::kOk) {
                    ++number;
                } else {
                    std::this_thread::yield();
                }
            }
        });
    }
    Ring ring(memory.data(), 8);
    std::array<uint64_t, kProducers> next = {};
    for (uint64_t taken = 0; taken < kProducers * kEach;) {
        Item item = {};
        if (!ring.pop(item)) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_LT(item.producer, kProducers);
        ASSERT_EQ(item.number, next[item.producer]++);
        ASSERT_EQ(item.check, item.producer * 31 + item.number);
        ++taken;
    }
    for (std::thread& thread : threads) thread.join();
    Item item = {};
    EXPECT_FALSE(ring.pop(item));
}

/// A producer that has a cell set aside for it never meets a full ring, however others push and pop: the
/// reservations of sim_device/shim's answers rest on this.
TEST(MpscRing, there_is_room_while_reservations_do_not_exceed_the_capacity) {
    constexpr uint64_t kProducers = 4;
    constexpr uint64_t kEach = 20'000;
    Memory memory(kProducers);
    std::array<std::atomic<uint64_t>, kProducers> taken = {};
    std::atomic<uint64_t> refused = 0;
    std::vector<std::thread> threads;
    for (uint64_t producer = 0; producer < kProducers; ++producer) {
        threads.emplace_back([&, producer] {
            Ring ring(memory.data(), kProducers);
            for (uint64_t number = 0; number < kEach; ++number) {
                while (taken[producer].load(std::memory_order_acquire) != number) std::this_thread::yield();
                while (ring.push({producer, number, 0}) != Status::kOk) ++refused;
            }
        });
    }
    Ring ring(memory.data(), kProducers);
    for (uint64_t count = 0; count < kProducers * kEach;) {
        Item item = {};
        if (!ring.pop(item)) {
            std::this_thread::yield();
            continue;
        }
        taken[item.producer].store(item.number + 1, std::memory_order_release);
        ++count;
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(refused.load(), 0u);
}

TEST(MpscRing, abandoned_cells_are_passed_over_and_published_ones_among_them_are_not) {
    Memory memory(8);
    Ring ring(memory.data(), 8);
    Item item = {};
    ASSERT_EQ(ring.push({0, 1, 0}), Status::kOk);
    memory.tail() += 2;  // two producers claim and die
    ASSERT_EQ(ring.push({0, 2, 0}), Status::kOk);
    memory.tail() += 1;
    ASSERT_TRUE(ring.pop(item));
    EXPECT_EQ(item.number, 1u);
    EXPECT_FALSE(ring.pop(item));
    EXPECT_FALSE(ring.readable());
    EXPECT_EQ(ring.position(), 1u);
    EXPECT_EQ(ring.claimed(), 5u);
    ring.abandon_before(5);
    ASSERT_TRUE(ring.pop(item));
    EXPECT_EQ(item.number, 2u);
    EXPECT_FALSE(ring.pop(item));
    for (uint64_t i = 0; i < 50; ++i) {
        ASSERT_EQ(ring.push({0, i, 0}), Status::kOk);
        ASSERT_TRUE(ring.pop(item));
        ASSERT_EQ(item.number, i);
    }
}

TEST(MpscRing, garbage_in_its_indices_ends_every_call) {
    for (const uint64_t garbage : {uint64_t{1} << 63, UINT64_MAX, uint64_t{5}, uint64_t{1} << 32}) {
        Memory memory(8);
        Ring ring(memory.data(), 8);
        Item item = {};
        memory.tail() = garbage;
        ring.abandon_before(ring.claimed());
        EXPECT_FALSE(ring.pop(item));
        memory.head() = garbage / 2;
        for (int i = 0; i < 20; ++i) EXPECT_LE(ring.push({}), Status::kAgain);
        for (int i = 0; i < 20; ++i) ring.pop(item);
    }
}

}  // namespace
}  // namespace velo::base
