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
#include <utility>

#include "match/room.h"
#include "match/unmatched.h"
#include "match/waiting_sends.h"
#include "velo/base/check.h"

namespace velo::match {

class Outgoing {
  public:
    /// True: the message of this length may leave eagerly, and has used its room up. False: it has to wait,
    /// by add(). `keeps_number`: the receiver says when it has matched.
    [[nodiscard]] bool take_grant(uint64_t bytes, bool keeps_number) {
        if (bytes > kEagerBytesMax) return false;
        const uint32_t cells = Unmatched::cells_of(static_cast<uint32_t>(bytes), keeps_number);
        if (cells > cells_ || !take_record()) return false;
        cells_ -= cells;
        return true;
    }
    /// The message that take_grant() was called for has not left, and nothing has been added meanwhile.
    void give_back_grant(uint64_t bytes, bool keeps_number) {
        give_back_record();
        cells_ += Unmatched::cells_of(static_cast<uint32_t>(bytes), keeps_number);
    }
    /// take_grant() of a message whose data fits into its record.
    [[nodiscard, gnu::always_inline]] bool take_record() {
        if (--ready_ >= 0) [[likely]]
            return true;
        ready_ = 0;
        return false;
    }
    void give_back_record() {
        VELO_DCHECK(waiting_.empty(), "a record is given back behind a message that waits");
        ++ready_;
    }
    void add(WaitingSend& send, const Envelope& envelope) {
        VELO_DCHECK(waiting_.empty() ? held_ == 0 : ready_ == 0, "%d records held, %d ready", held_, ready_);
        waiting_.add(send, envelope);
        held_ += std::exchange(ready_, 0);
    }
    /// False: its receiver was not asked. Otherwise the message is not waiting any more.
    [[nodiscard]] bool accepted(WaitingSend& send) {
        if (!waiting_.accepted(send)) return false;
        VELO_DCHECK(ready_ == 0, "%d records are ready while a message waits", ready_);
        if (waiting_.empty()) ready_ = std::exchange(held_, 0);
        return true;
    }
    /// False: that is more than a receiver can set aside; a mistake of its.
    [[nodiscard]] bool granted(Room more) {
        if (!room().fits(more)) return false;
        (waiting_.empty() ? ready_ : held_) += static_cast<int32_t>(more.records());
        cells_ += more.cells();
        return true;
    }

    /// As made. Not written where it is used: clang 14 leaves this class's destructor out of a template that is
    /// declared to be compiled elsewhere.
    void reset() { *this = {}; }

    /// The queue of messages that wait, for all but accepted().
    [[nodiscard]] WaitingSends& waiting() { return waiting_; }
    [[nodiscard]] Room room() const { return {static_cast<uint32_t>(ready_ + held_), cells_}; }

  private:
    /// Its cells can be counted; how long an eager message may be is the caller's to say.
    static constexpr uint64_t kEagerBytesMax = uint64_t{Room::kMax} * DataCells::kDataBytes;

    WaitingSends waiting_;
    /// Records that were granted and are not used: while a message waits, they are held back, so that one number says
    /// whether the next one may leave.
    int32_t ready_ = 0;
    int32_t held_ = 0;
    uint32_t cells_ = 0;
};

}  // namespace velo::match
