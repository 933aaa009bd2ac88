/// Static allocation of rails: on each rail a node sends, or it receives, and that never changes (RAILS 2).
///
/// A node has a column: the set of rails on which it sends. One node reaches another on the rails that are in
/// its own column and not in the other's. All pairs are therefore connected both ways if and only if no
/// column contains another one. By Sperner's lemma there are at most C(r, floor(r / 2)) such columns of r
/// rails (RAILS 2.1, proposition 1).
///
/// A node's number is its place in the sorted list of all node ids, so every process has to know the same
/// list. A rail that fails, and a node that joins beyond the number given here, disconnect pairs: the rule
/// has no detour for them.
///
/// Pure: values and functions, without state, allocation or I/O. A column is computed from its number alone
/// in O(rails), so a process computes its own and its peers', never the matrix.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rma/rail_mask.h"
#include "velo/base/check.h"

namespace velo::rma {

enum class StaticRule : uint8_t {
    /// RAILS 2.1, algorithm 1: 2 * ceil(log2(nodes)) rails. Bit i of its number tells a node whether it
    /// receives on rail i, and the second half of the rails is the complement of the first (figure 3).
    kLogarithmic,
    /// RAILS 2.2, algorithm 2: columns of floor(rails / 2) senders, in descending lexicographic order from
    /// rail 0 on (figure 4). No rule connects more nodes.
    kOptimal,
};

/// value * factor / divisor, where that is a whole number of 64 bits. No step on the way exceeds it, as long
/// as factor and divisor have 32 bits.
[[nodiscard]] constexpr uint64_t scaled(uint64_t value, uint32_t factor, uint32_t divisor) {
    return value / divisor * factor + value % divisor * factor / divisor;
}

/// C(n, k) for k <= n <= kRailsMax. The largest one, C(64, 32), has 61 bits.
[[nodiscard]] constexpr uint64_t binomial(uint32_t n, uint32_t k) {
    VELO_CHECK(k <= n && n <= kRailsMax, "C(%u, %u)", n, k);
    uint64_t value = 1;  // C(n - k + i, i) after step i, which grows with i
    for (uint32_t i = 1; i <= k; ++i) value = scaled(value, n - k + i, i);
    return value;
}

/// Most nodes that the rule connects with up to kRailsMax rails. One node needs none.
[[nodiscard]] constexpr uint64_t most_nodes(StaticRule rule, uint32_t rails) {
    VELO_CHECK(rails <= kRailsMax, "%u rails", rails);
    return rule == StaticRule::kOptimal ? binomial(rails, rails / 2) : uint64_t{1} << rails / 2;
}

/// Fewest rails with which the rule connects the nodes (RAILS 2.2, figure 2). None: kRailsMax are too few.
[[nodiscard]] constexpr std::optional<uint32_t> fewest_rails(StaticRule rule, uint64_t nodes) {
    for (uint32_t rails = 0; rails <= kRailsMax; ++rails) {
        if (most_nodes(rule, rails) >= nodes) return rails;
    }
    return std::nullopt;
}

/// Rails on which a node of the first column sends to a node of the second.
[[nodiscard]] constexpr RailMask rails_between(RailMask from, RailMask to) {
    return from & ~to;
}

/// A column of `group` rails over more of them, in turns: with few nodes, each pair then has its share of all rails.
/// RAILS has no word on rails beyond those that connect the nodes, and its algorithm 2, asked for all of them,
/// leaves a pair as few as one each way.
[[nodiscard]] constexpr RailMask repeat_column(RailMask column, uint32_t group, uint32_t rails) {
    VELO_CHECK(group > 0 && group <= rails && rails <= kRailsMax, "groups of %u of %u rails", group, rails);
    RailMask repeated = 0;
    for (uint32_t first = 0; first < rails; first += group) repeated |= column << first;
    return repeated & (~RailMask{0} >> (kRailsMax - rails));
}

/// Whether nodes of these columns are all connected, both ways (RAILS 2.1, property 3). O(columns^2).
[[nodiscard]] constexpr bool is_antichain(std::span<const RailMask> columns) {
    for (size_t i = 0; i < columns.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
            if (rails_between(columns[i], columns[j]) == 0 || rails_between(columns[j], columns[i]) == 0)
                return false;
        }
    }
    return true;
}

/// The rule for one job. All of its processes have to make it of the same three values.
class StaticAllocation {
  public:
    /// None: so few rails do not connect as many nodes, see most_nodes() and fewest_rails(); or there are
    /// more rails than kRailsMax.
    [[nodiscard]] static constexpr std::optional<StaticAllocation> make(StaticRule rule, uint32_t rails,
                                                                        uint64_t nodes) {
        if (rails > kRailsMax || nodes > most_nodes(rule, rails)) return std::nullopt;
        return StaticAllocation(rule, rails, nodes);
    }

    /// Rails on which the node sends. It receives on all others.
    [[nodiscard]] constexpr RailMask column(uint64_t node) const {
        VELO_CHECK(node < nodes_, "node %llu of %llu", number(node), number(nodes_));
        return rule_ == StaticRule::kOptimal ? optimal_column(node) : logarithmic_column(node);
    }

    /// Rails on which one node sends to another: at least one, unless they are the same.
    [[nodiscard]] constexpr RailMask rails_between(uint64_t from, uint64_t to) const {
        return rma::rails_between(column(from), column(to));
    }

    [[nodiscard]] constexpr StaticRule rule() const { return rule_; }
    [[nodiscard]] constexpr uint32_t rails() const { return rails_; }
    [[nodiscard]] constexpr uint64_t nodes() const { return nodes_; }

  private:
    constexpr StaticAllocation(StaticRule rule, uint32_t rails, uint64_t nodes)
        : nodes_(nodes), rails_(rails), rule_(rule) {}

    /// For %llu, whatever uint64_t is.
    [[nodiscard]] static constexpr unsigned long long number(uint64_t value) { return value; }

    /// Uses the first 2 * ceil(log2(nodes)) rails; on the others all nodes receive.
    [[nodiscard]] constexpr RailMask logarithmic_column(uint64_t node) const {
        const auto half = static_cast<uint32_t>(std::bit_width(nodes_ - 1));
        return (~node & (rail_bit(half) - 1)) | node << half;
    }

    /// The column of a node. Columns that agree in the rails before this one are sorted: those with a sender
    /// here come first. There are C(left, ones) columns, and ones / left of them have a sender.
    [[nodiscard]] constexpr RailMask optimal_column(uint64_t node) const {
        RailMask column = 0;
        uint32_t ones = rails_ / 2;
        uint64_t columns = most_nodes(rule_, rails_);
        for (uint32_t rail = 0; ones != 0; ++rail) {
            const uint32_t left = rails_ - rail;
            const uint64_t sending = scaled(columns, ones, left);
            if (node < sending) {
                column |= rail_bit(rail);
                columns = sending;
                --ones;
            } else {
                node -= sending;
                columns -= sending;
            }
        }
        return column;
    }

    uint64_t nodes_;
    uint32_t rails_;
    StaticRule rule_;
};

}  // namespace velo::rma
