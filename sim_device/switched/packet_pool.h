/// Packets of the switched network, and lists of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace velo::switched {

inline constexpr uint32_t kNoPacket = UINT32_MAX;
inline constexpr uint16_t kNoGroup = UINT16_MAX;

struct Packet {
    uint32_t next = kNoPacket;
    uint32_t tag = 0;
    uint32_t place = 0;  ///< the input that it is on its way to, or in
    uint32_t sent_slot = 0;
    uint16_t source = 0;
    uint16_t target = 0;
    uint16_t router = 0;      ///< of the target
    uint16_t via = kNoGroup;  ///< the group of its detour
    uint8_t vc = 0;
    uint8_t flits = 0;
    uint8_t locals = 0;   ///< local links crossed in the source group
    uint8_t globals = 0;  ///< global links crossed
    bool fecn = false;
    bool becn = false;
};

/// Packets in their order, linked by index.
struct Fifo {
    uint32_t head = kNoPacket;
    uint32_t tail = kNoPacket;
};

/// A fixed number of packets, each free or in one list. Invariant: the owner's. Cost: O(1).
class PacketPool {
  public:
    void resize(size_t packets) {
        packets_.resize(packets);
        for (auto packet = static_cast<uint32_t>(packets); packet-- > 0;) release(packet);
    }
    [[nodiscard]] bool empty() const { return free_ == kNoPacket; }
    /// A free packet; the pool is not empty.
    [[nodiscard]] uint32_t allocate() {
        const uint32_t packet = free_;
        free_ = packets_[packet].next;
        packets_[packet] = {};
        return packet;
    }
    void release(uint32_t packet) {
        packets_[packet].next = free_;
        free_ = packet;
    }
    void append(Fifo& fifo, uint32_t packet) {
        packets_[packet].next = kNoPacket;
        if (fifo.head == kNoPacket)
            fifo.head = packet;
        else
            packets_[fifo.tail].next = packet;
        fifo.tail = packet;
    }
    /// Takes the first one; the list is not empty.
    [[nodiscard]] uint32_t pop(Fifo& fifo) {
        const uint32_t packet = fifo.head;
        fifo.head = packets_[packet].next;
        return packet;
    }
    [[nodiscard]] Packet& operator[](uint32_t packet) { return packets_[packet]; }
    [[nodiscard]] const Packet& operator[](uint32_t packet) const { return packets_[packet]; }

  private:
    std::vector<Packet> packets_;
    uint32_t free_ = kNoPacket;
};

}  // namespace velo::switched
