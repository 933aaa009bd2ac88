#include "sim_device/cluster/topology.h"

#include <charconv>

#include "velo/os/shared_segment.h"

namespace velo::cluster {

Topology::Topology(std::array<uint32_t, kDimensionsMax> sides, bool torus) : sides_(sides), torus_(torus) {
    uint64_t nodes = 1;
    for (const uint32_t side : sides) {
        if (side == 0 || side > kNodesMax) nodes = 0;
        nodes *= side;
        if (nodes == 0 || nodes > kNodesMax) {
            throw base::SetupError("a topology of " + text() +
                                   " nodes; each side is at least 1, and all together at most " +
                                   std::to_string(kNodesMax) + " nodes");
        }
    }
}

Topology Topology::parse(std::string_view text) {
    const auto refuse = [&] {
        throw base::SetupError(
            "--topology '" + std::string(text) +
            "' is not understood; give mesh or torus, a colon, and 1 to 3 sides: mesh:4x4x4, torus:8x8");
    };
    const size_t colon = text.find(':');
    const std::string_view kind = text.substr(0, colon);
    if (colon == std::string_view::npos || (kind != "mesh" && kind != "torus")) refuse();
    std::array<uint32_t, kDimensionsMax> sides = {1, 1, 1};
    const char* at = text.data() + colon + 1;
    const char* const end = text.data() + text.size();
    for (uint32_t d = 0;; ++d) {
        if (d == kDimensionsMax) refuse();
        const auto [next, error] = std::from_chars(at, end, sides[d]);
        if (error != std::errc{}) refuse();
        if (next == end) break;
        if (*next != 'x') refuse();
        at = next + 1;
    }
    return Topology(sides, kind == "torus");
}

uint32_t Topology::hops(uint32_t from, uint32_t to) const {
    uint32_t count = 0;
    route(from, to, [&](uint32_t) { ++count; });
    return count;
}

uint32_t Topology::node_at(uint32_t hops_wanted) const {
    uint32_t farthest = 0;
    for (uint32_t node = 0; node < nodes(); ++node) {
        const uint32_t found = hops(0, node);
        if (found == hops_wanted) return node;
        farthest = found > farthest ? found : farthest;
    }
    throw base::SetupError("no node of " + text() + " is " + std::to_string(hops_wanted) +
                           " hops from node 0; give at most " + std::to_string(farthest) +
                           " hops or a larger topology");
}

std::string Topology::text() const {
    std::string text = torus_ ? "torus:" : "mesh:";
    text += std::to_string(sides_[0]) + "x" + std::to_string(sides_[1]);
    if (sides_[2] != 1) text += "x" + std::to_string(sides_[2]);
    return text;
}

}  // namespace velo::cluster
