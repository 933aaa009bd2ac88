/// A count of the packets of a switched network, where they are, to compare credits and buffers with. For tests;
/// slow.
#pragma once

#include <cstdint>
#include <vector>

#include "sim_device/switched/packet_pool.h"
#include "sim_device/switched/switched_ports.h"

namespace velo::switched {

/// Owner: one audit.
class PacketCount {
  public:
    PacketCount(const PacketPool& pool, const SwitchedPorts& ports)
        : pool_(pool), ports_(ports), used_(size_t{ports.count()} * ports.vcs()) {}

    /// Counts packets that hold credits. Returns their flits.
    uint32_t add(const Fifo& fifo) {
        return each(fifo, [this](uint32_t packet) { add(packet); });
    }
    /// Counts packets that wait for injection. Returns their flits.
    uint32_t add_queued(const Fifo& fifo) {
        return each(fifo, [this](uint32_t) { ++packets_; });
    }
    void add(uint32_t packet) {
        const Packet& counted = pool_[packet];
        used_[ports_.feeder_of(counted.place) * ports_.vcs() + counted.vc] += counted.flits;
        ++packets_;
    }

    [[nodiscard]] uint32_t packets() const { return packets_; }
    /// Flits by output and channel, in the buffer behind it or on their way there.
    [[nodiscard]] const std::vector<uint32_t>& used() const { return used_; }

  private:
    template <typename Use>
    uint32_t each(const Fifo& fifo, Use&& use) const {
        uint32_t flits = 0;
        for (uint32_t at = fifo.head; at != kNoPacket; at = pool_[at].next) {
            flits += pool_[at].flits;
            use(at);
        }
        return flits;
    }

    const PacketPool& pool_;
    const SwitchedPorts& ports_;
    std::vector<uint32_t> used_;
    uint32_t packets_ = 0;
};

}  // namespace velo::switched
