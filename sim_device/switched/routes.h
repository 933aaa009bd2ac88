/// Ways of packets through a dragonfly or a fat tree: the next hop, decided at a router.
#pragma once

#include <cstdint>

#include "sim_device/switched/packet_pool.h"
#include "sim_device/switched/switched_config.h"

namespace velo::switched {

/// Random numbers of one router: splitmix64.
struct Random {
    uint64_t state = 0;

    [[nodiscard]] static constexpr uint64_t mix(uint64_t x) {
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x = (x ^ x >> 27) * 0x94d049bb133111eb;
        return x ^ x >> 31;
    }
    [[nodiscard]] constexpr uint32_t below(uint32_t bound) {
        return static_cast<uint32_t>((mix(state += 0x9e3779b97f4a7c15) >> 32) * bound >> 32);
    }
};

struct Hop {
    uint8_t port = 0;
    uint8_t vc_class = 0;
};

/// The routing of a network. No I/O, clock or lock; it allocates nothing. Thread: the network's.
///
/// VC classes make it free of deadlocks: those of a packet's hops rise in the order local 0, local 1 (PAR's
/// second hop in the source group), global 0, local 2, global 1, local 3. On a fat tree packets go up, then
/// down.
class Routes {
  public:
    /// `config` outlives this.
    explicit Routes(const SwitchedConfig& config) : config_(config) {}

    /// The next hop of a packet that is first in its FIFO. `used_flits`: of each of the router's ports, the
    /// flits given to the next buffer that have not left it. May send the packet on a detour (RDRP 4.1).
    [[nodiscard]] Hop next(uint32_t router, Packet& packet, const uint32_t* used_flits, Random& random);
    /// Packets sent on a detour so far.
    [[nodiscard]] uint64_t detours() const { return detours_; }

  private:
    [[nodiscard]] Hop in_dragonfly(uint32_t router, Packet& packet, const uint32_t* used_flits,
                                   Random& random);
    [[nodiscard]] Hop in_fat_tree(uint32_t router, const Packet& packet, const uint32_t* used_flits,
                                  Random& random) const;
    void consider_detour(uint32_t router, Packet& packet, const uint32_t* used_flits, Random& random);

    const SwitchedConfig& config_;
    uint64_t detours_ = 0;
};

}  // namespace velo::switched
