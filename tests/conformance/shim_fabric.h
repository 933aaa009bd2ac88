/// Devices of sim_device/shim in one process: they reach each other through /proc/self as through any other.
#pragma once

#include <memory>
#include <vector>

#include "sim_device/shim/shim_device.h"
#include "tests/conformance/fabric.h"

namespace velo::conformance {

class ShimFabric {
  public:
    using Device = shim::ShimDevice;

    Device& open(const DeviceConfig& config) {
        devices_.push_back(std::make_unique<Device>(config));
        return *devices_.back();
    }
    Device& operator[](size_t index) { return *devices_[index]; }
    void close(size_t index) { devices_[index].reset(); }
    void step() {
        now_ns_ += kStepNs;
        for (const auto& device : devices_) {
            if (device) device->progress(now_ns_);
        }
    }
    [[nodiscard]] uint64_t now_ns() const { return now_ns_; }

  private:
    std::vector<std::unique_ptr<Device>> devices_;
    uint64_t now_ns_ = 0;
};

}  // namespace velo::conformance
