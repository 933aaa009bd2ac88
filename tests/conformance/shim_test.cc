// The conformance suites over the software EXTOLL device, in one process.
#include "tests/conformance/atomic_suite.h"
#include "tests/conformance/connect_suite.h"
#include "tests/conformance/fault_suite.h"
#include "tests/conformance/rma_suite.h"
#include "tests/conformance/shim_fabric.h"
#include "tests/conformance/velo_suite.h"

namespace velo::conformance {

// Suites that are not instantiated are about devices that do less.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceParts);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceWatch);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceRefusals);

INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceConnect, ShimFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceSight, ShimFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceVelo, ShimFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceRoom, ShimFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceRma, ShimFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceKeys, ShimFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceNotify, ShimFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceAtomic, ShimFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Shim, DeviceFaults, ShimFabric);

}  // namespace velo::conformance
