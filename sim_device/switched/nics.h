/// The nodes' ends of a switched network: a queue of packets to be injected, and a buffer of packets that arrived,
/// which the node's software takes at its own speed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sim_device/switched/link_credits.h"
#include "sim_device/switched/packet_count.h"
#include "sim_device/switched/packet_pool.h"
#include "sim_device/switched/switched_config.h"
#include "sim_device/switched/switched_ports.h"
#include "sim_device/switched/wires.h"

namespace velo::switched {

/// Owner: the network. Thread: one. Within a slot nodes are independent.
class Nics {
  public:
    Nics(const SwitchedConfig& config, const SwitchedPorts& ports, PacketPool& pool, LinkCredits& credits,
         Wires& wires);

    [[nodiscard]] uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()); }
    /// Packets that wait for injection.
    [[nodiscard]] uint32_t queued(uint32_t node) const { return nodes_[node].queued; }
    /// A node's software takes a packet every `slots` packet times at most.
    void set_sink_interval(uint32_t node, uint32_t slots) { nodes_[node].sink_interval = slots; }

    /// Queues a packet for injection.
    void send(uint32_t node, uint32_t packet) {
        pool_.append(nodes_[node].queue, packet);
        ++nodes_[node].queued;
    }
    /// A packet arrives at its node.
    void receive(uint32_t packet) {
        Node& node = nodes_[pool_[packet].target];
        node.arrived_flits += pool_[packet].flits;
        pool_.append(node.arrived, packet);
    }
    /// One slot of a node's link to its router. True: a packet has moved.
    bool inject(uint32_t node, uint64_t slot);
    /// One slot of a node's software: calls `take(packet)` for each packet that it takes, and releases it.
    template <typename Take>
    void sink(uint32_t index, Take&& take) {
        Node& node = nodes_[index];
        const auto slot_flits = static_cast<int32_t>(config_.packet_flits);
        node.sink_room = std::min(node.sink_room + slot_flits, slot_flits);
        while (node.sink_room > 0 && node.arrived.head != kNoPacket) {
            const uint32_t at = pool_.pop(node.arrived);
            const Packet& packet = pool_[at];
            node.sink_room -= packet.flits * static_cast<int32_t>(node.sink_interval);
            node.arrived_flits -= packet.flits;
            credits_.give_back(ports_.feeder_of(ports_.nic_of(index)), 0, packet.flits);
            take(packet);
            pool_.release(at);
        }
    }

    /// Counts the packets. Empty, or a sentence on the first buffer over its capacity.
    [[nodiscard]] std::string audit(PacketCount& count) const;

  private:
    struct Node {
        Fifo queue;  ///< to be injected
        uint32_t queued = 0;
        Fifo arrived;
        uint32_t arrived_flits = 0;
        uint32_t sink_interval = 1;
        int32_t sink_room = 0;
        int16_t room_flits = 0;  ///< of the link's slot
        uint8_t turn = 0;        ///< VC of the next injection
    };

    const SwitchedConfig& config_;
    const SwitchedPorts& ports_;
    PacketPool& pool_;
    LinkCredits& credits_;
    Wires& wires_;
    std::vector<Node> nodes_;
};

}  // namespace velo::switched
