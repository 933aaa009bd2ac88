/// The RMA unit's data mover: cross-memory attach, one copy by the kernel between two processes' memories.
#pragma once

#include <cstddef>
#include <cstdint>

#include "velo/base/status.h"

namespace velo::shim {

/// Copies `bytes` from `remote` in process `pid` to `local`.
/// kUnsupported: the kernel does not let us (seccomp, ptrace scope, namespaces), or not any more.
/// kPeerDead: no such process. kAtuFault: part of either range is not mapped. kFailed: any other refusal.
Status copy_from(int32_t pid, std::byte* local, uint64_t remote, size_t bytes) noexcept;

/// The same, from `local` to `remote`; the data is visible there when this returns kOk.
Status copy_to(int32_t pid, const std::byte* local, uint64_t remote, size_t bytes) noexcept;

}  // namespace velo::shim
