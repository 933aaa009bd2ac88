/// The remedy that the line of an operation that failed ends with.
#pragma once

#include "velo/base/status.h"

namespace velo::rma {

/// Empty: the line says all.
[[nodiscard]] constexpr const char* remedy(Status status) {
    switch (status) {
        case Status::kAtuFault: return "Look for accesses outside a window, and to memory that was detached.";
        case Status::kBadMemory:
        case Status::kBadLocalMemory:
            return "Look for munmap or mprotect of memory that a window or a message is in.";
        case Status::kBadParam: return "The address of an atomic is a multiple of its width.";
        case Status::kFailed: return "An operation that may have been carried out is not repeated.";
        case Status::kTimedOut:
            return "Look for munmap of the memory at either end; a slow network needs a larger btl_velo_timeout.";
        case Status::kProtocol:
            return "Look for a process that writes where it should not; all ranks need the same velo.";
        default: return "";
    }
}

}  // namespace velo::rma
