/// The choice of the way that blocks take, on machines that are simulated: each says what a byte costs which way.
#include "rma/copy_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace velo::rma {
namespace {

constexpr uint64_t kMiB = 1u << 20;

/// A machine, and one choice that is used on it.
class Machine {
  public:
    /// ps a byte: in the ring, by direct copies, in the ring past the caches.
    using Prices = std::array<double, kCoopMethods>;

    explicit Machine(Prices prices, double noise = 0) : prices_(prices), noise_(noise) {}

    void set(Prices prices) { prices_ = prices; }
    /// The owner takes no part in what goes through the ring, so that nothing of it is measured.
    void set_silent() { silent_ = true; }

    /// The time in ns that these bytes took, in blocks of 64 KiB.
    double move(uint64_t bytes) {
        double ns = 0;
        for (uint64_t done = 0; done < bytes; done += kBlock) {
            const CoopMethod method = choice_.choose(kBlock);
            moved_[index(method)] += kBlock;
            const double price = prices_[index(method)] * cold(method) * noise();
            const double spent = price * kBlock / 1000;
            ns += spent;
            const bool direct = method == CoopMethod::kDirect;
            if (!direct && silent_) continue;
            // One piece of two is timed.
            const uint64_t timed = direct ? kBlock : kBlock / 2;
            const auto timed_ns = static_cast<uint64_t>(price * static_cast<double>(timed) / 1000);
            // Both ends of the ring take half of it each.
            choice_.measured(method, timed, direct ? timed_ns : timed_ns / 2, direct ? 0 : timed_ns / 2);
        }
        return ns;
    }
    [[nodiscard]] const CopyChoice& choice() const { return choice_; }
    [[nodiscard]] uint64_t moved(CoopMethod method) const { return moved_[index(method)]; }
    [[nodiscard]] double best() const { return *std::ranges::min_element(prices_); }

  private:
    static constexpr uint32_t kBlock = 64u << 10;

    [[nodiscard]] static size_t index(CoopMethod method) { return static_cast<size_t>(method); }
    /// The ring's first lap meets new pages, and the next ones caches that have forgotten it.
    [[nodiscard]] double cold(CoopMethod method) const {
        if (method == CoopMethod::kDirect) return 1;
        const uint64_t before = moved_[0] + moved_[2];
        return before < 2 * kMiB ? 6 : before < 4 * kMiB ? 1.5 : 1;
    }
    double noise() { return noise_ == 0 ? 1 : std::max(0.5, std::normal_distribution<double>(1, noise_)(random_)); }

