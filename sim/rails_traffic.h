/// The messages that processes of sim/rails.h make: exponential gaps and sizes, uniform destinations (RAILS 5.2).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sim/draw.h"
#include "sim/rails.h"

namespace velo::sim {

/// A pure function of the seed, the process and the number of its message.
class RailsTraffic {
  public:
    struct Planned {
        uint32_t bytes = 0;
        uint32_t to = 0;  ///< node, another one than the process's
        uint32_t to_process = 0;
    };

    /// `config` outlives this.
    explicit RailsTraffic(const RailsConfig& config)
        : config_(config), mean_time_(static_cast<double>(config.bytes) / config.links.flit_bytes) {}

    /// Cycles between the message before and this one.
    [[nodiscard]] double gap(uint32_t process, uint32_t number) const {
        const double a_cycle = config_.load * config_.rails / config_.processes_per_node / mean_time_;
        return draw_exponential(process, 3 * number, 1 / a_cycle);
    }
    [[nodiscard]] Planned message(uint32_t process, uint32_t number) const {
        const double bytes = std::ceil(draw_exponential(process, 3 * number + 1, config_.bytes));
        const uint64_t random = draw(config_.seed, process, 3 * number + 2);
        const uint64_t others = config_.nodes - 1;
        const uint32_t from = process / config_.processes_per_node;
        const auto to = static_cast<uint32_t>((from + 1 + random % others) % config_.nodes);
        const auto place = static_cast<uint32_t>(random / others % config_.processes_per_node);
        return {.bytes = static_cast<uint32_t>(std::max(1.0, bytes)),
                .to = to,
                .to_process = to * config_.processes_per_node + place};
    }

  private:
    [[nodiscard]] double draw_exponential(uint32_t process, uint32_t number, double mean) const {
        const auto uniform = static_cast<double>(draw(config_.seed, process, number) >> 11) * 0x1p-53;
        return -std::log1p(-uniform) * mean;
    }

    const RailsConfig& config_;
    double mean_time_;  ///< of a message on one rail
};

}  // namespace velo::sim
