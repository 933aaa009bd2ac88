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

#include "match/receiver.h"
#include "match/waiting_sends.h"

namespace velo::match {

class Outgoing {
  public:
    /// True: the message of this length may leave eagerly, and has used its room up. False: it has to wait,
    /// by add(). `keeps_number`: the receiver says when it has matched.
    [[nodiscard]] bool take_grant(uint64_t bytes, bool keeps_number) {
        if (records_ == 0 || bytes > kEagerBytesMax || !waiting_.empty()) return false;
        const uint32_t cells = Unmatched::cells_of(static_cast<uint32_t>(bytes), keeps_number);
        if (cells > cells_) return false;
        --records_;
        cells_ -= cells;
        return true;
    }
    void add(WaitingSend& send, const Envelope& envelope) { waiting_.add(send, envelope); }
    /// False: that is more than a receiver can set aside; a mistake of its.
    [[nodiscard]] bool granted(Receiver::Grant grant) {
        if (records_ + grant.records > UINT16_MAX || cells_ + grant.cells > UINT16_MAX) return false;
        records_ += grant.records;
        cells_ += grant.cells;
        return true;
    }

    [[nodiscard]] WaitingSends& waiting() { return waiting_; }
    [[nodiscard]] uint32_t records() const { return records_; }
    [[nodiscard]] uint32_t cells() const { return cells_; }

  private:
    /// Its cells can be counted; how long an eager message may be is the caller's to say.
    static constexpr uint64_t kEagerBytesMax = UINT32_MAX;

    WaitingSends waiting_;
    uint32_t records_ = 0;
    uint32_t cells_ = 0;
};

}  // namespace velo::match
