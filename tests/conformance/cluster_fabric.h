/// Devices of sim_device/cluster: each at a node of its own of one simulated cluster, with whole payloads.
#pragma once

#include "sim_device/cluster/cluster.h"
#include "tests/conformance/fabric.h"

namespace velo::conformance {

class ClusterFabric {
  public:
    using Device = cluster::ClusterDevice;

    Device& open(const DeviceConfig& config) { return cluster_.open(cluster_.processes(), config); }
    Device& operator[](size_t index) { return cluster_[static_cast<uint32_t>(index)]; }
    void close(size_t index) { (*this)[index].announce_ending(base::Ending::kClosed); }
    /// RMA up to the new time is done; no process is ever due, because the tests drive them.
    void step() {
        now_ns_ += kStepNs;
        while (cluster_.next(now_ns_) != nullptr) {
        }
        for (uint32_t i = 0; i < cluster_.processes(); ++i) cluster_[i].progress(now_ns_);
    }
    [[nodiscard]] uint64_t now_ns() const { return now_ns_; }

  private:
    cluster::Cluster cluster_{{.topology = cluster::Topology({8, 8, 2}, false), .whole_payloads = true}};
    uint64_t now_ns_ = 0;
};

}  // namespace velo::conformance
