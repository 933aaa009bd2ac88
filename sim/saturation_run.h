/// RDRP 4.1: pairs of nodes that send all they can to each other over a switched network, some of them slow
/// to take what comes.
///
/// By one big transfer a node sends as fast as its NIC takes packets. By RDRP it fetches: the production
/// rma::ChunkScheduler decides which chunk is asked for and when, and the partner sends what was asked for. A
/// request rides on the next data packet to the partner, and in a packet of its own, of one flit, where there
/// is none.
#pragma once

#include <cstdint>
#include <vector>

#include "sim_device/switched/switched_network.h"

namespace velo::sim {

/// kFecn and kFecnAggressive: one big transfer under FECN/BECN, with either of the paper's settings.
enum class TransferMethod : uint8_t { kBig, kFecn, kFecnAggressive, kRdrp };

struct SaturationConfig {
    switched::SwitchedConfig network;
    TransferMethod method = TransferMethod::kRdrp;
    uint32_t window = 30;        ///< rdrp: chunks that a node has asked for and not got
    uint32_t chunk_packets = 1;  ///< rdrp: packets of a chunk
    bool bare_requests = true;  ///< rdrp: requests may leave without data. False: the first window is granted
    uint32_t slow_nodes = 0;    ///< drawn by the seed
    uint32_t slowdown = 8;      ///< packet times in which a slow node takes one packet
    uint32_t packet_times = 10000;
    uint32_t iteration = 250;  ///< packet times of one entry of the series
};

struct SaturationResult {
    /// Data taken, as a part of what all nodes could take at full speed, by iterations.
    std::vector<double> series;
    double steady = 0;   ///< mean of the last third of the iterations
    double trough = 0;   ///< least of the iterations but the first
    double stopped = 0;  ///< at the paper's rule: the first that differs by less than 5 % from the one before
    double fast = 0;     ///< mean over nodes whose partner and itself are not slow, in the last third
    uint64_t packets = 0;          ///< of data, taken
    uint64_t bare_requests = 0;    ///< packets without data, taken
    uint64_t marks = 0;            ///< FECN
    double detours = 0;            ///< packets that took one, a packet sent
    double latency = 0;            ///< mean slots of a data packet in the last third, from its NIC's queue on
    uint32_t outstanding_max = 0;  ///< rdrp: most chunks that a node had under way
    uint64_t trace_hash = 0;
};

/// One run. Throws base::SetupError for parameters that contradict each other, and switched::Deadlock when
/// nothing moves any more.
[[nodiscard]] SaturationResult run_saturation(const SaturationConfig& config);

}  // namespace velo::sim
