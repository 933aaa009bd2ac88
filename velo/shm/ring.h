/// The on-node ring: one direction of one pair of processes, single producer and single consumer.
///
/// Two areas. Short messages lie in `lines` of 64 bytes, contiguous behind a header word, so a message of up
/// to 56 bytes is one cache line and one line moves. A longer message has its first 56 bytes in one such line
/// and the rest in the deep byte area, with 56 bytes of room before it: the consumer puts the beginning there
/// and hands up the whole, contiguous, without copying the rest. So it can look at a message's header while
/// the rest is on its way. Both areas are consumed in order, so a body's place follows from the bodies before
/// it and no offset travels.
///
/// A line whose header word is not 0 holds a message. What earlier laps left in the lines may look like
/// anything, so before a message is published, the line behind it has been cleared. The producer clears lines
/// well ahead, after it has published: clearing the next one just before costs every message the time of one
/// more line transfer (docs/design-choices.md). It learns what was consumed from the consumer's progress
/// words, and looks only when its own view has no room left.
///
/// Owner: the producer, in whose segment the ring lies. Neither side trusts what the other one wrote: headers
/// are checked against the geometry that this side knows, and progress against what was produced.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "velo/base/check.h"
#include "velo/base/copy.h"
#include "velo/base/shared_segment.h"
#include "velo/packet.h"
#include "velo/shm/distance.h"

namespace velo::shm {

inline constexpr size_t kLineBytes = 64;
inline constexpr uint32_t kInlineBytesMax = 56;

/// Shortest message that is written with non-temporal stores to a far consumer. What decides is the time of a
/// line transfer against that of filling and draining write buffers, not the size of a cache.
inline constexpr uint32_t kNontemporalBytesMin = 2048;

/// Shortest message whose rest can be measured on.
inline constexpr uint32_t kMeasurableMessage = kInlineBytesMax + kMeasurableBytes;

/// Number of lines and bytes of a ring; both are powers of two.
struct RingGeometry {
    uint32_t lines = 0;
    uint32_t body_bytes = 0;

    [[nodiscard]] constexpr bool valid() const {
        return std::has_single_bit(lines) && std::has_single_bit(body_bytes) && lines >= 4 &&
               lines <= 1u << 20 && body_bytes >= 4096 && body_bytes <= 1u << 30;
    }
    /// A body never takes more than half, so that wrapping around never wastes all of the room.
    [[nodiscard]] constexpr uint32_t message_bytes_max() const { return body_bytes / 2 - kLineBytes; }
    /// Longest message that lies in the lines: 2 KiB beside a host's header.
    [[nodiscard]] constexpr uint32_t short_bytes_max() const {
        constexpr uint32_t kShortLinesMax = 33;
        const uint32_t most = lines / 4 < kShortLinesMax ? lines / 4 : kShortLinesMax;
        return most * kLineBytes - sizeof(uint64_t);
    }
    /// Lines that a message takes that lies in the lines.
    [[nodiscard]] static constexpr uint32_t lines_of(uint32_t bytes) {
        return (bytes + static_cast<uint32_t>(sizeof(uint64_t)) + kLineBytes - 1) / kLineBytes;
    }
};

/// The header word of a message. 0 is never one.
struct LineHeader {
    enum class Kind : uint8_t { kNothing = 0, kMessage = 1, kSkip = 2 };

    Kind kind = Kind::kMessage;  ///< kSkip: the next message begins with the first line of the area
    MessageClass message_class = MessageClass::kHost;
    uint8_t tag = 0;
    uint32_t bytes = 0;
    bool measure = false;  ///< the body was written with ordinary stores, for the consumer to time
    bool in_body = false;  ///< what the line has no room for lies in the body area
    bool whole = false;    ///< the body area has the beginning too, the line has nothing

