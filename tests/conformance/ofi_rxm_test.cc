// The conformance suites over libfabric's provider tcp;ofi_rxm, in one process.
#include "tests/conformance/ofi_fabric.h"

namespace velo::conformance {
using TestedProvider = TcpRxm;
}

#include "tests/conformance/ofi_tcp_suites.h"
