/// Operations of the RMA unit's requester, from post() to their notification, and the order that they are in.
/// RmaUnit owns both; BlockMover moves the bytes of puts and gets.
#pragma once

#include <cstdint>

#include "velo/base/intrusive_queue.h"
#include "velo/device/device.h"

namespace velo::shim {

enum class Stage : uint8_t { kFree, kQueued, kMoved, kNotifyingPeer, kAwaitingAnswer, kDone };

struct Operation {
    static constexpr uint8_t kNoOffer = UINT8_MAX;

    Operation* next = nullptr;
    RmaOperation what;
    uint64_t not_before_ns = 0;
    uint64_t value = 0;
    uint32_t moved = 0;
    uint16_t generation = 0;
    Stage stage = Stage::kFree;
    Status status = Status::kOk;  ///< result; before that, a fault to come
    uint8_t offer = kNoOffer;     ///< slot
    Status copied = Status::kOk;  ///< of a put or get: the first failure
    // Of an offered operation.
    bool astray = false;          ///< the target's part did not come, or does not add up
    uint64_t helper_copying = 0;  ///< the target's DeviceHeader::copying when nothing was left to take

    [[nodiscard]] bool offered() const { return offer != kNoOffer; }
};

/// A port's operations to one target.
struct Flow {
    Flow* next = nullptr;
    DeviceAddr peer = kNoAddr;
    base::IntrusiveQueue<Operation> operations;
    uint32_t ignored = 0;  ///< operations since the target came in time for an offer
    bool denied = false;   ///< the target cannot copy, or its word cannot be relied on
};

[[nodiscard]] constexpr bool moves_block(RmaKind kind) {
    return kind == RmaKind::kPut || kind == RmaKind::kGet;
}

}  // namespace velo::shim
