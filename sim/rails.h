/// RAILS 5 and 6: how policies of rail allocation do under random messages, at the level of messages.
/// Choices and reservations of single rails are the machines of rma/ (rail_policy.h, static_allocation.h,
/// rail_reservation.h); NICs, buses and network are models (sim/rail_worms.h). Algorithms 4 and 7, which use
/// those machines, are this simulator's own, and HalfDuplexRail is in no engine. The plugin's way is
/// kShippedHybrid and kShippedDynamic.
///
/// Each process makes messages by itself: sizes and gaps are exponential, destinations the processes of other
/// nodes with equal probability. Control messages take time at the thread of a NIC and on the way, and no
/// bandwidth of data. Two runs of equal configuration are equal.
#pragma once

#include <cstdint>

namespace velo::sim {

enum class RailsPolicy : uint8_t {
    kBasic,         ///< RAILS 5.2: round robin
    kStatic,        ///< RAILS 2, algorithm 2
    kLocalDynamic,  ///< RAILS 3
    kDynamic,       ///< RAILS 4
    kHybrid,        ///< RAILS 4.3: basic below short_bytes, else dynamic
    kShippedHybrid,   ///< the plugin's btl_velo_rails=hybrid: round robin below short_bytes, else local dynamic
    kShippedDynamic,  ///< the plugin's btl_velo_rails=dynamic, whose rails are reserved by rma/rail_reservations.h
};
[[nodiscard]] constexpr bool is_shipped(RailsPolicy policy) {
    return policy == RailsPolicy::kShippedHybrid || policy == RailsPolicy::kShippedDynamic;
}

/// Links, switches, buses and NICs. Times are in cycles. A link and a bus carry a flit a cycle.
struct RailsLinks {
    double both_ways = 1;         ///< capacity of a bus that is not duplex while data goes both ways
    uint32_t reply_cycles = 300;  ///< of a NIC's thread, for each control message
    uint32_t control_flits = 16;
    uint32_t flit_bytes = 2;
    uint32_t switch_cycles = 6;
    uint32_t channels = 2;  ///< virtual channels
};

struct RailsConfig {
    RailsPolicy policy = RailsPolicy::kDynamic;
    uint32_t nodes = 32;
    uint32_t processes_per_node = 4;
    uint32_t rails = 4;
    uint32_t bytes = 65536;         ///< of a mean message
    double load = 0.5;              ///< offered flits a cycle, rail and node
    bool blocking = true;           ///< a process begins a message when its last one has arrived
    bool pointer_per_node = false;  ///< of round robin; else one a process
    bool duplex = false;            ///< buses carry both ways at once
    uint32_t striping_percent = 0;
    uint32_t short_bytes = 16384;  ///< kHybrid, kShippedHybrid
    uint32_t chunk_bytes = 262144;  ///< kShipped...: most of a chunk
    bool ask_all = true;           ///< an RTS on each free rail, as in algorithm 4; else on those to be used
    uint32_t wait_percent = 50;    ///< of a round trip: the longest random wait after a refusal
    RailsLinks links = {};
    uint32_t warm_up = 100;    ///< in times of a mean message
    uint32_t measured = 1000;  ///< in times of a mean message
    uint64_t seed = 1;
};

/// Results of the time after the warm-up.
struct RailsResult {
    double offered = 0;         ///< flits a cycle, rail and node, of messages made
    double accepted = 0;        ///< flits a cycle, rail and node, that arrived
    double latency_cycles = 0;  ///< mean, of messages that arrived, since they were made
    uint64_t made = 0;          ///< messages
    uint64_t messages = 0;      ///< that arrived
    uint64_t fragments = 0;     ///< of them
    double tries = 0;           ///< attempts to reserve, for each message reserved for
    double controls = 0;        ///< control messages between nodes, for each message reserved for
    double both_ways = 0;       ///< part of the worms that began at a bus with data the other way
    uint64_t waiting = 0;       ///< messages made and not arrived at the end
    uint64_t trace_hash = 0;    ///< of all arrivals
};

/// Throws base::SetupError for what cannot be run. Thread: one.
[[nodiscard]] RailsResult run_rails(const RailsConfig& config);

}  // namespace velo::sim
