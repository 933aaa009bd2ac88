// The conformance suites over libfabric's provider shm, in one process: without those that end a device, because 1.17's
// shm crashes when a device of the same process is written to that was closed.
#include "tests/conformance/connect_suite.h"
#include "tests/conformance/ofi_fabric.h"
#include "tests/conformance/rma_suite.h"
#include "tests/conformance/velo_suite.h"

namespace velo::conformance {

// Suites that are not instantiated are about what this device does not promise.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceConnect);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceSight);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceWatch);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceRoom);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceRma);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceKeys);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceNotify);

using Fabric = OfiFabric<Shm>;
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceVelo, Fabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceParts, Fabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceRefusals, Fabric);

}  // namespace velo::conformance
