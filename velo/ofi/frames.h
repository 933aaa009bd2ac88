/// Memory for messages that are too long for fi_inject, until the provider is done with them, and for those that it did
/// not take at once.
///
/// Owner: the device. Invariant: a frame is free, the provider has it, or a peer holds it. The pool is a bound on what
/// leaves this process slowly; its memory takes room as it is written.
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
    Frame* next = nullptr;
    DeviceAddr to = kNoAddr;
    uint32_t count = 0;  ///< slots of the message
};

class Frames {
  public:
    static constexpr uint32_t kCount = 64;

    explicit Frames(const Endpoint& endpoint)
        : memory_(static_cast<std::byte*>(::operator new (kCount* kPartBytes, std::align_val_t{kPacketBytes}))),
          frames_(kCount) {
        // If this fails, the provider refuses the send.
        (void)endpoint.register_local(memory_.get(), kCount * kPartBytes, registration_);
        for (uint32_t i = 0; i < kCount; ++i) {
            frames_[i].slots = reinterpret_cast<Packet*>(memory_.get() + i * kPartBytes);
            put(frames_[i]);
        }
        used_ = 0;
    }

    /// nullptr: all are under way.
    [[nodiscard]] Frame* take() {
        Frame* frame = free_;
        if (frame == nullptr) return nullptr;
        free_ = frame->next;
        ++used_;
        return frame;
    }
    void put(Frame& frame) {
        frame.next = free_;
        free_ = &frame;
        --used_;
    }
    [[nodiscard]] bool empty() const { return free_ == nullptr; }
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
