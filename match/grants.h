/// Decision on how much room each sender is granted for messages that leave without a request.
///
/// Memory for these messages is limited: all senders together hold at most the totals of Terms, and each of them an
/// equal share. A sender gets its first grant with the first of its requests that is accepted. It gets more when it
/// has run out: as much as waits there, and as much again as it has, up to its share. So a sender of a single message
/// holds little, and one of many soon holds all it may. Room for data does not grow (docs/design-choices.md).
///
/// Pure. Owner: Receiver, which reserves the memory. Thread: the engine's, under its lock. Invariant: what is granted
/// and was not taken back is within the totals, for any order of requests and ends of senders.
#pragma once

#include <algorithm>
#include <cstdint>

#include "match/data_cells.h"
#include "match/granted.h"
#include "match/records.h"
#include "match/room.h"
#include "match/unmatched.h"
#include "velo/base/check.h"

namespace velo::match {

class Grants {
  public:
    struct Terms {
        uint64_t records_max = ~uint64_t{0};  ///< granted to all senders together
        uint64_t cells_max = ~uint64_t{0};    ///< as well
        uint64_t senders = 1;                 ///< that have an equal share each
        uint64_t first_records = 0;           ///< of a sender's first grant. 0: no request brings a grant
    };
    /// A request that was accepted, and its sender.
    struct Request {
        uint64_t bytes = 0;         ///< of the message's data
        uint32_t told_records = 0;  ///< that the sender knows of, and has not used
        uint64_t waiting = 0;       ///< messages that wait with the sender, as it says: any number
    };
    /// Cells that come with each record of a first grant.
    static constexpr uint64_t kCellsEach = 16;

    /// Half of the memory is for grants; the other half is left to messages that are requested.
    [[nodiscard]] static constexpr Terms half_of(uint64_t record_bytes, uint64_t data_bytes, uint64_t senders,
                                                 uint64_t first_records) {
        return {.records_max = record_bytes / 2 / sizeof(Record),
                .cells_max = data_bytes / 2 / DataCells::kCellBytes,
                .senders = std::max<uint64_t>(senders, 1),
                .first_records = first_records};
    }

    explicit constexpr Grants(const Terms& terms) : terms_(terms) {
        VELO_CHECK(terms.senders != 0, "memory is divided among no sender");
    }

    /// Limit of the room that one sender holds.
    [[nodiscard]] constexpr Room share() const {
        return {capped(terms_.records_max / terms_.senders, Granted::kRecordsMax),
                capped(terms_.cells_max / terms_.senders, Room::kMax)};
    }
    /// Room to be granted with the answer to a request. `held`: granted to its sender so far. Nothing changes.
    [[nodiscard]] constexpr Room next(Room held, const Request& request) const {
        const Room most = share();
        VELO_CHECK(held.records() <= most.records(), "a sender holds %u records, and its share is %u", held.records(),
                   most.records());
        VELO_CHECK(request.told_records <= held.records(), "a sender knows of %u records, and holds %u",
                   request.told_records, held.records());
        if (terms_.first_records == 0 || most.records() == 0) return {};
        const uint64_t left = terms_.records_max - records_;
        if (held.empty()) {
            const uint32_t records = capped(std::min<uint64_t>(most.records(), terms_.first_records), left);
            const uint64_t cells = std::min<uint64_t>(most.cells(), terms_.first_records * kCellsEach);
            return records == 0 ? Room() : Room(records, capped(cells, terms_.cells_max - cells_));
        }
        // A message with cells waits for its receive instead.
        if (!Unmatched::fits_inside(request.bytes, false) || request.waiting <= request.told_records) return {};
        const uint64_t wanted = std::max<uint64_t>(request.waiting - request.told_records, held.records());
        return {capped(std::min<uint64_t>(wanted, most.records() - held.records()), left), 0};
    }

    /// Whether the totals allow so much more.
    [[nodiscard]] constexpr bool allows(Room room) const {
        return room.records() <= terms_.records_max - records_ && room.cells() <= terms_.cells_max - cells_;
    }
    constexpr void grant(Room room) {
        VELO_CHECK(allows(room), "a grant of %u records and %u cells is beyond the totals", room.records(),
                   room.cells());
        records_ += room.records();
        cells_ += room.cells();
    }
    /// The room of a sender that has ended is for others.
    constexpr void take_back(Room room) {
        VELO_CHECK(room.records() <= records_ && room.cells() <= cells_,
                   "%u records and %u cells are taken back that were not granted", room.records(), room.cells());
        records_ -= room.records();
        cells_ -= room.cells();
    }

    /// Granted to all senders, and not taken back.
    [[nodiscard]] constexpr uint64_t records() const { return records_; }
    [[nodiscard]] constexpr uint64_t cells() const { return cells_; }

  private:
    [[nodiscard]] static constexpr uint32_t capped(uint64_t number, uint64_t most) {
        return static_cast<uint32_t>(std::min(number, most));
    }

    Terms terms_;
    uint64_t records_ = 0;
    uint64_t cells_ = 0;
};

}  // namespace velo::match
