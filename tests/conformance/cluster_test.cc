// The conformance suites over the simulated cluster.
#include "tests/conformance/atomic_suite.h"
#include "tests/conformance/cluster_fabric.h"
#include "tests/conformance/connect_suite.h"
#include "tests/conformance/fault_suite.h"
#include "tests/conformance/rma_suite.h"
#include "tests/conformance/velo_suite.h"

namespace velo::conformance {

// Suites that are not instantiated are about devices that do less.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceParts);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceWatch);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceRefusals);

INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceConnect, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceSight, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceVelo, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceRoom, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceRma, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceKeys, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceNotify, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceAtomic, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceFaults, ClusterFabric);

}  // namespace velo::conformance
