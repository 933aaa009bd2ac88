/// Admission::kContact without a counter that both sides see: the receiver admits or refuses.
///
/// A packet without credits that finds a contact slot free is admitted; its sender is notified, and goes on. One that
/// finds none is dropped, and its sender keeps it. The receiver keeps the sender's name in a queue, sets aside the
/// slot that becomes free, and calls the sender: only then the packet is sent again. So a refused packet crosses the
/// network once more and not every few microseconds, which over a mailbox whose reader is slow would fill it with
/// refused packets, and no sender starves. A called sender that does not send within a time gives the slot back;
/// whatever it sends later is one more arrival.
///
/// Invariants: admitted packets in the mailbox and slots set aside are at most the contact slots; a sender has at most
/// one packet that was not answered; nothing of it overtakes that packet. tests/exhaustive/contact_gate_test explores
/// them. Source: velo/device/device.h; flowctl's contact slots.
///
/// Pure: no I/O, no clock; memory grows with peers, not with packets.
#pragma once

#include <cstdint>
#include <vector>

#include "velo/base/check.h"
#include "velo/device/device.h"

namespace velo::ofi {

/// The sender's side, one for each peer.
class ContactSender {
  public:
    enum class State : uint8_t {
        kIdle,
        kUnanswered,  ///< the packet left, and the receiver has not said anything of it
        kCalled,      ///< it was refused then, and must be sent again now
    };

    /// Nothing else goes to this peer.
    [[nodiscard]] constexpr bool blocks() const { return state_ != State::kIdle; }
    [[nodiscard]] constexpr bool to_resend() const { return state_ == State::kCalled; }
    /// The packet left, for the first time or again.
    constexpr void sent() {
        VELO_DCHECK(state_ != State::kUnanswered, "a second packet leaves before the first was answered");
        state_ = State::kUnanswered;
    }
    /// Answers that fit no packet change nothing.
    constexpr void admitted() {
        if (state_ == State::kUnanswered) state_ = State::kIdle;
    }
    constexpr void called() {
        if (state_ == State::kUnanswered) state_ = State::kCalled;
    }
    constexpr void peer_died() { state_ = State::kIdle; }
    [[nodiscard]] constexpr State state() const { return state_; }

  private:
    State state_ = State::kIdle;
};

/// The receiver's side, for all peers.
class ContactGate {
  public:
    explicit ContactGate(uint32_t slots) : slots_(slots) {}

    /// There is state for the peer from here on.
    void know(DeviceAddr peer) {
        if (peer >= peers_.size()) peers_.resize(peer + 1);
    }
    /// A contact packet came. True: it is admitted, and its sender must be notified; false: drop it.
    [[nodiscard]] bool arrived(DeviceAddr peer) {
        VELO_DCHECK(peer < peers_.size(), "peer %u of %zu", uint32_t{peer}, peers_.size());
        VELO_DCHECK(taken_ + set_aside_ <= slots_, "%u slots taken and %u set aside, of %u", taken_,
                    set_aside_, slots_);
        Peer& of = peers_[peer];
        if (of.place == Place::kCalled) {
            remove(called_, peer);
            --set_aside_;
            ++taken_;
            return true;
        }
        if (of.place == Place::kNone && waiting_.first == kNoAddr && taken_ + set_aside_ < slots_) {
            ++taken_;
            return true;
        }
        if (of.place == Place::kNone) append(waiting_, peer, Place::kWaiting);
        return false;
    }
    /// An admitted packet has left the mailbox.
    void left() {
        VELO_CHECK(taken_ != 0, "a packet leaves a contact slot, of %u, of which none is taken", slots_);
        --taken_;
    }
    /// The next sender to call, whose slot is set aside until `expires_ns`; kNoAddr: none.
    [[nodiscard]] DeviceAddr next_call(uint64_t expires_ns) {
        if (waiting_.first == kNoAddr || taken_ + set_aside_ >= slots_) return kNoAddr;
        const DeviceAddr peer = waiting_.first;
        remove(waiting_, peer);
        append(called_, peer, Place::kCalled);
        VELO_DCHECK(called_.first == peer || peers_[peers_[peer].before].expires_ns <= expires_ns,
                    "the call of peer %u expires before an earlier one", uint32_t{peer});
        peers_[peer].expires_ns = expires_ns;
        ++set_aside_;
        return peer;
    }
    /// Gives slots back that were set aside until now or before.
    void expire(uint64_t now_ns) {
        while (called_.first != kNoAddr && peers_[called_.first].expires_ns <= now_ns) {
            VELO_DCHECK(set_aside_ != 0, "a call expires, of %u slots", slots_);
            remove(called_, called_.first);
            --set_aside_;
        }
    }
    void peer_died(DeviceAddr peer) {
        if (peers_[peer].place == Place::kWaiting) remove(waiting_, peer);
        if (peers_[peer].place == Place::kCalled) {
            remove(called_, peer);
            --set_aside_;
        }
    }
    [[nodiscard]] uint32_t taken() const { return taken_; }
    [[nodiscard]] uint32_t set_aside() const { return set_aside_; }
    /// Senders that wait to be called, and those that were, in their order.
    template <class Visit>
    void visit_waiting(Visit&& visit) const {
        for (DeviceAddr at = waiting_.first; at != kNoAddr; at = peers_[at].behind) visit(at);
    }
    template <class Visit>
    void visit_called(Visit&& visit) const {
        for (DeviceAddr at = called_.first; at != kNoAddr; at = peers_[at].behind) visit(at);
    }

  private:
    enum class Place : uint8_t { kNone, kWaiting, kCalled };
    struct Peer {
        uint64_t expires_ns = 0;
        DeviceAddr before = kNoAddr;
        DeviceAddr behind = kNoAddr;
        Place place = Place::kNone;
    };
    struct List {
        DeviceAddr first = kNoAddr;
        DeviceAddr last = kNoAddr;
    };

    void append(List& list, DeviceAddr peer, Place place) {
        VELO_DCHECK(peers_[peer].place == Place::kNone, "peer %u is in a list already", uint32_t{peer});
        peers_[peer].place = place;
        peers_[peer].before = list.last;
        peers_[peer].behind = kNoAddr;
        (list.last == kNoAddr ? list.first : peers_[list.last].behind) = peer;
        list.last = peer;
    }
    void remove(List& list, DeviceAddr peer) {
        const Peer& of = peers_[peer];
        VELO_DCHECK(
            (of.before == kNoAddr) == (list.first == peer) && (of.behind == kNoAddr) == (list.last == peer),
            "peer %u is not where its links say", uint32_t{peer});
        (of.before == kNoAddr ? list.first : peers_[of.before].behind) = of.behind;
        (of.behind == kNoAddr ? list.last : peers_[of.behind].before) = of.before;
        peers_[peer].place = Place::kNone;
    }

    uint32_t slots_;
    uint32_t taken_ = 0;      ///< contact packets in the mailbox
    uint32_t set_aside_ = 0;  ///< for senders that were called
    List waiting_;            ///< refused, in the order they came
    List called_;             ///< in the order of their expiry
    std::vector<Peer> peers_;
};

}  // namespace velo::ofi
