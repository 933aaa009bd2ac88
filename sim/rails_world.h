/// The world that the parts of a run of sim/rails.h share: clock, messages, nodes and the threads of their NICs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "rma/rail_policy.h"
#include "sim/rail_events.h"
#include "sim/rails.h"
#include "sim/rails_measurement.h"
#include "sim/slot_pool.h"

namespace velo::sim {

struct RailsMessage {
    double made = 0;
    uint32_t bytes = 0;
    uint32_t process = 0;
    uint32_t to = 0;  ///< node
    uint32_t to_process = 0;
    uint32_t fragments = 0;  ///< to arrive yet
    uint32_t answers = 0;    ///< that are awaited
    rma::RailMask granted = 0;
    bool reserves = false;
};

struct RailsNode {
    rma::RailSet rails;            ///< NStatus (RAILS 3)
    rma::RailPolicy policy;        ///< where nodes have the pointer, and for algorithm 3 and 4's selections
    std::deque<uint32_t> waiting;  ///< messages for which no rail was free
};

/// Owner: RailsRun. Thread: one. NICs are numbered node by node.
struct RailsWorld {
    explicit RailsWorld(const RailsConfig& given)
        : config(given), measurement(given), thread_free(size_t{given.nodes} * given.rails) {}

    [[nodiscard]] double now() const { return events.now(); }
    [[nodiscard]] uint32_t nic_of(uint32_t node, uint32_t rail) const { return node * config.rails + rail; }
    [[nodiscard]] uint32_t node_of(uint32_t process) const { return process / config.processes_per_node; }
    [[nodiscard]] uint32_t node_of(const RailsMessage& message) const { return node_of(message.process); }

    /// Cycles of a header from one node to another.
    [[nodiscard]] double way(uint32_t from, uint32_t to) const {
        return switches(from, to) * (config.links.switch_cycles + 1.0) + 1;
    }
    /// When a control message that leaves now comes to the other node.
    [[nodiscard]] double control_arrives(uint32_t from, uint32_t to) const {
        return now() + way(from, to) + config.links.control_flits;
    }
    /// An RTS and its answer, with the NICs' threads.
    [[nodiscard]] double round_trip(const RailsMessage& message) const {
        const double one_way = way(node_of(message), message.to) + config.links.control_flits;
        return 3.0 * config.links.reply_cycles + 2 * one_way;
    }
    /// Schedules an event at a NIC for when its thread has done it, after what the thread has before it.
    void give_to_thread(RailEventKind kind, uint32_t node, uint32_t rail, const rma::RailMessage& message = {},
                        uint32_t process = 0) {
        double& free = thread_free[nic_of(node, rail)];
        free = std::max(free, now()) + config.links.reply_cycles;
        events.schedule(free, kind, nic_of(node, rail), message, process);
    }

    /// Switches of a quaternary fat tree (QsNet) on the way: up to the least one above both, and down.
    [[nodiscard]] static uint32_t switches(uint32_t from, uint32_t to) {
        uint32_t levels = 1;
        for (from /= 4, to /= 4; from != to; from /= 4, to /= 4) ++levels;
        return 2 * levels - 1;
    }

    const RailsConfig config;
    RailEvents events;
    RailsMeasurement measurement;
    SlotPool<RailsMessage> messages;
    std::vector<RailsNode> nodes;
    std::vector<double> thread_free;  ///< by NIC: the time from which its thread has nothing to do
};

/// A set of which only these rails are alive.
[[nodiscard]] inline rma::RailSet live_rails(uint32_t rails, rma::RailMask live) {
    rma::RailSet set(rails);
    for (uint32_t rail = 0; rail < rails; ++rail) {
        if ((live >> rail & 1) == 0) set.failed(rail);
    }
    return set;
}

}  // namespace velo::sim
