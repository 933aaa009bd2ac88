/// The networks of this machine, as the library of libfabric's device sees them.
#pragma once

#include <string>
#include <vector>

#include "velo/device/network_device.h"
#include "velo/options/engine_options.h"

namespace velo::info {

/// Has the library opened that ranks would open: the one beside the plugin, which is in the first of the `directories`
/// that has it, and otherwise where velo is installed.
void use_library_of(const std::vector<std::string>& directories, const std::string& plugin_directory);

/// Each provider and interface: used, could be, or why not. A line that says so where there is no library.
[[nodiscard]] std::string networks_text(const NetworkOptions& options, uint32_t rails_max);

/// Opens the network's device as a rank does and closes it again. Returns its name; throws base::SetupError.
[[nodiscard]] std::string open_as_a_rank(const EngineOptions& options);

}  // namespace velo::info
