/// The library of a network's device: found beside the plugin, and opened by the jobs alone that need it.
///
/// Opening it brings libfabric, and with that a dozen libraries and, where those of psm and psm2 are installed, a
/// fifth of a second for their constructors.
#pragma once

#include <memory>
#include <string>

#include "velo/device/network_device.h"

namespace velo {

/// The library's file name.
inline constexpr const char* kNetworkLibraryName = "velo_ofi.so";

/// The library, opened by now and kept until the process ends: what it brings does not like to be unloaded. nullptr,
/// with a sentence in `why`, where it is missing, cannot be opened, or is of another build. `VELO_OFI_LIBRARY` in the
/// environment names another file, for programs that are not installed beside it.
[[gnu::cold]] const NetworkLibrary* network_library(std::string& why);

/// Throws base::SetupError.
[[gnu::cold]] std::unique_ptr<NetworkDevice> open_network(const DeviceConfig& config);

}  // namespace velo
