/// The way of messages of some KiB, on simulated machines.
#include "velo/eager_choice.h"

#include <gtest/gtest.h>

namespace velo {
namespace {

struct Machine {
    /// Returns how many went through the ring.
    uint32_t send(uint32_t messages, uint64_t bytes) {
        uint32_t through_ring = 0;
        for (uint32_t i = 0; i < messages; ++i) {
            const bool eager = choice.eager(bytes, [this] { return now_ns; });
            now_ns += eager ? ring_ns : fetch_ns;
            through_ring += eager ? 1 : 0;
        }
        return through_ring;
    }

    uint64_t ring_ns;
    uint64_t fetch_ns;
    EagerChoice choice = {};
    uint64_t now_ns = 1;
};

constexpr uint32_t kTrial = base::TwoWays::kFirst + base::TwoWays::kWindows * (base::TwoWays::kWindow + 1);

TEST(EagerChoice, the_faster_way_is_found_and_kept) {
    Machine fetches{.ring_ns = 5000, .fetch_ns = 3400};
    (void)fetches.send(kTrial, 16384);
    EXPECT_EQ(fetches.send(500, 16384), 0u);
    Machine copies{.ring_ns = 1100, .fetch_ns = 5000};
    (void)copies.send(kTrial, 16384);
    EXPECT_EQ(copies.send(500, 16384), 500u);
    EXPECT_GT(copies.send(100'000, 16384), 99'500u) << "trials become rare";
}

TEST(EagerChoice, each_class_of_lengths_has_a_way_of_its_own) {
    Machine machine{.ring_ns = 5000, .fetch_ns = 3400};
    (void)machine.send(kTrial, 65536);
    machine.ring_ns = 1000;
    (void)machine.send(kTrial, EagerChoice::kBytesMin);
    EXPECT_FALSE(machine.choice.way(65536));
    EXPECT_FALSE(machine.choice.way(32769));
    EXPECT_TRUE(machine.choice.way(32768));
    EXPECT_TRUE(machine.choice.way(EagerChoice::kBytesMin));
}

TEST(EagerChoice, a_machine_that_changes_is_followed) {
    Machine machine{.ring_ns = 5000, .fetch_ns = 3400};
    (void)machine.send(kTrial, 16384);
    EXPECT_FALSE(machine.choice.way(16384));
    machine.ring_ns = 2000;
    (void)machine.send(3000, 16384);
    EXPECT_TRUE(machine.choice.way(16384));
}

TEST(EagerChoice, messages_of_changing_length_are_not_compared) {
    Machine machine{.ring_ns = 5000, .fetch_ns = 3400};
    for (uint64_t i = 0; i < 1000; ++i) (void)machine.send(1, 16384 - i % 2);
    EXPECT_TRUE(machine.choice.way(16384));
}

}  // namespace
}  // namespace velo
