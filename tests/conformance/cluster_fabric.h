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
    void step() {
        now_ns_ += kStepNs;
        for (uint32_t i = 0; i < cluster_.processes(); ++i) cluster_[i].progress(now_ns_);
    }
    [[nodiscard]] uint64_t now_ns() const { return now_ns_; }

  private:
    cluster::Cluster cluster_{{.topology = cluster::Topology({4, 4, 1}, false), .whole_payloads = true}};
    uint64_t now_ns_ = 0;
};

}  // namespace velo::conformance
