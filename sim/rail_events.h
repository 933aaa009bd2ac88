/// The events of a run of sim/rails.h, and its clock.
#pragma once

#include <cstdint>
#include <queue>

#include "rma/rail_reservation.h"

namespace velo::sim {

enum class RailEventKind : uint8_t {
    kMake,    ///< a process makes a message
    kArrive,  ///< the last flit of a worm
    // Of RailAllocation:
    kAsk,        ///< a NIC's thread has a local RTS
    kGiveUp,     ///< a local ABORT
    kGrantDone,  ///< a local ACK
    kControl,    ///< a control message comes to a NIC
    kHandle,     ///< and its thread has read it
    kRetry,      ///< a message's random wait is over
    kAskAgain,   ///< a fragment's
    // Of the plugin's machines:
    kShippedSend,     ///< a NIC's thread has a request of a process
    kShippedControl,  ///< a control message comes to a NIC
    kShippedHandle,   ///< and its thread has read it
    kShippedDrive,    ///< a process looks at what waits
};

struct RailEvent {
    double time = 0;
    uint64_t order = 0;
    RailEventKind kind{};
    uint32_t at = 0;  ///< process, NIC, message or worm
    rma::RailMessage message;
    uint32_t process = 0;  ///< kShippedSend: that sends; kShippedControl, kShippedHandle: that receives
    /// The next event is the largest of a heap.
    bool operator<(const RailEvent& other) const {
        return time > other.time || (time == other.time && order > other.order);
    }
};

/// Events of one time come in the order scheduled. Times are in cycles. Owner: RailsWorld.
class RailEvents {
  public:
    [[nodiscard]] double now() const { return now_; }
    [[nodiscard]] uint64_t now_ns() const { return static_cast<uint64_t>(now_); }
    /// Time passes; never backwards.
    void pass_to(double time) { now_ = time; }

    void schedule(double time, RailEventKind kind, uint32_t at, const rma::RailMessage& message = {},
                  uint32_t process = 0) {
        events_.push({.time = time,
                      .order = scheduled_++,
                      .kind = kind,
                      .at = at,
                      .message = message,
                      .process = process});
    }
    /// The time of the next event; there is one.
    [[nodiscard]] double next_time() const { return events_.top().time; }
    [[nodiscard]] RailEvent take_next() {
        const RailEvent event = events_.top();
        events_.pop();
        return event;
    }

  private:
    std::priority_queue<RailEvent> events_;
    uint64_t scheduled_ = 0;
    double now_ = 0;
};

}  // namespace velo::sim
