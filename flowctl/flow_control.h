/// Credit flow control of one process, as sender and as receiver, under the mode that its plan names.
///
/// A pure state machine: an event goes in, the next state and what to do (Actions) come out. No I/O, clock,
/// lock or log; no allocation after construction; O(1) an event. The engine and the simulator drive it.
#pragma once

#include <cstdint>

#include "flowctl/actions.h"
#include "flowctl/mode.h"
#include "flowctl/plan.h"
#include "flowctl/static_credits.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// Control packets with which a receiver takes credits back (FC 6.1). Static flow control has none.
enum class ControlKind : uint8_t {
    kReturnRequest,
    kReturnResponse,
};

/// Owner: one engine. Thread: the engine's.
///
/// What every driver must keep, for the proofs to hold (tests/exhaustive shows what breaks otherwise):
/// - A packet's slot is free again, as far as the device is concerned, before the event is reported that
///   the packet gives rise to (packets_retrieved, credits_arrived, control_arrived).
/// - Credits are taken for a piggyback only when the packet that carries them goes at once. Credits inside
///   a packet that itself waits for a credit can make two processes wait for each other for ever.
/// - Every action is carried out, in any finite time. Packets between two processes stay in order.
///
/// A Status other than kOk means that a peer broke the protocol, and that nothing changed.
class FlowControl {
  public:
    explicit FlowControl(const Plan& plan)
        : mode_(plan.mode), peers_(plan.peers), static_(plan.mode == Mode::kStatic ? plan : Plan{}) {
        VELO_CHECK(mode_ == Mode::kNone || mode_ == Mode::kStatic, "a plan with mode %u",
                   static_cast<unsigned>(mode_));
    }

    [[nodiscard]] Mode mode() const noexcept { return mode_; }
    [[nodiscard]] uint32_t peers() const noexcept { return peers_; }

    // Sender role.

    /// How many of `packets` packets may go to the peer now; the rest waits until credits arrive.
    [[nodiscard]] uint32_t sendable(PeerIndex to, uint32_t packets) const noexcept {
        return counts() ? static_.sendable(to, packets) : packets;
    }

    /// The packets have been handed to the device. Never more than sendable() said.
    void packets_sent(PeerIndex to, uint32_t packets) {
        if (counts()) static_.packets_sent(to, packets);
    }

    /// The peer returned credits, in a packet of their own or piggybacked. kProtocol for 0, for more than
    /// the peer can owe, and under a mode without credits.
    [[nodiscard]] Status credits_arrived(PeerIndex from, uint32_t credits, Actions&) noexcept {
        return counts() ? static_.credits_arrived(from, credits) : Status::kProtocol;
    }

    // Receiver role.

    /// Data packets from the peer have left the mailbox: one, or a batch. kProtocol for more than the peer
    /// can have sent. Explicit credit packets are not counted (FC 5.2).
    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, Actions& actions) {
        return counts() ? static_.packets_retrieved(from, packets, actions) : Status::kOk;
    }

    /// Credits to ride in the last packet of a message to the peer: `max` at most, 0 if there are none to
    /// return or piggybacking is off. They are the packet's from here on.
    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max, Actions&) noexcept {
        return counts() ? static_.take_piggyback(to, max) : 0;
    }

    /// A control packet other than a credit packet arrived. kProtocol under the modes that have none.
    [[nodiscard]] Status control_arrived(PeerIndex, ControlKind, uint32_t, Actions&) noexcept {
        return Status::kProtocol;
    }

    /// The peer's process has ended and none of its packets is left in the mailbox: its slots are free, we
    /// owe it nothing and it owes us nothing. A process that takes the index over starts afresh.
    void reset_peer(PeerIndex peer) {
        if (counts()) static_.reset_peer(peer);
    }

    // For counters and tests. All are 0 under a mode without credits.

    [[nodiscard]] uint32_t credits(PeerIndex peer) const noexcept {
        return counts() ? static_.peer(peer).credits : 0;
    }
    [[nodiscard]] uint32_t retrieved(PeerIndex peer) const noexcept {
        return counts() ? static_.peer(peer).retrieved_packets : 0;
    }
    /// Slots of our mailbox that the peer owns.
    [[nodiscard]] uint32_t quota(PeerIndex peer) const noexcept {
        return counts() ? static_.peer(peer).quota : 0;
    }
    [[nodiscard]] uint32_t threshold(PeerIndex peer) const noexcept {
        return counts() ? static_.peer(peer).threshold : 0;
    }
    /// Credits out of our hands: held by the peer, under way to it, or in packets we have not retrieved.
    [[nodiscard]] uint32_t granted(PeerIndex peer) const noexcept { return quota(peer) - retrieved(peer); }

    /// Whether what must always hold of one peer's state holds. O(1).
    [[nodiscard]] bool check_invariants(PeerIndex peer) const noexcept {
        return !counts() || static_.check_invariants(peer);
    }

    /// Hands every word that events can change to `visit`, in a fixed order, for trace hashes and explorers.
    template <typename Visit>
    void visit_state(Visit&& visit) const {
        if (!counts()) return;
        for (PeerIndex peer = 0; peer < peers_; ++peer) {
            visit(credits(peer));
            visit(retrieved(peer));
        }
    }

  private:
    [[nodiscard]] bool counts() const noexcept { return mode_ == Mode::kStatic; }

    Mode mode_;
    uint32_t peers_;
    StaticCredits static_;
};

}  // namespace velo::flowctl
