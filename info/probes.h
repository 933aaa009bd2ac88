/// Copies and sharing that this machine permits, tried between two sibling processes, like the ranks of a job.
#pragma once

#include <string>

namespace velo::info {

struct Probe {
    bool works = false;
    std::string why;  ///< when not
};

/// One process attaches the memory file of another.
Probe probe_shared_memory();

/// One process reads the memory of another (process_vm_readv).
Probe probe_direct_copy();

/// The kernel's rule on who may read whose memory; empty where it has none.
std::string ptrace_scope();

}  // namespace velo::info
