/// How many receive buffers a mailbox is, and how long: the geometry of what is posted.
///
/// The mailbox of a network's device is what it has posted: multi-receive buffers, which the provider fills one message
/// behind the other. A message is a number of whole slots, at most part_packets(). A buffer is given back by the
/// provider once less than the longest part fits (FI_OPT_MIN_MULTI_RECV), and is posted again when its last packet was
/// advanced.
///
/// The bound: `slots` credited packets and `control_bytes` of the device's own messages always find space, because
///
///     buffers x buffer_bytes >= 64 x slots + control_bytes
///                               + buffers x (part_bytes - 64)     what the tails of buffers waste
///                               + (buffer_bytes - 64)             of the buffer being read: all but its last packet
///
/// Packets are read in the order in which they came, so at most one buffer has read packets before unread ones. Space
/// of the device's own messages counts until its buffer is posted again; control_bytes covers that as long as packets
/// are read at all.
///
/// Pure: no I/O, no clock, no allocation. Source: velo/device/device.h; fi_endpoint(3), FI_OPT_MIN_MULTI_RECV.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "velo/base/check.h"
#include "velo/wire/packet.h"

namespace velo::ofi {

/// Packets of the longest message that a mailbox takes: a multiple of kPartPacketsStep in this range, so long that
/// tails stay under an eighth of the mailbox, where it has kWasteSlots or more. All processes have to agree on it
/// (kProtocolVersion). Over net a send of 64 packets takes 8 us where one packet takes 6, and each further 64 take 1
/// to 2. The longest holds 32 KiB and a header of the host's.
inline constexpr uint32_t kPartPacketsMin = 64;
inline constexpr uint32_t kPartPacketsStep = 32;
inline constexpr uint32_t kPartPacketsMax = 640;
inline constexpr size_t kPartBytesMax = kPartPacketsMax * kPacketBytes;
static_assert(kPartPacketsMin % kPartPacketsStep == 0 && kPartPacketsMax % kPartPacketsStep == 0);

class ReceiveSpace {
  public:
    static constexpr uint32_t kBuffersMin = 3;
    static constexpr uint32_t kBuffersMax = 16;
    /// Tails waste at most 1 / kWasteShare of a mailbox of at least kWasteSlots slots.
    static constexpr uint32_t kWasteShare = 8;
    static constexpr uint32_t kWasteSlots = kBuffersMin * (kPartPacketsMin - 1) * kWasteShare;

    /// `packets_max`: of one message of the provider.
    constexpr ReceiveSpace(uint32_t slots, size_t control_bytes, uint32_t packets_max = kPartPacketsMax)
        : slots_(slots),
          part_bytes_(size_t{part_packets(slots, packets_max)} * kPacketBytes),
          control_bytes_(round_up(control_bytes)) {
        const size_t mailbox = uint64_t{slots} * kPacketBytes;
        const size_t tail = part_bytes_ - kPacketBytes;
        buffers_ = static_cast<uint32_t>(std::clamp<size_t>(mailbox / kWasteShare / tail, kBuffersMin, kBuffersMax));
        // buffers x b >= needed + b - 64, so b >= (needed - 64) / (buffers - 1).
        const size_t needed = mailbox + control_bytes_ + buffers_ * tail;
        buffer_bytes_ = std::max(round_up((needed + buffers_ - 2) / (buffers_ - 1)), part_bytes_);
        VELO_CHECK(posted_bytes() >= bytes_needed(), "%u buffers of %zu bytes are too few for %u slots",
                   buffers_, buffer_bytes_, slots_);
    }

    /// Packets of the longest message to a mailbox of this number of slots.
    [[nodiscard]] static constexpr uint32_t part_packets(uint32_t slots, uint32_t packets_max = kPartPacketsMax) {
        const uint32_t most = slots / kWasteShare / kBuffersMin / kPartPacketsStep * kPartPacketsStep;
        return std::clamp(most, kPartPacketsMin, packets_max);
    }
    [[nodiscard]] constexpr size_t part_bytes() const { return part_bytes_; }

    [[nodiscard]] constexpr uint32_t buffers() const { return buffers_; }
    [[nodiscard]] constexpr size_t buffer_bytes() const { return buffer_bytes_; }
    [[nodiscard]] constexpr size_t posted_bytes() const { return buffers_ * buffer_bytes_; }
    /// Most bytes that tails of buffers waste.
    [[nodiscard]] constexpr size_t tail_bytes() const { return buffers_ * (part_bytes_ - kPacketBytes); }
    /// The right side of the bound.
    [[nodiscard]] constexpr size_t bytes_needed() const {
        return uint64_t{slots_} * kPacketBytes + control_bytes_ + tail_bytes() + buffer_bytes_ - kPacketBytes;
    }

  private:
    static constexpr size_t round_up(size_t bytes) { return (bytes + kPacketBytes - 1) / kPacketBytes * kPacketBytes; }

    uint32_t slots_;
    uint32_t buffers_ = 0;
    size_t part_bytes_;
    size_t control_bytes_;
    size_t buffer_bytes_ = 0;
};

/// The contents of one posted buffer, and when it may be posted again.
///
/// A provider may receive messages of several senders into one buffer at once (net does), and then reports the last
/// one's end, with which it gives the buffer back, before an earlier one's. So a buffer that was given back is still
/// the provider's until every byte before the end of its last message has been reported.
class BufferState {
  public:
    constexpr void posted() {
        VELO_DCHECK(unread_ == 0, "a buffer with %u packets is posted", unread_);
        *this = {};
    }
    /// A message at [offset, offset + bytes) is there, `packets` of which will be read. One whose length is no multiple
    /// of a packet's may be followed by a gap.
    constexpr void arrived(size_t offset, size_t bytes, uint32_t packets) {
        filled_ += (bytes + kPacketBytes - 1) / kPacketBytes * kPacketBytes;
        end_ = std::max(end_, offset + bytes);
        unread_ += packets;
    }
    constexpr void read(uint32_t packets) {
        VELO_DCHECK(packets <= unread_, "%u packets are read of %u", packets, unread_);
        unread_ -= packets;
    }
    /// The provider uses it for no further message.
    constexpr void given_back() { given_back_ = true; }
    /// A message was lost in it, so that it is not known any more when the provider is done with it.
    constexpr void damaged() { damaged_ = true; }
    /// Another buffer has taken the place of this one.
    constexpr void replaced() { replaced_ = true; }

    [[nodiscard]] constexpr bool is_damaged() const { return damaged_; }
    [[nodiscard]] constexpr uint32_t unread() const { return unread_; }
    /// Whether the buffer takes no further message: another one of the same size is needed, or this one again.
    [[nodiscard]] constexpr bool spent() const {
        return given_back_ && !replaced_ && unread_ == 0 && (damaged_ || filled_ >= end_);
    }

  private:
    size_t filled_ = 0;
    size_t end_ = 0;
    uint32_t unread_ = 0;
    bool given_back_ = false;
    bool damaged_ = false;
    bool replaced_ = false;
};

}  // namespace velo::ofi