    [[nodiscard]] constexpr uint64_t pack() const {
        return static_cast<uint64_t>(kind) | static_cast<uint64_t>(message_class) << 16 |
               uint64_t{measure} << 18 | uint64_t{whole} << 19 | uint64_t{in_body} << 20 |
               uint64_t{tag} << 24 | uint64_t{bytes} << 32;
    }
    /// The header word of a host's message that lies in one line.
    [[nodiscard]] static constexpr uint64_t of_line(uint8_t tag, uint32_t bytes) {
        return LineHeader{.tag = tag, .bytes = bytes}.pack();
    }
    /// Whether a header word is of a host's message that lies in one line.
    [[nodiscard]] static constexpr bool is_of_line(uint64_t word) {
        constexpr uint64_t kTagAndBytes = uint64_t{0xff} << 24 | uint64_t{UINT32_MAX} << 32;
        return (word & ~kTagAndBytes) == of_line(0, 0) && word >> 32 <= kInlineBytesMax;
    }
    [[nodiscard]] static constexpr uint8_t tag_of(uint64_t word) { return static_cast<uint8_t>(word >> 24); }
    [[nodiscard]] static constexpr uint32_t bytes_of(uint64_t word) {
        return static_cast<uint32_t>(word >> 32);
    }
    [[nodiscard]] static constexpr LineHeader unpack(uint64_t word) {
        return {.kind = static_cast<Kind>(word & 0xff),
                .message_class = static_cast<MessageClass>(word >> 16 & 3),
                .tag = static_cast<uint8_t>(word >> 24),
                .bytes = static_cast<uint32_t>(word >> 32),
                .measure = (word >> 18 & 1) != 0,
                .in_body = (word >> 20 & 1) != 0,
                .whole = (word >> 19 & 1) != 0};
    }
};

struct alignas(kLineBytes) Line {
    std::atomic<uint64_t> header;
    std::byte data[kInlineBytesMax];
};
static_assert(sizeof(Line) == kLineBytes && std::atomic<uint64_t>::is_always_lock_free);

/// What both sides see ahead of the lines.
struct RingControl {
    /// Consumer's progress: lines and body bytes consumed. Only the consumer writes this line.
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
        std::atomic<uint32_t> attached;  ///< by the consumer; from then on the ring outlives its producer
    } sleep;
};

/// Bytes at the start of a ring that have to be 0 before it is used.
[[nodiscard]] constexpr size_t ring_zero_bytes(RingGeometry geometry) {
    return sizeof(RingControl) + geometry.lines * sizeof(Line);
}

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

    /// Lines from a position to the end of the area.
    [[nodiscard]] uint32_t lines_ahead(uint64_t position) const {
        return geometry.lines - static_cast<uint32_t>(position & (geometry.lines - 1));
    }
    [[nodiscard]] Line& line(uint64_t position) const { return lines[position & (geometry.lines - 1)]; }
    [[nodiscard]] std::byte* body(uint64_t position) const {
        return bodies + (position & (geometry.body_bytes - 1));
    }
    /// Where the body of a message of `bytes` begins that may not start before `position`: bodies do not
    /// wrap.
    [[nodiscard]] uint64_t body_start(uint64_t position, uint32_t bytes) const {
        const uint64_t in_lap = position & (geometry.body_bytes - 1);
        return in_lap + body_bytes(bytes) <= geometry.body_bytes ? position
                                                                 : position - in_lap + geometry.body_bytes;
    }
    [[nodiscard]] uint64_t body_end(uint64_t start, uint32_t bytes) const {
        return start + body_bytes(bytes);
    }
    /// Where such a message begins, given its body's start, when it is contiguous.
    [[nodiscard]] std::byte* message(uint64_t start) const {
        return body(start) + kLineBytes - kInlineBytesMax;
    }
    /// Bytes of the body area that a message takes that is too long for the lines: the line that the consumer
    /// writes the beginning to, and the rest.
    [[nodiscard]] static uint32_t body_bytes(uint32_t bytes) {
        return kLineBytes + static_cast<uint32_t>(base::round_up(bytes - kInlineBytesMax, kLineBytes));
    }

    /// Maps the body area up to a position before it is used for the first time, a block at a time.
    /// `mapped`: how far that is done.
    void map_bodies(uint64_t end, uint64_t& mapped) const {
        constexpr uint64_t kBlock = 256u << 10;
        while (mapped < end && mapped < geometry.body_bytes) {
            const uint64_t bytes = std::min<uint64_t>(kBlock, geometry.body_bytes - mapped);
            base::prefault(bodies + mapped, bytes);
            mapped += bytes;
        }
    }

    RingControl* control = nullptr;
    Line* lines = nullptr;
    std::byte* bodies = nullptr;
    RingGeometry geometry;
};

