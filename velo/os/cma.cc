#include "velo/os/cma.h"

#include <sys/prctl.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "velo/base/check.h"

namespace velo::base {
namespace {

constexpr const char* kRead = "process_vm_readv";
constexpr const char* kWrite = "process_vm_writev";

/// errno of the last refusal, negative for a write; 0: none yet.
std::atomic<int> refusal{0};

Status status_of(int error, bool write) noexcept {
    switch (error) {
        case EFAULT: return Status::kBadMemory;
        case ESRCH: return Status::kPeerDead;
        case EPERM:
        case EACCES:
        case ENOSYS:
            refusal.store(write ? -error : error, std::memory_order_relaxed);
            return Status::kUnsupported;
        default: return Status::kFailed;
    }
}

template <class Call>
Status copy_all(Call call, bool write, uint64_t local, uint64_t remote, size_t bytes) noexcept {
    while (bytes != 0) {
        const iovec here = {reinterpret_cast<void*>(local), bytes};
        const iovec there = {reinterpret_cast<void*>(remote), bytes};
        const ssize_t moved = call(&here, &there);
        if (moved < 0) {
            if (errno == EINTR) continue;
            return status_of(errno, write);
        }
        // The kernel stops short of an unmapped page and says so only when asked for that page.
        if (moved == 0) return Status::kBadMemory;
        local += static_cast<uint64_t>(moved);
        remote += static_cast<uint64_t>(moved);
        bytes -= static_cast<size_t>(moved);
    }
    return Status::kOk;
}

/// `together`: process_vm_readv or -writev; `one`: copies one part.
template <class Together, class One>
void copy_parts(Together together, One one, int32_t pid, std::span<CmaPart> parts) noexcept {
    VELO_CHECK(parts.size() <= kCmaPartsMax, "%zu parts", parts.size());
    if (parts.size() > 1) {
        std::array<iovec, kCmaPartsMax> here;
        std::array<iovec, kCmaPartsMax> there;
        size_t bytes = 0;
        for (size_t i = 0; i < parts.size(); ++i) {
            here[i] = {parts[i].local, parts[i].bytes};
            there[i] = {reinterpret_cast<void*>(parts[i].remote), parts[i].bytes};
            bytes += parts[i].bytes;
        }
        const ssize_t moved = together(pid, here.data(), parts.size(), there.data(), parts.size(), 0ul);
        if (moved == static_cast<ssize_t>(bytes)) {
            for (CmaPart& part : parts) part.status = Status::kOk;
            return;
        }
    }
    // Which part it was that failed, each part tells by itself.
    for (CmaPart& part : parts) part.status = one(pid, part.local, part.remote, part.bytes);
}

}  // namespace

Status cma_read(int32_t pid, std::byte* local, uint64_t remote, size_t bytes) noexcept {
    return copy_all(
        [pid](const iovec* here, const iovec* there) { return process_vm_readv(pid, here, 1, there, 1, 0); },
        false, reinterpret_cast<uint64_t>(local), remote, bytes);
}

Status cma_write(int32_t pid, const std::byte* local, uint64_t remote, size_t bytes) noexcept {
    return copy_all(
        [pid](const iovec* here, const iovec* there) { return process_vm_writev(pid, here, 1, there, 1, 0); },
        true, reinterpret_cast<uint64_t>(local), remote, bytes);
}

void permit_copies() noexcept {
    // A kernel without Yama does not know this call. The first copy from each peer tells if it is permitted.
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

Failure refused_copy() noexcept {
    const int error = refusal.load(std::memory_order_relaxed);
    if (error == 0) return {};
    return {.call = error < 0 ? kWrite : kRead, .error = std::abs(error)};
}

void cma_read(int32_t pid, std::span<CmaPart> parts) noexcept {
    const auto one = [](auto... arguments) { return cma_read(arguments...); };
    copy_parts(process_vm_readv, one, pid, parts);
}

void cma_write(int32_t pid, std::span<CmaPart> parts) noexcept {
    const auto one = [](auto... arguments) { return cma_write(arguments...); };
    copy_parts(process_vm_writev, one, pid, parts);
}

}  // namespace velo::base
