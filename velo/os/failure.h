/// A system call that failed, and what the user can do about it.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

namespace velo::base {

/// Flat, so that it can be kept until it is known whether the call succeeds later.
struct Failure {
    const char* call = nullptr;  ///< a literal; nullptr: none failed
    int error = 0;               ///< errno; 0: the call succeeded, and what it gave was not what it should be

    explicit operator bool() const { return call != nullptr; }
};

[[nodiscard]] inline std::string to_text(const Failure& failure) {
    if (!failure) return "no call failed";
    if (failure.error == 0) return failure.call;
    return std::string(failure.call) + ": " + std::strerror(failure.error);
}

/// A sentence for the user. Memory can be short by the machine, by a container's limit and by ulimit -v,
/// which errno does not tell apart.
[[nodiscard]] inline std::string remedy(const Failure& failure) {
    switch (failure.error) {
        case 0:
            return failure
                       ? "All ranks have to run as one user, in one PID and user namespace, with one version of velo."
                       : "";
        case EMFILE: return "Raise the limit of open files (ulimit -n).";
        case ENFILE: return "Raise the machine's limit of open files (fs.file-max).";
        case EFBIG: return "Raise the limit of a file's size (ulimit -f).";
        case ENOMEM:
        case ENOSPC:
        case EAGAIN:
            return "Raise the memory limit of the container, or ulimit -v where it is low, or lower "
                   "btl_velo_ring_bytes or btl_velo_slots.";
        case EACCES:
            return "All ranks have to run as one user, and stay it; each executable has to be readable, and "
                   "its "
                   "process dumpable (prctl(2), PR_SET_DUMPABLE).";
        case ENOENT:
        case ESRCH:
            return "All ranks have to run in one PID namespace, and the peer's process must not have ended.";
        case EPERM:
        case ENOSYS:
            return "The kernel, or a seccomp profile of the container, does not permit this call; permit it.";
        default: return "";
    }
}

}  // namespace velo::base
