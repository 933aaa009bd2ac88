// The conformance suite of the VELO unit over the simulated cluster, which has no RMA unit.
#include "tests/conformance/cluster_fabric.h"
#include "tests/conformance/velo_suite.h"

namespace velo::conformance {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceParts);  // one send() takes a whole mailbox

INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceVelo, ClusterFabric);
INSTANTIATE_TYPED_TEST_SUITE_P(Cluster, DeviceRoom, ClusterFabric);

}  // namespace velo::conformance
