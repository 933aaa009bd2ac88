/// The system that an engine runs on: its device, the node's memory, the clock, and copies between processes.
#pragma once

#include <unistd.h>

#include <optional>

#include "velo/device/device.h"
#include "velo/os/clock.h"
#include "velo/os/cma.h"
#include "velo/os/shared_segment.h"
#include "velo/os/topology.h"
#include "velo/shm/on_node.h"

namespace velo {

/// A process of an operating system, over device D. The simulator has a system of its own, in virtual time
/// (sim/sim_system.h). Thread: any.
template <class D>
struct System : base::MonotonicClock {
    using Device = D;
    /// Owns the device, or refers to it; empty before open_device().
    using DeviceHolder = std::optional<D>;
    using OnNode = shm::OnNode;

    /// Both throw base::SetupError.
    static void open_device(DeviceHolder& device, const DeviceConfig& config) { device.emplace(config); }
    [[nodiscard]] static shm::OnNode open_node(const shm::OnNodeConfig& config) { return shm::OnNode(config); }

    [[nodiscard]] static int32_t pid() { return getpid(); }
    /// This host, as all its processes name it, however they are started.
    [[nodiscard]] static uint64_t host_identity() { return base::host_identity(); }
    [[nodiscard]] static uint64_t random_token() { return base::random_token(); }

    /// Copies from and to the memory of a process of this host. kUnsupported: the kernel does not permit it, and
    /// refused_copy() says why.
    static Status copy_from(int32_t pid, std::byte* to, uint64_t from, size_t bytes) {
        return base::cma_read(pid, to, from, bytes);
    }
    static Status copy_to(int32_t pid, const std::byte* from, uint64_t to, size_t bytes) {
        return base::cma_write(pid, from, to, bytes);
    }
    [[nodiscard]] static base::Failure refused_copy() { return base::refused_copy(); }
    /// Lets processes of this host copy from and to this one, as far as that is ours to say.
    static void permit_copies() { base::permit_copies(); }
};

}  // namespace velo
