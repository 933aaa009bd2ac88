#include "velo/device/network_library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>

#include "velo/os/shared_segment.h"

namespace velo {
namespace {

/// The directory of the object that this code is in, with a slash behind it. Empty: the dynamic linker searches.
std::string own_directory() {
    Dl_info here = {};
    if (dladdr(reinterpret_cast<const void*>(&network_library), &here) == 0 || here.dli_fname == nullptr) return "";
    const std::string path = here.dli_fname;
    return path.substr(0, path.rfind('/') + 1);
}

std::string library_path() {
    if (const char* named = std::getenv("VELO_OFI_LIBRARY"); named != nullptr && *named != '\0') return named;
    return own_directory() + kNetworkLibraryName;
}

/// Keeps libinfinipath (IPATH) and libpsm2 (HFI), which some builds of libfabric bring, from taking SIGSEGV, SIGABRT,
/// SIGTERM and others from the program, and from leaving backtraces in files named *.btr. Their constructors look for
/// these variables. Open MPI sets them for its ranks (opal_init_psm); this is for programs without it.
void forbid_signal_handlers() {
    for (const char* variable : {"IPATH_NO_BACKTRACE", "HFI_NO_BACKTRACE"}) setenv(variable, "1", 0);
}

}  // namespace

const NetworkLibrary* network_library(std::string& why) {
    static const NetworkLibrary* opened = nullptr;
    if (opened != nullptr) return opened;
    forbid_signal_handlers();
    const std::string path = library_path();
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
        why = "the library of libfabric's device cannot be opened (" + std::string(dlerror()) +
              "); install libfabric, and velo as a whole";
        return nullptr;
    }
    const auto function = reinterpret_cast<NetworkLibraryFunction>(dlsym(handle, kNetworkLibraryFunction));
    const NetworkLibrary* const library = function == nullptr ? nullptr : function();
    if (library == nullptr || library->abi != kNetworkAbi) {
        why = path + " is of another build of velo; install velo as a whole";
        return nullptr;
    }
    return opened = library;
}

std::unique_ptr<NetworkDevice> open_network(const DeviceConfig& config) {
    std::string why;
    const NetworkLibrary* const library = network_library(why);
    if (library == nullptr) throw base::SetupError(why);
    std::array<char, 1024> error = {};
    std::unique_ptr<NetworkDevice> device(library->open(config, *config.network, error.data(), error.size()));
    if (!device) throw base::SetupError(error.data());
    return device;
}

}  // namespace velo
