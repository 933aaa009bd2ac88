/// Packets on the links of a switched network, by the slot that they arrive in.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace velo::switched {

/// Slots that a packet takes on a link of this latency: one for itself, and the latency, rounded.
[[nodiscard]] constexpr uint32_t link_slots(uint32_t cycles, uint32_t packet_flits) {
    return 1 + (cycles + packet_flits / 2) / packet_flits;
}

/// Owner: the network. Thread: one. No allocation after the constructor.
class Wires {
  public:
    struct Arrival {
        uint32_t packet = 0;
        uint32_t input = 0;  ///< by port and VC
    };

    /// Of links that take at most `slots_max`, and bring at most `packets_max` in one slot.
    Wires(uint32_t slots_max, size_t packets_max) : wires_(std::bit_ceil(slots_max + 1)) {
        for (auto& wire : wires_) wire.reserve(packets_max);
    }

    /// The packet arrives at `slot`, which is less than `slots_max` + 1 slots away.
    void send(uint32_t packet, uint32_t input, uint64_t slot) { arriving(slot).push_back({packet, input}); }
    /// Packets that arrive at `slot`; their receiver clears the list.
    [[nodiscard]] std::vector<Arrival>& arriving(uint64_t slot) { return wires_[slot & (wires_.size() - 1)]; }
    /// Calls `use(packet)` for each one.
    template <typename Use>
    void for_each(Use&& use) const {
        for (const auto& wire : wires_) {
            for (const Arrival& arrival : wire) use(arrival.packet);
        }
    }

  private:
    std::vector<std::vector<Arrival>> wires_;  ///< by slot modulo
};

}  // namespace velo::switched
