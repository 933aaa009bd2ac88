/// Plans and worlds that the exhaustive tests of flow control share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>

#include "flowctl/plan.h"
#include "tests/exhaustive/explorer.h"
#include "tests/exhaustive/mailbox_world.h"

namespace velo::exhaustive {

/// Two processes, and small quotas: a queue holds a quota and its credit packets, and some more where a
/// bug is let in.
using PairWorld = MailboxWorld<2, 16>;
using TrioWorld = MailboxWorld<3, 16>;
// Compiled once, in flowctl_worlds.cc.
extern template Verdict explore(const PairWorld& world, uint64_t states_max);
extern template Verdict explore(const TrioWorld& world, uint64_t states_max);

struct Shares {
    uint32_t peers = 1;
    uint32_t quota = 1;
    uint32_t credit_slots = 1;
    /// Slots more than peers * quota.
    uint32_t excess = 0;
    bool piggyback = true;
};

inline void expect_holds(const Verdict& verdict, uint64_t states_min) {
    EXPECT_TRUE(verdict.holds()) << verdict.what;
    EXPECT_GE(verdict.states, states_min) << "the world did next to nothing";
    ::testing::Test::RecordProperty("states", std::to_string(verdict.states));
}

inline flowctl::Config config_of(flowctl::Mode mode, const Shares& shares) {
    return {.mode = mode,
            .peers = shares.peers,
            .mailbox_slots = shares.peers * (shares.quota + shares.credit_slots) + shares.excess,
            .credit_slots = shares.credit_slots,
            .rounding = flowctl::Rounding::kSubset,
            .piggyback = shares.piggyback,
            .stealing = flowctl::Stealing::kPaper};
}

inline flowctl::Plan plan_of(const flowctl::Config& config) {
    const auto result = flowctl::plan(config);
    const auto* error = std::get_if<flowctl::PlanError>(&result);
    EXPECT_EQ(error, nullptr) << error->message;
    return std::get<flowctl::Plan>(result);
}

inline flowctl::Plan static_plan(const Shares& shares) {
    return plan_of(config_of(flowctl::Mode::kStatic, shares));
}

/// `quota`: the data slots that each peer brings.
inline flowctl::Plan dynamic_plan(const Shares& shares) {
    return plan_of(config_of(flowctl::Mode::kDynamic, shares));
}

/// Shares start with one slot and grow up to all that there is.
inline flowctl::Plan growing_plan(const Shares& shares, flowctl::Growth growth) {
    flowctl::Config config = config_of(flowctl::Mode::kGrowing, shares);
    config.growth = growth;
    config.growing_start = 1;
    config.growing_step = 1;
    return plan_of(config);
}

/// A pair in which each owns quota + 1 of the other's slots and neither was notified.
inline flowctl::Plan favoured_pair_plan(uint32_t quota, uint32_t credit_slots) {
    flowctl::Plan plan = static_plan({.quota = quota, .credit_slots = credit_slots});
    plan.excess_peers = 1;
    plan.favoured_threshold = flowctl::threshold_for(quota + 1, credit_slots);
    plan.data_region_slots += 1;
    plan.mailbox_slots += 1;
    return plan;
}

inline PairWorld::Options pair_options(const flowctl::Plan& plan, uint16_t messages_there,
                                       uint16_t messages_back, uint8_t message_packets = 1) {
    PairWorld::Options options{.plan = plan, .message_packets = message_packets};
    options.messages[0][1] = messages_there;
    options.messages[1][0] = messages_back;
    return options;
}

}  // namespace velo::exhaustive
