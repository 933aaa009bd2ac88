/// Cross-memory attach: one copy between the memories of two processes, done by the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "velo/base/status.h"
#include "velo/os/failure.h"

namespace velo::base {

/// Copies `bytes` from `remote` in process `pid` to `local`.
/// kUnsupported: the kernel does not let us (seccomp, ptrace scope, namespaces), or not any more; nothing
/// that counts was moved. kPeerDead: no such process. kBadMemory: part of either range is
/// unmapped or protected. kFailed: any other refusal.
Status cma_read(int32_t pid, std::byte* local, uint64_t remote, size_t bytes) noexcept;

/// Copies `bytes` from `local` to `remote` in process `pid`, where they are visible when this returns kOk. Its other
/// outcomes are those of cma_read().
Status cma_write(int32_t pid, const std::byte* local, uint64_t remote, size_t bytes) noexcept;

/// Lets any process of this user copy from and to this one's memory, where Yama's ptrace_scope is 1: it would permit
/// that to a parent alone. Without effect where nothing has to be permitted, and where the scope is higher.
void permit_copies() noexcept;

/// The last call of this process that the kernel did not permit, whichever thread made it.
[[nodiscard]] Failure refused_copy() noexcept;

/// One of several ranges that are copied together.
struct CmaPart {
    std::byte* local = nullptr;
    uint64_t remote = 0;
    uint32_t bytes = 0;
    Status status = Status::kOk;  ///< outcome
};
inline constexpr size_t kCmaPartsMax = 8;  ///< the kernel takes these without allocating

/// Copies up to kCmaPartsMax ranges, each with an outcome of its own, by one system call where nothing fails: what a
/// call costs besides its bytes is 1.1 us.
void cma_read(int32_t pid, std::span<CmaPart> parts) noexcept;
void cma_write(int32_t pid, std::span<CmaPart> parts) noexcept;

}  // namespace velo::base
