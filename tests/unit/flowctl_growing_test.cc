// Growing flow control of one process (IBFC 4.3), and what the papers' equations 7 and 8 say of memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <variant>

#include "flowctl/flow_control.h"
#include "tests/unit/flowctl_driver.h"

namespace velo::flowctl {
namespace {

constexpr MessageEnd kWaited{.ended = true, .waited = true};

Config growing(uint32_t peers, uint32_t data_slots, uint32_t start, Growth growth = Growth::kLinear) {
    return {.mode = Mode::kGrowing,
            .peers = peers,
            .mailbox_slots = data_slots + peers,
            .credit_slots = 1,
            .growth = growth,
            .growing_start = start,
            .growing_step = 3};
}

Plan accepted(const Config& config) {
    const PlanResult result = plan(config);
    const auto* error = std::get_if<PlanError>(&result);
    EXPECT_EQ(error, nullptr) << error->message;
    return std::get<Plan>(result);
}

uint32_t retrieve(DrivenFlowControl& flow, PeerIndex from, MessageEnd end) {
    Actions actions;
    EXPECT_EQ(flow.packets_retrieved(from, 1, end, actions), Status::kOk);
    EXPECT_LE(actions.size(), 1u);
    return actions.empty() ? 0 : actions[0].credits;
}

TEST(Growing, a_share_grows_by_the_step_when_a_message_has_waited) {
    DrivenFlowControl flow(accepted(growing(2, 20, 1)));
    EXPECT_EQ(flow.sendable(0, 10), 1u);
    EXPECT_EQ(retrieve(flow, 0, {.ended = true}), 1u);
    EXPECT_EQ(retrieve(flow, 0, kWaited), 4u);
    EXPECT_EQ(flow.quota(0), 4u);
    EXPECT_EQ(flow.quota(1), 1u);
}

TEST(Growing, exponentially_it_doubles) {
    DrivenFlowControl flow(accepted(growing(1, 64, 1, Growth::kExponential)));
    uint32_t quota = 1;
    for (const uint32_t expected : {2u, 4u, 8u, 16u, 32u, 64u, 64u}) {
        for (uint32_t packet = 0; packet + 1 < flow.threshold(0); ++packet) retrieve(flow, 0, {});
        retrieve(flow, 0, kWaited);
        quota = flow.quota(0);
        EXPECT_EQ(quota, expected);
    }
}

TEST(Growing, credits_that_grew_ride_in_the_next_return_even_a_piggybacked_one) {
    DrivenFlowControl flow(accepted(growing(1, 40, 20)));
    ASSERT_EQ(flow.threshold(0), 11u);
    EXPECT_EQ(retrieve(flow, 0, kWaited), 0u);
    EXPECT_EQ(flow.quota(0), 20u) << "its sender does not know yet";
    Actions actions;
    EXPECT_EQ(flow.take_piggyback(0, kReturnMax, actions), 4u);
    EXPECT_EQ(flow.quota(0), 23u);
}

TEST(Growing, all_shares_together_never_exceed_the_data_region) {
    DrivenFlowControl flow(accepted(growing(2, 10, 2)));
    for (int i = 0; i < 30; ++i) {
        retrieve(flow, 0, kWaited);
        retrieve(flow, 1, kWaited);
    }
    EXPECT_EQ(flow.quota(0) + flow.quota(1), 10u);
}

TEST(Growing, one_sender_gathers_no_more_than_the_cap) {
    Config config = growing(1, 40, 2);
    config.sender_slots_max = 9;
    DrivenFlowControl flow(accepted(config));
    for (int i = 0; i < 100; ++i) retrieve(flow, 0, kWaited);
    EXPECT_EQ(flow.quota(0), 9u);
    config.sender_slots_max = 1;
    EXPECT_TRUE(std::holds_alternative<PlanError>(plan(config)));
}

// IBFC 6.3.1: fewer than five are not worth a message, unless the share is smaller.
TEST(Growing, explicit_returns_are_of_five_credits_or_of_a_small_share) {
    EXPECT_EQ(growing_threshold(1, 1), 1u);
    EXPECT_EQ(growing_threshold(3, 2), 3u);
    EXPECT_EQ(growing_threshold(7, 2), 5u);
    EXPECT_EQ(growing_threshold(100, 2), threshold_for(100, 2));
    for (uint32_t quota = 1; quota < 200; ++quota) {
        for (uint32_t credit_slots = 1; credit_slots < 6; ++credit_slots) {
            EXPECT_LE(growing_threshold(quota, credit_slots), quota);
            EXPECT_GE(growing_threshold(quota, credit_slots), threshold_for(quota, credit_slots));
        }
    }
}

TEST(Growing, a_mailbox_too_small_for_the_start_gives_each_an_equal_share) {
    EXPECT_EQ(accepted(growing(4, 8, 16)).quota, 2u);
}

// FC 7.5, of the structures and of 64 or 16 slots of 64 bytes for each process.
double static_bytes(double processes) {
    return 4 * processes + 2 + 64 * 64 * processes;
}
double dynamic_bytes(double processes, double structures) {
    return (structures + 16 * 64) * processes;
}

TEST(Equations7And8, give_table_3_and_velo_needs_less) {
    struct Row {
        double processes, static_mb, dynamic_mb;
    };
    constexpr double kMb = 1024 * 1024;
    for (const Row& row :
         {Row{1024, 4, 1.14}, Row{4096, 16, 4.6}, Row{16384, 64, 18.3}, Row{65536, 256, 73.3},
          // The table truncates: equation 8 gives 1,025.
          Row{262144, 1024, 293.5}}) {
        EXPECT_NEAR(static_bytes(row.processes) / kMb, row.static_mb, 1.01);
        EXPECT_NEAR(dynamic_bytes(row.processes, 150) / kMb, row.dynamic_mb, 0.1);
        const double ours = sizeof(DynamicPeer) + (kCreditSlotsDefault + 1) * sizeof(uint16_t);
        EXPECT_LT(dynamic_bytes(row.processes, ours) / kMb, 0.93 * row.dynamic_mb);
    }
}

}  // namespace
}  // namespace velo::flowctl
