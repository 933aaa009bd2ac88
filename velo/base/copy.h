/// Copies that go past the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace velo::base {

/// Copies into memory that another core reads next, without first taking ownership of the target's lines
/// from it: whole lines of 64 bytes are written with non-temporal stores. The data is in order before every
/// later store, so a flag stored after this call may announce it. Where the CPU has no such stores, memcpy.
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
