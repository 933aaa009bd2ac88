#include "rma/static_allocation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

namespace velo::rma {
namespace {

constexpr std::array<StaticRule, 2> kRules = {StaticRule::kLogarithmic, StaticRule::kOptimal};

StaticAllocation make(StaticRule rule, uint32_t rails, uint64_t nodes) {
    const auto allocation = StaticAllocation::make(rule, rails, nodes);
    VELO_CHECK(allocation.has_value(), "%u rails are too few for %u nodes", rails,
               static_cast<unsigned>(nodes));
    return *allocation;
}

std::vector<RailMask> columns_of(const StaticAllocation& allocation) {
    std::vector<RailMask> columns;
    for (uint64_t node = 0; node < allocation.nodes(); ++node) columns.push_back(allocation.column(node));
    return columns;
}

/// A line for each rail, as the paper prints its figures.
std::string printed(const StaticAllocation& allocation) {
    std::string text;
    for (uint32_t rail = 0; rail < allocation.rails(); ++rail) {
        for (uint64_t node = 0; node < allocation.nodes(); ++node) {
            if (node != 0) text += "    ";
            text += (allocation.column(node) >> rail & 1) != 0 ? '1' : '0';
        }
        text += '\n';
    }
    return text;
}

TEST(StaticAllocation, figure_2) {
    struct Row {
        uint64_t nodes;
        uint32_t optimal;
        uint32_t logarithmic;
    };
    constexpr Row kRows[] = {{4, 4, 4},      {8, 5, 6},      {16, 6, 8},    {32, 7, 10},
                             {64, 8, 12},    {128, 10, 14},  {256, 11, 16}, {512, 12, 18},
                             {1024, 13, 20}, {2048, 14, 22}, {4096, 15, 24}};
    for (const Row& row : kRows) {
        EXPECT_EQ(fewest_rails(StaticRule::kOptimal, row.nodes), row.optimal) << row.nodes;
        EXPECT_EQ(fewest_rails(StaticRule::kLogarithmic, row.nodes), row.logarithmic) << row.nodes;
    }
}

/// The text at hand has five of figure 3's six rows; the first one follows from algorithm 1 and the fourth.
TEST(StaticAllocation, figure_3) {
    EXPECT_EQ(printed(make(StaticRule::kLogarithmic, 6, 8)),
              "1    0    1    0    1    0    1    0\n"
              "1    1    0    0    1    1    0    0\n"
              "1    1    1    1    0    0    0    0\n"
              "0    1    0    1    0    1    0    1\n"
              "0    0    1    1    0    0    1    1\n"
              "0    0    0    0    1    1    1    1\n");
}

TEST(StaticAllocation, figure_4) {
    EXPECT_EQ(
        printed(make(StaticRule::kOptimal, 6, 20)),
        "1    1    1    1    1    1    1    1    1    1    0    0    0    0    0    0    0    0    0    0\n"
        "1    1    1    1    0    0    0    0    0    0    1    1    1    1    1    1    0    0    0    0\n"
        "1    0    0    0    1    1    1    0    0    0    1    1    1    0    0    0    1    1    1    0\n"
        "0    1    0    0    1    0    0    1    1    0    1    0    0    1    1    0    1    1    0    1\n"
        "0    0    1    0    0    1    0    1    0    1    0    1    0    1    0    1    1    0    1    1\n"
        "0    0    0    1    0    0    1    0    1    1    0    0    1    0    1    1    0    1    1    1\n");
}

/// RAILS 2, figure 1: two rails for two nodes, and another allocation of four rails for four.
TEST(StaticAllocation, figure_1_is_an_antichain_and_a_column_in_another_is_found) {
    const std::array<RailMask, 2> two = {0b01, 0b10};
    std::vector<RailMask> four = {0b0101, 0b1001, 0b0110, 0b1010};
    EXPECT_TRUE(is_antichain(two));
    EXPECT_TRUE(is_antichain(four));
    four[2] = 0b0111;
    EXPECT_FALSE(is_antichain(four)) << "the first column is a part of it";
    std::swap(four[0], four[3]);
    EXPECT_FALSE(is_antichain(four));
    EXPECT_FALSE(is_antichain(std::array<RailMask, 2>{0b11, 0b11}));
    EXPECT_TRUE(is_antichain({}));
    EXPECT_TRUE(is_antichain(std::array<RailMask, 1>{0}));
}

/// Algorithm 2 as it is printed: a sender, then a receiver, on each rail in turn.
void append_vectors(RailMask column, uint32_t rail, uint32_t rails, uint32_t ones,
                    std::vector<RailMask>& columns) {
    if (rail == rails) {
        columns.push_back(column);
        return;
    }
    if (ones > 0) append_vectors(column | RailMask{1} << rail, rail + 1, rails, ones - 1, columns);
    if (rails - rail > ones) append_vectors(column, rail + 1, rails, ones, columns);
}

TEST(StaticAllocation, a_column_from_its_number_is_the_one_that_algorithm_2_prints) {
    for (uint32_t rails = 0; rails <= 16; ++rails) {
        SCOPED_TRACE(rails);
        std::vector<RailMask> columns;
        append_vectors(0, 0, rails, rails / 2, columns);
        ASSERT_EQ(most_nodes(StaticRule::kOptimal, rails), columns.size());
        EXPECT_EQ(columns_of(make(StaticRule::kOptimal, rails, columns.size())), columns);
        // Fewer nodes have the first of them.
        columns.resize((columns.size() + 1) / 2);
        EXPECT_EQ(columns_of(make(StaticRule::kOptimal, rails, columns.size())), columns);
    }
}

/// Algorithm 1 as it is printed: groups of 2^i nodes, beginning with senders, then with receivers.
TEST(StaticAllocation, a_column_from_its_number_is_the_one_that_algorithm_1_prints) {
    for (uint64_t nodes = 1; nodes <= 300; ++nodes) {
        SCOPED_TRACE(nodes);
        uint32_t half = 0;
        while (uint64_t{1} << half < nodes) ++half;
        std::vector<RailMask> columns(nodes);
        for (uint32_t i = 0; i < half; ++i) {
            bool sends = true;
            for (uint64_t node = 0; node < nodes; ++node) {
                if (node != 0 && node % (uint64_t{1} << i) == 0) sends = !sends;
                columns[node] |= RailMask{1} << (sends ? i : half + i);
            }
        }
        ASSERT_EQ(fewest_rails(StaticRule::kLogarithmic, nodes), 2 * half);
        EXPECT_EQ(columns_of(make(StaticRule::kLogarithmic, 2 * half, nodes)), columns);
        EXPECT_EQ(columns_of(make(StaticRule::kLogarithmic, 2 * half + 3, nodes)), columns)
            << "of more rails";
    }
}

/// Whether each node has a rail to each other one on which it sends and the other one receives.
void expect_all_connected(const StaticAllocation& allocation) {
    const std::vector<RailMask> columns = columns_of(allocation);
    EXPECT_TRUE(is_antichain(columns));
    for (uint64_t from = 0; from < allocation.nodes(); ++from) {
        for (uint64_t to = 0; to < allocation.nodes(); ++to) {
            RailMask expected = 0;
            for (uint32_t rail = 0; rail < allocation.rails(); ++rail) {
                const bool sends = (columns[from] >> rail & 1) != 0;
                const bool receives = (columns[to] >> rail & 1) == 0;
                if (sends && receives) expected |= RailMask{1} << rail;
            }
            ASSERT_EQ(allocation.rails_between(from, to), expected) << from << " to " << to;
            ASSERT_EQ(expected == 0, from == to) << from << " to " << to;
        }
    }
}

TEST(StaticAllocation, every_pair_is_connected_both_ways_however_many_nodes_fit) {
    for (const StaticRule rule : kRules) {
        for (uint32_t rails = 0; rails <= 8; ++rails) {
            for (uint64_t nodes = 1; nodes <= most_nodes(rule, rails); ++nodes) {
                SCOPED_TRACE(testing::Message() << rails << " rails, " << nodes << " nodes");
                expect_all_connected(make(rule, rails, nodes));
            }
        }
        for (uint64_t nodes = 1; nodes <= 700; nodes += 1 + nodes / 2) {
            SCOPED_TRACE(nodes);
            expect_all_connected(make(rule, *fewest_rails(rule, nodes), nodes));
        }
    }
}

TEST(StaticAllocation, nodes_of_a_job_of_4096_are_connected) {
    for (const StaticRule rule : kRules) {
        EXPECT_TRUE(is_antichain(columns_of(make(rule, *fewest_rails(rule, 4096), 4096))));
    }
}

TEST(StaticAllocation, a_column_uses_no_rail_that_is_not_there_and_half_of_them_with_algorithm_2) {
    for (uint32_t rails = 0; rails <= kRailsMax; ++rails) {
        SCOPED_TRACE(rails);
        for (const StaticRule rule : kRules) {
            const uint64_t nodes = most_nodes(rule, rails);
            const StaticAllocation allocation = make(rule, rails, nodes);
            for (uint64_t i = 0; i < std::min<uint64_t>(nodes, 1000); ++i) {
                for (const uint64_t node : {i, nodes - 1 - i, nodes / 1000 * i}) {
                    const RailMask column = allocation.column(node);
                    ASSERT_EQ(rails < kRailsMax ? column >> rails : 0, 0u);
                    ASSERT_EQ(std::popcount(column), static_cast<int>(rails / 2));
                }
            }
        }
    }
}

/// The place of a column among those of algorithm 2: the number of columns before it. Of rails up to
/// kRailsMax there are too many columns to print, so this is the way back.
uint64_t place_of(RailMask column, uint32_t rails) {
    uint64_t place = 0;
    uint32_t ones = rails / 2;
    for (uint32_t rail = 0; rail < rails; ++rail) {
        if ((column >> rail & 1) != 0) {
            --ones;
        } else if (ones > 0) {
            place += binomial(rails - rail - 1, ones - 1);
        }
    }
    return place;
}

TEST(StaticAllocation, the_place_of_a_column_is_its_number) {
    for (uint32_t rails = 1; rails <= kRailsMax; ++rails) {
        SCOPED_TRACE(rails);
        const uint64_t nodes = most_nodes(StaticRule::kOptimal, rails);
        const StaticAllocation allocation = make(StaticRule::kOptimal, rails, nodes);
        for (uint64_t i = 0; i < std::min<uint64_t>(nodes, 1000); ++i) {
            for (const uint64_t node : {i, nodes - 1 - i, nodes / 1000 * i}) {
                ASSERT_EQ(place_of(allocation.column(node), rails), node);
            }
        }
    }
}

TEST(StaticAllocation, binomials_are_pascals_triangle) {
    std::array<std::array<uint64_t, kRailsMax + 1>, kRailsMax + 1> triangle{};
    for (uint32_t n = 0; n <= kRailsMax; ++n) {
        triangle[n][0] = 1;
        for (uint32_t k = 1; k <= n; ++k) {
            const uint64_t above = k < n ? triangle[n - 1][k] : 0;
            ASSERT_FALSE(__builtin_add_overflow(triangle[n - 1][k - 1], above, &triangle[n][k]));
        }
        for (uint32_t k = 0; k <= n; ++k) ASSERT_EQ(binomial(n, k), triangle[n][k]) << n << " " << k;
        EXPECT_EQ(most_nodes(StaticRule::kOptimal, n),
                  *std::max_element(triangle[n].begin(), triangle[n].end()));
    }
    static_assert(most_nodes(StaticRule::kOptimal, 64) == 1'832'624'140'942'590'534);
    static_assert(most_nodes(StaticRule::kLogarithmic, 64) == uint64_t{1} << 32);
}

TEST(StaticAllocation, one_rail_does_not_connect_two_nodes) {
    for (const StaticRule rule : kRules) {
        EXPECT_EQ(most_nodes(rule, 1), 1u);
        EXPECT_TRUE(StaticAllocation::make(rule, 1, 1).has_value());
        EXPECT_FALSE(StaticAllocation::make(rule, 1, 2).has_value());
        EXPECT_EQ(fewest_rails(rule, 1), 0u);
        EXPECT_EQ(fewest_rails(rule, 2), 2u);
    }
}

TEST(StaticAllocation, too_few_rails_are_refused_and_as_many_as_fewest_rails_says_are_not) {
    for (const StaticRule rule : kRules) {
        for (uint32_t rails = 0; rails <= kRailsMax; ++rails) {
            const uint64_t nodes = most_nodes(rule, rails);
            EXPECT_TRUE(StaticAllocation::make(rule, rails, nodes).has_value()) << rails;
            EXPECT_FALSE(StaticAllocation::make(rule, rails, nodes + 1).has_value()) << rails;
            EXPECT_LE(*fewest_rails(rule, nodes), rails);
        }
        EXPECT_FALSE(StaticAllocation::make(rule, kRailsMax + 1, 2).has_value());
        EXPECT_EQ(fewest_rails(rule, most_nodes(rule, kRailsMax)), kRailsMax);
        EXPECT_EQ(fewest_rails(rule, most_nodes(rule, kRailsMax) + 1), std::nullopt);
        EXPECT_EQ(fewest_rails(rule, UINT64_MAX), std::nullopt);
    }
}

TEST(StaticAllocationDeathTest, a_node_beyond_the_job_is_a_mistake_of_velo) {
    const StaticAllocation allocation = make(StaticRule::kOptimal, 4, 5);
    EXPECT_DEATH(static_cast<void>(allocation.column(5)), "node 5 of 5");
    EXPECT_DEATH(static_cast<void>(most_nodes(StaticRule::kOptimal, kRailsMax + 1)), "65 rails");
}

/// All antichains of the columns of r rails, r <= 6, each once: a set of columns is a mask of 2^r bits.
class AllAntichains {
  public:
    explicit AllAntichains(uint32_t rails) : columns_(1u << rails) {
        for (uint32_t i = 0; i < columns_; ++i) {
            for (uint32_t j = 0; j < columns_; ++j) {
                // Written as the paper has it, without the code under test.
                const bool apart = (i | j) != i && (i | j) != j;
                if (apart && j > i) later_and_apart_[i] |= uint64_t{1} << j;
            }
        }
        extend(columns_ == 64 ? ~uint64_t{0} : (uint64_t{1} << columns_) - 1, 0);
    }
    uint64_t count = 0;
    uint32_t largest = 0;
    uint32_t largest_count = 0;

