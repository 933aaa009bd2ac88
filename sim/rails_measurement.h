/// The measurement of a run of sim/rails.h: sums over the time after the warm-up, and the result that they make.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/rails.h"
#include "sim_device/cluster/trace_hash.h"

namespace velo::sim {

/// Times are in cycles. Owner: RailsWorld.
class RailsMeasurement {
  public:
    explicit RailsMeasurement(const RailsConfig& config)
        : flit_bytes_(config.links.flit_bytes), links_(config.rails * config.nodes) {
        const double mean_time = static_cast<double>(config.bytes) / flit_bytes_;
        from_ = mean_time * config.warm_up;
        until_ = from_ + mean_time * config.measured;
    }

    [[nodiscard]] bool over(double now) const { return now >= until_; }

    void made(double now, uint32_t bytes) {
        if (now < from_) return;
        ++sums_.made;
        sums_.offered += static_cast<double>(bytes) / flit_bytes_;
    }
    /// A message asks for rails.
    void tried(double now) {
        if (now >= from_) ++sums_.tries;
    }
    /// A control message leaves its node.
    void control_sent(double now) {
        if (now >= from_) ++sums_.controls;
    }
    /// A worm has begun to arrive, `against` data the other way.
    void begun(bool against) {
        ++begun_;
        begun_against_ += against ? 1 : 0;
    }
    /// A fragment of the process's message has arrived.
    void arrived(double now, uint32_t process, uint32_t bytes) {
        trace_.add(cluster::TraceEvent::kDeliver, process, static_cast<uint64_t>(now), bytes);
        if (now < from_) return;
        sums_.accepted += static_cast<double>(bytes) / flit_bytes_;
        ++sums_.fragments;
    }
    /// All of a message has arrived.
    void completed(double now, double made, bool reserves) {
        if (now < from_) return;
        ++sums_.messages;
        latency_sum_ += now - made;
        reserving_ += reserves ? 1 : 0;
    }

    /// `waiting`: messages that have not arrived.
    [[nodiscard]] RailsResult result(size_t waiting) const {
        RailsResult result = sums_;
        const double capacity = (until_ - from_) * links_;
        result.offered /= capacity;
        result.accepted /= capacity;
        result.latency_cycles = result.messages == 0 ? 0 : latency_sum_ / static_cast<double>(result.messages);
        result.both_ways = begun_ == 0 ? 0 : static_cast<double>(begun_against_) / static_cast<double>(begun_);
        if (reserving_ != 0) {
            result.tries /= static_cast<double>(reserving_);
            result.controls /= static_cast<double>(reserving_);
        }
        result.waiting = waiting;
        result.trace_hash = trace_.value();
        return result;
    }

  private:
    uint32_t flit_bytes_;
    uint32_t links_;  ///< rails of all nodes
    double from_;
    double until_;
    RailsResult sums_;  ///< tries and controls of all messages, flits that were made and arrived
    uint64_t begun_ = 0;
    uint64_t begun_against_ = 0;
    uint64_t reserving_ = 0;  ///< messages that arrived and had reserved
    double latency_sum_ = 0;
    cluster::TraceHash trace_;
};

}  // namespace velo::sim
