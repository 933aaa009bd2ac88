/// Copies that the library's memcpy is not made for: of a few bytes, and past the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace velo::base {

/// Copies up to 64 bytes without a call.
[[gnu::always_inline]] inline void copy_small(void* to, const void* from, size_t bytes) {
    auto* target = static_cast<std::byte*>(to);
    const auto* source = static_cast<const std::byte*>(from);
    // Two moves of the same size that may overlap cover every length between that size and twice it.
    if (bytes >= 16) {
        size_t at = 0;
        for (; at + 16 < bytes; at += 16) std::memcpy(target + at, source + at, 16);
        std::memcpy(target + bytes - 16, source + bytes - 16, 16);
    } else if (bytes >= 8) {
        std::memcpy(target, source, 8);
        std::memcpy(target + bytes - 8, source + bytes - 8, 8);
    } else if (bytes >= 4) {
        std::memcpy(target, source, 4);
        std::memcpy(target + bytes - 4, source + bytes - 4, 4);
    } else {
        for (size_t at = 0; at < bytes; ++at) target[at] = source[at];
    }
}

/// Copies a header that the caller has just put together from fields. A load that is wider than a store
/// that it has to take its bytes from waits until this and all earlier stores have left for the cache, those
/// to lines that another core holds among them; so no load here is wider than a field at such a place is
/// stored: bytes 0 to 3 by two, then by four.
[[gnu::always_inline]] inline void copy_fields(void* to, const void* from, size_t bytes) {
    auto* target = static_cast<std::byte*>(to);
    const auto* source = static_cast<const std::byte*>(from);
    if (bytes == 14) {  // ob1's header of a message to be matched, by far the most frequent one
        std::memcpy(target, source, 2);
        std::memcpy(target + 2, source + 2, 2);
        std::memcpy(target + 4, source + 4, 4);
        std::memcpy(target + 8, source + 8, 4);
        std::memcpy(target + 12, source + 12, 2);
        return;
    }
    if (bytes < 4) return copy_small(to, from, bytes);
    std::memcpy(target, source, 2);
    std::memcpy(target + 2, source + 2, 2);
    size_t at = 4;
    for (; at + 4 <= bytes; at += 4) std::memcpy(target + at, source + at, 4);
    if ((bytes & 2) != 0) {
        std::memcpy(target + at, source + at, 2);
        at += 2;
    }
    if ((bytes & 1) != 0) target[at] = source[at];
}

/// Copies as memcpy does, which from some KiB on is `rep movsb` on CPUs that have it fast (glibc 2.36: 4 KiB). Of these
/// some take twenty times as long where the target is 1 to 31 bytes behind the source, counted within a page (Zen 3, 32
/// KiB: 11 us instead of 0.6); such a copy is made in lines, none of which the compiler turns into that instruction.
inline void copy_long(void* to, const void* from, size_t bytes) {
    constexpr size_t kPage = 4096;
    constexpr size_t kLine = 64;
    constexpr size_t kLong = 2048;
    const size_t behind = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kPage;
    if (bytes >= kLong && behind - 1 < 31) [[unlikely]] {
        auto* target = static_cast<std::byte*>(to);
        const auto* source = static_cast<const std::byte*>(from);
        for (; bytes >= kLine; bytes -= kLine, target += kLine, source += kLine) {
            std::byte line[kLine];
            std::memcpy(line, source, kLine);
            std::memcpy(target, line, kLine);
        }
        to = target;
        from = source;
    }
    std::memcpy(to, from, bytes);
}

/// Copies into memory that another core reads next, without first taking ownership of the target's lines
/// from it: whole lines of 64 bytes are written with non-temporal stores. The data is in order before every
/// later store, so a flag stored after this call may announce it. If the CPU has no such stores, memcpy.
inline void copy_nontemporal(void* to, const void* from, size_t bytes) {
#if defined(__SSE2__)
    constexpr size_t kLine = 64;
    auto* target = static_cast<std::byte*>(to);
    const auto* source = static_cast<const std::byte*>(from);
    const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(target) & (kLine - 1));
    std::memcpy(target, source, head);
    target += head;
    source += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, target += kLine, source += kLine) {
        const auto* in = reinterpret_cast<const __m128i*>(source);
        auto* out = reinterpret_cast<__m128i*>(target);
        const __m128i a = _mm_loadu_si128(in);
        const __m128i b = _mm_loadu_si128(in + 1);
        const __m128i c = _mm_loadu_si128(in + 2);
        const __m128i d = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    std::memcpy(target, source, bytes);
    _mm_sfence();
#else
    std::memcpy(to, from, bytes);
#endif
}

}  // namespace velo::base
