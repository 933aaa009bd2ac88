// The conformance suite of processes over the software EXTOLL device.
#include "sim_device/shim/shim_device.h"
#include "tests/conformance/process_suite.h"

namespace velo::conformance {

// This device sees processes.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceStops);

struct ShimProcesses {
    using Device = shim::ShimDevice;
    static constexpr uint64_t kPackets = 100'000;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceProcesses, ShimProcesses);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceProcessAtomics, ShimProcesses);

}  // namespace velo::conformance
