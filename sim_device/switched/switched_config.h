/// Parameters of the switched network. One slot is the time of one data packet on a link.
#pragma once

#include <cstdint>

#include "sim_device/switched/switched_topology.h"

namespace velo::switched {

/// kMinimal: the shortest way (fat tree: the destination decides). kUgal: the source router of a dragonfly
/// compares it with a detour by a random group. kPar: each router of the source group does, until the packet
/// is on a detour. On a fat tree both take the emptiest port up.
enum class Routing : uint8_t { kMinimal, kUgal, kPar };

/// Defaults are RDRP 4.1's, and readings where it is silent.
struct SwitchedConfig {
    SwitchedTopology topology = SwitchedTopology::parse("dragonfly:2,4,2");
    Routing routing = Routing::kPar;
    uint32_t packet_flits = 16;
    uint32_t buffer_flits = 256;    ///< of each virtual channel of a router's input port
    uint32_t ejection_flits = 256;  ///< buffer of a node's NIC for what its software has not taken
    uint32_t vcs_per_class = 1;     ///< virtual channels; a dragonfly has 4 classes, a fat tree 1
    bool vc_classes = true;         ///< false: every packet may use every channel, and deadlocks are possible
    uint32_t speedup_permille = 2400;  ///< passes of a crossbar per slot, in thousandths
    uint32_t local_cycles = 2;         ///< latency of links, in flit times: rounded to slots, beside the
    uint32_t global_cycles = 10;       ///< one slot that a packet takes in any case
    /// Minimal if and only if q_min <= bias * q_detour + threshold, where q is the flits that a port has sent
    /// into the next buffer, or will, and that have not left it.
    uint32_t minimal_bias_percent = 200;
    uint32_t threshold_flits = 30;
    /// Probability of a FECN mark, in percent, where the next buffer is full; falls linearly to 0 where it is
    /// half full. 0: none is marked. Above 100: the mark is certain before the buffer is full.
    uint32_t fecn_percent = 0;
    uint32_t nic_queue_packets = 4;   ///< packets that wait for injection at a node
    uint32_t deadlock_slots = 10000;  ///< slots without any movement, with packets in the network
    uint64_t seed = 1;
};

}  // namespace velo::switched
