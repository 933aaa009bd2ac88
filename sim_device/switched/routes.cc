#include "sim_device/switched/routes.h"

#include <algorithm>

namespace velo::switched {

Hop Routes::next(uint32_t router, Packet& packet, const uint32_t* used_flits, Random& random) {
    const SwitchedTopology& topology = config_.topology;
    if (packet.router == router) return {static_cast<uint8_t>(topology.terminal_of(packet.target)), 0};
    return topology.dragonfly() ? in_dragonfly(router, packet, used_flits, random)
                                : in_fat_tree(router, packet, used_flits, random);
}

Hop Routes::in_dragonfly(uint32_t router, Packet& packet, const uint32_t* used_flits, Random& random) {
    const SwitchedTopology& topology = config_.topology;
    const uint32_t own = topology.group_of(router);
    const uint32_t target = topology.group_of(packet.router);
    const bool undecided = packet.globals == 0 && packet.via == kNoGroup && own != target;
    if (undecided &&
        (config_.routing == Routing::kPar || (config_.routing == Routing::kUgal && packet.locals == 0)))
        consider_detour(router, packet, used_flits, random);
    const bool outwards = packet.via != kNoGroup && packet.globals == 0;
    const uint32_t group = outwards ? packet.via : target;
    if (own != group) {
        const uint32_t port = topology.port_to_group(router, group);
        if (topology.link(router, port).kind == LinkKind::kGlobal)
            return {static_cast<uint8_t>(port), packet.globals};
        const uint32_t vc_class = packet.globals == 0 ? packet.locals : packet.globals + 1u;
        return {static_cast<uint8_t>(port), static_cast<uint8_t>(vc_class)};
    }
    const uint32_t vc_class = packet.globals == 0 ? packet.locals : packet.globals + 1u;
    return {static_cast<uint8_t>(topology.port_in_group(router, packet.router)),
            static_cast<uint8_t>(vc_class)};
}

/// RDRP 4.1's bias and threshold, for one random detour. A packet that has chosen one keeps to it.
void Routes::consider_detour(uint32_t router, Packet& packet, const uint32_t* used_flits, Random& random) {
    const SwitchedTopology& topology = config_.topology;
    if (topology.groups() < 3) return;
    const uint32_t own = topology.group_of(router);
    const uint32_t target = topology.group_of(packet.router);
    uint32_t via = random.below(topology.groups() - 2);
    if (via >= std::min(own, target)) ++via;
    if (via >= std::max(own, target)) ++via;
    const uint64_t minimal = used_flits[topology.port_to_group(router, target)];
    const uint64_t detour = used_flits[topology.port_to_group(router, via)];
    if (minimal * 100 <= detour * config_.minimal_bias_percent + config_.threshold_flits * uint64_t{100})
        return;
    packet.via = static_cast<uint16_t>(via);
    ++detours_;
}

Hop Routes::in_fat_tree(uint32_t router, const Packet& packet, const uint32_t* used_flits,
                        Random& random) const {
    const SwitchedTopology& topology = config_.topology;
    if (topology.is_above(router, packet.target))
        return {static_cast<uint8_t>(topology.port_down(router, packet.target)), 0};
    if (config_.routing == Routing::kMinimal)
        return {static_cast<uint8_t>(topology.port_up(router, packet.target)), 0};
    const uint32_t arity = topology.arity();
    const uint32_t first = random.below(arity);
    uint32_t best = arity + first;
    for (uint32_t i = 1; i < arity; ++i) {
        const uint32_t port = arity + (first + i) % arity;
        if (used_flits[port] < used_flits[best]) best = port;
    }
    return {static_cast<uint8_t>(best), 0};
}

}  // namespace velo::switched
