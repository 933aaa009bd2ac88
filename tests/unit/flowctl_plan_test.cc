// Division of a mailbox: thresholds, rounding, and what is refused with which advice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "flowctl/plan.h"

namespace velo::flowctl {
namespace {

struct ThresholdRow {
    uint32_t quota, credit_slots, equation_1, formula_a, formula_b;
};

/// Table 1 of FC 5.2.
constexpr ThresholdRow kTable1[] = {
    {100, 1, 51, 101, 100}, {100, 2, 34, 51, 50}, {100, 3, 26, 34, 33}, {100, 4, 21, 26, 25},
    {100, 5, 17, 21, 20},   {60, 2, 21, 31, 30},  {40, 2, 14, 21, 20},  {20, 2, 7, 11, 10},
    {10, 2, 4, 6, 5},       {3, 2, 2, 2, 1},
};

constexpr uint32_t formula_a(uint32_t quota, uint32_t credit_slots) {
    return quota / credit_slots + 1;
}
constexpr uint32_t formula_b(uint32_t quota, uint32_t credit_slots) {
    return quota / credit_slots;
}

/// Most explicit credit packets that can wait at a sender, each of a threshold of its credits.
constexpr uint32_t credit_packets_max(uint32_t quota, uint32_t threshold) {
    return quota / threshold;
}

/// Equation 5 of FC 5.3.
constexpr uint32_t equation_5(uint32_t message_packets, uint32_t credit_slots) {
    return message_packets * (credit_slots + 1) / credit_slots + credit_slots;
}

static_assert(threshold_for(20, 2) == 7, "the example of FC figure 3");

TEST(Threshold, table_1_of_the_paper_is_reproduced) {
    for (const ThresholdRow& row : kTable1) {
        EXPECT_EQ(threshold_for(row.quota, row.credit_slots), row.equation_1) << row.quota;
        EXPECT_EQ(formula_a(row.quota, row.credit_slots), row.formula_a) << row.quota;
        EXPECT_EQ(formula_b(row.quota, row.credit_slots), row.formula_b) << row.quota;
    }
}

TEST(Threshold, can_be_reached_and_never_overflows_the_credit_region) {
    for (uint32_t quota = 1; quota <= 300; ++quota) {
        for (uint32_t credit_slots = 1; credit_slots <= 20; ++credit_slots) {
            const uint32_t threshold = threshold_for(quota, credit_slots);
            ASSERT_LE(threshold, quota) << quota << " / " << credit_slots;
            ASSERT_LE(credit_packets_max(quota, threshold), credit_slots) << quota << " / " << credit_slots;
        }
    }
}

TEST(Threshold, formula_a_is_out_of_reach_with_one_credit_slot_at_every_quota) {
    EXPECT_GT(formula_a(100, 1), 100u);
    for (uint32_t quota = 1; quota <= 300; ++quota) EXPECT_GT(formula_a(quota, 1), quota);
}

TEST(Threshold, formula_b_lets_three_credit_packets_meet_two_slots_with_quota_3) {
    EXPECT_EQ(credit_packets_max(3, formula_b(3, 2)), 3u);
    EXPECT_EQ(credit_packets_max(3, threshold_for(3, 2)), 1u);
}

TEST(SlotsWithoutStall, table_2_of_the_paper_is_reproduced_for_37_packets) {
    EXPECT_EQ(slots_without_stall(37, 2), 57u);
    EXPECT_EQ(slots_without_stall(37, 3), 52u);
    EXPECT_EQ(slots_without_stall(37, 4), 50u);
    EXPECT_EQ(slots_without_stall(37, 5), 49u);
}

TEST(SlotsWithoutStall, agrees_with_equation_5_except_at_one_credit_slot_where_74_is_enough) {
    for (uint32_t credit_slots = 2; credit_slots <= 5; ++credit_slots) {
        EXPECT_EQ(slots_without_stall(37, credit_slots), equation_5(37, credit_slots));
    }
    EXPECT_EQ(slots_without_stall(37, 1), 74u);
    EXPECT_EQ(equation_5(37, 1), 75u);
}

TEST(SlotsWithoutStall, is_the_smallest_solution_of_equations_3_and_4) {
    for (uint32_t packets = 1; packets <= 80; ++packets) {
        for (uint32_t credit_slots = 1; credit_slots <= 6; ++credit_slots) {
            const uint32_t quota = slots_without_stall(packets, credit_slots) - credit_slots;
            EXPECT_GE(quota - (threshold_for(quota, credit_slots) - 1), packets);
            EXPECT_LT(quota - 1 - (threshold_for(quota - 1, credit_slots) - 1), packets);
        }
    }
}

Plan accepted(const Config& config) {
    const PlanResult result = plan(config);
    const auto* error = std::get_if<PlanError>(&result);
    EXPECT_EQ(error, nullptr) << error->message;
    return error == nullptr ? std::get<Plan>(result) : Plan{};
}

PlanError refused(const Config& config) {
    const PlanResult result = plan(config);
    const auto* error = std::get_if<PlanError>(&result);
    EXPECT_NE(error, nullptr) << "it was planned";
    return error != nullptr ? *error : PlanError{};
}

void expect_says(const PlanError& error, const std::string& words) {
    EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
}

TEST(Plan, defaults_give_each_peer_58_slots_two_of_them_for_credits) {
    const Plan plan = accepted({.peers = 1024});
    EXPECT_EQ(plan.mode, Mode::kStatic);
    EXPECT_EQ(plan.mailbox_slots, 1024u * 58);
    EXPECT_EQ(plan.credit_region_slots, 1024u * 2);
    EXPECT_EQ(plan.data_region_slots, 1024u * 56);
    EXPECT_EQ(plan.quota, 56u);
    EXPECT_EQ(plan.excess_peers, 0u);
    EXPECT_EQ(plan.threshold, 19u);
    EXPECT_EQ(plan.favoured_threshold, plan.threshold);
    EXPECT_TRUE(plan.piggyback);
}

TEST(Plan, subset_uses_the_whole_mailbox_and_gives_the_excess_to_some) {
    const Plan plan = accepted({.peers = 4, .mailbox_slots = 31, .rounding = Rounding::kSubset});
    EXPECT_EQ(plan.mailbox_slots, 31u);
    EXPECT_EQ(plan.quota, 5u);
    EXPECT_EQ(plan.excess_peers, 3u);
    EXPECT_EQ(plan.threshold, threshold_for(5, 2));
    EXPECT_EQ(plan.favoured_threshold, threshold_for(6, 2));
    uint32_t owned = 0;
    for (PeerIndex peer = 0; peer < 4; ++peer) owned += plan.quota_of(peer);
    EXPECT_EQ(owned, plan.data_region_slots);
    EXPECT_EQ(plan.quota_max(), 6u);
}

TEST(Plan, rounding_down_uses_a_smaller_mailbox) {
    const Plan plan = accepted({.peers = 4, .mailbox_slots = 31, .rounding = Rounding::kDown});
    EXPECT_EQ(plan.mailbox_slots, 28u);
    EXPECT_EQ(plan.quota, 5u);
    EXPECT_EQ(plan.excess_peers, 0u);
}

TEST(Plan, rounding_up_uses_a_slightly_larger_mailbox) {
    const Plan plan = accepted({.peers = 4, .mailbox_slots = 31, .rounding = Rounding::kUp});
    EXPECT_EQ(plan.mailbox_slots, 32u);
    EXPECT_EQ(plan.quota, 6u);
    EXPECT_EQ(plan.excess_peers, 0u);
}

TEST(Plan, every_rounding_leaves_a_mailbox_that_divides_as_it_is) {
    for (const Rounding rounding : {Rounding::kSubset, Rounding::kDown, Rounding::kUp}) {
        EXPECT_EQ(accepted({.peers = 4, .mailbox_slots = 28, .rounding = rounding}).mailbox_slots, 28u);
    }
}

TEST(Plan, regions_and_quotas_add_up_for_every_small_mailbox) {
    for (uint32_t peers = 1; peers <= 6; ++peers) {
        for (uint32_t credit_slots = 1; credit_slots <= 4; ++credit_slots) {
            for (uint32_t slots = 2 * peers * credit_slots; slots < 60; ++slots) {
                for (const Rounding rounding : {Rounding::kSubset, Rounding::kDown, Rounding::kUp}) {
                    const Plan plan = accepted({.peers = peers,
                                                .mailbox_slots = slots,
                                                .credit_slots = credit_slots,
                                                .rounding = rounding});
                    ASSERT_EQ(plan.mailbox_slots, plan.data_region_slots + plan.credit_region_slots);
                    ASSERT_EQ(plan.data_region_slots, peers * plan.quota + plan.excess_peers);
                    ASSERT_LT(plan.excess_peers, peers);
                    ASSERT_GE(plan.quota, credit_slots);
                    ASSERT_LE(plan.threshold, plan.quota);
                    if (plan.excess_peers > 0) {
                        ASSERT_GT(plan.favoured_threshold, 1u);
                    }
                }
            }
        }
    }
}

TEST(Plan, smallest_mailbox_in_the_refusal_would_do_and_one_slot_less_would_not) {
    const PlanError error = refused({.peers = 10, .mailbox_slots = 7, .credit_slots = 3});
    EXPECT_EQ(error.status, Status::kBadParam);
    EXPECT_EQ(error.smallest_mailbox_slots, 60u);
    expect_says(error, "mailbox of 7 slots");
    expect_says(error, "smallest mailbox that would do has 60 slots");
    expect_says(error, "slots_per_peer=6");
    EXPECT_EQ(accepted({.peers = 10, .mailbox_slots = 60, .credit_slots = 3}).quota, 3u);
    EXPECT_EQ(refused({.peers = 10, .mailbox_slots = 59, .credit_slots = 3}).smallest_mailbox_slots, 60u);
}

TEST(Plan, too_few_slots_per_peer_are_refused_like_a_small_mailbox) {
    const PlanError error = refused({.peers = 10, .slots_per_peer = 3});
    EXPECT_EQ(error.smallest_mailbox_slots, 40u);
    EXPECT_EQ(accepted({.peers = 10, .slots_per_peer = 4}).mailbox_slots, 40u);
}

TEST(Plan, values_of_zero_are_refused_by_name) {
    expect_says(refused({.peers = 0}), "0 peers");
    expect_says(refused({.peers = 2, .credit_slots = 0}), "credit_slots is 0");
    expect_says(refused({.peers = 2, .slots_per_peer = 0}), "mailbox_slots and slots_per_peer are both 0");
}

TEST(Plan, credit_slots_above_the_limit_are_refused_with_the_limit) {
    expect_says(refused({.peers = 1, .mailbox_slots = 100'000, .credit_slots = kCreditSlotsMax + 1}),
                "1 to 255");
    EXPECT_EQ(accepted({.peers = 1, .mailbox_slots = 100'000, .credit_slots = kCreditSlotsMax}).credit_slots,
              kCreditSlotsMax);
}

TEST(Plan, sizes_that_do_not_fit_32_bits_are_refused_with_one_that_does) {
    const PlanError product = refused({.peers = 1u << 30, .slots_per_peer = 58});
    expect_says(product, "slots_per_peer to at most 3");
    EXPECT_EQ(accepted({.mode = Mode::kNone, .peers = 1u << 30, .slots_per_peer = 3}).mailbox_slots,
              3u << 30);
    expect_says(refused({.peers = 1u << 30, .slots_per_peer = 3}), "lower credit_slots");
    const PlanError rounded =
        refused({.peers = 1000, .mailbox_slots = 0xffffffff, .credit_slots = 255, .rounding = Rounding::kUp});
    expect_says(rounded, "rounding 'down'");
}

TEST(Plan, return_that_does_not_fit_16_bits_is_refused_with_the_largest_mailbox) {
    const uint32_t largest_quota = kReturnMax * 3 - 1;
    expect_says(refused({.peers = 2, .mailbox_slots = 2 * (largest_quota + 2) + 2}),
                "at most " + std::to_string(2 * (largest_quota + 2)) + " slots");
    const Plan plan = accepted({.peers = 2, .mailbox_slots = 2 * (largest_quota + 2)});
    EXPECT_EQ(plan.threshold, kReturnMax);
    EXPECT_EQ(plan.return_max, kReturnMax);
    // One slot more goes to one peer, whose threshold is then past the limit too.
    expect_says(refused({.peers = 2, .mailbox_slots = 2 * (largest_quota + 2) + 1}), "raise credit_slots");
}

TEST(Plan, mode_none_takes_any_mailbox_and_divides_nothing) {
    const Plan plan = accepted({.mode = Mode::kNone, .peers = 100, .mailbox_slots = 5, .credit_slots = 0});
    EXPECT_EQ(plan.mailbox_slots, 5u);
    EXPECT_EQ(plan.credit_region_slots, 0u);
    EXPECT_EQ(plan.quota, 0u);
}

/// Sizes at and around those where a bound could stand, in order.
std::vector<uint32_t> sizes(uint32_t most) {
    std::vector<uint32_t> all;
    for (uint32_t size = 1; size <= 70; ++size) all.push_back(size);
    for (uint64_t power = 128; power <= most; power *= 2) {
        for (const int64_t beside : {-70, -3, -2, -1, 0, 1, 2, 3, 70}) {
            all.push_back(static_cast<uint32_t>(static_cast<int64_t>(power) + beside));
        }
    }
    std::erase_if(all, [most](uint32_t size) { return size > most; });
    std::ranges::sort(all);
    return all;
}

/// A size is refused between two that are accepted: 0 where there is none.
template <class Accepts>
uint32_t gap_in(const std::vector<uint32_t>& along, Accepts&& accepts) {
    uint32_t refused_at = 0;
    bool accepted_before = false;
    for (const uint32_t size : along) {
        if (accepts(size)) {
            if (accepted_before && refused_at != 0) return refused_at;
            accepted_before = true;
        } else if (accepted_before && refused_at == 0) {
            refused_at = size;
        }
    }
    return 0;
}

/// Plans of all modes, as processes make them of `contact_most` contact slots.
template <class Visit>
void for_each_kind(Visit&& visit) {
    for (const auto& [mode, name] : kModeNames) {
        for (const Stealing stealing : {Stealing::kTurns, Stealing::kPaper}) {
            for (const uint32_t credit_slots : {1u, 2u, 255u}) {
                for (const uint32_t contact_most : {0u, 1u, 64u, 65535u}) {
                    for (const uint32_t sender_slots : {0u, 5u, 300u}) {
                        visit(Config{.mode = mode,
                                     .credit_slots = credit_slots,
                                     .sender_slots_max = sender_slots,
                                     .stealing = stealing},
                              contact_most);
                    }
                }
            }
        }
    }
}

bool is_planned(Config config, uint32_t contact_most) {
    config.contact_slots = contact_slots_for(config, contact_most);
    return std::holds_alternative<Plan>(plan(config));
}

TEST(Plan, no_number_of_peers_is_refused_between_two_that_are_accepted) {
    const std::vector<uint32_t> peers = sizes(1u << 25);
    for_each_kind([&](Config config, uint32_t contact_most) {
        for (const uint32_t mailbox : {0u, 4u, 64u, 4096u, 65536u, 1u << 24, UINT32_MAX}) {
            for (const Rounding rounding : {Rounding::kSubset, Rounding::kUp, Rounding::kDown}) {
                config.mailbox_slots = mailbox;
                config.rounding = rounding;
                const uint32_t gap = gap_in(peers, [&](uint32_t count) {
                    config.peers = count;
                    return is_planned(config, contact_most);
                });
                ASSERT_EQ(gap, 0u) << to_string(config.mode) << ", mailbox of " << mailbox;
            }
        }
    });
}

TEST(Plan, no_mailbox_is_refused_between_two_that_are_accepted) {
    const std::vector<uint32_t> mailboxes = sizes(1u << 25);
    for_each_kind([&](Config config, uint32_t contact_most) {
        for (const uint32_t peers : {1u, 2u, 3u, 8u, 1024u, 32768u}) {
            config.peers = peers;
            const uint32_t gap = gap_in(mailboxes, [&](uint32_t slots) {
                config.mailbox_slots = slots;
                return is_planned(config, contact_most);
            });
            ASSERT_EQ(gap, 0u) << to_string(config.mode) << ", " << peers << " peers";
        }
    });
}

TEST(Plan, regions_are_parts_of_the_mailbox_and_limits_are_parts_of_regions) {
    for_each_kind([](Config config, uint32_t contact_most) {
        for (const uint32_t peers : sizes(1u << 17)) {
            config.peers = peers;
            for (const uint32_t mailbox : {5u, 4096u, 65536u}) {
                config.mailbox_slots = mailbox;
                config.contact_slots = contact_slots_for(config, contact_most);
                const PlanResult result = plan(config);
                const auto* made = std::get_if<Plan>(&result);
                if (made == nullptr || made->credit_slots == 0) continue;
                ASSERT_EQ(uint64_t{made->data_region_slots} + made->credit_region_slots + made->contact_slots,
                          made->mailbox_slots);
                ASSERT_GE(made->data_region_slots, made->quota);
                if (config.mode == Mode::kStatic) continue;
                ASSERT_GE(made->sender_slots_max, made->quota);
                if (config.sender_slots_max == 0) {
                    ASSERT_EQ(made->sender_slots_max,
                              config.mode == Mode::kGrowing ? std::min(made->data_region_slots, kReturnMax)
                                                            : made->data_region_slots)
                        << "no limit was asked for";
                }
            }
        }
    });
}

TEST(Plan, contact_slots_leave_a_peer_its_slots_wherever_the_mailbox_has_them) {
    for (const uint32_t credit_slots : {1u, 2u, 100u, 255u}) {
        Config config = {.mode = Mode::kDynamic, .peers = 2, .credit_slots = credit_slots};
        for (config.mailbox_slots = 1; config.mailbox_slots < 2000; ++config.mailbox_slots) {
            config.contact_slots = contact_slots_for(config, 64);
            const bool enough = config.mailbox_slots > 2 * credit_slots;
            ASSERT_EQ(std::holds_alternative<Plan>(plan(config)), enough) << config.mailbox_slots;
            if (!enough) {
                ASSERT_EQ(refused(config).smallest_mailbox_slots, 2 * credit_slots + 1);
            }
        }
    }
}

TEST(Plan, a_limit_below_what_a_sender_starts_with_is_refused_with_what_gives_it_that) {
    expect_says(refused({.mode = Mode::kDynamic, .peers = 2, .credit_slots = 3, .sender_slots_max = 2}),
                "credit_slots");
    expect_says(refused({.mode = Mode::kGrowing, .peers = 2, .sender_slots_max = 2, .growing_start = 3}),
                "growing_start");
    const Config large = {
        .mode = Mode::kGrowing, .peers = 1, .mailbox_slots = 1u << 20, .growing_start = UINT32_MAX};
    EXPECT_EQ(accepted(large).quota, kReturnMax) << "a return holds no larger threshold";
}

TEST(Mode, every_name_parses_to_the_mode_it_came_from) {
    for (const auto& [mode, name] : kModeNames) {
        EXPECT_EQ(parse_mode(name), mode);
        EXPECT_EQ(to_string(mode), name);
    }
    EXPECT_EQ(parse_mode("Static"), std::nullopt);
    EXPECT_EQ(parse_mode(""), std::nullopt);
}

TEST(Rounding, every_name_parses_to_the_rounding_it_came_from) {
    for (const auto& [rounding, name] : kRoundingNames) {
        EXPECT_EQ(parse_rounding(name), rounding);
        EXPECT_EQ(to_string(rounding), name);
    }
    EXPECT_EQ(parse_rounding("sub"), std::nullopt);
}

}  // namespace
}  // namespace velo::flowctl
