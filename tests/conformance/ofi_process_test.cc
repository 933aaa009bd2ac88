// The conformance suite of processes over libfabric's providers net, with one rail and with two, and tcp;ofi_rxm.
#include "tests/conformance/ofi_fabric.h"
#include "tests/conformance/process_suite.h"

namespace velo::conformance {

// This device has no atomics.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceProcessAtomics);

template <class Provider>
struct OfiProcesses {
    using Device = OfiTestDevice<Provider>;
    /// Nothing but the provider's memory bounds a sender without credits.
    static constexpr uint64_t kPackets = 20'000;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Net, DeviceProcesses, OfiProcesses<Net>);
INSTANTIATE_TYPED_TEST_SUITE_P(Net, DeviceStops, OfiProcesses<Net>);
INSTANTIATE_TYPED_TEST_SUITE_P(NetRails, DeviceProcesses, OfiProcesses<NetRails>);
INSTANTIATE_TYPED_TEST_SUITE_P(NetRails, DeviceStops, OfiProcesses<NetRails>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpRxm, DeviceStops, OfiProcesses<TcpRxm>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpRxm, DeviceProcesses, OfiProcesses<TcpRxm>);

}  // namespace velo::conformance
