/// The end of an on-node ring that writes (velo/shm/ring.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "velo/base/check.h"
#include "velo/base/copy.h"
#include "velo/shm/distance.h"
#include "velo/shm/ring_layout.h"
#include "velo/wire/packet.h"

namespace velo::shm {

/// Shortest message that is written with non-temporal stores to a far consumer. It depends on the time of a
/// line transfer against that of filling and draining write buffers, not the size of a cache.
inline constexpr uint32_t kNontemporalBytesMin = 2048;

/// Producer's end. Thread: the engine's.
class RingProducer {
  public:
    RingProducer() = default;
    explicit RingProducer(RingView ring) : ring_(ring) {}

    /// Places for a message of `bytes`, in two parts: its first kInlineBytesMax bytes and the rest.
    /// nullptr for the first when there is no space now. bytes <= message_bytes_max(). Reserving again
    /// replaces an uncommitted reservation.
    struct Room {
        std::byte* first = nullptr;
        std::byte* rest = nullptr;
    };
    ///
    /// `streaming`: messages before this one are probably still unread. Those of more than a few lines then go to the
    /// deep area, where the writer is not held up by lines that are still in the reader's cache.
    [[nodiscard]] Room reserve(uint32_t bytes, bool streaming) {
        VELO_DCHECK(bytes <= ring_.geometry.message_bytes_max(), "%u bytes", bytes);
        const uint32_t short_bytes_max = ring_.geometry.short_bytes_max();
        in_body_ = bytes > (streaming ? std::min(kFewLinesBytesMax, short_bytes_max) : short_bytes_max);
        const uint32_t lines = in_body_ ? 1 : RingGeometry::lines_of(bytes);
        if (lines > ring_.lines_ahead(position_)) [[unlikely]] {
            if (!skip_lines()) return {};
        }
        // One more, which is cleared for the message after this one.
        if (!has_lines(lines + 1)) return {};
        std::byte* const first = ring_.line(position_).data;
        if (bytes <= kInlineBytesMax) return {first, nullptr};
        if (!in_body_) return {first, first + kInlineBytesMax};
        new_lap_ = carried_bytes_ < kShallowBytes && needs_pages(bytes) && all_read();
        const uint64_t start = ring_.body_start(body_position_, bytes, new_lap_);
        const uint64_t end = ring_.body_end(start, bytes);
        if (!new_lap_ && end - consumed_bytes_ > ring_.geometry.body_bytes && !refresh_bytes(end)) return {};
        ring_.map_bodies(start, bytes, mapped_bytes_);
        return {first, ring_.body(start) + kLineBytes};
    }

    /// A place for a message that has to be written in one piece, and is committed as `whole`; nullptr: there is none
    /// now.
    [[nodiscard]] std::byte* reserve_whole(uint32_t bytes, bool streaming) {
        return in_one_piece(reserve(bytes, streaming));
    }
    [[nodiscard]] static std::byte* in_one_piece(const Room& room) {
        return room.rest == nullptr ? room.first : room.rest - kInlineBytesMax;
    }

    /// True: a body of `bytes` must be written with base::copy_nontemporal, because the consumer is far.
    [[nodiscard]] bool nontemporal(uint32_t bytes) const {
        return far_ && bytes >= kNontemporalBytesMin;
    }
    [[nodiscard]] bool far() const { return far_; }
    /// The engine's next message that takes lines is measured.
    void measure_next() { plan_.soon(); }
    /// Time in ns that a line takes to the consumer, as last measured; 0: not known.
    [[nodiscard]] uint32_t line_ns() const { return line_ns_; }

    /// The consumer claims to have read what was not written; nothing can be sent any more.
    [[nodiscard]] bool garbled() const { return garbled_; }

    /// The consumer has mapped the ring.
    [[nodiscard]] bool attached() const {
        return ring_.control->sleep.attached.load(std::memory_order_acquire) != 0;
    }

