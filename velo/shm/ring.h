/// The on-node ring: one direction of one pair of processes, single producer and single consumer.
///
/// Two areas. `lines` are 64 bytes each: a header word and up to 56 bytes of message, so a short message is
/// one cache line and one line moves. A longer message keeps its whole body, contiguous, in the byte area,
/// where the consumer hands it up without a copy; its line then carries the header only. Both areas are
/// consumed in order, so a body's place follows from the bodies before it and no offset travels.
///
/// A line is fresh when the lap in its header word is the consumer's: lines always begin with the header
/// word, whatever earlier laps held, so nothing needs clearing. The producer learns what was consumed from
/// the consumer's progress words, and looks only when its own view has no room left.
///
/// Owner: the producer, in whose segment the ring lies. Neither side trusts what the other one wrote:
/// lengths are checked against the geometry that this side knows, and progress against what was produced.
/// Why not the line layout of eager rings that clear ahead: clearing the next header before publishing
/// costs the producer one more line transfer a message (docs/design-choices.md).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "velo/base/check.h"
#include "velo/base/shared_segment.h"
#include "velo/packet.h"
#include "velo/shm/distance.h"

namespace velo::shm {

inline constexpr size_t kLineBytes = 64;
inline constexpr uint32_t kInlineBytesMax = 56;

/// Number of lines and bytes of a ring; both are powers of two.
struct RingGeometry {
    uint32_t lines = 0;
    uint32_t body_bytes = 0;

    [[nodiscard]] constexpr bool valid() const {
        return std::has_single_bit(lines) && std::has_single_bit(body_bytes) && lines >= 2 &&
               lines <= 1u << 20 && body_bytes >= 4096 && body_bytes <= 1u << 30;
    }
    /// A body never takes more than half, so that wrapping around never wastes all of the room.
    [[nodiscard]] constexpr uint32_t message_bytes_max() const { return body_bytes / 2; }
};

/// The header word of a line.
struct LineHeader {
    uint16_t lap = 0;
    MessageClass message_class = MessageClass::kHost;
    uint8_t tag = 0;
    uint32_t bytes = 0;
    bool measure = false;  ///< the body was written with ordinary stores, for the consumer to time

    [[nodiscard]] constexpr uint64_t pack() const {
        return uint64_t{lap} | static_cast<uint64_t>(message_class) << 16 | uint64_t{measure} << 18 |
               uint64_t{tag} << 24 | uint64_t{bytes} << 32;
    }
    [[nodiscard]] static constexpr LineHeader unpack(uint64_t word) {
        return {.lap = static_cast<uint16_t>(word),
                .message_class = static_cast<MessageClass>(word >> 16 & 3),
                .tag = static_cast<uint8_t>(word >> 24),
                .bytes = static_cast<uint32_t>(word >> 32),
                .measure = (word >> 18 & 1) != 0};
    }
};

struct alignas(kLineBytes) Line {
    std::atomic<uint64_t> header;
    std::byte data[kInlineBytesMax];
};
static_assert(sizeof(Line) == kLineBytes && std::atomic<uint64_t>::is_always_lock_free);

/// What both sides see ahead of the lines.
struct RingControl {
    /// Consumer's progress: messages and body bytes consumed. Only the consumer writes this line.
    struct alignas(kLineBytes) {
        std::atomic<uint64_t> lines;
        std::atomic<uint64_t> body_bytes;
        std::atomic<uint32_t> line_ns;  ///< transfer of a cache line from the producer, as last measured
    } consumed;
    /// Set by a consumer that no longer polls this ring each time; the producer then rings its bell. On a
    /// line of its own, because the producer reads it after every message.
    struct alignas(kLineBytes) {
        std::atomic<uint32_t> dormant;
        std::atomic<uint32_t> bell_index;
    } sleep;
};

/// Bytes of shared memory that a ring takes.
[[nodiscard]] constexpr size_t ring_bytes(RingGeometry geometry) {
    return base::round_up(sizeof(RingControl) + geometry.lines * sizeof(Line) + geometry.body_bytes, 4096);
}

/// Where the parts of a ring lie.
class RingView {
  public:
    RingView() = default;
    RingView(std::byte* memory, RingGeometry geometry)
        : control(std::launder(reinterpret_cast<RingControl*>(memory))),
          lines(std::launder(reinterpret_cast<Line*>(memory + sizeof(RingControl)))),
          bodies(memory + sizeof(RingControl) + geometry.lines * sizeof(Line)),
          geometry(geometry) {
        VELO_CHECK(geometry.valid(), "lines %u, bytes %u", geometry.lines, geometry.body_bytes);
    }