  private:
    void extend(uint64_t candidates, uint32_t size) {
        ++count;
        if (size > largest) largest_count = 0;
        largest = std::max(largest, size);
        if (size == largest) ++largest_count;
        while (candidates != 0) {
            const int column = std::countr_zero(candidates);
            candidates &= candidates - 1;
            extend(candidates & later_and_apart_[static_cast<size_t>(column)], size + 1);
        }
    }

    uint32_t columns_;
    std::array<uint64_t, 64> later_and_apart_{};
};

/// Not a sample: up to 6 rails every antichain is looked at. That none is left out is seen from their number,
/// which is Dedekind's. Beyond 6 rails the bound is Sperner's proof and not this search.
TEST(StaticAllocation, no_allocation_of_up_to_6_rails_connects_more_nodes) {
    constexpr std::array<uint64_t, 7> kDedekind = {2, 3, 6, 20, 168, 7581, 7'828'354};
    for (uint32_t rails = 0; rails < kDedekind.size(); ++rails) {
        SCOPED_TRACE(rails);
        const AllAntichains all(rails);
        EXPECT_EQ(all.count, kDedekind[rails]);
        EXPECT_EQ(all.largest, most_nodes(StaticRule::kOptimal, rails));
        // Of an odd number of rails, columns of one sender more are as good.
        EXPECT_EQ(all.largest_count, rails % 2 == 0 ? 1u : 2u);
    }
}

TEST(StaticAllocation, repeated_over_more_rails_gives_each_pair_its_share_both_ways) {
    EXPECT_EQ(repeat_column(0b01, 2, 8), 0b01010101u);
    EXPECT_EQ(repeat_column(0b10, 2, 7), 0b0101010u);
    EXPECT_EQ(repeat_column(0b011, 3, 8), 0b11011011u);
    for (uint32_t nodes = 2; nodes <= 6; ++nodes) {
        const uint32_t group = *fewest_rails(StaticRule::kOptimal, nodes);
        const auto allocation = StaticAllocation::make(StaticRule::kOptimal, group, nodes);
        for (uint32_t rails = group; rails <= kRailsMax; ++rails) {
            for (uint32_t a = 0; a < nodes; ++a) {
                for (uint32_t b = 0; b < nodes; ++b) {
                    if (a == b) continue;
                    const RailMask between = rails_between(repeat_column(allocation->column(a), group, rails),
                                                           repeat_column(allocation->column(b), group, rails));
                    ASSERT_GE(static_cast<uint32_t>(std::popcount(between)), rails / group);
                }
            }
        }
    }
}

}  // namespace
}  // namespace velo::rma
