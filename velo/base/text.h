/// Texts for the user, made piece by piece.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>

namespace velo::base {

/// Appends what printf would write, up to 511 bytes of it.
[[gnu::format(printf, 2, 3)]] inline void append(std::string& text, const char* format, ...) {
    char piece[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    text += piece;
}

/// For %llu, whatever uint64_t is.
[[nodiscard]] constexpr unsigned long long number(uint64_t value) {
    return value;
}

}  // namespace velo::base
