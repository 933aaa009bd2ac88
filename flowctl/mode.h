/// Names of the flow control modes and of the ways to round, as parameters spell them.
/// Set-up only. Sources: FC 5 and 6, FC footnote 7, IBFC 4.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace velo::flowctl {

enum class Mode : uint8_t {
    /// No credits: the mailbox is as large as the job needs. Overhead is measured against this (FC 5.3).
    kNone,
    /// No credits: a full mailbox blocks the sender's node (IBFC 4.1).
    kHardware,
    /// Every sender owns the same share of the mailbox for the whole run (FC 5).
    kStatic,
    /// A share starts small and grows when a message says that it waited (IBFC 4.3).
    kGrowing,
    /// Shares follow the activity of the senders (FC 6).
    kDynamic,
};

/// Use of data slots that do not divide by the number of peers (FC footnote 7).
enum class Rounding : uint8_t {
    /// Option a: some peers own one slot more, and the mailbox is used up.
    kSubset,
    /// Option b, lower: every peer owns the same, and the mailbox used is smaller than what was asked for.
    kDown,
    /// Option b, upper: every peer owns the same, and the mailbox is slightly larger than what was asked for.
    kUp,
};

/// How a share grows (Mode::kGrowing, IBFC 4.3).
enum class Growth : uint8_t {
    /// A share grows by the same number of slots each time.
    kLinear,
    /// A share grows to twice its size.
    kExponential,
};

/// From whom slots are taken for an active sender (Mode::kDynamic).
enum class Stealing : uint8_t {
    /// From the least recently active sender, at each monitoring point (FC 6.5.2).
    kPaper,
    /// From a sender that has fallen idle, or that has much more than the active one; and where shares are smaller
    /// than messages, senders have credits for a whole message in turns (docs/flow-control.md).
    kTurns,
};

inline constexpr std::array<std::pair<Mode, std::string_view>, 5> kModeNames{{{Mode::kNone, "none"},
                                                                              {Mode::kHardware, "hardware"},
                                                                              {Mode::kStatic, "static"},
                                                                              {Mode::kGrowing, "growing"},
                                                                              {Mode::kDynamic, "dynamic"}}};

inline constexpr std::array<std::pair<Rounding, std::string_view>, 3> kRoundingNames{
    {{Rounding::kSubset, "subset"}, {Rounding::kDown, "down"}, {Rounding::kUp, "up"}}};

inline constexpr std::array<std::pair<Stealing, std::string_view>, 2> kStealingNames{
    {{Stealing::kPaper, "paper"}, {Stealing::kTurns, "turns"}}};

namespace detail {

template <typename Names, typename Value>
[[nodiscard]] constexpr std::string_view name_of(const Names& names, Value value) noexcept {
    for (const auto& [candidate, name] : names) {
        if (candidate == value) return name;
    }
    return "unknown";
}

template <typename Names>
[[nodiscard]] constexpr auto value_of(const Names& names, std::string_view text) noexcept
    -> std::optional<typename Names::value_type::first_type> {
    for (const auto& [candidate, name] : names) {
        if (name == text) return candidate;
    }
    return std::nullopt;
}

}  // namespace detail

[[nodiscard]] constexpr std::string_view to_string(Mode mode) noexcept {
    return detail::name_of(kModeNames, mode);
}

[[nodiscard]] constexpr std::string_view to_string(Rounding rounding) noexcept {
    return detail::name_of(kRoundingNames, rounding);
}

/// Exact spelling only, so that a mistyped parameter is an error and not another mode.
[[nodiscard]] constexpr std::optional<Mode> parse_mode(std::string_view text) noexcept {
    return detail::value_of(kModeNames, text);
}

[[nodiscard]] constexpr std::optional<Stealing> parse_stealing(std::string_view text) noexcept {
    return detail::value_of(kStealingNames, text);
}

[[nodiscard]] constexpr std::optional<Rounding> parse_rounding(std::string_view text) noexcept {
    return detail::value_of(kRoundingNames, text);
}

}  // namespace velo::flowctl
