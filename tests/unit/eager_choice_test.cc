/// The way of messages of some KiB, on simulated machines.
#include "velo/matching/eager_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace velo {
namespace {

struct Machine {
    /// Returns how many went through the ring.
    uint32_t send(uint32_t messages, uint64_t bytes) {
        uint32_t through_ring = 0;
        for (uint32_t i = 0; i < messages; ++i) {
            const bool eager = choice.eager(bytes);
            now_ns += eager ? ring_ns : fetch_ns;
            choice.ended(bytes, eager, [this] { return now_ns; });
            through_ring += eager ? 1 : 0;
        }
        return through_ring;
    }

    uint64_t ring_ns;
    uint64_t fetch_ns;
    EagerChoice choice = {};
    uint64_t now_ns = 1;
};

constexpr base::TwoWays::Numbers kLongest = EagerChoice::kNumbers.back();
constexpr uint32_t kTrial =
    EagerChoice::kNumbers[0].first +
    base::TwoWays::kWindows * (EagerChoice::kNumbers[0].lead + base::TwoWays::kWindow + 1);

TEST(EagerChoice, the_faster_way_is_found_and_kept) {
    Machine fetches{.ring_ns = 5000, .fetch_ns = 3400};
    (void)fetches.send(kTrial, 16384);
    EXPECT_EQ(fetches.send(500, 16384), 0u);
    Machine copies{.ring_ns = 1100, .fetch_ns = 5000};
    (void)copies.send(kTrial, 16384);
    EXPECT_EQ(copies.send(500, 16384), 500u);
    EXPECT_GT(copies.send(100'000, 16384), 97'000u) << "trials become rare";
}

TEST(EagerChoice, a_way_that_takes_twice_as_long_is_seen_by_one_window_of_each) {
    const uint32_t two_windows = kLongest.first + 2 * (kLongest.lead + base::TwoWays::kWindow + 1);
    Machine fetches{.ring_ns = 12'000, .fetch_ns = 6000};
    (void)fetches.send(two_windows, 65536);
    EXPECT_EQ(fetches.send(100, 65536), 0u);
    Machine copies{.ring_ns = 6000, .fetch_ns = 12'000};
    (void)copies.send(two_windows, 65536);
    EXPECT_EQ(copies.send(100, 65536), 100u);
}

/// The ring is taken for slow, because something else ran in its first window.
TEST(EagerChoice, a_mistake_of_the_first_trial_is_mended_by_the_second) {
    Machine machine{.ring_ns = 6000, .fetch_ns = 8000};
    (void)machine.send(kLongest.first + kLongest.lead + 5, 65536);
    machine.now_ns += 1'000'000;
    (void)machine.send(2 * (kLongest.lead + base::TwoWays::kWindow), 65536);
    EXPECT_FALSE(machine.choice.eager(65536));
    const uint32_t second = kLongest.between_min / base::TwoWays::kFirstPart +
                            base::TwoWays::kWindows * (kLongest.lead + base::TwoWays::kWindow + 1);
    (void)machine.send(second, 65536);
    EXPECT_EQ(machine.send(100, 65536), 100u);
}

TEST(EagerChoice, each_class_of_lengths_has_a_way_of_its_own) {
    Machine machine{.ring_ns = 5000, .fetch_ns = 3400};
    (void)machine.send(kTrial, 65536);
    machine.ring_ns = 1000;
    (void)machine.send(kTrial, EagerChoice::kBytesMin);
    EXPECT_FALSE(machine.choice.eager(65536));
    EXPECT_FALSE(machine.choice.eager(32769));
    EXPECT_TRUE(machine.choice.eager(32768));
    EXPECT_TRUE(machine.choice.eager(EagerChoice::kBytesMin));
}

TEST(EagerChoice, a_machine_that_changes_is_followed) {
    Machine machine{.ring_ns = 5000, .fetch_ns = 3400};
    (void)machine.send(kTrial, 16384);
    EXPECT_FALSE(machine.choice.eager(16384));
    machine.ring_ns = 2000;
    (void)machine.send(10'000, 16384);
    EXPECT_TRUE(machine.choice.eager(16384));
}

/// Many are begun before the first one has ended, so that a window sees the end of those of the one before.
TEST(EagerChoice, messages_that_overlap_count_for_the_way_that_they_went) {
    Machine machine{.ring_ns = 1000, .fetch_ns = 1500};
    for (int burst = 0; burst < 1000; ++burst) {
        std::vector<bool> ways;
        for (int i = 0; i < 64; ++i) ways.push_back(machine.choice.eager(16384));
        for (const bool eager : ways) {
            machine.now_ns += eager ? machine.ring_ns : machine.fetch_ns;
            machine.choice.ended(16384, eager, [&] { return machine.now_ns; });
        }
    }
    EXPECT_TRUE(machine.choice.eager(16384));
}

TEST(EagerChoice, messages_of_changing_length_are_not_compared) {
    Machine machine{.ring_ns = 5000, .fetch_ns = 3400};
    for (uint64_t i = 0; i < 5000; ++i) (void)machine.send(1, 16384 - i % 2);
    EXPECT_TRUE(machine.choice.eager(16384));
}

}  // namespace
}  // namespace velo
