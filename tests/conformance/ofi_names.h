/// Names of libfabric's providers, which differ between its versions.
#pragma once

#include <rdma/fabric.h>

#include "tests/conformance/libfabric_leaks.h"

namespace velo::conformance {

/// Reliable datagrams over TCP by themselves.
inline constexpr const char* kTcpProvider = FI_MAJOR_VERSION < 2 ? "net" : "tcp";

}  // namespace velo::conformance
