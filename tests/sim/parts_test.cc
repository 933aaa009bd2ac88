// Small parts of the simulator, each alone.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "sim/dissemination_barrier.h"
#include "sim/rails_measurement.h"
#include "sim/rails_traffic.h"
#include "sim/slot_pool.h"
#include "sim_device/switched/link_credits.h"
#include "sim_device/switched/wires.h"

namespace velo::sim {
namespace {

using Step = DisseminationBarrier::Step;

/// All processes in one barrier: each message arrives before or after others have gone on, as `late` says. Returns the
/// messages that it took.
uint32_t run_barrier(std::vector<DisseminationBarrier>& processes, uint32_t late) {
    for (DisseminationBarrier& process : processes) process.begin();
    uint32_t sent = 0;
    bool moved = true;
    for (uint32_t turn = late; moved; ++turn) {
        moved = false;
        for (size_t i = 0; i < processes.size(); ++i) {
            DisseminationBarrier& process = processes[(i * late + turn) % processes.size()];
            if (!process.inside() || process.step() != Step::kSend) continue;
            processes[process.to()].arrived(process.round());
            process.sent();
            ++sent;
            moved = true;
        }
    }
    return sent;
}

TEST(DisseminationBarrier, all_leave_after_as_many_rounds_as_the_logarithm) {
    for (const uint32_t count : {1u, 2u, 3u, 8u, 13u}) {
        std::vector<DisseminationBarrier> processes;
        for (uint32_t rank = 0; rank < count; ++rank) processes.emplace_back(rank, count);
        uint32_t rounds = 0;
        while ((1u << rounds) < count) ++rounds;
        for (const uint32_t late : {1u, 5u, 7u}) {
            EXPECT_EQ(run_barrier(processes, late), count * rounds) << count;
            for (DisseminationBarrier& process : processes) {
                EXPECT_EQ(process.step(), Step::kOver);
                EXPECT_FALSE(process.inside());
            }
        }
    }
}

TEST(DisseminationBarrier, none_leaves_before_the_last_has_begun) {
    DisseminationBarrier first(0, 2);
    first.begin();
    ASSERT_EQ(first.step(), Step::kSend);
    EXPECT_EQ(first.to(), 1u);
    first.sent();
    EXPECT_EQ(first.step(), Step::kWait);
    EXPECT_TRUE(first.inside());
    first.arrived(0);
    EXPECT_EQ(first.step(), Step::kOver);
}

TEST(DisseminationBarrier, a_message_of_the_next_barrier_is_kept_for_it) {
    DisseminationBarrier process(1, 2);
    process.arrived(0);
    process.arrived(0);
    for (int barrier = 0; barrier < 2; ++barrier) {
        process.begin();
        ASSERT_EQ(process.step(), Step::kSend);
        process.sent();
        EXPECT_EQ(process.step(), Step::kOver);
    }
    process.begin();
    ASSERT_EQ(process.step(), Step::kSend);
    process.sent();
    EXPECT_EQ(process.step(), Step::kWait);
}

TEST(SlotPool, a_number_is_used_again_for_a_new_item) {
    SlotPool<uint32_t> pool;
    const uint32_t first = pool.take();
    const uint32_t second = pool.take();
    EXPECT_NE(first, second);
    pool[first] = 7;
    pool[second] = 8;
    pool.give_back(first);
    EXPECT_EQ(pool.in_use(), 1u);
    EXPECT_EQ(pool[first], 7u) << "until it is taken";
    EXPECT_EQ(pool.take(), first);
    EXPECT_EQ(pool[first], 0u);
    EXPECT_EQ(pool[second], 8u);
    EXPECT_EQ(pool.in_use(), 2u);
}

TEST(RailsTraffic, means_are_those_asked_for_and_destinations_are_all_other_processes) {
    const RailsConfig config = {.nodes = 5, .processes_per_node = 3, .bytes = 5000, .load = 0.25};
    const RailsTraffic traffic(config);
    constexpr uint32_t kMessages = 30000;
    double bytes = 0;
    double gaps = 0;
    std::set<uint32_t> destinations;
    for (uint32_t number = 0; number < kMessages; ++number) {
        const RailsTraffic::Planned planned = traffic.message(7, number);
        EXPECT_GE(planned.bytes, 1u);
        EXPECT_EQ(planned.to, planned.to_process / 3);
        bytes += planned.bytes;
        gaps += traffic.gap(7, number);
        destinations.insert(planned.to_process);
    }
    EXPECT_NEAR(bytes / kMessages, 5000, 100);
    // A flit has two bytes; four rails carry a flit each a cycle, and three processes share them.
    EXPECT_NEAR(gaps / kMessages, 2500 * 3 / (0.25 * 4), 200);
    EXPECT_EQ(destinations, (std::set<uint32_t>{0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14}));
}

/// 2 nodes of 1 rail, and messages of 100 flits in the mean: the warm-up takes 200 cycles, what follows 400.
TEST(RailsMeasurement, the_warm_up_counts_for_nothing) {
    const RailsConfig config = {.nodes = 2, .rails = 1, .bytes = 200, .warm_up = 2, .measured = 4};
    RailsMeasurement measurement(config);
    for (const double now : {199.0, 200.0, 599.0}) {
        EXPECT_FALSE(measurement.over(now));
        measurement.made(now, 80);
        measurement.tried(now);
        measurement.tried(now);
        measurement.control_sent(now);
        measurement.arrived(now, 0, 40);
        measurement.completed(now, now - 50, true);
    }
    measurement.begun(true);
    measurement.begun(false);
    EXPECT_TRUE(measurement.over(600));
    const RailsResult result = measurement.result(3);
    EXPECT_EQ(result.made, 2u);
    EXPECT_EQ(result.messages, 2u);
    EXPECT_EQ(result.fragments, 2u);
    EXPECT_DOUBLE_EQ(result.offered, 80.0 / 800);
    EXPECT_DOUBLE_EQ(result.accepted, 40.0 / 800);
    EXPECT_DOUBLE_EQ(result.latency_cycles, 50);
    EXPECT_DOUBLE_EQ(result.tries, 2);
    EXPECT_DOUBLE_EQ(result.controls, 1);
    EXPECT_DOUBLE_EQ(result.both_ways, 0.5);
    EXPECT_EQ(result.waiting, 3u);
}

}  // namespace
}  // namespace velo::sim

