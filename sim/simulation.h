/// One run: a simulated cluster whose processes run the production flow control under a workload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flowctl/plan.h"
#include "sim/workload.h"
#include "sim/sim_node.h"
#include "sim_device/cluster/cluster.h"
#include "velo/os/shared_segment.h"
#include "velo/options/engine_options.h"

namespace velo::sim {

class Process;

/// Times of a process above the packets, in ns, and how it divides its time. docs/simulation.md says what the
/// defaults were calibrated with.
struct HostConfig {
    uint32_t message_ns = 500;  ///< a message, on each side
    uint32_t turn_ns = 53'500;  ///< besides, one whose peer is not that of the message before, on each side
    uint32_t posted_ns = 146;   ///< besides, on the receiver's side, for each message that it still waits for
    uint32_t on_node_ns = 2'000;     ///< a message through shared memory, on each side
    uint32_t account_ns = 3;         ///< flow control of a packet, on each side, under a mode with credits
    uint32_t polls_per_message = 1;  ///< at most, after each message that was sent
    uint32_t packets_per_poll = 16;  ///< packets, or runs of them from the middle of a message
    uint32_t copy_kib_ns = 1'280;  ///< besides, KiB of a message by RMA (800 MB/s) or a long one on the node
    uint32_t window = 1;           ///< messages that a process has begun and not sent
};

struct SimulationConfig {
    cluster::ClusterConfig cluster;
    WorkloadConfig workload;
    flowctl::Config flow;  ///< flow.peers 0: as many as a process can have
    uint32_t contact_slots_max = 64;
    HostConfig host;
    uint32_t processes_per_node = 16;
    uint32_t hops = 1;          ///< multi_pingpong: between its two nodes
    bool shared_memory = true;  ///< between processes of one node
    /// Mode::kNone: mailboxes of the plan's size, under back-pressure, and not ones that are never full.
    bool bounded_without_credits = false;
};

/// The result. Counts are over all processes.
struct Result {
    uint64_t time_ns = 0;   ///< when the last process ended
    double time_us = 0;     ///< of one iteration after the warm-up, as the papers give it
    uint64_t messages = 0;  ///< through the device
    uint64_t messages_on_node = 0;
    uint64_t messages_delayed = 0;  ///< had to wait for credits
    uint64_t packets = 0;
    uint64_t credit_packets = 0;
    uint64_t credits_explicit = 0;
    uint64_t credits_piggybacked = 0;
    uint64_t control_packets = 0;  ///< of flow control, other than credit packets
    uint64_t opens = 0;            ///< of those: mailboxes opened to a peer
    uint64_t closes = 0;           ///< of those: links closed, without the answers
    uint64_t pairs = 0;            ///< of processes that have sent packets to each other
    uint64_t backpressure = 0;     ///< sends that a full mailbox kept back
    uint64_t malformed = 0;
    uint64_t mailbox_fill_max = 0;
    uint32_t peers_max = 0;  ///< that any process met
    /// Workloads that adapt: phases after the warm-up before the first of two in a row that are as fast as
    /// those that follow.
    std::optional<uint32_t> adapted_after;
    uint64_t trace_hash = 0;
};

/// Called at the end of each of a process's phases: process, phase.
using PhaseEnd = std::function<void(Process&, uint32_t)>;

/// Throws base::SetupError for a configuration that cannot be carried out. Thread: one.
class Simulation {
  public:
    explicit Simulation(const SimulationConfig& config);
    ~Simulation();

    /// Runs to the end. Throws cluster::SimulationError when a mailbox overflows, a message comes out of
    /// order or damaged, nothing moves any more while messages are missing, or a pair is not at rest at the
    /// end.
    Result run();

    void on_phase_end(PhaseEnd phase_end) { phase_end_ = std::move(phase_end); }

    [[nodiscard]] const SimulationConfig& config() const { return config_; }
    [[nodiscard]] const flowctl::Plan& plan() const { return plan_; }
    [[nodiscard]] bool has_credits() const { return plan_.credit_slots != 0; }
    [[nodiscard]] const Workload& workload() const { return *workload_; }
    [[nodiscard]] bool on_one_node(uint32_t a, uint32_t b) const {
        return config_.shared_memory && node_of(a) == node_of(b);
    }
    [[nodiscard]] uint32_t node_of(uint32_t rank) const {
        return nodes_.empty() ? rank / config_.processes_per_node : nodes_[rank / config_.processes_per_node];
    }
    /// Contents of every message's body, message_bytes_max bytes.
    [[nodiscard]] const std::byte* body() const { return body_.data(); }
    [[nodiscard]] uint32_t message_bytes_max() const;
    /// The memory of all long messages at their senders, and at their receivers.
    [[nodiscard]] std::byte* source() { return long_memory(source_); }
    [[nodiscard]] std::byte* sink() { return long_memory(sink_); }
    [[nodiscard]] size_t long_bytes_max() const {
        return size_t{workload_->config().processes} * workload_->config().bytes;
    }
    /// Options of the engine of a process, but for its host.
    [[nodiscard]] EngineOptions engine_options(uint32_t rank) const;
    [[nodiscard]] NodeFabric& fabric() { return *fabric_; }
    cluster::Cluster& cluster() { return *cluster_; }
    Process& process(uint32_t rank);
    void phase_ended(Process& process, uint32_t phase);

  private:
    void place();
    void make_plan();
    void check_finished();
    [[nodiscard]] Result result();
    [[nodiscard]] uint32_t adapted_after() const;
    std::byte* long_memory(base::Mapping& memory) const;

    SimulationConfig config_;
    std::unique_ptr<Workload> workload_;
    std::vector<uint32_t> nodes_;  ///< where groups of ranks are, if not at nodes 0, 1, 2, ...
    flowctl::Plan plan_;
    std::vector<std::byte> body_;
    base::Mapping source_;
    base::Mapping sink_;
    std::unique_ptr<cluster::Cluster> cluster_;
    std::unique_ptr<NodeFabric> fabric_;
    std::vector<Process> processes_;
    PhaseEnd phase_end_;
    std::vector<uint64_t> phase_ends_ns_;  ///< when the last process ended each
};

}  // namespace velo::sim
