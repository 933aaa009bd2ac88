#include "sim_device/switched/switched_network.h"

#include <algorithm>

#include "velo/base/check.h"
#include "velo/os/shared_segment.h"

namespace velo::switched {
namespace {

constexpr uint32_t kVcsMax = 16;

[[noreturn]] void refuse(const char* name, uint32_t value, const std::string& remedy) {
    throw base::SetupError(std::string(name) + " " + std::to_string(value) + "; give " + remedy);
}

const SwitchedConfig& checked(const SwitchedConfig& config) {
    const auto between = [](const char* name, uint32_t value, uint32_t least, uint32_t most) {
        if (value < least || value > most)
            refuse(name, value, std::to_string(least) + " to " + std::to_string(most));
    };
    between("--packet-flits", config.packet_flits, 1, 128);
    between("--buffer-flits", config.buffer_flits, config.packet_flits, 32768);
    between("--ejection-flits", config.ejection_flits, config.packet_flits, 32768);
    between("--vcs-per-class", config.vcs_per_class, 1, config.topology.dragonfly() ? kVcsMax / 4 : kVcsMax);
    between("--speedup-permille", config.speedup_permille, 1000, 16000);
    between("--local-cycles", config.local_cycles, 0, 1u << 16);
    between("--global-cycles", config.global_cycles, 0, 1u << 16);
    between("--nic-queue", config.nic_queue_packets, 1, 1u << 16);
    between("--deadlock-slots", config.deadlock_slots, 1, 1u << 30);
    between("--minimal-bias-percent", config.minimal_bias_percent, 0, 100000);
    return config;
}

uint32_t slowest_link(const SwitchedConfig& config) {
    return link_slots(std::max(config.local_cycles, config.global_cycles), config.packet_flits);
}

/// Packets that leave buffers in a slot.
size_t leaving_max(const SwitchedConfig& config, const SwitchedPorts& ports) {
    const size_t passes = config.speedup_permille / 1000 + 1;
    return passes * ports.first_nic() + size_t{config.topology.nodes()} * config.packet_flits;
}

}  // namespace

SwitchedNetwork::SwitchedNetwork(const SwitchedConfig& config)
    : config_(checked(config)),
      ports_(config_),
      credits_(ports_.count(), ports_.vcs(), leaving_max(config_, ports_)),
      wires_(slowest_link(config_), size_t{ports_.count()} * config_.packet_flits),
      routers_(config_, ports_, pool_, credits_, wires_),
      nics_(config_, ports_, pool_, credits_, wires_) {
    // Packets of full length that fill all buffers and queues; a NIC waits where there are more, shorter
    // ones.
    const size_t buffers = size_t{ports_.first_nic()} * ports_.vcs() * (config_.buffer_flits / config_.packet_flits);
    const size_t at_a_node = config_.nic_queue_packets + config_.ejection_flits / config_.packet_flits;
    pool_.resize(buffers + nics_.nodes() * at_a_node);
    taken_.reserve(size_t{nics_.nodes()} * config_.packet_flits);
}

void SwitchedNetwork::send(const NodePacket& given) {
    VELO_CHECK(can_send(given.source), "node %u's queue is full", given.source);
    VELO_CHECK(given.flits > 0 && given.flits <= config_.packet_flits && given.target < nics_.nodes(),
               "a packet of %u flits to node %u", given.flits, given.target);
    const uint32_t index = pool_.allocate();
    Packet& packet = pool_[index];
    packet.tag = given.tag;
    packet.sent_slot = static_cast<uint32_t>(slot_);
    packet.source = given.source;
    packet.target = given.target;
    packet.router = static_cast<uint16_t>(config_.topology.router_of(given.target));
    packet.flits = given.flits;
    packet.becn = given.becn;
    nics_.send(given.source, index);
    ++packets_;
}

void SwitchedNetwork::step() {
    ++slot_;
    credits_.next_slot([this](uint32_t output) { routers_.credits_returned(output); });
    arrive();
    bool moved = routers_.step(slot_);
    taken_.clear();
    for (uint32_t node = 0; node < nics_.nodes(); ++node) {
        if (nics_.queued(node) != 0) moved |= nics_.inject(node, slot_);
        moved |= take_at(node);
    }
    if (moved || packets_ == 0) last_move_ = slot_;
    if (slot_ - last_move_ >= config_.deadlock_slots) report_deadlock();
}

void SwitchedNetwork::arrive() {
    std::vector<Wires::Arrival>& wire = wires_.arriving(slot_);
    const uint32_t first_node = ports_.first_nic() * ports_.vcs();
    const auto prefetch = [this](uint32_t packet) { __builtin_prefetch(&pool_[packet], 1); };
    for (size_t i = 0; i < wire.size(); ++i) {
        // Most of the time is misses of the cache: fetch what comes next, in two steps.
        constexpr size_t kAhead = 8;
        if (i + 2 * kAhead < wire.size()) {
            const Wires::Arrival& coming = wire[i + 2 * kAhead];
            prefetch(coming.packet);
            if (coming.input < first_node) routers_.prefetch(coming.input);
        }
        if (i + kAhead < wire.size() && wire[i + kAhead].input < first_node) {
            const uint32_t last = routers_.last_of(wire[i + kAhead].input);
            if (last != kNoPacket) prefetch(last);
        }
        if (wire[i].input < first_node)
            routers_.receive(wire[i].packet, wire[i].input);
        else
            nics_.receive(wire[i].packet);
    }
    wire.clear();
}

/// A slot of a node's software. True: it has taken a packet.
bool SwitchedNetwork::take_at(uint32_t node) {
    const uint32_t before = packets_;
    nics_.sink(node, [&](const Packet& packet) {
        const auto slots = static_cast<uint32_t>(slot_) - packet.sent_slot;
        taken_.push_back({.source = packet.source,
                          .target = packet.target,
                          .flits = packet.flits,
                          .fecn = packet.fecn,
                          .becn = packet.becn,
                          .tag = packet.tag,
                          .slots = slots});
        trace_.add(cluster::TraceEvent::kDeliver, node, slot_, uint64_t{packet.source} << 32 | slots);
        --packets_;
    });
    return packets_ != before;
}

std::string SwitchedNetwork::audit() const {
    PacketCount count(pool_, ports_);
    if (std::string text = routers_.audit(count); !text.empty()) return text;
    if (std::string text = nics_.audit(count); !text.empty()) return text;
    wires_.for_each([&](uint32_t packet) { count.add(packet); });
    if (std::string text = credits_.audit(count.used()); !text.empty()) return text;
    if (count.packets() != packets_)
        return std::to_string(count.packets()) + " packets, of " + std::to_string(packets_);
    return "";
}

void SwitchedNetwork::report_deadlock() const {
    throw Deadlock(
        "nothing has moved for " + std::to_string(slot_ - last_move_) + " slots, at slot " + std::to_string(slot_) +
        ", and " + std::to_string(packets_) + " packets are in the network: " + routers_.waiting_report() +
        ". Use a class of virtual channels for each hop (vc_classes), or a longer --deadlock-slots "
        "if a node is that slow");
}

}  // namespace velo::switched
