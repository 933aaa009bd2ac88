/// The on-node ring: one direction of one pair of processes, single producer and single consumer.
///
/// Two areas. Short messages lie in `lines` of 64 bytes, contiguous behind a header word, so a message of up
/// to 56 bytes is one cache line and one line moves. A longer message has its first 56 bytes in one such line
/// and the rest in the deep byte area, with 56 free bytes before it: the consumer puts the beginning there
/// and hands up the whole, contiguous, without copying the rest. So it can look at a message's header while
/// the rest is on its way. Both areas are consumed in order, so a body's place follows from the bodies before
/// it and no offset travels.
///
/// A line may also hold two host's messages of up to 24 bytes, so that one line transfer moves both: the
/// first in its first half, with a flag that says that the other half, a cell with a header word of its own,
/// may hold the next one. The producer fills it if the very next message is short enough too, and else leaves
/// it empty for good. So the consumer looks at the cell, then at the next line, and when that holds something
/// at the cell once more. Until then it keeps the line: the producer could otherwise lap it and write over
/// what is there.
///
/// A line whose header word is not 0 holds a message. Bytes that earlier laps left in the lines may look like
/// anything, so before a message is published, the line behind it has been cleared. The producer clears lines
/// well ahead, after it has published: clearing the next one just before costs every message the time of one
/// more line transfer (docs/design-choices.md). It learns what was consumed from the consumer's progress
/// words, and looks only when its own view has no space left.
///
/// The body area is deep, because lines that have left the reader's cache are written fastest. But each page of it that
/// is used for the first time costs as much as several messages, and stays. So until the ring has carried enough to be
/// worth its memory, the producer begins a new lap where the next body would need a further page, if all bodies before
/// it have been read.
///
/// Owner: the producer, in whose segment the ring lies. Neither side trusts what the other one wrote: headers
/// are checked against the geometry that this side knows, and progress against what was produced.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "velo/base/check.h"
#include "velo/base/copy.h"
#include "velo/os/clock.h"
#include "velo/shm/distance.h"
#include "velo/shm/early_fetch.h"
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
    explicit RingProducer(RingView ring, uint32_t nontemporal_bytes_min = kNontemporalBytesMin)
        : ring_(ring), nontemporal_bytes_min_(nontemporal_bytes_min) {}

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
        return far_ && bytes >= nontemporal_bytes_min_;
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
    uint32_t nontemporal_bytes_min_ = kNontemporalBytesMin;
    Cell* open_ = nullptr;  ///< where the next message may go, if it is short enough
    bool far_ = false;      ///< the consumer's core
    bool in_body_ = false;  ///< the reserved message
    bool new_lap_ = false;  ///< for its body
    bool garbled_ = false;
};

/// A message as the consumer sees it, in place.
struct Message {
    MessageClass message_class = MessageClass::kHost;
    uint8_t tag = 0;
    uint32_t bytes = 0;
    bool measure = false;  ///< the probe has been written
    bool in_body = false;  ///< or in the lines
    bool half = false;     ///< the other cell of its line may hold the next one
    uint32_t lines = 0;
    uint64_t body_end = 0;  ///< in bytes over all laps
    std::byte* data = nullptr;
};

/// Consumer's end. Thread: the engine's; peek, take, (use the message), release may nest, because a
/// message's handler may poll again: what is given back to the producer never passes a message in use.
class RingConsumer {
  public:
    enum class Peek : uint8_t { kNothing, kMessage, kGarbage };

    RingConsumer() = default;
    explicit RingConsumer(RingView ring) : ring_(ring), next_(&Cell::first_of(ring.line(0))) {}

