#include "sim_device/cluster/cluster.h"

#include <algorithm>

namespace velo::cluster {

Cluster::Cluster(const ClusterConfig& config)
    : config_(config),
      network_(config.topology, config.network),
      at_node_(config.topology.nodes()),
      held_(config.topology.nodes()),
      fault_state_(config.seed),
      jitter_state_(~config.seed),
      rma_fault_state_(config.seed ^ 0x524d41) {  // "RMA"
    if (config.cpu.jitter_permille > 1000) {
        throw base::SetupError("--cpu-jitter-permille " + std::to_string(config.cpu.jitter_permille) +
                               "; give 0 to 1000");
    }
}

Cluster::~Cluster() = default;

ClusterDevice& Cluster::open(uint32_t node, const DeviceConfig& device) {
    if (node >= at_node_.size()) {
        throw base::SetupError("process " + std::to_string(processes()) + " at node " + std::to_string(node) +
                               " of " + config_.topology.text() + ", which has " +
                               std::to_string(at_node_.size()) +
                               " nodes; give a larger topology or more processes a node");
    }
    at_node_[node].push_back(processes());
    devices_.push_back(std::make_unique<ClusterDevice>(*this, processes(), node, device));
    return *devices_.back();
}

void Cluster::schedule(ClusterDevice& device, uint64_t at_ns) {
    if (at_ns >= device.due_ns_ || device.dead_) return;
    device.due_ns_ = at_ns;
    due_.push({at_ns, sequence_++, device.process(), kStep});
}

void Cluster::schedule_rma(ClusterDevice& device, uint32_t operation, uint64_t at_ns) {
    due_.push({at_ns, sequence_++, device.process(), operation});
}

ClusterDevice* Cluster::next(uint64_t until_ns) {
    while (!due_.empty() && due_.top().at_ns <= until_ns) {
        const Due due = due_.top();
        due_.pop();
        ClusterDevice& device = *devices_[due.process];
        // Of a process that became due earlier.
        if (due.what == kStep && device.due_ns_ != due.at_ns) continue;
        now_ns_ = due.at_ns;
        if (due.what == kDeath) {
            die(device, due.at_ns);
        } else if (due.what != kStep) {
            device.rma().advance(due.what, due.at_ns);
        } else {
            device.due_ns_ = kNever;
            device.asleep_ = false;
            device.advance_clock(due.at_ns);
            return &device;
        }
    }
    return nullptr;
}

void Cluster::kill(uint32_t process, uint64_t at_ns) {
    if (at_ns <= now_ns_) {
        die(*devices_[process], now_ns_);
    } else {
        due_.push({at_ns, sequence_++, process, kDeath});
    }
}

void Cluster::die(ClusterDevice& device, uint64_t at_ns) {
    if (device.dead_) return;
    trace_.add(TraceEvent::kDeath, device.process(), at_ns, 0);
    device.die(at_ns);
    freed(device);
}

uint64_t Cluster::carry(uint32_t from_node, uint32_t to_node, PacketWriter writer,
                        std::span<uint64_t> times_ns, uint64_t not_before_ns, uint64_t late_ns, bool weightless) {
    const FaultConfig& faults = config_.faults;
    if (writer.start_ns + writer.packet_ns < faults.until_ns && faults.delay_ns_max != 0 &&
        random(fault_state_) % 1000 < faults.delay_permille) {
        late_ns += random(fault_state_) % faults.delay_ns_max;
    }
    uint64_t written_ns = writer.start_ns;
    if (weightless) {
        const uint64_t latency_ns = network_.latency_ns(from_node, to_node);
        for (uint64_t& time_ns : times_ns) time_ns = (written_ns += writer.packet_ns) + latency_ns;
    } else {
        written_ns = network_.carry(now_ns_, from_node, to_node, writer, times_ns);
    }
    // A late packet holds up what was sent after it.
    if (times_ns.front() + late_ns < not_before_ns) late_ns = not_before_ns - times_ns.front();
    for (uint64_t& time_ns : times_ns) time_ns += late_ns;
    return written_ns;
}

void Cluster::hold(uint32_t node, ClusterDevice& full, uint32_t packets) {
    held_[node] = true;
    holds_.push_back({node, std::min(packets, full.slots_), &full});
}

void Cluster::freed(ClusterDevice& device) {
    for (size_t i = 0; i < holds_.size();) {
        const Hold hold = holds_[i];
        if (hold.full != &device || !(device.has_room(hold.packets) || device.dead_)) {
            ++i;
            continue;
        }
        holds_.erase(holds_.begin() + static_cast<ptrdiff_t>(i));
        held_[hold.node] = false;
        for (const uint32_t process : at_node_[hold.node]) devices_[process]->wake(device.clock_ns());
    }
}

uint64_t Cluster::stall_ns(uint64_t now_ns) {
    const FaultConfig& faults = config_.faults;
    if (now_ns >= faults.until_ns || faults.stall_ns_max == 0 ||
        random(fault_state_) % 1000 >= faults.stall_permille)
        return 0;
    return random(fault_state_) % faults.stall_ns_max;
}

RmaFault Cluster::draw_rma_fault(uint64_t now_ns) {
    const FaultConfig& faults = config_.faults;
    RmaFault fault;
    if (now_ns >= faults.until_ns) return fault;
    uint64_t& state = rma_fault_state_;
    if (faults.rma_fail_permille != 0 && hits(state, faults.rma_fail_permille)) {
        fault.status = Status::kFailed;
        // A third moves nothing, and a third all.
        fault.done_permille = static_cast<uint32_t>(std::clamp<int64_t>(
            static_cast<int64_t>(random(state) % 3000) - 1000, 0, 1000));
    } else if (faults.rma_refuse_permille != 0 && hits(state, faults.rma_refuse_permille)) {
        fault.status = Status::kUnsupported;
    }
    if (faults.rma_delay_ns_max != 0 && hits(state, faults.rma_delay_permille)) {
        const uint64_t late_ns = 1 + random(state) % faults.rma_delay_ns_max;
        (random(state) % 2 == 0 ? fault.late_there_ns : fault.late_back_ns) = late_ns;
    }
    return fault;
}

bool Cluster::draw_rma_again(uint64_t now_ns) {
    const FaultConfig& faults = config_.faults;
    return now_ns < faults.until_ns && faults.rma_again_permille != 0 &&
           hits(rma_fault_state_, faults.rma_again_permille);
}

/// splitmix64
uint64_t Cluster::random(uint64_t& state) {
    uint64_t x = state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

}  // namespace velo::cluster
