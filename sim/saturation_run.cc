#include "sim/saturation_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <string>

#include "rma/chunk_scheduler.h"
#include "sim/draw.h"
#include "sim_device/switched/becn_throttle.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {
namespace {

using switched::BecnThrottle;
using switched::NodePacket;

constexpr uint32_t kFlitBytes = 64;
constexpr uint32_t kRequestFlits = 1;
constexpr uint32_t kNoPartner = UINT32_MAX;
/// A packet's tag: requests that ride on it, and whether it has data.
constexpr uint32_t kData = 1u << 31;

/// A node that fetches one endless message from its partner, chunk by chunk.
class Puller {
  public:
    explicit Puller(const SaturationConfig& config)
        : chunk_packets_(config.chunk_packets), scheduler_(config.window) {
        const uint64_t chunk_bytes = uint64_t{config.network.packet_flits} * kFlitBytes * chunk_packets_;
        transfer_.chunk_bytes = static_cast<uint32_t>(chunk_bytes);
        transfer_.bytes = chunk_bytes * (uint64_t{config.packet_times} + config.window + 1);
    }
    /// Begins; the Puller stays where it is from now on.
    void begin() {
        scheduler_.post(transfer_, source_);
        ask();
    }
    /// A data packet of this node's message. Ends of chunks are counted by their packets, in any order.
    void got_data() {
        if (++packets_of_chunk_ < chunk_packets_) return;
        packets_of_chunk_ = 0;
        (void)scheduler_.chunk_done(transfer_, transfer_.chunk_bytes, Status::kOk);
        ask();
    }
    void got_requests(uint32_t requests) { owed_packets_ += uint64_t{requests} * chunk_packets_; }
    /// Requests that the next packet takes along.
    [[nodiscard]] uint32_t take_requests() { return std::exchange(requests_, 0); }
    [[nodiscard]] bool has_requests() const { return requests_ != 0; }
    [[nodiscard]] bool owes_data() const { return owed_packets_ != 0; }
    void sent_data() { --owed_packets_; }
    [[nodiscard]] uint32_t outstanding() const { return scheduler_.chunks(); }

  private:
    void ask() {
        rma::Chunk chunk;
        while (scheduler_.next(chunk)) ++requests_;
    }

    uint32_t chunk_packets_;
    uint32_t packets_of_chunk_ = 0;  ///< come, of a chunk that is not whole
    uint32_t requests_ = 0;          ///< not sent
    uint64_t owed_packets_ = 0;      ///< that the partner has asked for
    rma::ChunkScheduler scheduler_;
    rma::Transfer transfer_;
    rma::Source source_;
};

struct Node {
    Node(const SaturationConfig& config, uint32_t decay_cycles) : puller(config), throttle(decay_cycles) {}

    uint32_t partner = kNoPartner;
    uint32_t becn_owed = 0;  ///< marked packets that have not been answered
    bool fast = true;        ///< neither end of its pair is slow
    Puller puller;
    BecnThrottle throttle;
};

[[noreturn]] void refuse(const char* name, uint64_t value, const std::string& remedy) {
    throw base::SetupError(std::string(name) + " " + std::to_string(value) + "; give " + remedy);
}

switched::SwitchedConfig network_of(const SaturationConfig& config) {
    switched::SwitchedConfig network = config.network;
    if (config.method == TransferMethod::kFecn) network.fecn_percent = 100;
    if (config.method == TransferMethod::kFecnAggressive) network.fecn_percent = 200;
    return network;
}

/// The nodes in a random order.
std::vector<uint32_t> shuffled(uint32_t nodes, uint64_t seed, uint32_t stream) {
    std::vector<uint32_t> order(nodes);
    std::iota(order.begin(), order.end(), 0u);
    for (uint32_t i = nodes; i-- > 1;) std::swap(order[i], order[draw(seed, stream, i) % (i + 1)]);
    return order;
}

class SaturationRun {
  public:
    explicit SaturationRun(const SaturationConfig& config);
    SaturationResult run();

  private:
    [[nodiscard]] bool rdrp() const { return config_.method == TransferMethod::kRdrp; }
    [[nodiscard]] bool throttled() const {
        return config_.method == TransferMethod::kFecn || config_.method == TransferMethod::kFecnAggressive;
    }
    void offer(uint32_t index);
    void send(uint32_t index, uint32_t flits, uint32_t tag);
    void take(const NodePacket& packet);
    void end_iteration();
    void check_standstill();
    void finish();

