/// A simulated cluster: its processes' devices, virtual time and the network between them (spec 8).
///
/// Time is in ns from 0. Every process is sequential and has a clock of its own, which its device's
/// operations advance by what they cost the CPU. The driver takes the process that is due next, lets it do
/// one thing, and schedules it for the time that its clock then shows. Two runs of one configuration do the
/// same in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim_device/cluster/cluster_device.h"
#include "sim_device/cluster/network.h"
#include "sim_device/cluster/rma_unit.h"
#include "sim_device/cluster/topology.h"
#include "sim_device/cluster/trace_hash.h"

namespace velo::cluster {

/// Something that flow control must never let happen; what() says which process and how many slots.
class SimulationError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Times of the CPU in ns.
struct CpuConfig {
    uint32_t send_ns = 1248;     ///< a packet written to the NIC (PIO)
    uint32_t receive_ns = 1248;  ///< a packet dequeued from the mailbox
    uint32_t credit_ns = 50;     ///< an explicit packet of flow control, on each side, besides send_ns and receive_ns
    uint32_t take_packets = 1;   ///< most packets of a run taken, and so reported to flow control, at once
    uint32_t poll_ns = 100;      ///< a look at the mailbox; what arrives during it is seen
    uint32_t jitter_permille = 0;  ///< of all but polls: each by up to so much more or less, by the seed
    bool control_free = false;     ///< explicit packets of flow control take none of this time (FC 7.1)
};

/// Faults until `until_ns`. Of packets nothing is lost or reordered between two processes, only late. Faults of RMA
/// have a random stream of their own.
struct FaultConfig {
    uint32_t delay_permille = 0;  ///< of the runs of packets
    uint32_t delay_ns_max = 0;
    uint32_t stall_permille = 0;  ///< of the steps of a process
    uint32_t stall_ns_max = 0;
    uint64_t until_ns = 0;
    uint32_t rma_fail_permille = 0;    ///< operations that end with kFailed; some of their bytes may have moved
    uint32_t rma_refuse_permille = 0;  ///< operations that end with kUnsupported; nothing has moved
    uint32_t rma_again_permille = 0;   ///< posts that are answered by kAgain
    uint32_t rma_delay_permille = 0;   ///< operations that leave late, or end late
    uint32_t rma_delay_ns_max = 0;
};

struct ClusterConfig {
    Topology topology{{1, 1, 1}, false};
    NetworkConfig network{};
    CpuConfig cpu{};
    RmaConfig rma{};
    FaultConfig faults{};
    uint64_t seed = 1;
    /// Carry all bytes of every packet, put and get. Without it, keys and ranges of RMA are still checked.
    bool whole_payloads = false;
};

/// Owner: the driver. Thread: one. Holds every device until it ends.
class Cluster {
  public:
    static constexpr uint64_t kNever = UINT64_MAX;

    explicit Cluster(const ClusterConfig& config);
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    /// The n-th call opens process n, at node `node` of the network, as `device` names it.
    ClusterDevice& open(uint32_t node, const DeviceConfig& device);
    [[nodiscard]] uint32_t processes() const { return static_cast<uint32_t>(devices_.size()); }
    ClusterDevice& operator[](uint32_t process) { return *devices_[process]; }

    /// Makes a process due at `at_ns`, or earlier if it is already.
    void schedule(ClusterDevice& device, uint64_t at_ns);
    /// Takes the process that is due next and sets its clock; nullptr when none is until `until_ns`. Accesses and ends
    /// of RMA operations, and deaths, happen here when their time has come.
    ClusterDevice* next(uint64_t until_ns = kNever);
    /// Has operation number `operation` of a device's RMA unit go on at `at_ns`.
    void schedule_rma(ClusterDevice& device, uint32_t operation, uint64_t at_ns);
    /// The process dies at `at_ns`, or now if that has passed: it is never due again, and says nothing of its end.
    /// Packets that it has sent arrive. RMA operations end with kPeerDead unless they have accessed memory before.
    void kill(uint32_t process, uint64_t at_ns);

    /// Sends as many packets as `times_ns` has entries on their way, and sets them to when each arrives: not
    /// before `not_before_ns`, when the last packet arrives that was sent before them to the same process, and by
    /// `late_ns` later than they would.
    /// Returns when the writer has written the last one. `weightless`: without taking time from others
    /// (NetworkConfig::control_free).
    uint64_t carry(uint32_t from_node, uint32_t to_node, PacketWriter writer, std::span<uint64_t> times_ns,
                   uint64_t not_before_ns, uint64_t late_ns, bool weightless);

    [[nodiscard]] uint64_t latency_ns(uint32_t from_node, uint32_t to_node) const {
        return network_.latency_ns(from_node, to_node);
    }

    /// Back-pressure: no process of `node` sends until `full` has slots for `packets` packets (FC 2).
    void hold(uint32_t node, ClusterDevice& full, uint32_t packets);
    [[nodiscard]] bool held(uint32_t node) const { return held_[node]; }
    /// `device` has freed slots.
    void freed(ClusterDevice& device);

    /// When the process that is at work became due.
    [[nodiscard]] uint64_t now_ns() const { return now_ns_; }
    /// How long a process does nothing now, by the faults; 0: not at all.
    uint64_t stall_ns(uint64_t now_ns);
    /// The fault of an RMA operation that is posted now.
    RmaFault draw_rma_fault(uint64_t now_ns);
    /// Whether a fault refuses an operation that is posted now.
    bool draw_rma_again(uint64_t now_ns);

    /// A time of the CPU with its jitter.
    uint64_t jittered(uint64_t ns) {
        const uint32_t permille = config_.cpu.jitter_permille;
        if (permille == 0) return ns;
        const uint64_t span = 2 * ns * permille / 1000;
        return ns - span / 2 + random(jitter_state_) % (span + 1);
    }

    [[nodiscard]] const ClusterConfig& config() const { return config_; }
    /// Whether any mailbox keeps any node from sending.
    [[nodiscard]] bool holds() const { return !holds_.empty(); }
    TraceHash& trace() { return trace_; }

  private:
    static constexpr uint32_t kStep = UINT32_MAX;
    static constexpr uint32_t kDeath = UINT32_MAX - 1;
    struct Due {
        uint64_t at_ns;
        uint64_t sequence;
        uint32_t process;
        uint32_t what;  ///< kStep, kDeath, or the number of an RMA operation
        bool operator<(const Due& other) const {  // the queue's front is the largest
            return at_ns != other.at_ns ? at_ns > other.at_ns : sequence > other.sequence;
        }
    };
    struct Hold {
        uint32_t node;
        uint32_t packets;
        ClusterDevice* full;
    };

    static uint64_t random(uint64_t& state);
    static bool hits(uint64_t& state, uint32_t permille) { return random(state) % 1000 < permille; }
    void die(ClusterDevice& device, uint64_t at_ns);

    ClusterConfig config_;
    Network network_;
    std::vector<std::unique_ptr<ClusterDevice>> devices_;
    std::vector<std::vector<uint32_t>> at_node_;
    std::priority_queue<Due> due_;
    uint64_t sequence_ = 0;
    uint64_t now_ns_ = 0;  ///< of the process that is at work, when it became due
    std::vector<Hold> holds_;
    std::vector<bool> held_;
    uint64_t fault_state_;
    uint64_t jitter_state_;
    uint64_t rma_fault_state_;
    TraceHash trace_;
};

}  // namespace velo::cluster

#include "sim_device/cluster/cluster_device_send.h"
