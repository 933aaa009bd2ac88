// Copies, of every length and distance that takes a way of its own; and where memory is sent without slow ones.
#include "velo/base/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "rma/stream_lead.h"

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

namespace velo::rma {
namespace {

TEST(StreamLead, what_is_sent_slowly_is_so_no_longer_behind_it) {
    EXPECT_EQ(stream_lead(0, 16), 64u);
    EXPECT_EQ(stream_lead(8192, 16), 64u);
    EXPECT_EQ(stream_lead(16, 16), 0u);
    EXPECT_EQ(stream_lead(64, 16), 0u);
    EXPECT_EQ(stream_lead(4096 + 16, 40), 48u);
    EXPECT_EQ(stream_lead(0, 40), 0u);
    EXPECT_EQ(stream_lead(0, 0), 0u) << "there is no stream";
    const auto behind = [](uint64_t to, uint64_t from) { return (to - from) % 4096; };
    for (const uint32_t header : {16u, 24u, 40u}) {
        for (uint64_t from = 4096; from < 3 * 4096; ++from) {
            const uint32_t lead = stream_lead(from, header);
            const uint64_t before = behind(header, from);
            if (before == 0 || before > 31) {
                EXPECT_EQ(lead, 0u) << from;
            } else if (lead != 0) {
                EXPECT_LE(lead, 64u);
                EXPECT_EQ((from + lead) % 64, 0u);
                const uint64_t after = behind(2 * header + lead, from + lead);
                EXPECT_TRUE(after == 0 || after > 31) << from;
            }
        }
    }
}

}  // namespace
}  // namespace velo::rma
