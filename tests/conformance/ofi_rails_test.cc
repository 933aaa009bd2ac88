// The conformance suites over libfabric's provider net with two rails, in one process.
#include "tests/conformance/ofi_fabric.h"

namespace velo::conformance {
using TestedProvider = NetRails;
}

#include "tests/conformance/ofi_tcp_suites.h"
