/// Numbers on a probe's command line, read as velo reads its parameters: decimal digits of a range, and nothing else.
///
/// A number that is refused leaves a sentence, with the argument's name, its text and the remedy; the probe prints it
/// and ends with status 2.
#pragma once

#include <algorithm>
#include <concepts>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "measuring.h"
#include "velo/base/read_number.h"

namespace measuring {

using velo::base::NumberRange;

/// Reads the number of argument `name`. Returns the sentence, which is empty for a number of the range.
template <std::integral T>
[[nodiscard]] std::string parse_number(std::string_view name, std::string_view text, NumberRange range, T& number) {
    range.largest = std::min(range.largest, static_cast<uint64_t>(std::numeric_limits<T>::max()));
    const auto value = velo::base::read_number(text, range);
    if (!value) return std::string(name).append("=").append(text).append(" ") + velo::base::why_no_number(range);
    number = static_cast<T>(*value);
    return {};
}

/// Reads one number or more, with commas between them, of argument `name`. Returns the sentence, which is empty
/// for numbers of the range.
template <std::integral T>
[[nodiscard]] std::string parse_numbers(std::string_view name, std::string_view list, const NumberRange& range,
                                        std::vector<T>& numbers) {
    numbers.clear();
    // A comma at the end has a number missing behind it, and so has an empty list.
    for (size_t at = 0; at <= list.size();) {
        const size_t end = std::min(list.find(',', at), list.size());
        std::string error = parse_number(name, list.substr(at, end - at), range, numbers.emplace_back());
        if (!error.empty()) return error;
        at = end + 1;
    }
    return {};
}

/// The sentence for a name that parse_options() does not know.
[[nodiscard]] inline std::string unknown_option(std::string_view name) {
    return "unknown option " + std::string(name);
}

/// Reads pairs of --name and value. set(name, value) takes one, and returns the sentence of what is wrong with
/// it, or an empty one. Returns the first sentence that is not empty; `usage` for a name without a value.
/// `csv`: set by --csv, which has no value; nullptr: there is no such option.
template <class Set>
[[nodiscard]] std::string parse_options(int argc, char** argv, std::string_view usage, bool* csv, Set&& set) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (csv != nullptr && name == "--csv") {
            *csv = true;
            continue;
        }
        if (i + 1 == argc) return "usage: " + std::string(usage);
        std::string error = set(name, std::string_view(argv[++i]));
        if (!error.empty()) return error;
    }
    return {};
}

}  // namespace measuring
