/// Layout of a ring's memory (velo/shm/ring.h): its geometry, header words, lines, cells and progress.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include "velo/base/check.h"
#include "velo/os/shared_segment.h"
#include "velo/shm/distance.h"
#include "velo/wire/packet.h"

namespace velo::shm {

inline constexpr size_t kLineBytes = 64;
inline constexpr uint32_t kInlineBytesMax = 56;
/// A line may also hold two messages, each in a cell of its own.
inline constexpr size_t kCellBytes = 32;
inline constexpr uint32_t kCellBytesMax = 24;

/// Messages of so few lines stay there in streams, too, where they are faster than in the deep area with near cores and
/// with far ones; those of twice as many are with near cores only (docs/design-choices.md).
inline constexpr uint32_t kFewLines = 4;
inline constexpr uint32_t kFewLinesBytesMax = kFewLines * kLineBytes - sizeof(uint64_t);

/// Number of lines and bytes of a ring; both are powers of two.
struct RingGeometry {
    uint32_t lines = 0;
    uint32_t body_bytes = 0;

    [[nodiscard]] constexpr bool valid() const {
        return std::has_single_bit(lines) && std::has_single_bit(body_bytes) && lines >= 4 &&
               lines <= 1u << 20 && body_bytes >= 4096 && body_bytes <= 1u << 30;
    }
    /// A body never takes more than half, so that wrapping around never wastes all of the space.
    [[nodiscard]] constexpr uint32_t message_bytes_max() const { return body_bytes / 2 - kLineBytes; }
    static constexpr uint32_t kShortLinesMax = 33;  ///< 2 KiB beside a host's header
    /// Longest message that lies in the lines.
    [[nodiscard]] constexpr uint32_t short_bytes_max() const {
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
    bool measure = false;  ///< the probe was written, for the consumer to time
    bool in_body = false;  ///< what does not fit the line lies in the body area
    bool whole = false;    ///< the body area has the beginning too, the line has nothing
    bool half = false;     ///< the line's other cell may hold the next message
    bool new_lap = false;  ///< the body lies at the beginning of its area, although it would fit behind the last one

    [[nodiscard]] constexpr uint64_t pack() const {
        return static_cast<uint64_t>(kind) | static_cast<uint64_t>(message_class) << 16 |
               uint64_t{measure} << 18 | uint64_t{whole} << 19 | uint64_t{in_body} << 20 |
               uint64_t{half} << 21 | uint64_t{new_lap} << 22 | uint64_t{tag} << 24 | uint64_t{bytes} << 32;
    }
    static constexpr uint64_t kHalf = uint64_t{1} << 21;
    static constexpr uint64_t kTagAndBytes = uint64_t{0xff} << 24 | uint64_t{UINT32_MAX} << 32;
    /// The header word of a host's message that lies in one line.
    [[nodiscard, gnu::always_inline]] static constexpr uint64_t of_line(uint8_t tag, uint32_t bytes) {
        return LineHeader{.tag = tag, .bytes = bytes}.pack();
    }
    /// Whether a header word is of a host's message that lies in one line, or in a cell. `taken`: bytes of
    /// the line before it, 0 or kCellBytes.
    [[nodiscard, gnu::always_inline]] static constexpr bool is_of_line(uint64_t word, uint64_t taken = 0) {
        static_assert(kHalf >> 16 == kCellBytes && kInlineBytesMax - kCellBytes == kCellBytesMax);
        const uint64_t half = word >> 16 & kCellBytes;
        // No other one can follow a second cell.
        if ((word & ~(kTagAndBytes | kHalf)) != of_line(0, 0) || (taken & half) != 0) [[unlikely]]
            return false;
        const uint64_t bytes = word >> 32;
        return bytes <= kCellBytesMax || ((taken | half) == 0 && bytes <= kInlineBytesMax);
    }
    /// Whether it is of a host's message that lies in lines, and has all of the first one.
    [[nodiscard, gnu::always_inline]] static constexpr bool is_of_lines(uint64_t word) {
        return (word & ~kTagAndBytes) == of_line(0, 0) &&
               word >> 32 <= RingGeometry::kShortLinesMax * kLineBytes - sizeof(uint64_t);
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
                .whole = (word >> 19 & 1) != 0,
                .half = (word >> 21 & 1) != 0,
                .new_lap = (word >> 22 & 1) != 0};
    }
};

struct alignas(kLineBytes) Line {
    std::atomic<uint64_t> header;
    std::byte data[kInlineBytesMax];
};
static_assert(sizeof(Line) == kLineBytes && std::atomic<uint64_t>::is_always_lock_free);

/// Half of a line.
struct Cell {
    std::atomic<uint64_t> header;
    std::byte data[kCellBytesMax];

