/// Whole numbers as users write them: decimal digits and nothing else.
///
/// Open MPI's own reading and the C library's take "58k", "0x3a", "010", " 5" and, without a word, the low half of what
/// is too large. Set-up only.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace velo::base {

/// Accepted numbers. One of bytes may have k, m or g behind its digits, for powers of 1024.
struct NumberRange {
    uint64_t smallest = 0;
    uint64_t largest = UINT64_MAX;
    bool bytes = false;
};

/// The number, if `text` is one of the range.
[[nodiscard]] inline std::optional<uint64_t> read_number(std::string_view text, const NumberRange& range) {
    constexpr std::string_view kSuffixes = "kKmMgG";
    unsigned shift = 0;
    if (range.bytes && !text.empty()) {
        if (const size_t at = kSuffixes.find(text.back()); at != std::string_view::npos) {
            shift = 10 * (1 + static_cast<unsigned>(at) / 2);
            text.remove_suffix(1);
        }
    }
    if (text.size() > 1 && text.front() == '0') return std::nullopt;  // octal elsewhere
    uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (text.empty() || error != std::errc() || stopped != end || value > UINT64_MAX >> shift) return std::nullopt;
    value <<= shift;
    return value < range.smallest || value > range.largest ? std::nullopt : std::optional(value);
}

/// The end of a sentence on a text that is none of the range: "NAME=TEXT " goes before it.
[[nodiscard]] inline std::string why_no_number(const NumberRange& range) {
    return "is not a number from " + std::to_string(range.smallest) + " to " + std::to_string(range.largest) +
           "; write decimal digits" +
           (range.bytes ? ", and k, m or g behind them for powers of 1024" : " and nothing else");
}

}  // namespace velo::base