    struct AcquireLoad {
        uint64_t operator()(const std::atomic<uint64_t>& header) const {
            return header.load(std::memory_order_acquire);
        }
    };
    /// The header word of the next message, 0 when there is none. `load`: AcquireLoad, or what a test makes
    /// of it to let the producer act in between.
    template <class Load = AcquireLoad>
    [[nodiscard]] uint64_t word(Load&& load = Load()) {
        const uint64_t word = load(next_->header);
        if (word != 0) return word;
        if (next_->offset() != 0) return word_behind(load);
        // The producer writes these before the header, so they are on their way here when that is seen. Past the end of
        // the area the loop asks for what is not needed.
        waited_ = true;
        for (uint32_t i = 1; i < early_.lines(); ++i) __builtin_prefetch(next_ + i * (kLineBytes / kCellBytes));
        return 0;
    }
    /// Whether the header word is of a host's message that lies in one line or cell.
    [[nodiscard]] bool is_of_line(uint64_t word) const {
        return LineHeader::is_of_line(word, next_->offset());
    }
    /// Steps past such a message and returns its data, which stays the caller's until release().
    std::byte* take_line(uint64_t word) {
        Cell* const cell = next_;
        ++in_use_;
        early_.took_line();
        step(cell->offset() == 0 ? 1 : 0, (word & LineHeader::kHalf) != 0);
        return cell->data;
    }

    /// Whether the header word is of a host's message that lies in lines, all before the end of the area.
    [[nodiscard]] bool is_of_lines(uint64_t word) const {
        return LineHeader::is_of_lines(word) && next_->offset() == 0 &&
               RingGeometry::lines_of(LineHeader::bytes_of(word)) <= ring_.lines_ahead(position_);
    }
    /// Steps past such a message and returns its data, as take_line() does. `lines`: becomes their number.
    std::byte* take_lines(uint64_t word, uint32_t& lines) {
        Line& line = ring_.line(position_);
        lines = RingGeometry::lines_of(LineHeader::bytes_of(word));
        const uint32_t ahead = std::min(lines, 1 + kFetchAheadLines);
        for (uint32_t i = 1; i < ahead; ++i) __builtin_prefetch(&line + i);
        early_.took(lines, std::exchange(waited_, false), base::monotonic_ns);
        step(lines, false);
        ++in_use_;
        return line.data;
    }

    /// Looks at the next message. kGarbage: the producer wrote a header that cannot be; the ring is unusable.
    [[nodiscard]] Peek peek(Message& message) {
        uint64_t word = this->word();
        if (word == 0) return Peek::kNothing;
        LineHeader header = LineHeader::unpack(word);
        if (next_->offset() != 0) {
            if (!is_of_line(word)) [[unlikely]]
                return Peek::kGarbage;
            message = {.tag = header.tag, .bytes = header.bytes, .data = next_->data};
            return Peek::kMessage;
        }
        if (header.kind == LineHeader::Kind::kSkip) [[unlikely]] {
            position_ += ring_.lines_ahead(position_);
            next_ = &Cell::first_of(ring_.line(position_));
            word = next_->header.load(std::memory_order_acquire);
            if (word == 0) return Peek::kNothing;
            header = LineHeader::unpack(word);
        }
        message.in_body = header.in_body;
        message.half = header.half;
        message.lines = header.in_body ? 1 : RingGeometry::lines_of(header.bytes);
        if (header.kind != LineHeader::Kind::kMessage || (header.half && !is_of_line(word)) ||
            header.bytes > ring_.geometry.message_bytes_max() ||
            (header.in_body ? header.bytes <= kInlineBytesMax
                            : header.bytes > ring_.geometry.short_bytes_max() ||
                                  message.lines > ring_.lines_ahead(position_))) [[unlikely]]
            return Peek::kGarbage;
        message.message_class = header.message_class;
        message.tag = header.tag;
        message.bytes = header.bytes;
        message.measure = header.measure;
        Line& line = ring_.line(position_);
        if (!message.in_body) {
            message.data = line.data;
            fetch_ahead(message);
            return Peek::kMessage;
        }
        const uint64_t start = ring_.body_start(body_position_, header.bytes, header.new_lap);
        ring_.map_bodies(start, header.bytes, mapped_bytes_);
        message.body_end = ring_.body_end(start, header.bytes);
        message.data = ring_.message(start);
        fetch_ahead(message);
        if (!header.whole) std::memcpy(message.data, line.data, kInlineBytesMax);
        return Peek::kMessage;
    }

    /// Steps past the message that peek() showed; its memory stays the caller's until release().
    [[gnu::always_inline]] void take(const Message& message) {
        if (message.in_body) body_position_ = message.body_end;
        early_.took(message.lines, std::exchange(waited_, false), base::monotonic_ns);
        step(message.lines, message.half);
        ++in_use_;
        if (message.measure) [[unlikely]]
            measure();
    }

