/// How near a network's card is to this process, as the kernel tells.
///
/// Thread: any. Source: sysfs, /sys/bus/pci/devices.
#pragma once

#include <rdma/fabric.h>

namespace velo::ofi {

enum class CardNearness : int {
    kSameNode,  ///< of NUMA
    kUnknown,   ///< no card, or one without a place, as on a host with one node
    kOtherNode,
};

/// Nearness of the card that libfabric names for a provider's description to the node that this thread runs on
/// now. `devices`: the directory of PCI devices.
[[nodiscard]] CardNearness card_nearness(const fi_info& info, const char* devices = "/sys/bus/pci/devices");

}  // namespace velo::ofi
