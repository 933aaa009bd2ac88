// The conformance suites over libfabric's provider net, in one process.
#include "tests/conformance/ofi_fabric.h"

namespace velo::conformance {
using TestedProvider = Net;
}

#include "tests/conformance/ofi_tcp_suites.h"