    /// Publishes the message that was written where reserve(bytes) said. Returns true when the consumer
    /// asked to be woken for it.
    bool commit(MessageClass message_class, uint8_t tag, uint32_t bytes, bool whole = false) {
        VELO_DCHECK(bytes <= ring_.geometry.message_bytes_max(), "a message of %u bytes", bytes);
        LineHeader header = {LineHeader::Kind::kMessage, message_class, tag, bytes};
        if (in_body_) {
            header.in_body = true;
            header.new_lap = new_lap_;
            const uint64_t start = ring_.body_start(body_position_, bytes, new_lap_);
            if (new_lap_) {
                skipped_from_ = body_position_;
                consumed_bytes_ = start;
            }
            body_position_ = ring_.body_end(start, bytes);
            carried_bytes_ += bytes;
            header.whole = whole;
            header.measure = plan_.body();
        } else if (message_class == MessageClass::kEngine) {
            // Such as ask for data that does not come through a ring.
            if (plan_.waits()) hear_distance();
            header.measure = plan_.request();
        }
        if (header.measure) {
            hear_distance();
            write_probe(ring_.control->probe, plan_.begin());
        }
        publish(header, in_body_ ? 1 : RingGeometry::lines_of(bytes));
        ++messages_;
        return asleep();
    }

    /// Sends a host's message of `bytes` <= kInlineBytesMax, which put(to) writes, in the second half of the last line
    /// or in the next one. False: that is not ready; try_send_line() makes it ready where it can. `wake`: see commit().
    template <class Put>
    [[nodiscard, gnu::always_inline]] bool try_send_ready_line(uint32_t bytes, uint8_t tag, bool& wake, Put&& put) {
        VELO_DCHECK(bytes <= kInlineBytesMax, "%u bytes in one line", bytes);
        Cell* place = open_;
        uint64_t half = 0;
        if (place == nullptr || bytes > kCellBytesMax) {
            // The line behind the message is clear, so both are free.
            if (cleared_ < position_ + 2) [[unlikely]]
                return false;
            place = &Cell::first_of(ring_.line(position_++));
            open_ = nullptr;
            if (bytes <= kCellBytesMax) {
                open_ = place + 1;
                open_->header.store(0, std::memory_order_relaxed);
                half = LineHeader::kHalf;
            }
        } else {
            open_ = nullptr;
        }
        ++messages_;
        put(place->data);
        // As in publish().
        place->header.store(LineHeader::of_line(tag, bytes) | half, std::memory_order_release);
        if (cleared_ == position_ + 1 && cleared_ - consumed_lines_ < ring_.geometry.lines)
            ring_.line(cleared_++).header.store(0, std::memory_order_relaxed);
        wake = asleep();
        return true;
    }
    /// Sends a host's message of `bytes` <= kInlineBytesMax, and makes the next line ready where it is not. False:
    /// the ring is full.
    [[nodiscard, gnu::always_inline]] bool try_send_line(const MessageParts& parts, uint8_t tag, bool& wake) {
        const uint32_t bytes = parts.bytes();
        if ((open_ == nullptr || bytes > kCellBytesMax) && !has_ready_line()) return false;
        return try_send_ready_line(bytes, tag, wake, [&parts](std::byte* to) { put(to, parts); });
    }

    /// Sends a host's message that lies in several lines. False: it does not fit before the end of the area, or is
    /// too long; reserve() does what can be done.
    [[nodiscard, gnu::noinline]] bool try_send_lines(const MessageParts& parts, uint8_t tag, bool& wake) {
        const uint32_t bytes = parts.bytes();
        const uint32_t lines = RingGeometry::lines_of(bytes);
        if (bytes > ring_.geometry.short_bytes_max() || lines > ring_.lines_ahead(position_) || !has_lines(lines + 1))
            return false;
        std::byte* const data = ring_.line(position_).data;
        base::copy_fields(data, parts.header, parts.header_bytes);
        if (parts.payload_bytes != 0) std::memcpy(data + parts.header_bytes, parts.payload, parts.payload_bytes);
        publish({.kind = LineHeader::Kind::kMessage, .tag = tag, .bytes = bytes}, lines);
        ++messages_;
        wake = asleep();
        return true;
    }

    [[nodiscard]] bool asleep() const {
        // May miss a consumer that falls asleep at this very moment; it sweeps its dormant rings for that.
        return ring_.control->sleep.dormant.load(std::memory_order_relaxed) != 0;
    }