/// How full a ring is, for reports.
struct RingFill {
    uint64_t lines_written = 0, lines_read = 0;
    uint64_t body_written = 0, body_read = 0;
};

/// A host's message of two parts, at most kInlineBytesMax bytes in all.
struct LineParts {
    const void* header = nullptr;
    const void* payload = nullptr;
    uint32_t header_bytes = 0;
    uint32_t payload_bytes = 0;

    [[nodiscard]] uint32_t bytes() const { return header_bytes + payload_bytes; }
};

/// Producer's end. Thread: the engine's.
class RingProducer {
  public:
    RingProducer() = default;
    explicit RingProducer(RingView ring, uint32_t nontemporal_bytes_min = kNontemporalBytesMin)
        : ring_(ring), nontemporal_bytes_min_(nontemporal_bytes_min) {}

    /// Where a message of `bytes` may be written, in two parts: its first kInlineBytesMax bytes and the rest.
    /// nullptr for the first when there is no room now. bytes <= message_bytes_max(). Reserving again
    /// replaces an uncommitted reservation.
    struct Room {
        std::byte* first = nullptr;
        std::byte* rest = nullptr;
    };
    ///
    /// `streaming`: messages before this one are probably still unread. All but the shortest then go to the
    /// deep area, where the writer is not held up by lines that are still in the reader's cache.
    [[nodiscard]] Room reserve(uint32_t bytes, bool streaming) {
        VELO_DCHECK(bytes <= ring_.geometry.message_bytes_max(), "%u bytes", bytes);
        in_body_ = bytes > (streaming ? kInlineBytesMax : ring_.geometry.short_bytes_max());
        const uint32_t lines = in_body_ ? 1 : RingGeometry::lines_of(bytes);
        if (lines > ring_.lines_ahead(position_)) [[unlikely]] {
            if (!skip_lines()) return {};
        }
        // One more, which is cleared for the message after this one.
        if (!has_lines(lines + 1)) return {};
        std::byte* const first = ring_.line(position_).data;
        if (bytes <= kInlineBytesMax) return {first, nullptr};
        if (!in_body_) return {first, first + kInlineBytesMax};
        const uint64_t start = ring_.body_start(body_position_, bytes);
        const uint64_t end = ring_.body_end(start, bytes);
        if (end - consumed_bytes_ > ring_.geometry.body_bytes && !refresh_bytes(end)) return {};
        ring_.map_bodies(end, mapped_bytes_);
        return {first, ring_.body(start) + kLineBytes};
    }

    /// The same for a message that has to be written in one piece; it is committed as `whole`.
    [[nodiscard]] std::byte* reserve_whole(uint32_t bytes, bool streaming) {
        const Room room = reserve(bytes, streaming);
        return room.rest == nullptr ? room.first : room.rest - kInlineBytesMax;
    }

    /// True: a body of `bytes` is to be written with base::copy_nontemporal, because the consumer is far.
    [[nodiscard]] bool nontemporal(uint32_t bytes) const {
        return far_ && bytes >= nontemporal_bytes_min_ && !measures();
    }
    /// The consumer's core is far, as far as is known.
    [[nodiscard]] bool far() const { return far_; }

