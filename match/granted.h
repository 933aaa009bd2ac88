/// Room that one sender was granted for messages which leave without a request, as its receiver knows it.
///
/// A message that finds its receive posted has not needed its room, which is the sender's again; the receiver
/// notifies it by half of what the sender has, so that it never stands still for the rest. Nearly all
/// messages are of this kind, and each is counted down to the one that makes a notice due, in a number that
/// also says whether it may have been sent.
///
/// Pure. Owner: the receiver. Thread: the engine's, under its lock.
#pragma once

#include <cstdint>
#include <utility>

#include "match/room.h"
#include "velo/base/check.h"

namespace velo::match {

class Granted {
  public:
    /// All of them may be unreported, and half be counted down to, in 16 bits.
    static constexpr uint32_t kRecordsMax = 0x7fff;
    static_assert((kRecordsMax - 1) / 2 <= INT16_MAX && kRecordsMax - (kRecordsMax - 1) / 2 <= -INT16_MIN);

    /// Granted, and not used as far as is known here.
    [[nodiscard]] Room left() const { return left_; }
    /// Room of left() that has not been reported to the sender.
    [[nodiscard]] Room untold() const {
        return {static_cast<uint32_t>(until_due(left_.records()) - countdown_), untold_cells_};
    }
    [[nodiscard]] Room told() const { return left_ - untold(); }
    /// Whether the sender may have sent a message whose data takes this number of cells.
    [[nodiscard]] bool allows(uint32_t cells) const { return told().has({1, cells}); }

    /// Whether there can be so much more.
    [[nodiscard]] bool fits(Room more) const {
        return left_.fits(more) && left_.records() + more.records() <= kRecordsMax;
    }
    /// Room that was set aside becomes the sender's.
    void give(Room room) {
        VELO_DCHECK(fits(room), "%u records and %u cells are more than can be granted", room.records(),
                    room.cells());
        set(left_ + room, untold() + room);
    }
    /// A message has come in its room, and keeps it.
    void use(uint32_t cells) {
        VELO_DCHECK(allows(cells), "a message of %u cells, which the sender may not have sent", cells);
        set(left_ - Room{1, cells}, untold());
    }
    /// A message has come in its room, and has not needed it: the room is the sender's again.
    void give_back(uint32_t cells) { set(left_, untold() + Room{1, cells}); }
    /// give_back(0), if nothing is due; otherwise false.
    [[nodiscard, gnu::always_inline]] bool give_back_plain() {
        if (--countdown_ >= 0) [[likely]]
            return true;
        ++countdown_;
        return false;
    }
    /// The last message was not what it seemed.
    void undo_plain() {
        ++countdown_;
        VELO_DCHECK(countdown_ <= until_due(left_.records()),
                    "a record is counted back that was not counted");
    }

    /// With the next message, records are reported to the sender. Until then one without cells is allowed.
    [[nodiscard]] bool due() const { return countdown_ <= 0; }
    /// Whether records or cells are due to be reported to the sender.
    [[nodiscard]] bool any_due() const { return due() || 2 * untold_cells_ >= left_.cells(); }
    /// Room to be reported to the sender now.
    [[nodiscard]] Room take_untold() {
        const Room room = untold();
        set(left_, {});
        return room;
    }
    /// The sender has ended. Gives what was left.
    [[nodiscard]] Room take_all() {
        const Room room = left_;
        *this = {};
        return room;
    }

  private:
    /// Records that may come back before they are reported to the sender, where it has `records`.
    [[nodiscard]] static int32_t until_due(uint32_t records) {
        return records == 0 ? 0 : static_cast<int32_t>((records - 1) / 2);
    }
    void set(Room left, Room untold) {
        VELO_DCHECK(left.records() <= kRecordsMax && left.has(untold), "more room than can be counted");
        left_ = left;
        untold_cells_ = static_cast<uint16_t>(untold.cells());
        countdown_ = static_cast<int16_t>(until_due(left.records()) - static_cast<int32_t>(untold.records()));
    }

    Room left_;
    uint16_t untold_cells_ = 0;
    int16_t countdown_ = 0;  ///< while it is above 0, the sender knows of at least one record
};
static_assert(sizeof(Granted) == 8);

}  // namespace velo::match
