/// The kernel's record of the node that memory belongs on.
#pragma once

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace velo::test {

/// The NUMA node that a page's range prefers; -1: none, or the kernel does not tell.
inline int preferred_node(const std::byte* memory) {
    int policy = MPOL_DEFAULT;
    unsigned long nodes[16] = {};
    if (syscall(SYS_get_mempolicy, &policy, nodes, 1025ul, memory, static_cast<unsigned long>(MPOL_F_ADDR)) !=
        0) {
        return -1;
    }
    return policy == MPOL_PREFERRED && nodes[0] != 0 ? __builtin_ctzl(nodes[0]) : -1;
}

}  // namespace velo::test
