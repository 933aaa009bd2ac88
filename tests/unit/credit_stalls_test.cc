// How waits for credits are counted and timed.
#include "velo/channels/credit_stalls.h"

#include <gtest/gtest.h>

#include <numeric>

namespace velo {
namespace {

uint64_t sum(const CreditStalls::Histogram& histogram) {
    return std::accumulate(histogram.begin(), histogram.end(), uint64_t{0});
}

TEST(CreditStalls, a_wait_lasts_from_its_beginning_to_its_end) {
    CreditStalls stalls;
    stalls.began(3, 1000);
    stalls.ended(3, 1700);
    EXPECT_EQ(stalls.count(), 1u);
    EXPECT_EQ(stalls.count(3), 1u);
    EXPECT_EQ(stalls.ns(0), 700u);
    EXPECT_EQ(stalls.ns(3, 0), 700u);
    EXPECT_EQ(stalls.ns(2, 0), 0u);
    EXPECT_EQ(stalls.count(2), 0u);
    EXPECT_EQ(stalls.histogram()[9], 1u);  // 512 to 1023
}

TEST(CreditStalls, what_waits_now_counts_up_to_now) {
    CreditStalls stalls;
    stalls.began(0, 100);
    stalls.began(1, 200);
    EXPECT_TRUE(stalls.any_waits());
    EXPECT_EQ(stalls.ns(1000), 900u + 800u);
    EXPECT_EQ(stalls.ns(0, 1000), 900u);
    EXPECT_EQ(stalls.ns(1, 1000), 800u);
    EXPECT_EQ(sum(stalls.histogram()), 0u) << "it has not ended";
    stalls.ended(0, 1000);
    EXPECT_EQ(stalls.ns(2000), 900u + 1800u);
    stalls.all_ended(2000);
    EXPECT_FALSE(stalls.any_waits());
    EXPECT_EQ(stalls.ns(9999), 900u + 1800u);
    EXPECT_EQ(sum(stalls.histogram()), 2u);
}

TEST(CreditStalls, an_end_without_a_wait_changes_nothing) {
    CreditStalls stalls;
    stalls.ended(7, 100);
    stalls.began(7, 200);
    stalls.ended(7, 300);
    stalls.ended(7, 400);
    EXPECT_EQ(stalls.ns(500), 100u);
    EXPECT_EQ(stalls.count(), 1u);
}

TEST(CreditStalls, the_next_wait_ends_one_that_was_withdrawn) {
    CreditStalls stalls;
    stalls.began(0, 100);
    stalls.began(0, 150);
    stalls.ended(0, 250);
    EXPECT_EQ(stalls.count(0), 2u);
    EXPECT_EQ(stalls.ns(0, 9999), 150u);
    EXPECT_EQ(stalls.ns(9999), 150u);
    EXPECT_EQ(sum(stalls.histogram()), 2u);
}

TEST(CreditStalls, buckets_are_powers_of_two) {
    static_assert(CreditStalls::bucket_of(0) == 0);
    static_assert(CreditStalls::bucket_of(1) == 0);
    static_assert(CreditStalls::bucket_of(2) == 1);
    static_assert(CreditStalls::bucket_of(1023) == 9);
    static_assert(CreditStalls::bucket_of(1024) == 10);
    static_assert(CreditStalls::bucket_of(UINT64_MAX) == std::tuple_size_v<CreditStalls::Histogram> - 1);
}

}  // namespace
}  // namespace velo
