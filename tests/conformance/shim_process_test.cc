// The conformance suite of processes over the software EXTOLL device.
#include "sim_device/shim/shim_device.h"
#include "tests/conformance/process_suite.h"

namespace velo::conformance {

struct ShimProcesses {
    using Device = shim::ShimDevice;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceProcesses, ShimProcesses);

}  // namespace velo::conformance
