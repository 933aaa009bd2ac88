/// Messages that come as packets, put together again (FC 2).
///
/// A buffer exists only while its peer is in the middle of a message; one that is done with serves the next.
/// Owner: PacketChannel. Thread: the engine's. No pointer into it is kept while a message is handed up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "velo/base/check.h"
#include "velo/base/copy.h"
#include "velo/base/ids.h"
#include "velo/wire/packet.h"

namespace velo {

class Reassembly {
  public:
    /// A peer's message, as far as it has come.
    struct Message {
        std::unique_ptr<std::byte[]> buffer;
        uint32_t bytes = 0;
        bool broken = false;  ///< too long: the rest of it is dropped

        /// Nothing of a message has come.
        [[nodiscard]] bool empty() const { return bytes == 0 && !broken; }
    };

    /// `message_bytes_max`: longest message.
    explicit Reassembly(uint32_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

    [[nodiscard]] uint32_t message_bytes_max() const { return message_bytes_max_; }
    [[nodiscard]] bool knows(DeviceAddr peer) const { return peer < peers_.size(); }
    /// To be called before anything else of a peer.
    void know(DeviceAddr peer) {
        if (!knows(peer)) peers_.resize(peer + 1);
    }
    [[nodiscard]] Message& of(DeviceAddr peer) {
        VELO_DCHECK(knows(peer), "peer %u of %zu", uint32_t{peer}, peers_.size());
        return peers_[peer];
    }
    /// Bytes of a message whose rest has not come.
    [[nodiscard]] uint32_t partial_bytes(DeviceAddr peer) const { return knows(peer) ? peers_[peer].bytes : 0; }

    /// Appends a packet's payload. False: the message is too long, and `broken` from here on.
    [[nodiscard]] bool append(Message& message, const std::byte* payload, uint32_t length) {
        VELO_DCHECK(length <= kPayloadBytes && message.bytes <= message_bytes_max_, "%u bytes after %u",
                    length, message.bytes);
        if (message.broken) return true;
        if (length > message_bytes_max_ - message.bytes) {
            message.broken = true;
            return false;
        }
        std::byte* const to = end_of(message);
        if (length == kPayloadBytes) [[likely]] {
            std::memcpy(to, payload, kPayloadBytes);
        } else {
            base::copy_small(to, payload, length);
        }
        message.bytes += length;
        return true;
    }
    /// Appends a run of whole payloads: take(to, packets_max) writes them and returns their number, which is returned.
    template <class Take>
    uint32_t append_run(Message& message, Take&& take) {
        const uint32_t packets_max = (message_bytes_max_ - message.bytes) / static_cast<uint32_t>(kPayloadBytes);
        if (message.broken || packets_max == 0) return 0;
        const uint32_t taken = take(end_of(message), packets_max);
        VELO_DCHECK(taken <= packets_max, "a run of %u packets, of at most %u", taken, packets_max);
        message.bytes += taken * static_cast<uint32_t>(kPayloadBytes);
        return taken;
    }
    /// The message has ended: returns it, and keeps nothing of it.
    [[nodiscard]] Message end(DeviceAddr peer) { return std::exchange(peers_[peer], Message()); }
    /// The buffer of a message that was handed up may serve another.
    void reuse(Message&& message) {
        if (message.buffer) buffers_.push_back(std::move(message.buffer));
    }

  private:
    /// The place behind the message's last byte, in a buffer.
    [[nodiscard]] std::byte* end_of(Message& message) {
        if (!message.buffer) message.buffer = take_buffer();
        return message.buffer.get() + message.bytes;
    }
    [[nodiscard]] std::unique_ptr<std::byte[]> take_buffer() {
        if (buffers_.empty()) return std::make_unique_for_overwrite<std::byte[]>(message_bytes_max_);
        auto buffer = std::move(buffers_.back());
        buffers_.pop_back();
        return buffer;
    }

    uint32_t message_bytes_max_;
    std::vector<Message> peers_;
    std::vector<std::unique_ptr<std::byte[]>> buffers_;
};

}  // namespace velo