    /// Lap of the line at a message position; 0 is never a lap that a fresh, zeroed ring shows.
    [[nodiscard]] uint16_t lap(uint64_t position) const {
        return static_cast<uint16_t>(1 + position / geometry.lines);
    }
    [[nodiscard]] Line& line(uint64_t position) const { return lines[position & (geometry.lines - 1)]; }
    [[nodiscard]] std::byte* body(uint64_t position) const {
        return bodies + (position & (geometry.body_bytes - 1));
    }
    /// Where a body of `bytes` begins that may not start before `position`: bodies do not wrap.
    [[nodiscard]] uint64_t body_start(uint64_t position, uint32_t bytes) const {
        const uint64_t in_lap = position & (geometry.body_bytes - 1);
        return in_lap + bytes <= geometry.body_bytes ? position : position - in_lap + geometry.body_bytes;
    }
    [[nodiscard]] static uint64_t body_end(uint64_t start, uint32_t bytes) {
        return start + base::round_up(bytes, kLineBytes);
    }

    RingControl* control = nullptr;
    Line* lines = nullptr;
    std::byte* bodies = nullptr;
    RingGeometry geometry;
};

/// Producer's end. Thread: the engine's.
class RingProducer {
  public:
    RingProducer() = default;
    explicit RingProducer(RingView ring) : ring_(ring) {}

    /// Where a message of `bytes` may be written, or nullptr when there is no room now. bytes <=
    /// message_bytes_max(). Reserving again replaces an uncommitted reservation.
    [[nodiscard]] std::byte* reserve(uint32_t bytes) {
        VELO_DCHECK(bytes <= ring_.geometry.message_bytes_max(), "%u bytes", bytes);
        if (position_ - consumed_lines_ >= ring_.geometry.lines && !refresh_lines()) return nullptr;
        if (bytes <= kInlineBytesMax) return ring_.line(position_).data;
        const uint64_t start = ring_.body_start(body_position_, bytes);
        const uint64_t end = RingView::body_end(start, bytes);
        if (end - consumed_bytes_ > ring_.geometry.body_bytes && !refresh_bytes(end)) return nullptr;
        return ring_.body(start);
    }

    /// True: a body of `bytes` is to be written with base::copy_nontemporal, because the consumer is far.
    [[nodiscard]] bool nontemporal(uint32_t bytes) const {
        return far_ && bytes >= kNontemporalBytesMin && !measures();
    }
    /// The consumer's core is far, as far as is known.
    [[nodiscard]] bool far() const { return far_; }

    /// Publishes the message that was written where reserve(bytes) said. Returns true when the consumer
    /// asked to be woken for it.
    bool commit(MessageClass message_class, uint8_t tag, uint32_t bytes) {
        if (bytes > kInlineBytesMax) {
            body_position_ = RingView::body_end(ring_.body_start(body_position_, bytes), bytes);
        }
        LineHeader header = {ring_.lap(position_), message_class, tag, bytes};
        if (bytes >= kMeasurableBytes) {
            header.measure = measures();
            if (header.measure)
                far_ = Distance::far(ring_.control->consumed.line_ns.load(std::memory_order_relaxed));
            ++bodies_;
        }
        // Pairs with the acquire in RingConsumer::peek: the message is visible before its header.
        ring_.line(position_).header.store(header.pack(), std::memory_order_release);
        ++position_;
        // May miss a consumer that falls asleep at this very moment; it sweeps its dormant rings for that.
        return ring_.control->sleep.dormant.load(std::memory_order_relaxed) != 0;
    }

    [[nodiscard]] uint32_t bell_index() const {
        return ring_.control->sleep.bell_index.load(std::memory_order_relaxed);
    }
    [[nodiscard]] uint32_t message_bytes_max() const { return ring_.geometry.message_bytes_max(); }
    [[nodiscard]] uint64_t messages() const { return position_; }
    explicit operator bool() const { return ring_.control != nullptr; }

  private:
    static constexpr uint32_t kNontemporalBytesMin = 2048;
    static constexpr uint64_t kFirstMeasures = 4;
    static constexpr uint64_t kMeasurePeriod = 128;

