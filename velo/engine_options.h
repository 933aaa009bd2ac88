/// Options that the engine is opened with, checked and translated (velo/options.h makes it from parameters).
#pragma once

#include <cstdint>
#include <string>

#include "flowctl/plan.h"
#include "velo/device.h"
#include "velo/network_device.h"
#include "velo/shared_settings.h"
#include "velo/shm/on_node.h"
#include "velo/velo.h"

namespace velo {

struct EngineOptions {
    velo_identity_t identity{};
    velo_host_t host{};
    velo_params_t params{};
    SharedSettings settings;
    flowctl::Plan plan;
    shm::OnNodeConfig on_node;
    DeviceConfig device;
    NetworkOptions network;
    uint32_t node = 0;  ///< in this job; the device may number nodes otherwise
    bool device_used = false;
    bool network_used = false;    ///< and it is that of a network
    bool network_wanted = false;  ///< by the user: without it velo is not used at all
    std::string no_network;  ///< why there is none, where some rank of the job would be reached through it
    bool single_copy = true;
    /// More ranks of the job than CPUs on this host: a peer that has its part in anything may not be running.
    bool shares_cpus = false;
};

}  // namespace velo