    SaturationConfig config_;
    switched::SwitchedNetwork network_;
    std::deque<Node> nodes_;  ///< which stay where they are
    SaturationResult result_;
    uint32_t paired_ = 0;
    uint32_t fast_nodes_ = 0;
    uint64_t sent_ = 0;
    uint64_t taken_ = 0;  ///< data packets of this iteration
    uint64_t last_packets_ = 0;
    uint64_t last_fast_ = 0;   ///< of the last third: data packets of fast nodes,
    uint64_t last_slots_ = 0;  ///< and the slots that all data packets were on their way
    uint32_t still_ = 0;       ///< slots without a packet anywhere
    uint32_t slot_ = 0;
};

SaturationRun::SaturationRun(const SaturationConfig& config) : config_(config), network_(network_of(config)) {
    const uint32_t nodes = network_.nodes();
    if (config.window == 0) refuse("--window", 0, "at least 1");
    if (config.chunk_packets == 0 || config.chunk_packets > 65536)
        refuse("--chunk-packets", config.chunk_packets, "1 to 65536");
    if (config.slowdown == 0 || config.slowdown > 1000) refuse("--slowdown", config.slowdown, "1 to 1000");
    if (config.slow_nodes > nodes)
        refuse("--slow", config.slow_nodes, "at most the " + std::to_string(nodes) + " nodes");
    if (config.iteration == 0 || config.packet_times / config.iteration < 3)
        refuse("--iteration", config.iteration, "at most a third of --packets, and at least 1");
    const uint32_t decay = config.method == TransferMethod::kFecnAggressive ? 50 : 4;
    for (uint32_t i = 0; i < nodes; ++i) nodes_.emplace_back(config_, decay);
    const std::vector<uint32_t> order = shuffled(nodes, config.network.seed, 0);
    for (uint32_t i = 0; i + 1 < nodes; i += 2) {
        nodes_[order[i]].partner = order[i + 1];
        nodes_[order[i + 1]].partner = order[i];
        paired_ += 2;
    }
    const std::vector<uint32_t> slow = shuffled(nodes, config.network.seed, 1);
    for (uint32_t i = 0; i < config.slow_nodes; ++i) {
        Node& node = nodes_[slow[i]];
        network_.set_sink_interval(slow[i], config.slowdown);
        node.fast = false;
        if (node.partner != kNoPartner) nodes_[node.partner].fast = false;
    }
    for (Node& node : nodes_) {
        if (node.partner == kNoPartner) continue;
        fast_nodes_ += node.fast;
        if (!rdrp()) continue;
        node.puller.begin();
        if (!config.bare_requests) nodes_[node.partner].puller.got_requests(node.puller.take_requests());
    }
}

void SaturationRun::send(uint32_t index, uint32_t flits, uint32_t tag) {
    Node& node = nodes_[index];
    const bool becn = node.becn_owed != 0;
    if (becn) --node.becn_owed;
    network_.send({.source = static_cast<uint16_t>(index),
                   .target = static_cast<uint16_t>(node.partner),
                   .flits = static_cast<uint8_t>(flits),
                   .becn = becn,
                   .tag = tag});
    ++sent_;
}

/// At most one packet a slot: the offered load is 1.
void SaturationRun::offer(uint32_t index) {
    Node& node = nodes_[index];
    if (node.partner == kNoPartner) return;
    if (throttled()) node.throttle.tick(config_.network.packet_flits);
    if (!network_.can_send(index)) return;
    if (!rdrp()) {
        if (throttled()) {
            if (!node.throttle.may_send()) return;
            node.throttle.sent();
        }
        return send(index, config_.network.packet_flits, kData);
    }
    if (node.puller.owes_data()) {
        node.puller.sent_data();
        send(index, config_.network.packet_flits, kData | node.puller.take_requests());
    } else if (node.puller.has_requests() && config_.bare_requests) {
        send(index, kRequestFlits, node.puller.take_requests());
    }
}

void SaturationRun::take(const NodePacket& packet) {
    Node& node = nodes_[packet.target];
    node.becn_owed += packet.fecn;
    node.throttle.received(packet.becn);
    if (rdrp()) node.puller.got_requests(packet.tag & ~kData);
    if ((packet.tag & kData) == 0) {
        ++result_.bare_requests;
        return;
    }
    ++taken_;
    if (3 * uint64_t{slot_} >= 2 * uint64_t{config_.packet_times}) {
        ++last_packets_;
        last_fast_ += node.fast;
        last_slots_ += packet.slots;
    }
    if (!rdrp()) return;
    node.puller.got_data();
    result_.outstanding_max = std::max(result_.outstanding_max, node.puller.outstanding());
}

void SaturationRun::end_iteration() {
    result_.series.push_back(static_cast<double>(taken_) / config_.iteration / std::max(paired_, 1u));
    result_.packets += taken_;
    taken_ = 0;
}

void SaturationRun::check_standstill() {
    still_ = network_.packets() == 0 ? still_ + 1 : 0;
    if (!rdrp() || still_ < config_.network.deadlock_slots) return;
    throw switched::Deadlock(
        "no packet has been in the network for " + std::to_string(still_) +
        " slots: every node waits for a request, and may send its own with data only; let "
        "requests leave without data, or give a larger --window");
}

void SaturationRun::finish() {
    const std::vector<double>& series = result_.series;
    const size_t third = series.size() - series.size() / 3;
    result_.steady = std::accumulate(series.begin() + static_cast<std::ptrdiff_t>(third), series.end(), 0.0) /
                     static_cast<double>(series.size() - third);
    result_.trough = *std::min_element(series.begin() + 1, series.end());
    result_.stopped = series.back();
    for (size_t i = 1; i < series.size(); ++i) {
        if (std::abs(series[i] - series[i - 1]) >= 0.05 * series[i - 1]) continue;
        result_.stopped = series[i];
        break;
    }
    const double slots = config_.packet_times / 3.0;
    result_.fast = fast_nodes_ == 0 ? 0 : static_cast<double>(last_fast_) / slots / fast_nodes_;
    result_.latency =
        last_packets_ == 0 ? 0 : static_cast<double>(last_slots_) / static_cast<double>(last_packets_);
    result_.detours = sent_ == 0 ? 0 : static_cast<double>(network_.detours()) / static_cast<double>(sent_);
    result_.marks = network_.marks();
    result_.trace_hash = network_.trace_hash();
}

SaturationResult SaturationRun::run() {
    for (slot_ = 0; slot_ < config_.packet_times; ++slot_) {
        for (uint32_t node = 0; node < nodes_.size(); ++node) offer(node);
        network_.step();
        for (const NodePacket& packet : network_.taken()) take(packet);
        check_standstill();
        if ((slot_ + 1) % config_.iteration == 0) end_iteration();
    }
    finish();
    return result_;
}

}  // namespace

SaturationResult run_saturation(const SaturationConfig& config) {
    return SaturationRun(config).run();
}

}  // namespace velo::sim