    [[nodiscard]] static Cell& first_of(Line& line) { return *std::launder(reinterpret_cast<Cell*>(&line)); }
    [[nodiscard]] static Cell& second_of(Line& line) { return *(&first_of(line) + 1); }
    /// Bytes of its line before it.
    [[nodiscard]] uint64_t offset() const { return reinterpret_cast<uintptr_t>(this) & kCellBytes; }
};
static_assert(2 * sizeof(Cell) == sizeof(Line) && sizeof(Cell) == kCellBytes);

/// Seen by both sides, ahead of the lines.
struct RingControl {
    /// Consumer's progress: cells (two a line) and body bytes consumed. Only the consumer writes this line.
    struct alignas(kLineBytes) {
        std::atomic<uint64_t> cells;
        std::atomic<uint64_t> body_bytes;
        std::atomic<uint32_t> line_ns;  ///< transfer of a cache line from the producer: the estimate
        std::atomic<uint32_t> last_ns;  ///< the last time alone
        std::atomic<uint64_t> measured;  ///< number of that measurement
    } consumed;
    /// Set by a consumer that no longer polls this ring each time; the producer then rings its doorbell. On a
    /// line of its own, because the producer reads it after every message.
    struct alignas(kLineBytes) {
        std::atomic<uint32_t> dormant;
        std::atomic<uint32_t> doorbell_index;
        std::atomic<uint32_t> attached;  ///< by the consumer; from then on the ring outlives its producer
    } sleep;
    Probe probe;  ///< written by the producer before it marks a message, and timed by the consumer
};

/// Bytes at the start of a ring that have to be 0 before it is used.
[[nodiscard]] constexpr size_t ring_zero_bytes(RingGeometry geometry) {
    return sizeof(RingControl) + geometry.lines * sizeof(Line);
}

/// Bytes of shared memory that a ring takes.
[[nodiscard]] constexpr size_t ring_bytes(RingGeometry geometry) {
    return base::round_up(sizeof(RingControl) + geometry.lines * sizeof(Line) + geometry.body_bytes, 4096);
}

/// Places of a ring's parts.
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
    /// Bytes from the beginning of the body area to a position.
    [[nodiscard]] uint32_t in_lap(uint64_t position) const {
        return static_cast<uint32_t>(position & (geometry.body_bytes - 1));
    }
    /// Begin of the body of a message of `bytes` that may not start before `position`: bodies do not
    /// wrap. `new_lap`: it is to lie at the beginning of the area.
    [[nodiscard]] uint64_t body_start(uint64_t position, uint32_t bytes, bool new_lap) const {
        const uint32_t before = in_lap(position);
        if (!new_lap && before + body_bytes(bytes) <= geometry.body_bytes) return position;
        return position - before + geometry.body_bytes;
    }
    [[nodiscard]] uint64_t body_end(uint64_t start, uint32_t bytes) const {
        return start + body_bytes(bytes);
    }
    /// Begin of such a message, given its body's start, when it is contiguous.
    [[nodiscard]] std::byte* message(uint64_t start) const {
        return body(start) + kLineBytes - kInlineBytesMax;
    }
    /// Bytes of the body area that a message takes that is too long for the lines: the line that the consumer
    /// writes the beginning to, and the rest.
    [[nodiscard]] static uint32_t body_bytes(uint32_t bytes) {
        return kLineBytes + static_cast<uint32_t>(base::round_up(bytes - kInlineBytesMax, kLineBytes));
    }

    /// Maps the body area as far as a message there needs it, before it is used for the first time, a block at a time.
    /// `mapped`: how far that is done.
    void map_bodies(uint64_t start, uint32_t bytes, uint32_t& mapped) const {
        constexpr uint32_t kBlock = 128u << 10;
        const uint32_t end = in_lap(start) + body_bytes(bytes);
        while (mapped < end) {
            const uint32_t block = std::min(kBlock, geometry.body_bytes - mapped);
            base::prefault(bodies + mapped, block);
            mapped += block;
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

}  // namespace velo::shm