    /// Ends the use of taken messages. The last one out gives all of them back to the producer.
    void release(uint32_t messages = 1) {
        messages_ += messages;
        in_use_ -= messages;
        if (in_use_ != 0) return;
        ring_.control->consumed.body_bytes.store(body_position_, std::memory_order_release);
        ring_.control->consumed.cells.store(2 * position_ - next_->offset() / kCellBytes,
                                            std::memory_order_release);
    }

    void tell_attached() { ring_.control->sleep.attached.store(1, std::memory_order_release); }
    void set_dormant(bool dormant, uint32_t doorbell_index) {
        ring_.control->sleep.doorbell_index.store(doorbell_index, std::memory_order_relaxed);
        ring_.control->sleep.dormant.store(dormant ? 1 : 0, std::memory_order_release);
    }

    /// A message that was taken has not been released.
    [[nodiscard]] bool in_use() const { return in_use_ != 0; }
    /// Time in ns that a line takes from the producer, as last measured; 0: not known.
    [[nodiscard]] uint32_t line_ns() const { return distance_.ns(); }
    /// Messages that have been released.
    [[nodiscard]] uint64_t messages() const { return messages_; }
    /// The next line to be looked at, counted over all laps.
    [[nodiscard]] uint64_t position() const { return position_; }
    explicit operator bool() const { return ring_.control != nullptr; }

  private:
    /// So much of a message is asked for as soon as its line is there; what follows, the CPU foresees.
    static constexpr uint32_t kFetchAheadLines = 8;
    static void fetch_ahead(const Message& message) {
        const uint32_t end = std::min<uint32_t>(message.bytes, kInlineBytesMax + kFetchAheadLines * kLineBytes);
        for (uint32_t at = kInlineBytesMax; at < end; at += kLineBytes) __builtin_prefetch(message.data + at);
    }

    /// Steps past a message of this number of lines, 0 for one in a second cell, to what may hold the next one.
    [[gnu::always_inline]] void step(uint32_t lines, bool half) {
        if (lines == 0) {
            next_ = &Cell::first_of(ring_.line(position_));
            return;
        }
        position_ += lines;
        // It is looked at soon, and comes while this message is handled.
        __builtin_prefetch(&ring_.line(position_));
        if (half) [[likely]] {
            ++next_;
        } else {
            next_ = &Cell::first_of(ring_.line(position_));
        }
    }

    /// Value of word() when a second cell is empty: it may stay so, and the next line be used.
    template <class Load>
    [[nodiscard, gnu::noinline]] uint64_t word_behind(Load& load) {
        Line& line = ring_.line(position_);
        const uint64_t behind = load(line.header);
        if (behind == 0) return 0;
        // The producer may have filled the cell, and then the line, since the cell was looked at. Pairs with
        // the release of the line's header: what the cell is now, it stays.
        const uint64_t again = load(next_->header);
        if (again != 0) return again;
        next_ = &Cell::first_of(line);
        return behind;
    }

    void measure() {
        const ProbeReading reading = read_probe(ring_.control->probe, ++measures_);
        if (reading.number <= measured_) return;
        measured_ = reading.number;
        distance_.add(reading.ns);
        auto& consumed = ring_.control->consumed;
        consumed.line_ns.store(distance_.ns(), std::memory_order_relaxed);
        consumed.last_ns.store(reading.ns, std::memory_order_relaxed);
        consumed.measured.store(reading.number, std::memory_order_relaxed);
    }

    RingView ring_;
    uint64_t position_ = 0;  ///< in lines
    uint64_t body_position_ = 0;
    uint64_t messages_ = 0;
    uint32_t mapped_bytes_ = 0;
    uint32_t in_use_ = 0;
    EarlyFetch early_;
    bool waited_ = false;  ///< the next message has been looked for
    Cell* next_ = nullptr;  ///< looked at next: the line at position_, or the second cell of the one before
    Distance distance_;
    uint64_t measures_ = 0;  ///< marked messages
    uint64_t measured_ = 0;  ///< the largest number that was found
};

}  // namespace velo::shm
