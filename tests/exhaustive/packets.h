/// Packets of the model in mailbox_world.h, queues of them, and what is under way.
#pragma once

#include <array>
#include <cstdint>

#include "velo/base/check.h"

namespace velo::exhaustive {

enum class PacketKind : uint8_t { kData, kCredits, kReturnRequest, kReturnResponse, kWelcome, kFarewell };

struct Packet {
    PacketKind kind = PacketKind::kData;
    uint8_t from = 0;
    /// Of data: the last packet of its message, which had waited for credits.
    bool ends = false;
    bool waited = false;
    /// Credits returned: piggybacked in data, 0 for none; given up in a response; the first ones in a welcome.
    uint16_t credits = 0;
    /// It fills a contact slot: data without credits, welcomes and farewells.
    bool contact = false;

    /// All others but credit packets fill a slot of the data region, and cost a credit.
    [[nodiscard]] bool costs_a_credit() const { return kind != PacketKind::kCredits && !contact; }
};

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

/// What is under way from one process to another, in a mailbox or before it.
struct Travelling {
    uint32_t packets = 0;  ///< that cost a credit
    uint32_t credits = 0;  ///< returned
    uint32_t credit_packets = 0;
    uint32_t requests = 0;
    uint32_t responses = 0;
    uint32_t given_up = 0;  ///< credits in responses
    uint32_t contacts = 0;  ///< that fill contact slots
    uint32_t farewells = 0;
};

/// Adds what a queue on the way to one process holds; `under_way` is indexed by the sender.
template <class Queue, class UnderWay>
void count(const Queue& queue, UnderWay&& under_way) {
    for (const Packet& packet : queue) {
        Travelling& here = under_way(packet.from);
        here.packets += packet.costs_a_credit();
        here.contacts += packet.contact;
        here.credit_packets += packet.kind == PacketKind::kCredits;
        here.requests += packet.kind == PacketKind::kReturnRequest;
        here.responses += packet.kind == PacketKind::kReturnResponse;
        here.farewells += packet.kind == PacketKind::kFarewell;
        (packet.kind == PacketKind::kReturnResponse ? here.given_up : here.credits) += packet.credits;
    }
}

/// What a farewell makes void: requests and responses that have not left. What is said before it stays said.
template <class Queue>
void drop_void(Queue& queue) {
    for (uint32_t left = queue.size(); left != 0; --left) {
        const Packet packet = queue.pop();
        if (packet.contact) queue.push(packet);
    }
}

}  // namespace velo::exhaustive
