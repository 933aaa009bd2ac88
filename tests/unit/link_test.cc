/// The emulated network of the software device, by its arithmetic alone.
#include "sim_device/shim/link.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

namespace velo::shim {
namespace {

constexpr uint64_t kNow = 1'000'000'000'000;
constexpr uint32_t kRate = 1000;  // bytes per us, so a byte takes a ns
constexpr uint32_t kChunk = 10'000;

struct Net {
    LinkOptions link = {.bytes_per_us = kRate, .buffer_bytes = 4 * kChunk};
    std::array<LinkClocks, 4> process{};

    uint64_t send(uint32_t from, uint32_t to, uint32_t bytes = kChunk, uint32_t port = 0,
                  uint64_t now = kNow) {
        return link_arrival_ns(link,
                               {.from = &process[from],
                                .to = &process[to],
                                .port_from = port,
                                .port_to = port,
                                .bytes = bytes},
                               now) -
               kNow;
    }
};

TEST(Link, carries_what_is_asked_of_a_port_one_after_the_other) {
    Net net;
    for (uint64_t i = 1; i <= 5; ++i) EXPECT_EQ(net.send(0, 1), i * kChunk);
    EXPECT_EQ(net.send(0, 1, kChunk, 1), kChunk) << "another port";
    EXPECT_EQ(net.send(1, 0), kChunk) << "the other direction";
}

TEST(Link, that_was_idle_begins_now) {
    Net net;
    net.send(0, 1);
    EXPECT_EQ(net.send(0, 1, kChunk, 0, kNow + 1'000'000), 1'000'000 + kChunk);
}

TEST(Link, two_sources_share_the_port_of_a_target) {
    Net net;
    uint64_t last = 0;
    for (int i = 0; i < 50; ++i) last = std::max({last, net.send(0, 2), net.send(1, 2)});
    EXPECT_EQ(last, 100 * kChunk);
}

TEST(Link, a_slow_sink_takes_all_ports_at_its_rate) {
    Net net;
    net.process[1].sink_bytes_per_us = kRate / 8;
    uint64_t last = 0;
    for (uint32_t i = 0; i < 10; ++i) last = net.send(0, 1, kChunk, i % 2);
    EXPECT_EQ(last, 10 * 8 * kChunk);
}

TEST(Link, a_slow_target_within_the_buffer_holds_up_no_other) {
    Net net;
    net.process[1].sink_bytes_per_us = kRate / 8;
    for (int i = 0; i < 4; ++i) net.send(0, 1);
    EXPECT_EQ(net.send(0, 2), 5 * kChunk) << "behind four chunks at full rate";
}

TEST(Link, a_slow_target_beyond_the_buffer_holds_up_what_is_sent_to_others) {
    Net net;
    net.process[1].sink_bytes_per_us = kRate / 8;
    for (int i = 0; i < 100; ++i) net.send(0, 1);
    // All but a buffer's worth has had to go into the slow one.
    EXPECT_GE(net.send(0, 2), 96 * 8 * kChunk);
    EXPECT_EQ(net.send(0, 2, kChunk, 1), kChunk) << "by another port";
    EXPECT_EQ(net.send(3, 2, kChunk, 1), 2 * kChunk) << "and other sources'";
}

TEST(Link, a_slow_source_brings_to_all_ports_at_its_rate) {
    Net net;
    net.process[0].source_bytes_per_us = kRate / 8;
    uint64_t last = 0;
    for (uint32_t i = 0; i < 10; ++i) last = net.send(0, 1 + i % 2, kChunk, i % 2);
    EXPECT_EQ(last, 10 * 8 * kChunk);
}

TEST(Link, a_slow_source_holds_up_no_other_beyond_the_length_of_its_data) {
    Net net;
    net.process[0].source_bytes_per_us = kRate / 100;
    for (int i = 0; i < 4; ++i) net.send(0, 1);
    EXPECT_EQ(net.send(2, 1), 5 * kChunk) << "into the same port of the target";
}

TEST(Link, a_clock_that_cannot_be_counts_as_now) {
    Net net;
    net.process[1].ports[0].in_ns = UINT64_MAX;
    net.process[0].ports[0].out_ns = UINT64_MAX - 7;
    EXPECT_EQ(net.send(0, 1), kChunk);
}

TEST(Link, no_rate_is_exceeded_whatever_is_sent) {
    for (uint32_t seed = 0; seed < 100; ++seed) {
        std::mt19937 random(seed);
        Net net;
        net.process[2].sink_bytes_per_us = 1 + random() % kRate;
        net.process[1].source_bytes_per_us = 1 + random() % kRate;
        std::array<uint64_t, 4> in{};
        std::array<uint64_t, 4> out{};
        uint64_t last = 0;
        for (int i = 0; i < 300; ++i) {
            const uint32_t from = random() % 4;
            const uint32_t to = (from + 1 + random() % 3) % 4;
            const uint32_t bytes = 1 + random() % kChunk;
            out[from] += bytes;
            in[to] += bytes;
            const uint64_t arrival = net.send(from, to, bytes);
            last = std::max(last, arrival);
            ASSERT_GE(arrival, bytes);
            if (from == 1) {
                ASSERT_GE(arrival + 300, out[1] * 1000 / net.process[1].source_bytes_per_us);
            }
            if (to == 2) {
                ASSERT_GE(arrival + 300, in[2] * 1000 / net.process[2].sink_bytes_per_us);
            }
        }
        for (int i = 0; i < 4; ++i) EXPECT_GE(last, std::max(in[i], out[i]));
    }
}

}  // namespace
}  // namespace velo::shim
