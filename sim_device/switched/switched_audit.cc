// Reports of a switched network on itself: to tests, and when it stands still.
#include <algorithm>

#include "sim_device/switched/switched_network.h"

namespace velo::switched {
namespace {

std::string number(uint64_t value) {
    return std::to_string(value);
}

}  // namespace

uint32_t SwitchedNetwork::buffered_flits(uint32_t router) const {
    uint32_t flits = 0;
    for (uint32_t i = 0; i < ports_ * vcs_; ++i) flits += inputs_[size_t{router} * ports_ * vcs_ + i].flits;
    return flits;
}

std::string SwitchedNetwork::audit() const {
    const size_t ends = outputs_.size();
    std::vector<uint32_t> used(ends * vcs_);
    uint32_t packets = 0;
    const auto count = [&](const Fifo& fifo, const auto& add) {
        uint32_t flits = 0;
        for (uint32_t at = fifo.head; at != kNoPacket; at = pool_[at].next) {
            flits += pool_[at].flits;
            ++packets;
            add(pool_[at]);
        }
        return flits;
    };
    const auto at_place = [&](const Packet& packet) {
        used[feeders_[packet.place] * vcs_ + packet.vc] += packet.flits;
    };
    for (size_t i = 0; i < inputs_.size(); ++i) {
        const uint32_t flits = count(inputs_[i].fifo, at_place);
        if (flits != inputs_[i].flits || flits > config_.buffer_flits)
            return "input " + number(i / vcs_) + " VC " + number(i % vcs_) + " has " + number(flits) +
                   " flits";
    }
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
        const uint32_t flits = count(nodes_[i].arrived, at_place);
        if (flits != nodes_[i].arrived_flits || flits > config_.ejection_flits)
            return "node " + number(i) + " has " + number(flits) + " flits that arrived";
        count(nodes_[i].queue.fifo, [](const Packet&) {});
        if (nodes_[i].queue.count > config_.nic_queue_packets) return "the queue of node " + number(i);
    }
    for (const Output& output : outputs_) count(output.fifo, at_place);
    for (const auto& wire : wires_) {
        for (const Arrival& arrival : wire) {
            ++packets;
            at_place(pool_[arrival.packet]);
        }
    }
    for (const Freed& freed : freed_) used[freed.output * vcs_ + freed.vc] += freed.flits;
    for (uint32_t i = 0; i < ends; ++i) {
        uint32_t all = 0;
        for (uint32_t vc = 0; vc < vcs_; ++vc) {
            all += used[i * vcs_ + vc];
            if (used[i * vcs_ + vc] != used_[i * vcs_ + vc])
                return "output " + number(i) + " VC " + number(vc) + " counts " +
                       number(used_[i * vcs_ + vc]) + " flits in use, and there are " +
                       number(used[i * vcs_ + vc]);
        }
        if (all != used_flits_[i]) return "output " + number(i) + " has " + number(all) + " flits in use";
    }
    if (packets != packets_) return number(packets) + " packets, of " + number(packets_);
    return "";
}

void SwitchedNetwork::check_progress() {
    throw Deadlock(
        "nothing has moved for " + number(slot_ - last_move_) + " slots, at slot " + number(slot_) +
        ", and " + number(packets_) + " packets are in the network: " + waiting_report() +
        ". Use a class of virtual channels for each hop (vc_classes), or a longer --deadlock-slots "
        "if a node is that slow");
}

/// Follows the packets that wait for each other from the first one, until one comes again.
std::string SwitchedNetwork::waiting_report() const {
    size_t at = 0;
    while (at < inputs_.size() && (inputs_[at].fifo.head == kNoPacket || inputs_[at].port == kUnrouted)) ++at;
    if (at == inputs_.size()) return "none waits in a router";
    std::vector<size_t> seen;
    std::string text;
    constexpr size_t kLinksMax = 16;
    while (std::find(seen.begin(), seen.end(), at) == seen.end()) {
        seen.push_back(at);
        const Input& input = inputs_[at];
        const Packet& packet = pool_[input.fifo.head];
        const auto place = static_cast<uint32_t>(at / vcs_);
        const uint32_t router = place / ports_;
        const Output& output = outputs_[port_index(router, input.port)];
        if (seen.size() <= kLinksMax) {
            text += (text.empty() ? "" : ", ") + ("router " + number(router)) + " port " +
                    number(place % ports_) + " VC " + number(at % vcs_) + " (" + number(packet.source) +
                    " to " + number(packet.target) + ") waits for port " + number(input.port);
        }
        if (output.input >= first_nic_) return text + ", node " + number(output.input - first_nic_);
        const uint32_t vc = config_.vc_classes ? input.vc_class * config_.vcs_per_class : 0;
        at = size_t{output.input} * vcs_ + vc;
        if (inputs_[at].fifo.head == kNoPacket || inputs_[at].port == kUnrouted) return text;
    }
    return text + (seen.size() > kLinksMax ? ", and more" : "") + ", and so on in a circle";
}

}  // namespace velo::switched
