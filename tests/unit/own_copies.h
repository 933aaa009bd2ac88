/// Direct copies of a test program go through a function of its own: process_vm_readv and process_vm_writev are defined
/// here. For one file of a program.
#pragma once

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace velo::test {

struct DirectCopy {
    long number;  ///< of the system call
    pid_t pid;
    const iovec* local;
    unsigned long locals;
    const iovec* remote;
    unsigned long remotes;
    unsigned long flags;

    /// Asks the kernel for it.
    [[nodiscard]] ssize_t run() const { return syscall(number, pid, local, locals, remote, remotes, flags); }
};

/// The program's own. Returns what the system call would, with errno.
ssize_t do_copy(const DirectCopy& copy);

}  // namespace velo::test

extern "C" {
ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long locals, const iovec* remote,
                         unsigned long remotes, unsigned long flags) noexcept {
    return velo::test::do_copy({SYS_process_vm_readv, pid, local, locals, remote, remotes, flags});
}
ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long locals, const iovec* remote,
                          unsigned long remotes, unsigned long flags) noexcept {
    return velo::test::do_copy({SYS_process_vm_writev, pid, local, locals, remote, remotes, flags});
}
}
