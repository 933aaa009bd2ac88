// Leaks of libfabric's own that the leak sanitizer leaves out.
//
// libfabric 1.17's net never frees the description that fi_endpoint and each accepted connection copy (fi_dupinfo), nor
// the nodes of its table of connections; tcp;ofi_rxm leaves a connection request that was under way when the endpoint
// was closed. Nothing of velo's is allocated by libfabric and freed by velo but what FidPtr and InfoPtr hold.
// One file of a program includes this. Visible, because the sanitizer that looks for it is a shared library with g++.
#pragma once

extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions() {
    return "leak:libfabric.so\n";
}
