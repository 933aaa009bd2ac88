// The conformance suites over libfabric's provider sockets, in one process.
#include "tests/conformance/ofi_fabric.h"

namespace velo::conformance {
using TestedProvider = Sockets;
}

#include "tests/conformance/ofi_tcp_suites.h"
