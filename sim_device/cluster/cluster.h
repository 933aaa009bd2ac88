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
    uint32_t receive_ns = 1248;  ///< a packet taken out of the mailbox
    uint32_t credit_ns = 50;     ///< an explicit packet of flow control, on each side, besides the two above
    uint32_t take_packets = 1;   ///< most packets of a run taken, and so reported to flow control, at once
    uint32_t poll_ns = 100;      ///< a look at the mailbox; what arrives during it is seen
    uint32_t jitter_permille = 0;  ///< of all but polls: each by up to so much more or less, by the seed
    bool control_free = false;     ///< explicit packets of flow control take none of this time (FC 7.1)
};

/// Faults until `until_ns`: nothing is lost or reordered between two processes, only late.
struct FaultConfig {
    uint32_t delay_permille = 0;  ///< of the runs of packets
    uint32_t delay_ns_max = 0;
    uint32_t stall_permille = 0;  ///< of the steps of a process
    uint32_t stall_ns_max = 0;
    uint64_t until_ns = 0;
};

struct ClusterConfig {
    Topology topology{{1, 1, 1}, false};
    NetworkConfig network{};
    CpuConfig cpu{};
    FaultConfig faults{};
    uint64_t seed = 1;
    bool whole_payloads = false;  ///< carry all bytes of every packet, for tests of a device
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
    /// Takes the process that is due next and sets its clock; nullptr when none is.
    ClusterDevice* next();

    /// Sends as many packets as `times_ns` has entries on their way, and sets them to when each arrives: not
    /// before `not_before_ns`, when the last packet arrives that was sent before them to the same process.
    /// Returns when the writer has written the last one. `weightless`: without taking room from others
    /// (NetworkConfig::control_free).
    uint64_t carry(uint32_t from_node, uint32_t to_node, PacketWriter writer, std::span<uint64_t> times_ns,
                   uint64_t not_before_ns, bool weightless);

    [[nodiscard]] uint64_t latency_ns(uint32_t from_node, uint32_t to_node) const {
        return network_.latency_ns(from_node, to_node);
    }

    /// Back-pressure: no process of `node` sends until `full` has room for `packets` packets (FC 2).
    void hold(uint32_t node, ClusterDevice& full, uint32_t packets);
    [[nodiscard]] bool held(uint32_t node) const { return held_[node]; }
    /// `device` has freed slots.
    void freed(ClusterDevice& device);

    /// How long a process does nothing now, by the faults; 0: not at all.
    uint64_t stall_ns(uint64_t now_ns);

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
    struct Due {
        uint64_t at_ns;
        uint64_t sequence;
        uint32_t process;
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
    TraceHash trace_;
};

}  // namespace velo::cluster

#include "sim_device/cluster/cluster_device_send.h"
