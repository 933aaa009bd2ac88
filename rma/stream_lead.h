/// How much of a transfer goes ahead of the rest, so that the kernel copies none of it slowly.
///
/// A provider over TCP writes a header and then the data, and the kernel copies both into pages of its own, from the
/// begin of one where all that was sent before has been read. Its copy is `rep movsb`, which on some CPUs takes twenty
/// times as long where the target is 1 to 31 bytes behind the source, counted within a page (velo/base/copy.h): so
/// with a header of 16 bytes memory at the begin of a page is sent slowly. If some bytes go ahead, what follows them is
/// one header further.
///
/// Pure. Source: measured; tcp_sendmsg and skb_page_frag_refill of Linux.
#pragma once

#include <cstdint>

namespace velo::rma {

/// Bytes, 1 to 64, that go ahead of a transfer out of memory at `from`, with headers of `header_bytes` each; 0: nothing
/// does, because it would not help, or there is no such header.
[[nodiscard]] constexpr uint32_t stream_lead(uint64_t from, uint32_t header_bytes) {
    constexpr uint64_t kPage = 4096;
    constexpr uint32_t kLine = 64;
    const auto slow = [](uint64_t behind) { return behind % kPage - 1 < 31; };
    if (header_bytes == 0 || !slow(header_bytes - from) || slow(2 * uint64_t{header_bytes} - from)) return 0;
    return kLine - static_cast<uint32_t>(from % kLine);
}

}  // namespace velo::rma
