/// One operation, as the parts of the rendezvous see it: the host's, and one that waits for an answer.
#pragma once

#include <cstdint>

#include "rma/chunk_scheduler.h"
#include "rma/rail_reservations.h"
#include "rma/rails.h"
#include "velo/base/status.h"
#include "velo/device/device.h"
#include "velo/rendezvous/cookie_table.h"
#include "velo/velo.h"

namespace velo::rma {

/// The engine's part of a velo_rma_t.
template <class Peer>
struct TransferState : ReservingTransfer {
    velo_rma_t* op = nullptr;
    Peer* peer = nullptr;
    uint8_t finds = 0;     ///< times that its memory was looked for by address
    bool guarded = false;  ///< its memory may be unmapped: a direct copy or a rail failed a chunk of it
};

/// An operation that waits for an answer, or for a direct copy that may be refused. Its cookie names it.
template <class Peer>
struct PendingOp : CookieEntry {
    enum class Kind : uint8_t {
        kDirectChunk,
        kDeviceChunk,
        kPullChunk,
        kPutChunk,
        kDeviceAtomic,
        kAtomic,
        kCoopBlock,
    };
    uint32_t bytes = 0;
    uint64_t offset = 0;
    TransferState<Peer>* state = nullptr;
    uint32_t received = 0;
    Kind kind = Kind::kDirectChunk;
    bool pushing = false;   ///< a copied put that still reads its source
    uint8_t block = 0;      ///< of CoopReader
    uint8_t rail = 0;       ///< of what is with the device
    uint8_t failures = 0;   ///< of a chunk
    bool reserved = false;  ///< a chunk on a rail that its transfer holds
    bool guarded = false;   ///< a copied chunk whose memory may be unmapped, at either end
    Status refused = Status::kOk;

    /// Whether a notification of the device ends the operation.
    [[nodiscard]] bool with_device() const { return kind == Kind::kDeviceChunk || kind == Kind::kDeviceAtomic; }
    /// Whether a message of the peer ends the operation.
    [[nodiscard]] bool by_message() const {
        return kind == Kind::kPullChunk || kind == Kind::kPutChunk || kind == Kind::kAtomic;
    }
};

/// Chunks and atomics of a process that may wait for answers at a time.
inline constexpr uint32_t kPendingOpsMax = 4096;

/// The right that an operation needs at its target, and the bytes that it touches there.
[[nodiscard]] inline Access access_for(const velo_rma_t& op) {
    if (op.kind == VELO_RMA_ATOMIC) return kAccessAtomic;
    return op.kind == VELO_RMA_GET ? kAccessRead : kAccessWrite;
}
[[nodiscard]] inline uint64_t remote_bytes(const velo_rma_t& op) {
    return op.kind == VELO_RMA_ATOMIC ? op.width : op.bytes;
}

}  // namespace velo::rma
