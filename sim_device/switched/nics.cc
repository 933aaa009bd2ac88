#include "sim_device/switched/nics.h"

namespace velo::switched {

Nics::Nics(const SwitchedConfig& config, const SwitchedPorts& ports, PacketPool& pool, LinkCredits& credits,
           Wires& wires)
    : config_(config),
      ports_(ports),
      pool_(pool),
      credits_(credits),
      wires_(wires),
      nodes_(config.topology.nodes()) {}

bool Nics::inject(uint32_t index, uint64_t slot) {
    Node& node = nodes_[index];
    const auto slot_flits = static_cast<int16_t>(config_.packet_flits);
    node.room_flits = std::min<int16_t>(static_cast<int16_t>(node.room_flits + slot_flits), slot_flits);
    const uint32_t output = ports_.nic_of(index);
    const uint32_t vcs = ports_.vcs();
    const uint16_t* const used = credits_.used(output);
    bool moved = false;
    while (node.room_flits > 0 && node.queued != 0) {
        // The emptiest VC, and among equals each in its turn.
        uint32_t best = node.turn;
        for (uint32_t i = 1; i < vcs; ++i) {
            const uint32_t vc = node.turn + i < vcs ? node.turn + i : node.turn + i - vcs;
            if (used[vc] < used[best]) best = vc;
        }
        Packet& first = pool_[node.queue.head];
        if (used[best] + first.flits > config_.buffer_flits) break;
        node.turn = static_cast<uint8_t>(best + 1 == vcs ? 0 : best + 1);
        credits_.take(output, best, first.flits);
        node.room_flits = static_cast<int16_t>(node.room_flits - first.flits);
        first.vc = static_cast<uint8_t>(best);
        first.place = ports_.input_of(output);
        wires_.send(pool_.pop(node.queue), first.place * vcs + best, slot + 1);
        --node.queued;
        moved = true;
    }
    return moved;
}

std::string Nics::audit(PacketCount& count) const {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
        const uint32_t flits = count.add(nodes_[i].arrived);
        if (flits != nodes_[i].arrived_flits || flits > config_.ejection_flits)
            return "node " + std::to_string(i) + " has " + std::to_string(flits) + " flits that arrived";
        count.add_queued(nodes_[i].queue);
        if (nodes_[i].queued > config_.nic_queue_packets) return "the queue of node " + std::to_string(i);
    }
    return "";
}

}  // namespace velo::switched
