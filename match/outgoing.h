/// The sending side of matching in bounded memory, towards one peer: what leaves eagerly, and what waits to
/// be accepted.
///
/// A message leaves eagerly, and is done with, if its receiver has set room aside for it (a grant) and
/// nothing waits before it: past a message that waits it would overtake. Others wait in the queue
/// (match/waiting_sends.h).
///
/// Pure. Owner: the engine's state of a peer that is sent to. Thread: the engine's, under its lock.
#pragma once

#include <cstdint>

#include "match/room.h"
#include "match/unmatched.h"
#include "match/waiting_sends.h"

namespace velo::match {

class Outgoing {
  public:
    /// True: the message of this length may leave eagerly, and has used its room up. False: it has to wait,
    /// by add(). `keeps_number`: the receiver says when it has matched.
    [[nodiscard]] bool take_grant(uint64_t bytes, bool keeps_number) {
        if (bytes > kEagerBytesMax || !waiting_.empty()) return false;
        const Room room = {1, Unmatched::cells_of(static_cast<uint32_t>(bytes), keeps_number)};
        if (!room_.has(room)) return false;
        room_ -= room;
        return true;
    }
    /// It has not left.
    void give_back_grant(uint64_t bytes, bool keeps_number) {
        room_ += {1, Unmatched::cells_of(static_cast<uint32_t>(bytes), keeps_number)};
    }
    /// take_grant() in two steps, of a message whose data fits into its record.
    [[nodiscard]] bool has_record() const { return waiting_.empty() && room_.records() != 0; }
    void take_record() { room_ -= {1, 0}; }
    void add(WaitingSend& send, const Envelope& envelope) { waiting_.add(send, envelope); }
    /// False: that is more than a receiver can set aside; a mistake of its.
    [[nodiscard]] bool granted(Room more) {
        if (!room_.fits(more)) return false;
        room_ += more;
        return true;
    }

    [[nodiscard]] WaitingSends& waiting() { return waiting_; }
    [[nodiscard]] Room room() const { return room_; }

  private:
    /// Its cells can be counted; how long an eager message may be is the caller's to say.
    static constexpr uint64_t kEagerBytesMax = uint64_t{Room::kMax} * DataCells::kDataBytes;

    WaitingSends waiting_;
    Room room_;
};

}  // namespace velo::match
