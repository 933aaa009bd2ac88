/// The system of a simulated process's engine (velo/core/system.h): a device of the cluster, a node's memory, and a
/// clock, all in virtual time.
#pragma once

#include <cstring>

#include "sim/sim_node.h"
#include "sim_device/cluster/cluster.h"
#include "velo/core/core.h"

namespace velo::sim {

/// Copied into its engine. Refers to the device and to what all processes share.
struct SimSystem {
    using Device = cluster::ClusterDevice;
    using DeviceHolder = cluster::ClusterDevice*;
    using OnNode = SimNode;

    [[nodiscard]] uint64_t now_ns() const { return device->clock_ns(); }
    void open_device(DeviceHolder& holder, const DeviceConfig&) const { holder = device; }
    [[nodiscard]] SimNode open_node(const shm::OnNodeConfig& config) const { return {*fabric, *device, config}; }
    [[nodiscard]] int32_t pid() const { return static_cast<int32_t>(device->process()) + 1; }
    /// All processes are in one address space, so nodes are what EngineOptions::node says.
    [[nodiscard]] static uint64_t host_identity() { return 1; }
    [[nodiscard]] uint64_t random_token() const { return 0x9e3779b97f4a7c15 * (device->process() + 1); }

    Status copy_from(int32_t pid, std::byte* to, uint64_t from, size_t bytes) const {
        return copy(pid, to, reinterpret_cast<const std::byte*>(from), bytes);
    }
    Status copy_to(int32_t pid, const std::byte* from, uint64_t to, size_t bytes) const {
        return copy(pid, reinterpret_cast<std::byte*>(to), from, bytes);
    }
    [[nodiscard]] static base::Failure refused_copy() { return {}; }
    static void permit_copies() {}

    NodeFabric* fabric = nullptr;
    cluster::ClusterDevice* device = nullptr;

  private:
    Status copy(int32_t pid, std::byte* to, const std::byte* from, size_t bytes) const {
        if (fabric->cluster[static_cast<uint32_t>(pid) - 1].ended()) return Status::kPeerDead;
        if (bytes <= sizeof(uint64_t) || fabric->whole_payloads) std::memcpy(to, from, bytes);
        device->work(fabric->copy_ns(bytes));
        return Status::kOk;
    }
};

}  // namespace velo::sim
