/// Memory of a rank's in a job of tests/unit/job.h, and transfers with it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/unit/job.h"

namespace velo::test {

/// Memory of a rank's that others may do anything with.
struct Memory {
    std::vector<std::byte> bytes;
    velo_handle_t handle{};

    Memory(Rank& owner, size_t length, uint32_t seed) : bytes(pattern(length, seed)) {
        EXPECT_EQ(velo_register(owner.engine, bytes.data(), bytes.size(), 7, &handle), VELO_OK);
    }
};

inline velo_rma_t transfer(velo_rma_kind_t kind, const velo_handle_t& remote, size_t offset, std::byte* local,
                           size_t bytes) {
    velo_rma_t op{};
    op.kind = kind;
    op.local = local;
    op.remote = remote;
    op.remote_address = remote.base + offset;
    op.bytes = bytes;
    return op;
}
inline velo_rma_t transfer(velo_rma_kind_t kind, const Memory& remote, size_t offset, std::byte* local, size_t bytes) {
    return transfer(kind, remote.handle, offset, local, bytes);
}

}  // namespace velo::test