    /// The next body that is long enough is to be measured on.
    [[nodiscard]] bool measures() const { return bodies_ < kFirstMeasures || bodies_ % kMeasurePeriod == 0; }

    // A progress word is believed only between what was seen last and what was produced. Pairs with the
    // release in RingConsumer::release: the consumer has read what it gives back.
    bool refresh_lines() {
        const uint64_t lines = ring_.control->consumed.lines.load(std::memory_order_acquire);
        if (lines - consumed_lines_ <= position_ - consumed_lines_) consumed_lines_ = lines;
        return position_ - consumed_lines_ < ring_.geometry.lines;
    }
    bool refresh_bytes(uint64_t end) {
        const uint64_t bytes = ring_.control->consumed.body_bytes.load(std::memory_order_acquire);
        if (bytes - consumed_bytes_ <= body_position_ - consumed_bytes_) consumed_bytes_ = bytes;
        // Nothing unread: skip the rest of the lap for free.
        return end - consumed_bytes_ <= ring_.geometry.body_bytes;
    }

    RingView ring_;
    uint64_t position_ = 0;
    uint64_t body_position_ = 0;
    uint64_t consumed_lines_ = 0;
    uint64_t consumed_bytes_ = 0;
    uint64_t bodies_ = 0;
    bool far_ = false;
};

/// A message as the consumer sees it, in place.
struct Message {
    MessageClass message_class = MessageClass::kHost;
    uint8_t tag = 0;
    uint32_t bytes = 0;
    bool measure = false;
    std::byte* data = nullptr;
};

/// Consumer's end. Thread: the engine's; peek, take, (use the message), release may nest, because a
/// message's handler may poll again: what is given back to the producer never passes a message in use.
class RingConsumer {
  public:
    enum class Peek : uint8_t { kNothing, kMessage, kGarbage };

    RingConsumer() = default;
    explicit RingConsumer(RingView ring) : ring_(ring) {}

    /// Looks at the next message. kGarbage: the producer wrote a header that cannot be; the ring is unusable.
    [[nodiscard]] Peek peek(Message& message) const {
        const Line& line = ring_.line(position_);
        const LineHeader header = LineHeader::unpack(line.header.load(std::memory_order_acquire));
        if (header.lap != ring_.lap(position_)) return Peek::kNothing;
        if (header.bytes > ring_.geometry.message_bytes_max()) [[unlikely]]
            return Peek::kGarbage;
        message.message_class = header.message_class;
        message.tag = header.tag;
        message.bytes = header.bytes;
        message.measure = header.measure && header.bytes >= kMeasurableBytes;
        message.data = header.bytes <= kInlineBytesMax
                           ? const_cast<std::byte*>(line.data)
                           : ring_.body(ring_.body_start(body_position_, header.bytes));
        return Peek::kMessage;
    }

    /// Steps past the message that peek() showed; its memory stays the caller's until release().
    void take(const Message& message) {
        if (message.bytes > kInlineBytesMax) {
            body_position_ =
                RingView::body_end(ring_.body_start(body_position_, message.bytes), message.bytes);
        }
        ++position_;
        ++in_use_;
        if (message.measure) [[unlikely]]
            measure(message);
    }

    /// Ends the use of one taken message. The last one out gives all of it back to the producer.
    void release() {
        if (--in_use_ != 0) return;
        ring_.control->consumed.body_bytes.store(body_position_, std::memory_order_release);
        ring_.control->consumed.lines.store(position_, std::memory_order_release);
    }

    void set_dormant(bool dormant, uint32_t bell_index) {
        ring_.control->sleep.bell_index.store(bell_index, std::memory_order_relaxed);
        ring_.control->sleep.dormant.store(dormant ? 1 : 0, std::memory_order_release);
    }

    /// A message that was taken has not been released.
    [[nodiscard]] bool in_use() const { return in_use_ != 0; }
    /// The producer's core is far, as far as is known.
    [[nodiscard]] bool far() const { return Distance::far(distance_.ns()); }
    [[nodiscard]] uint64_t messages() const { return position_; }
    explicit operator bool() const { return ring_.control != nullptr; }

  private:
    void measure(const Message& message) {
        distance_.add(measure_line_transfer(message.data));
        ring_.control->consumed.line_ns.store(distance_.ns(), std::memory_order_relaxed);
    }

    RingView ring_;
    uint64_t position_ = 0;
    uint64_t body_position_ = 0;
    uint32_t in_use_ = 0;
    Distance distance_;
};

}  // namespace velo::shm