    /// The consumer has mapped the ring.
    [[nodiscard]] bool attached() const {
        return ring_.control->sleep.attached.load(std::memory_order_acquire) != 0;
    }

    /// Publishes the message that was written where reserve(bytes) said. Returns true when the consumer
    /// asked to be woken for it.
    bool commit(MessageClass message_class, uint8_t tag, uint32_t bytes, bool whole = false) {
        LineHeader header = {LineHeader::Kind::kMessage, message_class, tag, bytes};
        if (in_body_) {
            header.in_body = true;
            body_position_ = ring_.body_end(ring_.body_start(body_position_, bytes), bytes);
            header.whole = whole;
            if (bytes >= kMeasurableMessage) {
                header.measure = measures();
                if (header.measure) {
                    far_ = Distance::far(ring_.control->consumed.line_ns.load(std::memory_order_relaxed));
                }
                ++bodies_;
            }
        }
        publish(header, in_body_ ? 1 : RingGeometry::lines_of(bytes));
        ++messages_;
        return asleep();
    }

    /// Sends a host's message of two parts that fits one line, if there is room. `wake`: see commit(). What
    /// is known before the copies is kept in locals: bytes may alias anything.
    [[nodiscard, gnu::always_inline]] bool send_line(const LineParts& parts, uint8_t tag, bool& wake) {
        const uint64_t position = position_;
        const uint64_t lines = ring_.geometry.lines;
        if (!has_lines(2)) return false;
        Line& line = ring_.line(position);
        Line* const ahead = ring_.lines;
        const uint64_t clear_end = std::min(position + 3, consumed_lines_ + lines);
        uint64_t cleared = std::max(cleared_, position + 1);
        RingControl* const control = ring_.control;
        base::copy_fields(line.data, parts.header, parts.header_bytes);
        base::copy_small(line.data + parts.header_bytes, parts.payload, parts.payload_bytes);
        // As in publish().
        if (cleared == position + 1) [[unlikely]]
            ahead[cleared++ & (lines - 1)].header.store(0, std::memory_order_relaxed);
        line.header.store(LineHeader::of_line(tag, parts.bytes()), std::memory_order_release);
        for (; cleared < clear_end; ++cleared) {
            ahead[cleared & (lines - 1)].header.store(0, std::memory_order_relaxed);
        }
        cleared_ = cleared;
        position_ = position + 1;
        ++messages_;
        wake = control->sleep.dormant.load(std::memory_order_relaxed) != 0;
        return true;
    }

    [[nodiscard]] bool asleep() const {
        // May miss a consumer that falls asleep at this very moment; it sweeps its dormant rings for that.
        return ring_.control->sleep.dormant.load(std::memory_order_relaxed) != 0;
    }

    [[nodiscard]] uint32_t bell_index() const {
        return ring_.control->sleep.bell_index.load(std::memory_order_relaxed);
    }
    [[nodiscard]] uint32_t message_bytes_max() const { return ring_.geometry.message_bytes_max(); }
    [[nodiscard]] uint64_t messages() const { return messages_; }
    explicit operator bool() const { return ring_.control != nullptr; }
    [[nodiscard]] RingFill fill() const {
        return {position_, ring_.control->consumed.lines.load(std::memory_order_relaxed), body_position_,
                ring_.control->consumed.body_bytes.load(std::memory_order_relaxed)};
    }

