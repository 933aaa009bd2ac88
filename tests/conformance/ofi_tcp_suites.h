/// Instantiates the suites that every provider over TCP is held to. The including file names it before:
/// velo::conformance::TestedProvider.
#pragma once

#include "tests/conformance/connect_suite.h"
#include "tests/conformance/ofi_fabric.h"
#include "tests/conformance/rma_suite.h"
#include "tests/conformance/velo_suite.h"

namespace velo::conformance {

// These suites are about promises that the device over libfabric does not make.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceSight);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceRoom);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceKeys);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceNotify);

INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceConnect, OfiFabric<TestedProvider>);
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceWatch, OfiFabric<TestedProvider>);
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceVelo, OfiFabric<TestedProvider>);
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceParts, OfiFabric<TestedProvider>);
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceRma, OfiFabric<TestedProvider>);
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, DeviceRefusals, OfiFabric<TestedProvider>);

}  // namespace velo::conformance
