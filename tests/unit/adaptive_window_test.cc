#include "rma/adaptive_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace velo::rma {
namespace {

constexpr uint32_t kChunk = 256u << 10;
constexpr uint64_t kMost = 64 * uint64_t{kChunk};

/// A link: chunks wait for one another, and each takes its time on the way besides.
struct Link {
    uint64_t bytes_per_us = 10'000;
    uint64_t way_ns = 5'000;

    [[nodiscard]] uint64_t serving_ns(uint32_t bytes) const { return uint64_t{bytes} * 1000 / bytes_per_us; }
    /// Bytes that must be under way to keep it busy.
    [[nodiscard]] uint64_t held_bytes() const { return bytes_per_us * (way_ns + serving_ns(kChunk)) / 1000; }
};

/// A process that fetches through a link, with as much under way as the window lets it.
class Fetching {
  public:
    explicit Fetching(AdaptiveWindow& window) : window_(window) {}

    /// `messages` of `chunks` each, fetched after the one before has come and a pause. Returns bytes per
    /// us while something was under way.
    uint64_t run(const Link& link, uint32_t messages, uint32_t chunks, uint64_t pause_ns = 0) {
        uint64_t busy_ns = 0;
        most_ = 0;
        for (uint32_t message = 0; message < messages; ++message) {
            const uint64_t began = now_;
            fetch(link, chunks);
            busy_ns += now_ - began;
            now_ += pause_ns;
        }
        return uint64_t{messages} * chunks * kChunk * 1000 / busy_ns;
    }
    [[nodiscard]] uint64_t most() const { return most_; }

  private:
    void fetch(const Link& link, uint32_t chunks) {
        std::multimap<uint64_t, uint64_t> ends;  // and when they were issued
        uint64_t link_free = now_;
        while (chunks != 0 || !ends.empty()) {
            while (chunks != 0 && (ends.empty() || (ends.size() + 1) * kChunk <= window_.bytes())) {
                window_.began(now_, ends.empty());
                link_free = std::max(link_free, now_ + link.way_ns / 2) + link.serving_ns(kChunk);
                ends.emplace(link_free + link.way_ns / 2, now_);
                --chunks;
                most_ = std::max(most_, ends.size() * kChunk);
            }
            const auto first = ends.begin();
            now_ = first->first;
            const uint64_t took = now_ - first->second;
            ends.erase(first);
            window_.ended(kChunk, took, now_, ends.empty());
        }
    }

    AdaptiveWindow& window_;
    uint64_t now_ = 1'000'000'000'000;
    uint64_t most_ = 0;
};

TEST(AdaptiveWindow, keeps_every_link_busy_with_little_under_way) {
    for (const uint64_t rate : {100u, 1'000u, 10'000u, 50'000u}) {
        for (const uint64_t way_ns : {1'000u, 50'000u, 500'000u}) {
            SCOPED_TRACE(std::to_string(rate) + " bytes/us, " + std::to_string(way_ns) + " ns");
            const Link link = {.bytes_per_us = rate, .way_ns = way_ns};
            AdaptiveWindow window(kChunk, kMost);
            Fetching fetching(window);
            fetching.run(link, 1, 2000);
            const uint64_t reached = fetching.run(link, 1, 20'000);
            const uint64_t possible = std::min(rate, kMost * 1000 / (way_ns + link.serving_ns(kChunk)));
            EXPECT_GE(reached, possible * 95 / 100);
            EXPECT_LE(fetching.most(), std::min(kMost, 3 * link.held_bytes() + 2 * kChunk));
        }
    }
}

TEST(AdaptiveWindow, follows_a_link_that_becomes_another_one) {
    const Link near = {.bytes_per_us = 10'000, .way_ns = 2'000};
    const Link far = {.bytes_per_us = 10'000, .way_ns = 300'000};
    const Link slow = {.bytes_per_us = 300, .way_ns = 2'000};
    AdaptiveWindow window(kChunk, kMost);
    Fetching fetching(window);
    for (const Link& link : {near, far, near, slow, near, slow, far}) {
        SCOPED_TRACE(std::to_string(link.bytes_per_us) + " bytes/us, " + std::to_string(link.way_ns) + " ns");
        fetching.run(link, 1, 10'000);
        EXPECT_GE(fetching.run(link, 1, 10'000), link.bytes_per_us * 94 / 100);
        EXPECT_LE(fetching.most(), 3 * link.held_bytes() + 2 * kChunk);
    }
}

TEST(AdaptiveWindow, is_never_below_a_chunk_nor_above_its_bound) {
    for (const uint64_t most : {uint64_t{1}, uint64_t{kChunk}, 3 * uint64_t{kChunk}}) {
        AdaptiveWindow window(kChunk, most);
        for (uint64_t now = 1000; now < 1'000'000; now += 1 + now % 977) {
            window.began(now, now % 3 == 0);
            window.ended(static_cast<uint32_t>(1 + now % kChunk), now % 5 == 0 ? 0 : now % 100'000, now,
                         now % 7 == 0);
            ASSERT_GE(window.bytes(), kChunk);
            ASSERT_LE(window.bytes(), std::max<uint64_t>(most, kChunk));
        }
    }
}

TEST(AdaptiveWindow, does_not_count_the_time_without_transfers) {
    const Link link = {.bytes_per_us = 10'000, .way_ns = 100'000};
    AdaptiveWindow window(kChunk, kMost);
    Fetching fetching(window);
    fetching.run(link, 200, 16, 50'000'000);
    const uint64_t with_pauses = fetching.run(link, 200, 16, 50'000'000);
    AdaptiveWindow other(kChunk, kMost);
    Fetching without(other);
    without.run(link, 200, 16);
    const uint64_t steady = without.run(link, 200, 16);
    EXPECT_GE(with_pauses, steady * 95 / 100);
    EXPECT_GE(with_pauses,
              uint64_t{16} * kChunk * 1000 / (link.way_ns + 16 * link.serving_ns(kChunk)) * 90 / 100);
}

}  // namespace
}  // namespace velo::rma
