#include "velo/ofi/nearness.h"

#include <sched.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace velo::ofi {

CardNearness card_nearness(const fi_info& info, const char* devices) {
    if (info.nic == nullptr || info.nic->bus_attr == nullptr) return CardNearness::kUnknown;
    if (info.nic->bus_attr->bus_type != FI_BUS_PCI) return CardNearness::kUnknown;
    const fi_pci_attr& at = info.nic->bus_attr->attr.pci;
    char place[32];
    std::snprintf(place, sizeof place, "/%04x:%02x:%02x.%x", at.domain_id, at.bus_id, at.device_id, at.function_id);
    std::ifstream file(std::string(devices) + place + "/numa_node");
    int card = -1;
    unsigned cpu = 0;
    unsigned node = 0;
    if (!(file >> card) || card < 0 || getcpu(&cpu, &node) != 0) return CardNearness::kUnknown;
    return static_cast<unsigned>(card) == node ? CardNearness::kSameNode : CardNearness::kOtherNode;
}

}  // namespace velo::ofi
