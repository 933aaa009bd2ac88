// The exported table of the library of the device over libfabric (velo/device/network_device.h).
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "velo/ofi/faulty_device.h"
#include "velo/ofi/provider.h"
#include "velo/ofi/wire.h"
#include "velo/os/shared_segment.h"

namespace velo::ofi {
namespace {

NetworkDevice* open(const DeviceConfig& config, const NetworkOptions& options, char* error,
                    size_t error_bytes) noexcept {
    try {
        return open_device(config, options).release();
    } catch (const std::bad_alloc&) {
        std::snprintf(error, error_bytes, "There is not enough memory for the device over libfabric.");
    } catch (const std::exception& failure) {
        std::snprintf(error, error_bytes, "%s", failure.what());
    }
    return nullptr;
}

/// The first rails that a job would have, none where no provider can be used.
std::vector<Choice> rails_of(const NetworkOptions& options, uint32_t rails_max) {
    try {
        return choose_rails(options, rails_max);
    } catch (const base::SetupError&) {
        return {};
    }
}

void list(const NetworkOptions& options, uint32_t rails_max, void* context,
          void (*each)(void* context, const char* provider, const char* interface, const char* address,
                       const char* refused, uint32_t rails)) noexcept {
    try {
        // A provider may have several descriptions that differ in nothing that is reported.
        std::vector<std::array<std::string, 4>> said;
        const std::vector<Choice> rails = rails_of(options, std::min(rails_max, kRailsMax));
        for (const Candidate& candidate : look_for_providers(options)) {
            std::array<std::string, 4> line = {candidate.provider, candidate.interface, candidate.address,
                                               candidate.refused};
            if (std::ranges::find(said, line) != said.end()) continue;
            said.push_back(std::move(line));
            const auto here = std::ranges::count_if(rails, [&candidate](const Choice& rail) {
                return rail.interface == candidate.interface && rail.address == candidate.address &&
                       candidate.provider == rail.info->fabric_attr->prov_name;
            });
            each(context, candidate.provider.c_str(), candidate.interface.c_str(), candidate.address.c_str(),
                 candidate.refused.empty() ? nullptr : candidate.refused.c_str(), static_cast<uint32_t>(here));
        }
    } catch (const std::exception& failure) {
        each(context, "libfabric", "", "", failure.what(), 0);
    }
}

constexpr NetworkLibrary kLibrary = {.abi = kNetworkAbi, .open = &open, .list = &list};

}  // namespace
}  // namespace velo::ofi

extern "C" [[gnu::visibility("default")]] const velo::NetworkLibrary* velo_network_library();
extern "C" const velo::NetworkLibrary* velo_network_library() {
    return &velo::ofi::kLibrary;
}
