#include "info/networks.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "velo/network_library.h"

namespace velo::info {
namespace {

/// The library is beside the plugin, which is where Open MPI looks; this program is elsewhere.
void find_library(const std::string& component_path, const std::string& plugin_directory) {
    std::istringstream directories(component_path + ":" + plugin_directory);
    for (std::string directory; std::getline(directories, directory, ':');) {
        const std::filesystem::path file = std::filesystem::path(directory) / kNetworkLibraryName;
        std::error_code absent;
        if (!std::filesystem::exists(file, absent)) continue;
        setenv("VELO_OFI_LIBRARY", file.c_str(), 0);
        return;
    }
    setenv("VELO_OFI_LIBRARY", (plugin_directory + "/" + kNetworkLibraryName).c_str(), 0);
}

}  // namespace

std::string networks_text(const NetworkOptions& options, uint32_t rails_max, const std::string& component_path,
                          const std::string& plugin_directory) {
    find_library(component_path, plugin_directory);
    std::string text = "Networks, over libfabric, for ranks on other hosts (btl_velo_device)\n";
    std::string why;
    const NetworkLibrary* const library = network_library(why);
    if (library == nullptr) return text + "  none: " + why + "\n";
    struct Listing {
        std::string text;
        uint32_t rails_max;
        uint32_t interfaces = 0;  ///< told of that are used; each has a rail before any has a second one
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