namespace velo::switched {
namespace {

TEST(LinkCredits, what_is_given_back_can_be_taken_in_the_next_slot) {
    LinkCredits credits(2, 3, 4);
    credits.take(1, 2, 16);
    credits.take(1, 0, 4);
    EXPECT_EQ(credits.used(1)[2], 16u);
    EXPECT_EQ(*credits.used_flits(1), 20u);
    EXPECT_EQ(*credits.used_flits(0), 0u);
    credits.give_back(1, 2, 16);
    EXPECT_EQ(credits.used(1)[2], 16u);
    std::vector<uint32_t> returned;
    credits.next_slot([&](uint32_t output) { returned.push_back(output); });
    EXPECT_EQ(returned, std::vector<uint32_t>{1});
    EXPECT_EQ(credits.used(1)[2], 0u);
    EXPECT_EQ(*credits.used_flits(1), 4u);
    credits.next_slot([&](uint32_t) { ADD_FAILURE() << "nothing was given back since"; });
}

TEST(LinkCredits, an_audit_names_the_credit_that_is_lost) {
    LinkCredits credits(2, 2, 4);
    credits.take(1, 1, 16);
    credits.take(0, 0, 5);
    credits.give_back(0, 0, 5);
    EXPECT_EQ(credits.audit({0, 0, 0, 16}), "") << "those that come back are in no buffer";
    EXPECT_EQ(credits.audit({0, 0, 0, 15}), "output 1 VC 1 counts 16 flits in use, and there are 15");
}

TEST(Wires, a_packet_arrives_in_its_slot_and_in_no_other) {
    Wires wires(link_slots(40, 16), 4);
    wires.send(5, 50, 11);
    wires.send(6, 60, 10 + link_slots(40, 16));
    uint32_t on_the_way = 0;
    wires.for_each([&](uint32_t) { ++on_the_way; });
    EXPECT_EQ(on_the_way, 2u);
    for (uint64_t slot = 11; slot < 20; ++slot) {
        for (const Wires::Arrival& arrival : wires.arriving(slot)) {
            EXPECT_EQ(slot, arrival.packet == 5 ? 11u : 14u);
            EXPECT_EQ(arrival.input, arrival.packet * 10);
            --on_the_way;
        }
        wires.arriving(slot).clear();
    }
    EXPECT_EQ(on_the_way, 0u);
}

TEST(Wires, latency_is_rounded_to_slots_beside_the_one_of_the_packet) {
    EXPECT_EQ(link_slots(0, 16), 1u);
    EXPECT_EQ(link_slots(7, 16), 1u);
    EXPECT_EQ(link_slots(8, 16), 2u);
    EXPECT_EQ(link_slots(40, 16), 4u);
}

}  // namespace
}  // namespace velo::switched
