/// Injected faults of packets: those that leave later, and a mailbox that shows nothing for a time
/// (velo/device/faults.h).
#pragma once

#include <cstdint>
#include <utility>

#include "velo/device/faults.h"

namespace velo::shim {

/// Used only where faults are injected. Owner: ShimDevice. Thread: the owner's.
class PacketFaults {
  public:
    /// `faults` may be nullptr: then nothing below is called, but held() and drop().
    explicit PacketFaults(base::Faults* faults) : faults_(faults) {}

    /// A message of `packets` packets for `to`, whose mailbox has `mailbox_slots`, the last of which is number
    /// `packets_sent` of this process. kOk: it leaves at once where `now` is set, else by delay(). kAgain: packets
    /// that are held back take the slots. kPeerDead: this process is dead from now on.
    Status admit(DeviceAddr to, uint32_t packets, Admission admission, uint32_t mailbox_slots, uint64_t packets_sent,
                 bool& now) {
        if (faults_->dies(packets_sent)) return Status::kPeerDead;
        const uint32_t waiting = delayed_.waiting(to);
        // Packets that wait here will take slots there. Credits have seen to it; a guarded sender has to be held
        // back.
        const bool guarded = admission == Admission::kGuarded;
        if (guarded && waiting != 0 && waiting + packets > mailbox_slots) return Status::kAgain;
        delay_ns_ = faults_->packet_delay_ns();
        now = delay_ns_ == 0 && waiting == 0;
        return Status::kOk;
    }
    /// Holds the message back that was admitted last.
    template <class Fill>
    void delay(DeviceAddr to, uint32_t packets, Admission admission, uint64_t now_ns, Fill&& fill) {
        base::DelayLine::Message message = {.due_ns = now_ns + delay_ns_, .admission = admission, .packets = {}};
        message.packets.resize(packets);
        for (uint32_t i = 0; i < packets; ++i) {
            message.packets[i].status = fill(i, message.packets[i].payload).pack();
        }
        delayed_.push(to, std::move(message));
    }
    /// Hands messages that are due to `send(to, message)`, which returns kAgain to have it kept.
    template <class Send>
    uint32_t release(uint64_t now_ns, Send&& send) {
        return delayed_.release(now_ns, std::forward<Send>(send));
    }
    /// Packets for `to` that are held back.
    [[nodiscard]] uint32_t held(DeviceAddr to) const { return delayed_.waiting(to); }
    void drop(DeviceAddr to) { delayed_.drop(to); }

    /// Whether the mailbox shows nothing now. Draws once for each packet that is about to be shown, at `position`.
    /// Not inlined: that would cost the short way to a packet some registers.
    [[gnu::noinline]] bool stalled(uint64_t position, uint64_t now_ns) {
        if (faults_->dead()) return true;
        if (position != drawn_position_) {
            drawn_position_ = position;
            if (const uint64_t stall_ns = faults_->mailbox_stall_ns(); stall_ns != 0) {
                stalled_until_ns_ = now_ns + stall_ns;
            }
        }
        return now_ns < stalled_until_ns_;
    }

  private:
    base::Faults* faults_;
    base::DelayLine delayed_;
    uint64_t delay_ns_ = 0;  ///< of the message admitted last
    uint64_t drawn_position_ = UINT64_MAX;
    uint64_t stalled_until_ns_ = 0;
};

}  // namespace velo::shim