    [[nodiscard]] uint32_t doorbell_index() const {
        return ring_.control->sleep.doorbell_index.load(std::memory_order_relaxed);
    }
    [[nodiscard]] uint32_t message_bytes_max() const { return ring_.geometry.message_bytes_max(); }
    [[nodiscard]] uint64_t messages() const { return messages_; }
    explicit operator bool() const { return ring_.control != nullptr; }
    [[nodiscard]] RingFill fill() const {
        // A line whose second cell is open counts as read when its first one was.
        const uint64_t cells = ring_.control->consumed.cells.load(std::memory_order_relaxed);
        const uint64_t unread = 2 * position_ - (open_ != nullptr ? 1 : 0) - cells;
        return {position_, position_ - (unread + 1) / 2, body_position_, progress()};
    }

  private:
    [[gnu::always_inline]] static void put(std::byte* to, const MessageParts& parts) {
        base::copy_fields(to, parts.header, parts.header_bytes);
        base::copy_small(to + parts.header_bytes, parts.payload, parts.payload_bytes);
    }
    /// Shows a message of this number of lines. The line behind it is clear.
    void publish(const LineHeader& header, uint32_t lines) {
        VELO_DCHECK(position_ + lines - consumed_lines_ <= ring_.geometry.lines,
                    "%u lines overwrite unread ones", lines);
        open_ = nullptr;
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
    [[nodiscard]] bool has_ready_line() {
        if (!has_lines(2)) return false;
        cleared_ = std::max(cleared_, position_ + 1);
        clear(position_ + 2);
        return true;
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
    [[nodiscard, gnu::always_inline]] bool has_lines(uint32_t lines) {
        return position_ + lines - consumed_lines_ <= ring_.geometry.lines || refresh_lines(lines);
    }

    void hear_distance() {
        const auto& consumed = ring_.control->consumed;
        line_ns_ = consumed.line_ns.load(std::memory_order_relaxed);
        far_ = Distance::far(line_ns_, far_);
        const uint32_t last_ns = consumed.last_ns.load(std::memory_order_relaxed);
        plan_.heard(consumed.measured.load(std::memory_order_relaxed), Distance::far(last_ns, far_) != far_);
    }

    /// So much is carried before pages are used that could be done without. A page costs some 2 us at both ends
    /// together; in the first 128 KiB, 16 KiB take 1.2 us longer than in 2 MiB.
    static constexpr uint64_t kShallowBytes = 4u << 20;

    [[nodiscard]] bool needs_pages(uint32_t bytes) const {
        const uint64_t start = ring_.body_start(body_position_, bytes, false);
        return ring_.in_lap(start) != 0 && ring_.in_lap(start) + RingView::body_bytes(bytes) > mapped_bytes_;
    }
    [[nodiscard]] bool all_read() {
        if (consumed_bytes_ != body_position_) refresh_bytes(body_position_);
        return consumed_bytes_ == body_position_;
    }
    /// The consumer's progress. While it stands before what a new lap skipped, that counts as read: nothing is there.
    [[nodiscard]] uint64_t progress() const {
        const uint64_t bytes = ring_.control->consumed.body_bytes.load(std::memory_order_acquire);
        return bytes == skipped_from_ ? consumed_bytes_ : bytes;
    }

    // A progress word is believed only between what was seen last and what was produced. Pairs with the
    // release in RingConsumer::release: the consumer has read what it gives back.
    bool refresh_lines(uint32_t needed) {
        const uint64_t lines = ring_.control->consumed.cells.load(std::memory_order_acquire) / 2;
        if (lines - consumed_lines_ <= position_ - consumed_lines_) {
            consumed_lines_ = lines;
        } else {
            garbled_ = true;
        }
        return position_ + needed - consumed_lines_ <= ring_.geometry.lines;
    }
    bool refresh_bytes(uint64_t end) {
        const uint64_t bytes = progress();
        if (bytes - consumed_bytes_ <= body_position_ - consumed_bytes_) {
            consumed_bytes_ = bytes;
        } else {
            garbled_ = true;
        }
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
    uint64_t skipped_from_ = UINT64_MAX;  ///< position at which the last new lap was begun early
    uint64_t carried_bytes_ = 0;  ///< of messages in the body area
    uint32_t mapped_bytes_ = 0;
    uint32_t line_ns_ = 0;
    MeasurePlan plan_;
    Cell* open_ = nullptr;  ///< where the next message may go, if it is short enough
    bool far_ = false;      ///< the consumer's core
    bool in_body_ = false;  ///< the reserved message
    bool new_lap_ = false;  ///< for its body
    bool garbled_ = false;
};

}  // namespace velo::shm
