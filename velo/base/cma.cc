#include "velo/base/cma.h"

#include <sys/uio.h>

#include <cerrno>

namespace velo::base {
namespace {

Status status_of(int error) noexcept {
    switch (error) {
        case EFAULT: return Status::kAtuFault;
        case ESRCH: return Status::kPeerDead;
        case EPERM:
        case EACCES:
        case ENOSYS: return Status::kUnsupported;
        default: return Status::kFailed;
    }
}

template <class Call>
Status copy_all(Call call, uint64_t local, uint64_t remote, size_t bytes) noexcept {
    while (bytes != 0) {
        const iovec here = {reinterpret_cast<void*>(local), bytes};
        const iovec there = {reinterpret_cast<void*>(remote), bytes};
        const ssize_t moved = call(&here, &there);
        if (moved < 0) {
            if (errno == EINTR) continue;
            return status_of(errno);
        }
        // The kernel stops short of an unmapped page and says so only when asked for that page.
        if (moved == 0) return Status::kAtuFault;
        local += static_cast<uint64_t>(moved);
        remote += static_cast<uint64_t>(moved);
        bytes -= static_cast<size_t>(moved);
    }
    return Status::kOk;
}

}  // namespace

Status cma_read(int32_t pid, std::byte* local, uint64_t remote, size_t bytes) noexcept {
    return copy_all(
        [pid](const iovec* here, const iovec* there) { return process_vm_readv(pid, here, 1, there, 1, 0); },
        reinterpret_cast<uint64_t>(local), remote, bytes);
}

Status cma_write(int32_t pid, const std::byte* local, uint64_t remote, size_t bytes) noexcept {
    return copy_all(
        [pid](const iovec* here, const iovec* there) { return process_vm_writev(pid, here, 1, there, 1, 0); },
        reinterpret_cast<uint64_t>(local), remote, bytes);
}

}  // namespace velo::base
