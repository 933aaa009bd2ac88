/// Outcomes that every layer shares.
#pragma once

#include <cstdint>

namespace velo {

/// Outcome of an operation. Nothing here is thrown: exceptions are for set-up only.
enum class [[nodiscard]] Status : uint8_t{
    kOk = 0,
    /// Nothing changed. Queue the operation; whoever frees the resource drives it again.
    kAgain,
    /// An argument or a parameter is outside what the function's contract allows.
    kBadParam,
    /// An address, length or right is outside what its owner registered. No byte moved.
    kAtuFault,
    /// This way of transfer is not possible with this peer, or not any more; another one may be.
    kUnsupported,
    /// The peer process has ended. Its pending operations end with this status.
    kPeerDead,
    /// Memory or a table of fixed size is exhausted, and waiting does not help.
    kNoResource,
    /// The operation was tried and failed for a reason of the device.
    kFailed,
    /// A peer's message does not obey the protocol. It was counted and dropped.
    kProtocol,
    /// Memory at one end of a transfer is unmapped or protected; or no other process may touch it, where that was a
    /// direct copy.
    kBadMemory,
    /// The device failed before it began the operation, of which nothing was done.
    kNotBegun,
    /// The device has not ended the operation in time, though the peer lives. It may still touch the memory.
    kTimedOut,
    /// Memory of this process, the local end of a transfer, is unmapped or protected.
    kBadLocalMemory,
};
inline constexpr Status kLastStatus = Status::kBadLocalMemory;

[[nodiscard]] constexpr const char* to_string(Status status) noexcept {
    switch (status) {
        case Status::kOk: return "ok";
        case Status::kAgain: return "again";
        case Status::kBadParam: return "bad parameter";
        case Status::kAtuFault: return "access outside registered memory";
        case Status::kUnsupported: return "unsupported";
        case Status::kPeerDead: return "peer is dead";
        case Status::kNoResource: return "out of resources";
        case Status::kFailed: return "a failure of the device or the kernel";
        case Status::kProtocol: return "protocol violation by the peer";
        case Status::kBadMemory:
        case Status::kBadLocalMemory: return "memory that is unmapped or protected";
        case Status::kNotBegun: return "a failure of the device, before it began";
        case Status::kTimedOut: return "it has not ended in time, though the peer lives";
    }
    return "unknown status";
}

}  // namespace velo
