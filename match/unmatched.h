/// Contents of a record beside envelope and sender: the message's length, its sender's number for it, and the
/// place of its data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "match/data_cells.h"
#include "match/records.h"
#include "velo/base/check.h"

namespace velo::match {

/// A message that arrives: all that the receiver needs of it. The caller has checked what its peer sent: the
/// envelope is_of_message(), and data_bytes <= bytes.
struct Arrival {
    Envelope envelope;
    uint64_t number = 0;  ///< the sender's
    uint64_t bytes = 0;   ///< of its data
    const std::byte* data = nullptr;
    uint32_t data_bytes = 0;    ///< of it, those that have come along
    /// Instead of data: by what the caller fetches it.
    const std::byte* handle = nullptr;
    uint32_t handle_bytes = 0;
    bool keeps_number = false;  ///< the sender has to hear of the match
    uint8_t waiting_width = 0;  ///< of a request: at most 2^width messages wait with the sender
};

/// A view of a record, in the queue or dequeued. A short message whose sender need not hear of it has
/// its data inside and nothing else.
class Unmatched {
  public:
    explicit Unmatched(const Record& record) : record_(record) {}

    /// Whether its data would lie in the record.
    [[nodiscard]] static constexpr bool fits_inside(uint64_t bytes, bool keeps_number) {
        return bytes <= Record::kBodyBytes && !keeps_number;
    }
    /// Cells that all of its data takes.
    [[nodiscard]] static constexpr uint32_t cells_of(uint32_t bytes, bool keeps_number) {
        return fits_inside(bytes, keeps_number) ? 0 : DataCells::cells_of(bytes);
    }

    static void write_inside(Record& record, const Arrival& arrival, bool granted) {
        VELO_DCHECK(fits_inside(arrival.bytes, arrival.keeps_number) && arrival.data_bytes == arrival.bytes,
                    "%u bytes do not lie in a record", arrival.data_bytes);
        record.note =
            kInside | (granted ? kGranted : 0) | static_cast<uint32_t>(arrival.bytes) << kLengthShift;
        if (arrival.bytes != 0) std::memcpy(record.body.data(), arrival.data, arrival.bytes);
    }
    /// `cells`: what came along of its data, or its handle; kNoCell, when all of it is with the sender.
    static void write(Record& record, const Arrival& arrival, CellRef cells, bool granted) {
        VELO_DCHECK(!granted || (cells == kNoCell) == (arrival.data_bytes == 0),
                    "%u granted bytes have no cells", arrival.data_bytes);
        const bool has_handle = arrival.handle_bytes != 0 && cells != kNoCell;
        const uint32_t here = has_handle ? arrival.handle_bytes : arrival.data_bytes;
        const Body body = {arrival.number, arrival.bytes, cells, cells == kNoCell ? 0 : here};
        record.note = (granted ? kGranted : 0) | (has_handle ? kHandle : 0);
        std::memcpy(record.body.data(), &body, sizeof body);
    }

    [[nodiscard]] const Envelope& envelope() const { return record_.envelope; }
    [[nodiscard]] uint32_t peer() const { return record_.peer; }
    [[nodiscard]] bool granted() const { return (record_.note & kGranted) != 0; }
    [[nodiscard]] bool inside() const { return (record_.note & kInside) != 0; }
    [[nodiscard]] uint64_t bytes() const { return inside() ? record_.note >> kLengthShift : body().bytes; }
    /// Bytes of the message that are here, from its beginning on; the others are with the sender.
    [[nodiscard]] uint32_t bytes_here() const {
        if ((record_.note & kHandle) != 0) return 0;
        return inside() ? record_.note >> kLengthShift : body().bytes_in_cells;
    }
    /// Length of the handle that lies in its cells instead of data; 0: none does.
    [[nodiscard]] uint32_t handle_bytes() const {
        return (record_.note & kHandle) != 0 ? body().bytes_in_cells : 0;
    }
    /// 0: the sender is finished with it.
    [[nodiscard]] uint64_t number() const { return inside() ? 0 : body().number; }
    [[nodiscard]] CellRef cells() const { return inside() ? kNoCell : body().cells; }
    [[nodiscard]] const std::byte* data_inside() const { return record_.body.data(); }

  private:
    static constexpr uint32_t kGranted = 1;
    static constexpr uint32_t kInside = 2;
    static constexpr uint32_t kHandle = 4;
    static constexpr uint32_t kLengthShift = 8;
    static_assert(Record::kBodyBytes < 1u << (32 - kLengthShift) &&
                  (kGranted | kInside | kHandle) >> kLengthShift == 0);

    struct Body {
        uint64_t number;
        uint64_t bytes;
        CellRef cells;
        uint32_t bytes_in_cells;
    };
    static_assert(sizeof(Body) == Record::kBodyBytes);

    [[nodiscard]] Body body() const {
        Body body;
        std::memcpy(&body, record_.body.data(), sizeof body);
        return body;
    }

    const Record& record_;
};

}  // namespace velo::match
