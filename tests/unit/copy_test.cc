// Copies, of every length and distance that takes a way of its own.
#include "velo/base/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace velo::base {
namespace {

struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

constexpr size_t kBytes = 32u << 10;

Memory pages(std::byte filler) {
    Memory memory(static_cast<std::byte*>(std::aligned_alloc(4096, kBytes)));
    std::fill_n(memory.get(), kBytes, filler);
    return memory;
}

TEST(CopyLong, brings_all_bytes_and_touches_no_other_at_any_distance) {
    const Memory from = pages(std::byte{0});
    for (size_t i = 0; i < kBytes; ++i) from.get()[i] = static_cast<std::byte>(1 + i * 31 % 251);
    const Memory to = pages(std::byte{0});
    for (const size_t at : {0u, 1u, 7u, 16u, 31u, 32u, 33u, 64u, 4095u}) {
        for (const size_t source : {0u, 1u, 16u, 4090u}) {
            for (const size_t bytes : {0u, 1u, 1024u, 2047u, 2048u, 2049u, 2111u, 4096u, 10'000u}) {
                std::fill_n(to.get(), kBytes, std::byte{0});
                copy_long(to.get() + at, from.get() + source, bytes);
                ASSERT_TRUE(std::equal(to.get() + at, to.get() + at + bytes, from.get() + source))
                    << bytes << " bytes to " << at << " from " << source;
                ASSERT_EQ(std::count(to.get(), to.get() + at, std::byte{0}), static_cast<ptrdiff_t>(at));
                ASSERT_EQ(to.get()[at + bytes], std::byte{0});
            }
        }
    }
}

}  // namespace
}  // namespace velo::base
