// When a silent peer is pinged, when it is taken for ended, and how often the provider is asked.
#include <gtest/gtest.h>

#include <vector>

#include "velo/device/device_pause.h"
#include "velo/ofi/peer_health.h"
#include "velo/ofi/poll_pacer.h"

namespace velo::ofi {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kTick = 10'000'000;

/// A process that polls every 10 ms and watches one peer.
struct Watcher {
    PeerHealth health{20 * kSecond};
    PeerHealth::Peer peer;
    uint64_t now_ns = 12345;
    std::vector<uint64_t> pings;  ///< silence in ns at each

    Watcher() { health.polled(now_ns); }
    PeerHealth::Due tick(bool watching = true) {
        now_ns += kTick;
        health.polled(now_ns);
        if (watching) health.watch(peer);
        const PeerHealth::Due due = health.due(peer);
        if (due == PeerHealth::Due::kPing) {
            health.pinged(peer);
            pings.push_back(now_ns);
        }
        return due;
    }
    /// Ticks until the peer is dead, at most for `ns`; returns how long.
    uint64_t until_dead(uint64_t ns, bool watching = true) {
        const uint64_t begin_ns = now_ns;
        while (now_ns < begin_ns + ns) {
            if (tick(watching) == PeerHealth::Due::kDead) return now_ns - begin_ns;
        }
        return 0;
    }
};

TEST(DevicePause, leaves_polls_out_while_they_are_quick_and_nothing_comes) {
    const auto looks = [](const DevicePause& pause) {
        uint32_t count = 0;
        for (uint32_t poll = 0; poll < 10 * DevicePause::kPolls; ++poll) count += pause.due(poll);
        return count;
    };
    constexpr uint32_t kAll = 10 * DevicePause::kPolls;
    constexpr uint64_t kQuiet = DevicePause::kQuietNs + 1;
    DevicePause pause(true);
    EXPECT_EQ(looks(pause), kAll);
    pause.measured(16, 16 * DevicePause::kQuickPollNs, kQuiet);
    EXPECT_EQ(looks(pause), 10u);
    pause.measured(16, 16 * DevicePause::kQuickPollNs + 1, kQuiet);
    EXPECT_EQ(looks(pause), kAll) << "polls that are far apart";
    pause.measured(16, 1000, kQuiet);
    pause.measured(16, 1000, kQuiet - 1);
    EXPECT_EQ(looks(pause), kAll) << "a packet came";
    DevicePause cheap;
    cheap.measured(16, 0, kQuiet);
    EXPECT_EQ(looks(cheap), kAll);
}

TEST(PeerHealth, a_silent_peer_is_pinged_and_then_dead) {
    Watcher watcher;
    EXPECT_NEAR(static_cast<double>(watcher.until_dead(30 * kSecond)), 20.0 * kSecond, 2 * kTick);
    ASSERT_EQ(watcher.pings.size(), PeerHealth::kPingsUnanswered);
    for (size_t i = 1; i < watcher.pings.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(watcher.pings[i] - 12345), static_cast<double>(kSecond << i), 2 * kTick);
    }
}

TEST(PeerHealth, whatever_is_heard_is_life) {
    Watcher watcher;
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(watcher.until_dead(19 * kSecond), 0u);
        watcher.health.heard(watcher.peer);
    }
    EXPECT_NE(watcher.until_dead(21 * kSecond), 0u);
}

TEST(PeerHealth, the_word_of_its_host_begins_the_silence_anew_without_pings) {
    Watcher watcher;
    uint32_t asked = 0;
    for (uint64_t end_ns = watcher.now_ns + 600 * kSecond; watcher.now_ns < end_ns;) {
        const PeerHealth::Due due = watcher.tick();
        ASSERT_NE(due, PeerHealth::Due::kDead);
        if (due == PeerHealth::Due::kProbe) ++asked, watcher.health.runs(watcher.peer);
    }
    EXPECT_LE(watcher.pings.size(), PeerHealth::kPingsUnanswered);
    EXPECT_NEAR(asked, 600 / 5, 2) << "each quarter of the timeout";
    EXPECT_NE(watcher.until_dead(21 * kSecond), 0u) << "its host says no more";
}

TEST(PeerHealth, a_peer_that_is_not_watched_is_asked_nothing) {
    Watcher watcher;
    EXPECT_EQ(watcher.until_dead(100 * kSecond, false), 0u);
    EXPECT_TRUE(watcher.pings.empty());
    // Silence counts from the first watch.
    EXPECT_EQ(watcher.until_dead(19 * kSecond), 0u);
    EXPECT_EQ(watcher.until_dead(5 * kSecond, false), 0u) << "not watched for a second";
    EXPECT_EQ(watcher.until_dead(19 * kSecond), 0u);
}

TEST(PeerHealth, a_process_that_was_stopped_declares_no_peer_dead) {
    Watcher watcher;
    EXPECT_EQ(watcher.until_dead(15 * kSecond), 0u);
    for (int i = 0; i < 10; ++i) watcher.now_ns += 3600 * kSecond, watcher.tick();
    EXPECT_TRUE(watcher.health.watches(watcher.peer));
    EXPECT_EQ(watcher.until_dead(4 * kSecond), 0u);
    EXPECT_NE(watcher.until_dead(2 * kSecond), 0u);
}

TEST(PeerHealth, a_clock_that_goes_back_does_no_harm) {
    Watcher watcher;
    watcher.tick();
    watcher.health.polled(1);
    EXPECT_EQ(watcher.health.due(watcher.peer), PeerHealth::Due::kNothing);
}

TEST(PollPacer, asks_always_while_something_is_under_way_or_came_just_now) {
    PollPacer pacer;
    pacer.traffic(1'000'000);
    for (uint64_t now_ns = 1'000'000; now_ns < 1'000'000 + PollPacer::kLingerNs; now_ns += 100) {
        EXPECT_TRUE(pacer.due(now_ns, false));
    }
    for (uint64_t now_ns = 10'000'000; now_ns < 10'010'000; now_ns += 100) EXPECT_TRUE(pacer.due(now_ns, true));
}

TEST(PollPacer, asks_once_in_an_interval_while_nothing_comes) {
    PollPacer pacer(8'000);
    uint32_t asked = 0;
    for (uint64_t now_ns = 1'000'000; now_ns < 2'000'000; now_ns += 100) asked += pacer.due(now_ns, false);
    EXPECT_EQ(asked, 125u);
}

TEST(PollPacer, a_first_packet_waits_no_longer_than_the_interval) {
    PollPacer pacer(8'000);
    uint64_t last_ns = 1'000'000;
    for (uint64_t now_ns = last_ns; now_ns < 3'000'000; now_ns += 1'777) {
        if (!pacer.due(now_ns, false)) continue;
        EXPECT_LE(now_ns - last_ns, 8'000u + 1'777u);
        last_ns = now_ns;
    }
}

}  // namespace
}  // namespace velo::ofi
