/// Packets of the model in mailbox_world.h, queues of them, and what is under way.
#pragma once

#include <array>
#include <cstdint>

#include "flowctl/outbox.h"
#include "velo/base/check.h"

namespace velo::exhaustive {

using flowctl::ControlKind;

struct Packet {
    bool data = true;
    /// Kind of a packet of flow control.
    ControlKind kind = ControlKind::kCredits;
    uint8_t from = 0;
    /// A packet of data is the last one of its message, which had waited for credits.
    bool ends = false;
    bool waited = false;
    /// Credits returned: piggybacked in data, 0 for none; the value of a control packet.
    uint16_t credits = 0;
    /// The packet fills a contact slot: data without credits, and what opens and closes links.
    bool contact = false;
    /// First credits of the sender's opening that rides in data without credits, 0 for none.
    uint16_t opens = 0;

    [[nodiscard]] bool is(ControlKind control) const { return !data && kind == control; }
    /// All others but credit packets fill a slot of the data region, and cost a credit.
    [[nodiscard]] bool costs_a_credit() const { return !contact && !is(ControlKind::kCredits); }
    /// A packet of a message's body: it can be taken in a run.
    [[nodiscard]] bool body() const { return data && !ends && !contact && credits == 0; }
};

[[nodiscard]] inline Packet control_packet(ControlKind kind, uint8_t from, uint32_t value) {
    return {.data = false,
            .kind = kind,
            .from = from,
            .credits = static_cast<uint16_t>(value),
            .contact = flowctl::fills_contact_slot(kind)};
}

/// First in, first out, within itself, so that a state is copied as bytes.
template <uint32_t kCapacity>
class PacketQueue {
  public:
    void push(Packet packet) {
        VELO_CHECK(size_ < kCapacity, "a queue of more than %u packets; give the world more depth",
                   kCapacity);
        packets_[size_++] = packet;
    }
    Packet pop() {
        const Packet head = packets_[0];
        for (uint32_t at = 1; at < size_; ++at) packets_[at - 1] = packets_[at];
        --size_;
        return head;
    }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] uint32_t size() const { return size_; }
    [[nodiscard]] const Packet* begin() const { return packets_.data(); }
    [[nodiscard]] const Packet* end() const { return packets_.data() + size_; }

  private:
    std::array<Packet, kCapacity> packets_;
    uint32_t size_ = 0;
};

/// Packets and credits under way from one process to another, in a mailbox, before it, or in the sender's
/// outbox.
struct Travelling {
    uint32_t packets = 0;  ///< that cost a credit
    uint32_t credits = 0;  ///< returned
    uint32_t credit_packets = 0;
    uint32_t requests = 0;
    uint32_t responses = 0;
    uint32_t given_up = 0;  ///< credits in responses
    uint32_t ends = 0;      ///< of links: kClose and kClosed
};

/// Adds what a queue on the way to one process holds; `under_way` is indexed by the sender.
template <class Queue, class UnderWay>
void count(const Queue& queue, UnderWay&& under_way) {
    for (const Packet& packet : queue) {
        Travelling& here = under_way(packet.from);
        here.packets += packet.costs_a_credit();
        here.credit_packets += packet.is(ControlKind::kCredits);
        here.requests += packet.is(ControlKind::kReturnRequest);
        here.responses += packet.is(ControlKind::kReturnResponse);
        here.ends += packet.is(ControlKind::kClose) || packet.is(ControlKind::kClosed);
        (packet.is(ControlKind::kReturnResponse) ? here.given_up : here.credits) += packet.credits;
        here.credits += packet.opens;
    }
}

/// Adds what waits in the outbox of `flow`, for a peer.
template <class Flow>
void count_due(const Flow& flow, flowctl::PeerIndex peer, Travelling& here) {
    here.credits += flow.deferred_credits(peer) + flow.deferred_first_credits(peer);
    here.credit_packets += flow.control_due(peer, ControlKind::kCredits);
    here.requests += flow.control_due(peer, ControlKind::kReturnRequest);
    here.responses += flow.control_due(peer, ControlKind::kReturnResponse);
    here.ends += flow.control_due(peer, ControlKind::kClose) + flow.control_due(peer, ControlKind::kClosed);
}

}  // namespace velo::exhaustive
