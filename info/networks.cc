#include "info/networks.h"

#include <cstdlib>
#include <filesystem>

#include "velo/device/network_library.h"

namespace velo::info {

void use_library_of(const std::vector<std::string>& directories, const std::string& plugin_directory) {
    std::string beside = plugin_directory;
    for (const std::string& directory : directories) {
        std::error_code absent;
        if (!std::filesystem::exists(std::filesystem::path(directory) / "mca_btl_velo.so", absent)) continue;
        beside = directory;
        break;
    }
    setenv("VELO_OFI_LIBRARY", (beside + "/" + kNetworkLibraryName).c_str(), 0);
}

std::string open_as_a_rank(const EngineOptions& options) {
    DeviceConfig config = options.device;
    config.network = &options.network;
    return open_network(config)->name();
}

std::string networks_text(const NetworkOptions& options, uint32_t rails_max) {
    std::string text = "Networks, over libfabric, for ranks on other hosts (btl_velo_device)\n";
    std::string why;
    const NetworkLibrary* const library = network_library(why);
    if (library == nullptr) return text + "  none: " + why + "\n";
    struct Listing {
        std::string text;
        uint32_t rails_max;
        uint32_t interfaces = 0;  ///< reported ones that are used; each has a rail before any has a second one
    } listing = {.text = "", .rails_max = rails_max};
    library->list(
        options, rails_max, &listing,
        [](void* context, const char* provider, const char* interface, const char* address, const char* refused,
           uint32_t rails) {
            auto& of = *static_cast<Listing*>(context);
            of.text += "  " + std::string(provider) + " on " + interface;
            if (*address != '\0') of.text += ", " + std::string(address);
            of.text += ": ";
            if (refused != nullptr) {
                of.text += "not used, " + std::string(refused);
            } else if (rails == 0) {
                of.text += "could be used";
            } else {
                of.text += "used";
                if (rails > 1) {
                    of.text += ", as " + std::to_string(rails) + " rails";
                } else if (of.rails_max > 1) {
                    of.text += ", as rail " + std::to_string(of.interfaces);
                }
                ++of.interfaces;
            }
            of.text += "\n";
        });
    return text + (listing.text.empty() ? "  none: libfabric knows of none here\n" : listing.text);
}

}  // namespace velo::info
