/// Arguments of probes: options by name, and others by place. Numbers are read as velo reads its parameters: decimal
/// digits of a range, and nothing else.
///
/// A wrong argument leaves a sentence, with the argument's name, its text and the remedy; the probe prints it and ends
/// with status 2.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
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

/// An option that a probe has: its name, its variable, and the range of its numbers. One of a bool has no value.
struct Option {
    using Variable = std::variant<bool*, std::string*, int*, uint32_t*, uint64_t*, std::vector<std::string>*,
                                  std::vector<int>*, std::vector<uint32_t>*, std::vector<uint64_t>*>;

    std::string_view name;
    Variable variable;
    NumberRange range = {};

    /// Returns the sentence of what is wrong with the value, or an empty one.
    [[nodiscard]] std::string read(std::string_view value) const {
        const auto reading = [&](auto* to) -> std::string {
            using T = std::remove_pointer_t<decltype(to)>;
            if constexpr (std::is_same_v<T, bool>) {
                *to = true;
            } else if constexpr (std::integral<T>) {
                return parse_number(name, value, range, *to);
            } else if constexpr (std::is_same_v<T, std::string>) {
                *to = value;
            } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
                *to = split(value, ',');
            } else {
                return parse_numbers(name, value, range, *to);
            }
            return {};
        };
        return std::visit(reading, variable);
    }
};

/// "[--sizes …] [--csv]".
[[nodiscard]] inline std::string usage(std::initializer_list<Option> options) {
    std::string text;
    for (const Option& option : options) {
        const bool has_value = !std::holds_alternative<bool*>(option.variable);
        text.append(text.empty() ? "[" : " [").append(option.name).append(has_value ? " …]" : "]");
    }
    return text;
}

/// Reads all arguments. Returns the first sentence that is not empty.
[[nodiscard]] inline std::string read_options(int argc, char** argv, std::initializer_list<Option> options) {
    for (int i = 1; i < argc; ++i) {
        const auto* const option = std::ranges::find(options, std::string_view(argv[i]), &Option::name);
        if (option == options.end()) {
            return "there is no option " + std::string(argv[i]) + "; there are " + usage(options);
        }
        const bool has_value = !std::holds_alternative<bool*>(option->variable);
        if (has_value && i + 1 == argc) return std::string(option->name) + " lacks its value";
        std::string error = option->read(has_value ? argv[++i] : "");
        if (!error.empty()) return error;
    }
    return {};
}

/// Arguments by place, each of which has a word in the usage. The first thing that is wrong counts.
class Places {
  public:
    /// `words`: "LABEL COUNT BYTES".
    Places(const char* probe, std::string_view words, int argc, char** argv)
        : probe_(probe), words_(split(words, ' ')), next_(argv + 1) {
        if (static_cast<size_t>(argc) == words_.size() + 1) return;
        error_ = std::string("usage: mpirun … ").append(probe).append(" ").append(words);
    }

    [[nodiscard]] std::string text() { return error_.empty() ? next_[at_++] : std::string(); }
    template <std::integral T>
    [[nodiscard]] T number(const NumberRange& range = {.smallest = 1}) {
        T value = 0;
        if (!error_.empty()) return value;
        error_ = parse_number(words_[at_], next_[at_], range, value);
        ++at_;
        return value;
    }
    void require(bool holds, const char* sentence) {
        if (error_.empty() && !holds) error_ = sentence;
    }
    /// Empty: nothing is wrong.
    [[nodiscard]] std::string error() const { return error_.empty() ? error_ : probe_ + ": " + error_; }

  private:
    std::string probe_;
    std::vector<std::string> words_;
    char** next_;
    size_t at_ = 0;
    std::string error_;
};

}  // namespace measuring
