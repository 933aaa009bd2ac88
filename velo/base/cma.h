/// Cross-memory attach: one copy between the memories of two processes, done by the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "velo/base/status.h"

namespace velo::base {

/// Copies `bytes` from `remote` in process `pid` to `local`.
/// kUnsupported: the kernel does not let us (seccomp, ptrace scope, namespaces), or not any more; nothing
/// that counts was moved. kPeerDead: no such process. kAtuFault: part of either range is not mapped.
/// kFailed: any other refusal.
Status cma_read(int32_t pid, std::byte* local, uint64_t remote, size_t bytes) noexcept;

/// The same, from `local` to `remote`; the data is visible there when this returns kOk.
Status cma_write(int32_t pid, const std::byte* local, uint64_t remote, size_t bytes) noexcept;

}  // namespace velo::base
