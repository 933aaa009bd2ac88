/// Memory for messages that are too long for fi_inject, until the provider is done with them, and for those that it did
/// not take at once.
///
/// Owner: the device. Invariant: a frame is free, the provider has it, or a peer holds it. The pool is a bound on
/// what leaves this process slowly; its pages are allocated as they are written.
#pragma once

#include <memory>
#include <new>
#include <vector>

#include "velo/ofi/endpoint.h"
#include "velo/ofi/mailbox.h"
#include "velo/ofi/receive_space.h"

namespace velo::ofi {

struct Frame {
    Context context{Context::Kind::kFrame};
    Packet* slots = nullptr;
    Frame* next = nullptr;  ///< free, or held behind this one
    DeviceAddr to = kNoAddr;
    uint32_t packets = 0;
    uint32_t count = 0;  ///< slots that they take
};

class Frames {
  public:
    static constexpr uint32_t kCount = 64;

    /// `part_bytes`: of the longest message.
    Frames(const Endpoint& endpoint, size_t part_bytes)
        : memory_(static_cast<std::byte*>(::operator new (kCount* part_bytes, std::align_val_t{kPacketBytes}))),
          frames_(kCount) {
        // If this fails, the provider refuses the send.
        (void)endpoint.register_local(memory_.get(), kCount * part_bytes, registration_);
        for (uint32_t i = 0; i < kCount; ++i) {
            frames_[i].slots = reinterpret_cast<Packet*>(memory_.get() + i * part_bytes);
            put(frames_[i]);
        }
        used_ = 0;
    }

    /// Only where free() is not 0.
    [[nodiscard]] Frame* take(DeviceAddr to, uint32_t packets) {
        VELO_DCHECK(free_ != nullptr && used_ < kCount, "%u frames are in use", used_);
        Frame* frame = free_;
        free_ = frame->next;
        ++used_;
        frame->to = to;
        frame->packets = frame->count = packets;
        frame->next = nullptr;
        return frame;
    }
    void put(Frame& frame) {
        VELO_DCHECK(&frame != free_ && &frame - frames_.data() < kCount, "a frame is free already");
        frame.next = free_;
        free_ = &frame;
        --used_;
    }
    [[nodiscard]] uint32_t free() const { return kCount - used_; }
    [[nodiscard]] uint32_t used() const { return used_; }
    [[nodiscard]] void* descriptor() const { return Endpoint::descriptor(registration_); }

  private:
    std::unique_ptr<std::byte, ReceiveBuffer::Free> memory_;
    MemoryPtr registration_;
    std::vector<Frame> frames_;
    Frame* free_ = nullptr;
    uint32_t used_ = 0;
};

}  // namespace velo::ofi
