#include "sim/simulation.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "sim/at_rest.h"
#include "sim/process.h"
#include "velo/options/params_default.h"

namespace velo::sim {

using base::SetupError;

namespace {

/// A mailbox that no job fills: the reference that overhead is measured against (FC 5.3).
constexpr uint32_t kUnboundedSlots = 1u << 30;

/// Bytes of what announces a long message, and of a piece of one that goes in messages.
constexpr uint32_t kMessageBytesMin = 256;

}  // namespace

Simulation::Simulation(const SimulationConfig& config)
    : config_(config), workload_(make_workload(config.workload)) {
    if (config_.processes_per_node == 0 || config_.processes_per_node > 256) {
        throw SetupError("--processes-per-node " + std::to_string(config_.processes_per_node) +
                         "; give 1 to 256");
    }
    for (const auto& [name, value] : {std::pair{"--window", config_.host.window},
                                      {"--packets-per-poll", config_.host.packets_per_poll},
                                      {"--packets-per-take", config_.cluster.cpu.take_packets}}) {
        if (value == 0) throw SetupError(std::string(name) + " 0; give at least 1");
    }
    if (config_.host.polls_per_message > 255) {
        throw SetupError("--polls-per-message " + std::to_string(config_.host.polls_per_message) +
                         "; give at most 255");
    }
    const uint32_t processes = workload_->config().processes;
    place();
    make_plan();
    if (has_credits()) {
        config_.cluster.cpu.send_ns += config_.host.account_ns;
        config_.cluster.cpu.receive_ns += config_.host.account_ns;
    }
    body_.resize(config_.workload.bytes + 1);
    for (size_t i = 0; i < body_.size(); ++i) body_[i] = static_cast<std::byte>(i * 31 + 7);
    phase_ends_ns_.resize(workload_->phases());
    cluster_ = std::make_unique<cluster::Cluster>(config_.cluster);
    fabric_ = std::make_unique<NodeFabric>(*cluster_);
    fabric_->message_ns = config_.host.on_node_ns;
    fabric_->copy_kib_ns = config_.host.copy_kib_ns;
    fabric_->short_bytes = message_bytes_max();
    fabric_->ring = NodeFabric::geometry_for(std::max(4096u, message_bytes_max()));
    fabric_->whole_payloads = config_.cluster.whole_payloads;
    processes_.reserve(processes);
    const bool unbounded = plan_.mode == flowctl::Mode::kNone && !config_.bounded_without_credits;
    for (uint32_t rank = 0; rank < processes; ++rank) {
        const uint32_t node = node_of(rank);
        cluster::ClusterDevice& device =
            cluster_->open(node, {.node = static_cast<uint16_t>(node),
                                  .vpid = static_cast<uint8_t>(rank % config_.processes_per_node),
                                  .mailbox_slots = unbounded ? kUnboundedSlots : plan_.mailbox_slots,
                                  .contact_slots = plan_.contact_slots,
                                  .faults = {}});
        processes_.emplace_back(*this, device);
    }
}

Simulation::~Simulation() = default;

void Simulation::place() {
    const uint32_t processes = workload_->config().processes;
    if (workload_->between_two_nodes()) {
        config_.processes_per_node = processes / 2;
        nodes_ = {0, config_.cluster.topology.node_at(config_.hops)};
    }
    const uint64_t room = uint64_t{config_.cluster.topology.nodes()} * config_.processes_per_node;
    if (nodes_.empty() && processes > room) {
        throw SetupError("--processes " + std::to_string(processes) + " on " +
                         config_.cluster.topology.text() + " with " +
                         std::to_string(config_.processes_per_node) + " a node, which is room for " +
                         std::to_string(room) + "; give a larger --topology or fewer processes");
    }
}

void Simulation::make_plan() {
    const uint32_t processes = workload_->config().processes;
    // The last node may have fewer processes, which have more peers elsewhere.
    const uint32_t rest = processes % config_.processes_per_node;
    const uint32_t on_last_node = rest != 0 ? rest : config_.processes_per_node;
    const uint32_t on_node = config_.shared_memory ? on_last_node - 1 : 0;
    if (config_.flow.peers == 0) config_.flow.peers = std::max(1u, processes - 1 - on_node);
    config_.flow.contact_slots = flowctl::contact_slots_for(config_.flow, config_.contact_slots_max);
    auto result = flowctl::plan(config_.flow);
    if (const auto* error = std::get_if<flowctl::PlanError>(&result)) throw SetupError(error->message);
    plan_ = std::get<flowctl::Plan>(result);
}

Process& Simulation::process(uint32_t rank) {
    return processes_[rank];
}

uint32_t Simulation::message_bytes_max() const {
    return std::max(config_.workload.bytes + static_cast<uint32_t>(sizeof(MessageHeader)), kMessageBytesMin);
}

/// Pages that are never written take nothing.
std::byte* Simulation::long_memory(base::Mapping& memory) const {
    if (memory.data() == nullptr) memory = base::Mapping::zeroed(long_bytes_max());
    return memory.data();
}

EngineOptions Simulation::engine_options(uint32_t rank) const {
    EngineOptions options;
    options.identity.name = rank;
    options.identity.job = 1;
    options.identity.rank = rank;
    options.identity.job_size = workload_->config().processes;
    options.params = params_default();
    options.params.device_message_bytes_max = message_bytes_max();
    options.plan = plan_;
    options.node = config_.shared_memory ? node_of(rank) : rank;
    options.device_used = true;
    return options;
}

Result Simulation::run() {
    for (Process& process : processes_) cluster_->schedule(process.device(), 0);
    while (cluster::ClusterDevice* device = cluster_->next()) processes_[device->process()].step();
    check_finished();
    return result();
}

void Simulation::phase_ended(Process& process, uint32_t phase) {
    phase_ends_ns_[phase] = std::max(phase_ends_ns_[phase], process.device().clock_ns());
    if (phase_end_) phase_end_(process, phase);
}

void Simulation::check_finished() {
    uint32_t unfinished = 0;
    std::string first;
    for (const Process& process : processes_) {
        if (process.finished()) continue;
        if (unfinished++ == 0) first = process.text();
    }
    if (unfinished != 0) {
        throw cluster::SimulationError("nothing moves any more, and " + std::to_string(unfinished) +
                                       " processes have not finished: " + first);
    }
    if (const std::string unrest = first_unrest(*this); !unrest.empty()) {
        throw cluster::SimulationError("all messages have arrived, but " + unrest +
                                       ": flow control is wrong (--seed " +
                                       std::to_string(config_.cluster.seed) + ")");
    }
}

/// A phase is as fast as those that follow if it takes at most a twentieth more than the median of the last
/// half.
uint32_t Simulation::adapted_after() const {
    std::vector<uint64_t> times_ns;
    for (uint32_t phase = workload_->warmup_phases(); phase < workload_->phases(); ++phase) {
        times_ns.push_back(phase_ends_ns_[phase] - (phase == 0 ? 0 : phase_ends_ns_[phase - 1]));
    }
    std::vector<uint64_t> last(times_ns.begin() + static_cast<ptrdiff_t>(times_ns.size() / 2),
                               times_ns.end());
    std::nth_element(last.begin(), last.begin() + static_cast<ptrdiff_t>(last.size() / 2), last.end());
    const uint64_t settled_ns = last[last.size() / 2];
    const auto fast = [&](size_t i) { return times_ns[i] <= settled_ns + settled_ns / 20; };
    uint32_t phases = 0;
    while (phases + 1 < times_ns.size() && !(fast(phases) && fast(phases + 1))) ++phases;
    return phases;
}

Result Simulation::result() {
    Result sum;
    uint64_t bursts_ns = 0;
    for (const Process& process : processes_) {
        const cluster::ClusterDevice& device = process.device();
        const DeviceCounters counters = device.counters();
        sum.time_ns = std::max(sum.time_ns, device.clock_ns());
        sum.packets += counters.packets_sent;
        sum.backpressure += counters.backpressure;
        sum.control_packets += device.other_packets_sent();
        sum.mailbox_fill_max = std::max(sum.mailbox_fill_max, device.mailbox_fill_max());
        sum.peers_max = std::max(sum.peers_max, device.peers());
        sum.pairs += device.peers();
        sum.messages_on_node += process.messages_on_node();
        bursts_ns += process.bursts_ns();
        if (process.packets() == nullptr) continue;
        const PacketChannelCounters& path = process.packets()->counters();
        sum.messages += process.messages();
        sum.messages_delayed += process.packets()->stalls().count();
        sum.credit_packets += path.credit_packets_sent;
        sum.credits_explicit += path.credits_returned_explicit;
        sum.credits_piggybacked += path.credits_returned_piggyback;
        sum.malformed += path.malformed;
        sum.opens += path.opens_sent;
        sum.closes += path.closes_sent;
    }
    sum.pairs /= 2;
    sum.control_packets -= sum.credit_packets;
    const uint32_t warmup = workload_->warmup_phases();
    const uint64_t warm_ns = warmup == 0 ? 0 : phase_ends_ns_[warmup - 1];
    const uint64_t timed_ns =
        workload_->times_bursts() ? bursts_ns / processes_.size() : sum.time_ns - warm_ns;
    sum.time_us = static_cast<double>(timed_ns) / 1000 / workload_->time_divisor();
    if (workload_->adapts()) sum.adapted_after = adapted_after();
    sum.trace_hash = cluster_->trace().value();
    return sum;
}

}  // namespace velo::sim
