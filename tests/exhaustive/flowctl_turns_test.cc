// Dynamic flow control with messages longer than shares keeps every property of flowctl_dynamic_test.cc in every
// interleaving of small cases, credits being given in turns.
#include <gtest/gtest.h>

#include <vector>

#include "tests/exhaustive/flowctl_dynamic_worlds.h"

namespace velo::exhaustive {
namespace {

/// Messages that are longer than what shares let go, so that senders wait for their turns.
class DynamicTurns : public ::testing::TestWithParam<Case> {
  protected:
    [[nodiscard]] static Verdict explore_turns(Flows flows, uint16_t messages, uint8_t packets) {
        const Case& given = GetParam();
        const Shares shares{.peers = 2,
                            .quota = given.data_slots,
                            .credit_slots = given.credit_slots,
                            .piggyback = given.piggyback};
        return explore_trio({shares, flowctl::Stealing::kTurns, given.refusals, packets, given.batched_reports},
                            flows, messages);
    }
};

TEST_P(DynamicTurns, one_sender_of_two_ends) {
    for (const uint8_t packets : {2, 3, 5}) expect_holds(explore_turns({{0, 2}}, 8, packets), 20);
}

TEST_P(DynamicTurns, both_directions_end) {
    expect_holds(explore_turns({{0, 2}, {2, 0}}, 3, 3), 100);
}

TEST_P(DynamicTurns, two_senders_end_in_whatever_order_they_come) {
    // Late reports of three messages have more states than time allows.
    expect_holds(explore_turns(kInto2, GetParam().batched_reports ? 2 : 3, 3), 100);
}

INSTANTIATE_TEST_SUITE_P(Small, DynamicTurns, ::testing::ValuesIn(cases(1, 2)), case_name);

std::vector<Case> of_three_slots(uint32_t credit_slots) {
    std::vector<Case> chosen = cases(3, 3);
    std::erase_if(chosen, [=](const Case& one) { return one.credit_slots != credit_slots; });
    return chosen;
}
INSTANTIATE_TEST_SUITE_P(Full, DynamicTurns, ::testing::ValuesIn(of_three_slots(1)), case_name);
// A minute and a half: by make check, and by ./check --long.
INSTANTIATE_TEST_SUITE_P(Long, DynamicTurns, ::testing::ValuesIn(of_three_slots(2)), case_name);

}  // namespace
}  // namespace velo::exhaustive
