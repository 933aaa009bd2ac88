/// The end of an on-node ring that reads (velo/shm/ring.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "velo/os/clock.h"
#include "velo/shm/distance.h"
#include "velo/shm/early_fetch.h"
#include "velo/shm/ring_layout.h"

namespace velo::shm {

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
        VELO_DCHECK(is_of_line(word), "a message that is in no line is taken from one");
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
        VELO_DCHECK(is_of_lines(word), "a message that is not in lines is taken from them");
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
        VELO_DCHECK(messages <= in_use_, "%u messages are released, of %u", messages, in_use_);
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
