/// The networks of this machine, as the library of libfabric's device sees them.
#pragma once

#include <string>

#include "velo/network_device.h"

namespace velo::info {

/// Each provider and interface: used, could be, or why not. `component_path`: mca_base_component_path, where the
/// library is looked for first; `plugin_directory`: where velo is installed. A line that says so where there is no
/// library.
[[nodiscard]] std::string networks_text(const NetworkOptions& options, uint32_t rails_max,
                                        const std::string& component_path,
                                        const std::string& plugin_directory);

}  // namespace velo::info