  private:
    /// Shows a message of so many lines. The line behind it is clear.
    void publish(const LineHeader& header, uint32_t lines) {
        Line& line = ring_.line(position_);
        position_ += lines;
        if (cleared_ <= position_) [[unlikely]] {
            cleared_ = position_;  // what is before it is the message
            clear(position_ + 1);
        }
        // Pairs with the acquire in RingConsumer::peek: the message, and the cleared line behind it, are
        // visible before its header.
        line.header.store(header.pack(), std::memory_order_release);
        clear(std::min(position_ + lines + 1, consumed_lines_ + ring_.geometry.lines));
    }
    /// Clears the lines before `end` that are not yet.
    void clear(uint64_t end) {
        for (; cleared_ < end; ++cleared_) ring_.line(cleared_).header.store(0, std::memory_order_relaxed);
    }
    /// A message that does not fit before the end of the area begins at its start.
    bool skip_lines() {
        const uint32_t lines = ring_.lines_ahead(position_);
        if (!has_lines(lines + 1)) return false;
        publish({.kind = LineHeader::Kind::kSkip}, lines);
        return true;
    }
    [[nodiscard]] bool has_lines(uint32_t lines) {
        return position_ + lines - consumed_lines_ <= ring_.geometry.lines || refresh_lines(lines);
    }

    static constexpr uint64_t kFirstMeasures = 4;
    static constexpr uint64_t kMeasurePeriod = 128;

    /// The next body that is long enough is to be measured on.
    [[nodiscard]] bool measures() const { return bodies_ < kFirstMeasures || bodies_ % kMeasurePeriod == 0; }

    // A progress word is believed only between what was seen last and what was produced. Pairs with the
    // release in RingConsumer::release: the consumer has read what it gives back.
    bool refresh_lines(uint32_t needed) {
        const uint64_t lines = ring_.control->consumed.lines.load(std::memory_order_acquire);
        if (lines - consumed_lines_ <= position_ - consumed_lines_) consumed_lines_ = lines;
        return position_ + needed - consumed_lines_ <= ring_.geometry.lines;
    }
    bool refresh_bytes(uint64_t end) {
        const uint64_t bytes = ring_.control->consumed.body_bytes.load(std::memory_order_acquire);
        if (bytes - consumed_bytes_ <= body_position_ - consumed_bytes_) consumed_bytes_ = bytes;
        // Nothing unread: skip the rest of the lap for free.
        return end - consumed_bytes_ <= ring_.geometry.body_bytes;
    }

    RingView ring_;
    uint64_t position_ = 0;  ///< in lines
    uint64_t cleared_ = 0;   ///< lines up to here are clear, from position_ on
    uint64_t body_position_ = 0;
    uint64_t messages_ = 0;
    uint64_t consumed_lines_ = 0;
    uint64_t consumed_bytes_ = 0;
    uint64_t mapped_bytes_ = 0;
    uint64_t bodies_ = 0;
    uint32_t nontemporal_bytes_min_ = kNontemporalBytesMin;
    bool in_body_ = false;  ///< the reserved message
    bool far_ = false;
};

/// A message as the consumer sees it, in place.
struct Message {
    MessageClass message_class = MessageClass::kHost;
    uint8_t tag = 0;
    uint32_t bytes = 0;
    bool measure = false;
    bool in_body = false;  ///< or in the lines
    uint32_t lines = 0;
    std::byte* data = nullptr;
};

/// Consumer's end. Thread: the engine's; peek, take, (use the message), release may nest, because a
/// message's handler may poll again: what is given back to the producer never passes a message in use.
class RingConsumer {
  public:
    enum class Peek : uint8_t { kNothing, kMessage, kGarbage };

    RingConsumer() = default;
    explicit RingConsumer(RingView ring) : ring_(ring) {}

    /// The header word of the next message, 0 when there is none.
    [[nodiscard]] uint64_t word() const {
        return ring_.line(position_).header.load(std::memory_order_acquire);
    }
    /// For one of which LineHeader::is_of_line(word()): steps past it and returns its data, which stays the
    /// caller's until release().
    std::byte* take_line() {
        Line& line = ring_.line(position_++);
        // It is looked at next, and comes while this one is handled.
        __builtin_prefetch(&ring_.line(position_));
        ++messages_;
        ++in_use_;
        return line.data;
    }

