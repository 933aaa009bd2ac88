/// Assertions on velo's own logic. Data of a peer is validated with a Status, never with these.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace velo::base {

[[noreturn, gnu::cold, gnu::format(printf, 4, 5)]] inline void check_failed(const char* file, int line,
                                                                            const char* condition,
                                                                            const char* format, ...) {
    std::fprintf(stderr, "velo: internal error at %s:%d: expected %s: ", file, line, condition);
    __builtin_va_list args;
    __builtin_va_start(args, format);
    std::vfprintf(stderr, format, args);
    __builtin_va_end(args);
    std::fputc('\n', stderr);
    std::abort();
}

}  // namespace velo::base

/// Always on. One positive condition, then a printf format that names peer, sequence or value.
#define VELO_CHECK(condition, ...)                                                   \
    do {                                                                             \
        if (!(condition)) [[unlikely]]                                               \
            ::velo::base::check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)

/// On in debug builds, tests and the simulator (VELO_DEBUG), free elsewhere.
#ifdef VELO_DEBUG
#define VELO_DCHECK(condition, ...) VELO_CHECK(condition, __VA_ARGS__)
#else
#define VELO_DCHECK(condition, ...) ((void)0)
#endif