    Prices prices_;
    double noise_;
    std::mt19937 random_{7};
    CopyChoice choice_;
    std::array<uint64_t, kCoopMethods> moved_{};
    bool silent_ = false;
};

constexpr Machine::Prices kRingIsBest = {50, 110, 140};
constexpr Machine::Prices kDirectIsBest = {130, 50, 200};
constexpr Machine::Prices kNontemporalIsBest = {400, 130, 90};

class EachMachine : public testing::TestWithParam<Machine::Prices> {};

TEST_P(EachMachine, the_cheapest_way_is_found_within_64_MiB) {
    Machine machine(GetParam(), 0.15);
    machine.move(64 * kMiB);
    const auto cheapest = std::ranges::min_element(GetParam()) - GetParam().begin();
    EXPECT_EQ(static_cast<ptrdiff_t>(machine.choice().method()), cheapest);
}

TEST_P(EachMachine, trials_cost_less_than_one_hundredth_in_the_long_run) {
    Machine machine(GetParam());
    machine.move(2048 * kMiB);
    constexpr uint64_t kBytes = 8192 * kMiB;
    const double ns = machine.move(kBytes);
    EXPECT_LT(ns, 1.01 * machine.best() * kBytes / 1000);
}

TEST_P(EachMachine, noise_alone_changes_nothing) {
    Machine machine(GetParam(), 0.25);
    machine.move(256 * kMiB);
    const uint32_t switches = machine.choice().switches();
    machine.move(8192 * kMiB);
    EXPECT_EQ(machine.choice().switches(), switches);
}

INSTANTIATE_TEST_SUITE_P(CopyChoice, EachMachine, testing::Values(kRingIsBest, kDirectIsBest, kNontemporalIsBest));

TEST(CopyChoice, nothing_is_tried_for_little) {
    Machine machine(kDirectIsBest);
    machine.move(kMiB / 2);
    EXPECT_EQ(machine.moved(CoopMethod::kDirect), kMiB / 2);
}

TEST(CopyChoice, ways_that_cost_nearly_the_same_are_not_changed) {
    Machine machine({100, 102, 110}, 0.05);
    machine.move(4096 * kMiB);
    EXPECT_EQ(machine.choice().switches(), 0u);
}

TEST(CopyChoice, a_machine_that_turns_is_followed_and_back) {
    Machine machine(kDirectIsBest);
    for (const Machine::Prices& prices : {kRingIsBest, kDirectIsBest, kNontemporalIsBest, kDirectIsBest}) {
        machine.set(prices);
        machine.move(uint64_t{40} << 30);
        const auto cheapest = std::ranges::min_element(prices) - prices.begin();
        EXPECT_EQ(static_cast<ptrdiff_t>(machine.choice().method()), cheapest);
    }
}

TEST(CopyChoice, a_trial_of_which_nothing_is_measured_is_given_up) {
    Machine machine(kDirectIsBest);
    machine.set_silent();
    machine.move(1024 * kMiB);
    EXPECT_EQ(machine.choice().method(), CoopMethod::kDirect);
    EXPECT_EQ(machine.choice().ps_a_byte(CoopMethod::kRing), 0);
    EXPECT_GT(machine.moved(CoopMethod::kDirect), 850 * kMiB);
}

TEST(CopyChoice, a_window_that_is_begun_as_a_whole_is_waited_for) {
    constexpr uint32_t kBlock = 4u << 20;
    CopyChoice choice;
    for (uint64_t moved = kBlock; moved < CopyChoice::kFirstBytesMax; moved += kBlock) {
        EXPECT_EQ(choice.choose(kBlock), CoopMethod::kDirect);
        choice.measured(CoopMethod::kDirect, kBlock, 1'000'000);
    }
    for (int i = 0; i < 64; ++i) EXPECT_EQ(choice.choose(kBlock), CoopMethod::kRing) << i;
    for (int i = 0; i < 64; ++i) choice.measured(CoopMethod::kRing, kBlock / 2, 100'000, 100'000);
    EXPECT_EQ(choice.method(), CoopMethod::kRing);
}

TEST(CopyChoice, in_one_direction_the_slower_end_of_a_ring_counts_twice) {
    CopyChoice one(false), both(true);
    for (CopyChoice* choice : {&one, &both}) {
        choice->measured(CoopMethod::kRing, 1000, 80, 40);
        choice->measured(CoopMethod::kDirect, 1000, 100);
        EXPECT_NEAR(choice->ps_a_byte(CoopMethod::kDirect), 100, 0.1);
    }
    EXPECT_NEAR(one.ps_a_byte(CoopMethod::kRing), 160, 0.1);
    EXPECT_NEAR(both.ps_a_byte(CoopMethod::kRing), 120, 0.1);
}

TEST(CopyChoice, a_way_that_is_not_known_is_tried_before_one_that_is) {
    Machine machine(kRingIsBest);
    uint64_t moved = 0;
    for (; machine.moved(CoopMethod::kRingNontemporal) == 0 && moved < 256; ++moved) machine.move(kMiB);
    EXPECT_EQ(machine.choice().method(), CoopMethod::kRing);
    EXPECT_LE(machine.moved(CoopMethod::kDirect), 10 * kMiB) << "before the ring was tried";
    EXPECT_LT(moved, 32u);
}

TEST(CopyChoice, nothing_is_tried_before_it_may_be) {
    CopyChoice choice;
    for (int block = 0; block < 1000; ++block) {
        EXPECT_EQ(choice.choose(kMiB, false), CoopMethod::kDirect);
        choice.measured(CoopMethod::kDirect, kMiB, 200'000);
    }
    EXPECT_EQ(choice.choose(kMiB), CoopMethod::kRing);
}

TEST(CopyChoice, direct_copies_of_one_direction_are_shared_out_by_speed) {
    CopyChoice one(false), both(true);
    for (CopyChoice* choice : {&one, &both}) {
        choice->measured(CoopMethod::kDirect, 1000, 0, 100);
        EXPECT_NEAR(choice->ps_a_byte(CoopMethod::kDirect), 100, 0.1) << "of the owner alone";
        choice->measured(CoopMethod::kDirect, 1000, 300);
    }
    // In 300 ns the reader moves one part of four and the owner three: 1,000 ps a 4 bytes of each of two.
    EXPECT_NEAR(one.ps_a_byte(CoopMethod::kDirect), 150, 0.1);
    EXPECT_NEAR(both.ps_a_byte(CoopMethod::kDirect), 300, 0.1);
}

TEST(CopyChoice, a_first_trial_that_is_close_goes_on_until_the_ring_has_been_used) {
    // A ring that takes 0.9 of the direct copies' time at first, and 0.6 after 5 MiB.
    CopyChoice choice;
    constexpr uint32_t kBytes = 256u << 10;
    uint64_t through_ring = 0;
    uint64_t direct = 0;
    while (through_ring < 16 * kMiB && direct < 64 * kMiB) {
        const CoopMethod method = choice.choose(kBytes);
        if (method == CoopMethod::kDirect) {
            direct += kBytes;
            choice.measured(method, kBytes, kBytes / 10);
        } else {
            through_ring += kBytes;
            const uint64_t percent = through_ring < 5 * kMiB ? 90 : 60;
            const uint64_t ns = method == CoopMethod::kRing ? kBytes * percent / 2000 : kBytes / 5;
            choice.measured(method, kBytes, ns, ns);
        }
    }
    EXPECT_EQ(choice.method(), CoopMethod::kRing);
    EXPECT_LT(direct, 48 * kMiB) << "without another trial";
}

TEST(CopyChoice, one_copy_that_was_interrupted_counts_little) {
    Machine machine(kDirectIsBest);
    machine.move(512 * kMiB);
    CopyChoice choice = machine.choice();
    const double before = choice.ps_a_byte(CoopMethod::kDirect);
    choice.measured(CoopMethod::kDirect, 32 << 10, 10'000'000);
    EXPECT_LT(choice.ps_a_byte(CoopMethod::kDirect), 1.5 * before);
}

TEST(CopyChoices, kinds_of_blocks_and_distances_are_measured_apart) {
    CopyChoices choices;
    EXPECT_EQ(&choices.of(64 << 10, false, false), &choices.of(1, false, false));
    EXPECT_NE(&choices.of(64 << 10, false, false), &choices.of(64 << 10, true, false));
    EXPECT_NE(&choices.of(64 << 10, false, false), &choices.of(64 << 10, false, true));
    EXPECT_NE(&choices.of(64 << 10, false, false), &choices.of(256 << 10, false, false));
    EXPECT_EQ(&choices.of(256 << 10, true, true), &choices.of(1 << 20, true, true));
    EXPECT_NE(&choices.of(1 << 20, true, false), &choices.of(2 << 20, true, false));

    // While both fetch the ends of a ring count once each.
    for (const bool far : {false, true}) {
        choices.of(1 << 20, true, far).measured(CoopMethod::kRing, 1 << 20, far ? 150'000 : 50'000, 20'000);
        choices.of(1 << 20, true, far).measured(CoopMethod::kDirect, 1 << 20, far ? 100'000 : 50'000);
    }
    int seen = 0;
    choices.for_each_measured([&](uint32_t bytes, bool both, bool far, const CopyChoice& choice) {
        EXPECT_EQ(far, seen++ == 1);
        EXPECT_EQ(bytes, 256u << 10);
        EXPECT_TRUE(both);
        EXPECT_NEAR(choice.ps_a_byte(CoopMethod::kDirect), far ? 95.4 : 47.7, 0.1);
        EXPECT_NEAR(choice.ps_a_byte(CoopMethod::kRing), far ? 162.1 : 66.8, 0.1);
    });
    EXPECT_EQ(seen, 2);
}

TEST(CopyChoices, processes_that_move_to_and_fro_find_what_they_knew) {
    constexpr uint32_t kBytes = 64u << 10;
    CopyChoices choices;
    std::array<uint64_t, kCoopMethods> moved[2] = {};
    // Near, a ring is best, and far, direct copies; the cores move after each 64 blocks.
    for (int block = 0; block < 64 * 400; ++block) {
        const bool far = block / 64 % 2 == 1;
        CopyChoice& choice = choices.of(kBytes, false, far);
        const CoopMethod method = choice.choose(kBytes);
        const bool best = method == (far ? CoopMethod::kDirect : CoopMethod::kRing);
        const uint64_t ns = best ? 3'000 : 9'000;
        if (method == CoopMethod::kDirect) {
            choice.measured(method, kBytes, ns);
        } else {
            choice.measured(method, kBytes / 2, ns / 4, ns / 4);
        }
        if (block >= 64 * 40) moved[far][static_cast<size_t>(method)] += kBytes;
    }
    for (const bool far : {false, true}) {
        const CopyChoice& choice = choices.of(kBytes, false, far);
        EXPECT_EQ(choice.method(), far ? CoopMethod::kDirect : CoopMethod::kRing);
        EXPECT_EQ(choice.switches(), far ? 0u : 1u);
        const uint64_t all = moved[far][0] + moved[far][1] + moved[far][2];
        EXPECT_GT(moved[far][static_cast<size_t>(choice.method())], all * 95 / 100) << "far " << far;
    }
}

}  // namespace
}  // namespace velo::rma