    /// Looks at the next message. kGarbage: the producer wrote a header that cannot be; the ring is unusable.
    [[nodiscard]] Peek peek(Message& message) {
        uint64_t word = ring_.line(position_).header.load(std::memory_order_acquire);
        if (word == 0) return Peek::kNothing;
        LineHeader header = LineHeader::unpack(word);
        if (header.kind == LineHeader::Kind::kSkip) [[unlikely]] {
            position_ += ring_.lines_ahead(position_);
            word = ring_.line(position_).header.load(std::memory_order_acquire);
            if (word == 0) return Peek::kNothing;
            header = LineHeader::unpack(word);
        }
        message.in_body = header.in_body;
        message.lines = header.in_body ? 1 : RingGeometry::lines_of(header.bytes);
        if (header.kind != LineHeader::Kind::kMessage || header.bytes > ring_.geometry.message_bytes_max() ||
            (header.in_body ? header.bytes <= kInlineBytesMax
                            : header.bytes > ring_.geometry.short_bytes_max() ||
                                  message.lines > ring_.lines_ahead(position_))) [[unlikely]]
            return Peek::kGarbage;
        message.message_class = header.message_class;
        message.tag = header.tag;
        message.bytes = header.bytes;
        message.measure = header.measure && message.in_body && header.bytes >= kMeasurableMessage;
        Line& line = ring_.line(position_);
        if (!message.in_body) {
            message.data = line.data;
            fetch_ahead(message);
            return Peek::kMessage;
        }
        const uint64_t start = ring_.body_start(body_position_, header.bytes);
        ring_.map_bodies(ring_.body_end(start, header.bytes), mapped_bytes_);
        message.data = ring_.message(start);
        if (!message.measure) fetch_ahead(message);
        if (!header.whole) std::memcpy(message.data, line.data, kInlineBytesMax);
        return Peek::kMessage;
    }

    /// Steps past the message that peek() showed; its memory stays the caller's until release().
    void take(const Message& message) {
        if (message.in_body) {
            body_position_ = ring_.body_end(ring_.body_start(body_position_, message.bytes), message.bytes);
        }
        position_ += message.lines;
        // As in take_line().
        __builtin_prefetch(&ring_.line(position_));
        ++messages_;
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

    void tell_attached() { ring_.control->sleep.attached.store(1, std::memory_order_release); }
    void set_dormant(bool dormant, uint32_t bell_index) {
        ring_.control->sleep.bell_index.store(bell_index, std::memory_order_relaxed);
        ring_.control->sleep.dormant.store(dormant ? 1 : 0, std::memory_order_release);
    }

    /// A message that was taken has not been released.
    [[nodiscard]] bool in_use() const { return in_use_ != 0; }
    /// The producer's core is far, as far as is known.
    [[nodiscard]] bool far() const { return Distance::far(distance_.ns()); }
    [[nodiscard]] uint64_t messages() const { return messages_; }
    /// The next line to be looked at, counted over all laps.
    [[nodiscard]] uint64_t position() const { return position_; }
    explicit operator bool() const { return ring_.control != nullptr; }

  private:
    /// So much of a message is asked for as soon as its line is there; what follows, the CPU foresees.
    static constexpr uint32_t kFetchAheadBytes = 512;

    static void fetch_ahead(const Message& message) {
        const uint32_t end = std::min(message.bytes, kInlineBytesMax + kFetchAheadBytes);
        for (uint32_t at = kInlineBytesMax; at < end; at += kLineBytes) __builtin_prefetch(message.data + at);
    }

    void measure(const Message& message) {
        distance_.add(measure_line_transfer(message.data + kInlineBytesMax));
        ring_.control->consumed.line_ns.store(distance_.ns(), std::memory_order_relaxed);
    }

    RingView ring_;
    uint64_t position_ = 0;  ///< in lines
    uint64_t body_position_ = 0;
    uint64_t messages_ = 0;
    uint64_t mapped_bytes_ = 0;
    uint32_t in_use_ = 0;
    Distance distance_;
};

}  // namespace velo::shm
