/// Nodes of a 1-D to 3-D mesh or torus and the links between neighbours, with dimension-order routes (FC 2).
///
/// Immutable; any thread. Every packet between two nodes takes the same way, so packets stay in order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace velo::cluster {

class Topology {
  public:
    static constexpr uint32_t kDimensionsMax = 3;
    static constexpr uint32_t kNodesMax = 1u << 16;  ///< a packet names its source's node in 16 bits

    /// `sides`: nodes along each dimension, 1 for those that are not used.
    /// Throws base::SetupError for 0 or more than kNodesMax nodes.
    Topology(std::array<uint32_t, kDimensionsMax> sides, bool torus);

    /// "mesh:4x4x4", "torus:8x8". Throws base::SetupError with a sentence that says what is allowed.
    static Topology parse(std::string_view text);

    [[nodiscard]] uint32_t nodes() const { return sides_[0] * sides_[1] * sides_[2]; }
    /// Links are directed; a link that a mesh lacks at its border has a number all the same.
    [[nodiscard]] uint32_t links() const { return nodes() * kDimensionsMax * 2; }
    [[nodiscard]] uint32_t hops(uint32_t from, uint32_t to) const;
    /// The first node at `hops` from node 0. Throws base::SetupError when there is none.
    [[nodiscard]] uint32_t node_at(uint32_t hops) const;
    [[nodiscard]] std::string text() const;

    /// Calls visit(link) for each link from one node to another, in the order passed.
    template <class Visit>
    void route(uint32_t from, uint32_t to, Visit&& visit) const {
        uint32_t stride = 1;
        for (uint32_t d = 0; d < kDimensionsMax; ++d) {
            const uint32_t side = sides_[d];
            uint32_t at = from / stride % side;
            const uint32_t end = to / stride % side;
            const bool up = goes_up(at, end, side);
            while (at != end) {
                visit((from * kDimensionsMax + d) * 2 + (up ? 0 : 1));
                const uint32_t next = up ? (at + 1 == side ? 0 : at + 1) : (at == 0 ? side - 1 : at - 1);
                from = from - at * stride + next * stride;
                at = next;
            }
            stride *= side;
        }
    }

  private:
    /// A torus takes the shorter way, and the upper one of two that are equal.
    [[nodiscard]] bool goes_up(uint32_t at, uint32_t end, uint32_t side) const {
        if (!torus_) return end > at;
        return (end + side - at) % side <= (at + side - end) % side;
    }

    std::array<uint32_t, kDimensionsMax> sides_;
    bool torus_;
};

}  // namespace velo::cluster
