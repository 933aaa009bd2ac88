/// Early fetches on simulated machines: the way that is faster there is found, kept, and left when that changes.
#include "velo/shm/early_fetch.h"

#include <gtest/gtest.h>

#include <random>

namespace velo::shm {
namespace {

/// Exchanges messages, each of which takes one time or another. Now and then one takes much longer.
struct Machine {
    void exchange(uint32_t messages, uint32_t lines, bool waited = true) {
        for (uint32_t i = 0; i < messages; ++i) {
            const bool early = fetch.lines() == lines;
            now_ns += early ? with_ns : without_ns;
            if (random() % 40 == 0) now_ns += random() % 5000;
            early_messages += early ? 1 : 0;
            fetch.took(lines, waited, [&] {
                ++looks;
                return now_ns;
            });
        }
    }

    uint64_t with_ns;
    uint64_t without_ns;
    EarlyFetch fetch = {};
    std::minstd_rand random{7};
    uint64_t now_ns = 1000;
    uint64_t early_messages = 0;
    uint64_t looks = 0;
};

constexpr uint32_t kTrial = EarlyFetch::kNumbers.first + base::TwoWays::kWindows * (base::TwoWays::kWindow + 1);

TEST(EarlyFetch, the_faster_way_is_found_within_150_messages) {
    Machine gains{.with_ns = 400, .without_ns = 500};
    gains.exchange(kTrial, 5);
    EXPECT_TRUE(gains.fetch.chosen());
    EXPECT_EQ(gains.fetch.lines(), 5u);
    Machine loses{.with_ns = 800, .without_ns = 500};
    loses.exchange(kTrial, 5);
    EXPECT_FALSE(loses.fetch.chosen());
    EXPECT_EQ(loses.fetch.lines(), 1u);
    static_assert(kTrial <= 150);
}

TEST(EarlyFetch, what_makes_no_difference_changes_nothing) {
    Machine machine{.with_ns = 470, .without_ns = 500};
    machine.exchange(100'000, 3);
    EXPECT_FALSE(machine.fetch.chosen());
}

TEST(EarlyFetch, the_slower_way_is_tried_ever_more_rarely) {
    Machine machine{.with_ns = 800, .without_ns = 500};
    machine.exchange(10'000, 5);
    EXPECT_LT(machine.early_messages, 250u);
    machine.exchange(1'000'000, 5);
    EXPECT_LT(machine.early_messages, 1500u);
    EXPECT_LT(machine.looks, 500u);
}

TEST(EarlyFetch, a_machine_that_changes_is_followed) {
    Machine machine{.with_ns = 800, .without_ns = 500};
    machine.exchange(5'000, 5);
    machine.with_ns = 300;
    machine.exchange(10'000, 5);
    EXPECT_TRUE(machine.fetch.chosen());
    machine.with_ns = 800;
    machine.exchange(10'000, 5);
    EXPECT_FALSE(machine.fetch.chosen());
}

TEST(EarlyFetch, nothing_is_asked_for_behind_messages_of_one_line_or_of_many) {
    Machine machine{.with_ns = 300, .without_ns = 500};
    machine.exchange(kTrial, 5);
    ASSERT_EQ(machine.fetch.lines(), 5u);
    machine.fetch.took_line();
    EXPECT_EQ(machine.fetch.lines(), 1u);
    machine.exchange(1, 5);
    EXPECT_EQ(machine.fetch.lines(), 5u);
    machine.exchange(1, EarlyFetch::kLinesMax + 1);
    EXPECT_EQ(machine.fetch.lines(), 1u);
}

TEST(EarlyFetch, times_of_messages_that_differ_or_were_not_waited_for_do_not_count) {
    Machine machine{.with_ns = 300, .without_ns = 500};
    for (int i = 0; i < 1000; ++i) {
        machine.exchange(1, 3);
        machine.exchange(1, 4);
    }
    EXPECT_FALSE(machine.fetch.chosen());
    machine.exchange(1000, 3, false);
    EXPECT_FALSE(machine.fetch.chosen());
}

}  // namespace
}  // namespace velo::shm
