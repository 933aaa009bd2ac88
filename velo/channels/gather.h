/// The bytes of a message that lies in two parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "velo/base/check.h"
#include "velo/base/copy.h"
#include "velo/velo.h"

namespace velo {

struct PlainCopy {
    void operator()(void* to, const void* from, size_t bytes) const { base::copy_long(to, from, bytes); }
};

/// Copies [offset, offset + bytes) of a message in two parts.
template <class Copy = PlainCopy>
void gather(const velo_send_t& send, uint32_t offset, std::byte* to, uint32_t bytes, Copy copy = {}) {
    VELO_DCHECK(uint64_t{offset} + bytes <= uint64_t{send.bytes[0]} + send.bytes[1], "%u bytes at %u", bytes,
                offset);
    if (offset < send.bytes[0]) {
        const uint32_t here = std::min(bytes, send.bytes[0] - offset);
        copy(to, static_cast<const std::byte*>(send.data[0]) + offset, here);
        to += here;
        offset += here;
        bytes -= here;
    }
    if (bytes != 0) {
        copy(to, static_cast<const std::byte*>(send.data[1]) + (offset - send.bytes[0]), bytes);
    }
}

}  // namespace velo
