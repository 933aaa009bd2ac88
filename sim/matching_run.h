/// Messages that engines match, on a simulated cluster: the production engines with their matching
/// (velo/matching/matching.h), one a process, under a program of sends and receives.
///
/// Contents and order of what is received are checked, and at the end that nothing is left and no budget was
/// passed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flowctl/plan.h"
#include "sim/sim_engine.h"
#include "sim_device/cluster/cluster.h"

namespace velo::sim {

/// A process's program: its sends and its receives in order, each side at its own pace. Pure.
class MatchingProgram {
  public:
    struct Send {
        uint32_t to = 0;
        int32_t tag = 0;
        uint32_t bytes = 0;
        bool synchronous = false;
    };
    /// -1: any. Receives of one tag either all name their source or none does, so that what each gets is
    /// certain.
    struct Receive {
        int32_t source = 0;
        int32_t tag = 0;
        bool probed = false;  ///< first found by a probe
    };

    virtual ~MatchingProgram() = default;
    [[nodiscard]] virtual uint32_t sends(uint32_t rank) const = 0;
    [[nodiscard]] virtual uint32_t receives(uint32_t rank) const = 0;
    [[nodiscard]] virtual Send send(uint32_t rank, uint32_t i) const = 0;
    [[nodiscard]] virtual Receive receive(uint32_t rank, uint32_t i) const = 0;
    /// Receives that are posted at a time, in order of posting.
    [[nodiscard]] virtual uint32_t receives_at_once() const { return 1; }
    /// When a process begins to receive, in ns.
    [[nodiscard]] virtual uint64_t computes_ns(uint32_t) const { return 0; }
};

/// MEM 5.1: each process but the first sends its messages at once, and process 0 receives them by the last
/// tag first.
std::unique_ptr<MatchingProgram> make_killer(uint32_t processes, uint32_t messages, uint32_t bytes);
/// Each process sends its messages to all others at once, and receives them by the last tag first, of any
/// source.
std::unique_ptr<MatchingProgram> make_all_to_all(uint32_t processes, uint32_t messages, uint32_t bytes);

struct MatchingConfig {
    cluster::ClusterConfig cluster;
    flowctl::Config flow;  ///< flow.peers 0: all processes
    uint32_t processes = 16;
    uint32_t processes_per_node = 1;
    uint32_t message_bytes_max = 2048;  ///< of the engine's
    uint64_t unexpected_records = 0;    ///< bytes, as the parameters of the same names
    uint64_t unexpected_bytes = 0;
    uint32_t unexpected_granted = 128;
    uint32_t call_ns = 100;      ///< a call of MPI
    uint32_t on_node_ns = 200;   ///< a message through shared memory, on each side
    uint32_t copy_kib_ns = 100;  ///< KiB that a CPU copies
};

/// Counts are over all processes; the levels are the highest of any.
struct MatchingResult {
    uint64_t time_ns = 0;
    uint64_t messages = 0;
    uint64_t eager = 0;
    uint64_t requests = 0;
    uint64_t refused = 0;
    uint64_t offers = 0;
    uint64_t records_hwm = 0;
    uint64_t data_hwm = 0;
    uint64_t packets = 0;
    uint64_t slowest_sender_ns = 0;  ///< when the last of the senders had sent everything, and the first one
    uint64_t fastest_sender_ns = 0;
    uint64_t trace_hash = 0;
};

/// Runs to the end. Throws base::SetupError for what cannot be run, and cluster::SimulationError when a
/// message is lost, damaged or out of order, nothing moves any more, or a budget was passed. Thread: one.
MatchingResult run_matching(const MatchingConfig& config, const MatchingProgram& program);

}  // namespace velo::sim
