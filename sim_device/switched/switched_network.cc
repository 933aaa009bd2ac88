#include "sim_device/switched/switched_network.h"

#include <algorithm>
#include <bit>

#include "velo/base/check.h"
#include "velo/os/shared_segment.h"

namespace velo::switched {
namespace {

constexpr uint32_t kVcsMax = 16;

/// The first bit of `mask` at or above `from`, or below it.
uint32_t first_from(uint64_t mask, uint32_t from) {
    const uint64_t above = mask >> from << from;
    return static_cast<uint32_t>(std::countr_zero(above != 0 ? above : mask));
}

[[noreturn]] void refuse(const char* name, uint32_t value, const std::string& remedy) {
    throw base::SetupError(std::string(name) + " " + std::to_string(value) + "; give " + remedy);
}

void check(const SwitchedConfig& config) {
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
}

uint32_t slots_of(uint32_t cycles, uint32_t packet_flits) {
    return 1 + (cycles + packet_flits / 2) / packet_flits;
}

}  // namespace

SwitchedNetwork::SwitchedNetwork(const SwitchedConfig& config)
    : config_(config),
      routes_(config_),
      ports_(config.topology.ports()),
      vcs_((config.topology.dragonfly() ? 4 : 1) * config.vcs_per_class),
      first_nic_(config.topology.routers() * ports_) {
    check(config);
    const SwitchedTopology& topology = config_.topology;
    const uint32_t ends = first_nic_ + topology.nodes();
    routers_.resize(topology.routers());
    nodes_.resize(topology.nodes());
    inputs_.resize(size_t{first_nic_} * vcs_);
    input_vcs_.resize(first_nic_);
    input_turns_.resize(first_nic_);
    feeders_.resize(ends, kNone);
    outputs_.resize(ends);
    used_.resize(size_t{ends} * vcs_);
    used_flits_.resize(ends);
    const auto join = [&](uint32_t output, uint32_t input, LinkKind kind) {
        outputs_[output].kind = kind;
        outputs_[output].input = input;
        feeders_[input] = output;
    };
    for (uint32_t router = 0; router < topology.routers(); ++router) {
        routers_[router].random.state = Random::mix(Random::mix(config_.seed) + router);
        for (uint32_t port = 0; port < ports_; ++port) {
            const Link& link = topology.link(router, port);
            const uint32_t here = port_index(router, port);
            if (link.kind == LinkKind::kNone) continue;
            const bool terminal = link.kind == LinkKind::kTerminal;
            join(here, terminal ? first_nic_ + link.peer : port_index(link.peer, link.port), link.kind);
            if (terminal) join(first_nic_ + link.peer, here, link.kind);
        }
    }
    const uint32_t slowest = std::max(config_.local_cycles, config_.global_cycles);
    wires_.resize(std::bit_ceil(slots_of(slowest, config_.packet_flits) + 1));
    // Packets of full length that fill all buffers and queues; a NIC waits where there are more, shorter
    // ones.
    const size_t buffers = inputs_.size() * (config_.buffer_flits / config_.packet_flits);
    const size_t at_nodes = config_.nic_queue_packets + config_.ejection_flits / config_.packet_flits;
    pool_.resize(buffers + nodes_.size() * at_nodes);
    for (auto& wire : wires_) wire.reserve(size_t{ends} * config_.packet_flits);
    const size_t passes = config_.speedup_permille / 1000 + 1;
    const size_t ends_a_slot = passes * first_nic_ + nodes_.size() * config_.packet_flits;
    freed_.reserve(ends_a_slot);
    taken_.reserve(nodes_.size() * config_.packet_flits);
}

void SwitchedNetwork::send(const NodePacket& given) {
    VELO_CHECK(can_send(given.source), "node %u's queue is full", given.source);
    VELO_CHECK(given.flits > 0 && given.flits <= config_.packet_flits && given.target < nodes_.size(),
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
    pool_.append(nodes_[given.source].queue.fifo, index);
    ++nodes_[given.source].queue.count;
    ++packets_;
}

void SwitchedNetwork::step() {
    ++slot_;
    return_credits();
    arrive();
    const auto passes_by = [&](uint64_t slot) { return slot * config_.speedup_permille / 1000; };
    const auto passes = static_cast<uint32_t>(passes_by(slot_) - passes_by(slot_ - 1));
    for (uint32_t router = 0; router < routers_.size(); ++router) {
        if (routers_[router].inputs != 0) cross(router, passes);
        for (uint64_t left = routers_[router].outputs; left != 0; left &= left - 1)
            transmit(port_index(router, static_cast<uint32_t>(std::countr_zero(left))));
    }
    taken_.clear();
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
        if (nodes_[node].queue.count != 0) inject(node);
        sink(node);
    }
    if (packets_ == 0) moved();
    if (slot_ - last_move_ >= config_.deadlock_slots) check_progress();
}

void SwitchedNetwork::return_credits() {
    for (const Freed& freed : freed_) {
        Output& output = outputs_[freed.output];
        used_[freed.output * vcs_ + freed.vc] -= freed.flits;
        used_flits_[freed.output] -= freed.flits;
        if (output.waiters == 0) continue;
        routers_[freed.output / ports_].stalled &= ~output.waiters;
        output.waiters = 0;
    }
    freed_.clear();
}

void SwitchedNetwork::depart(uint32_t packet, uint32_t slots) {
    const Packet& leaving = pool_[packet];
    wires_[(slot_ + slots) & (wires_.size() - 1)].push_back({packet, leaving.place * vcs_ + leaving.vc});
}

void SwitchedNetwork::arrive() {
    std::vector<Arrival>& wire = wires_[slot_ & (wires_.size() - 1)];
    const size_t first_node = size_t{first_nic_} * vcs_;
    for (size_t i = 0; i < wire.size(); ++i) {
        // Most of the time is misses of the cache: fetch what comes next, in two steps.
        constexpr size_t kAhead = 8;
        if (i + 2 * kAhead < wire.size()) {
            prefetch(&pool_[wire[i + 2 * kAhead].packet]);
            if (wire[i + 2 * kAhead].input < first_node) prefetch(&inputs_[wire[i + 2 * kAhead].input]);
        }
        if (i + kAhead < wire.size() && wire[i + kAhead].input < first_node) {
            const Fifo& fifo = inputs_[wire[i + kAhead].input].fifo;
            if (fifo.head != kNoPacket) prefetch(&pool_[fifo.tail]);
        }
        const Packet& packet = pool_[wire[i].packet];
        const uint32_t place = packet.place;
        if (place >= first_nic_) {
            Node& node = nodes_[place - first_nic_];
            node.arrived_flits += packet.flits;
            pool_.append(node.arrived, wire[i].packet);
            continue;
        }
        Input& input = inputs_[wire[i].input];
        input.flits = static_cast<uint16_t>(input.flits + packet.flits);
        buffer_fill_max_ = std::max<uint32_t>(buffer_fill_max_, input.flits);
        const bool first = input.fifo.head == kNoPacket;
        pool_.append(input.fifo, wire[i].packet);
        if (!first) continue;
        input_vcs_[place] = static_cast<uint16_t>(input_vcs_[place] | 1u << packet.vc);
        const uint64_t bit = uint64_t{1} << place % ports_;
        routers_[place / ports_].inputs |= bit;
        routers_[place / ports_].stalled &= ~bit;
    }
    wire.clear();
}

void SwitchedNetwork::cross(uint32_t router, uint32_t passes) {
    while (passes-- > 0 && cross_once(router)) {
    }
}

uint8_t SwitchedNetwork::vc_with_room(uint32_t output, uint32_t vc_class, uint32_t flits) const {
    const bool node = outputs_[output].input >= first_nic_;
    const uint32_t capacity = node ? config_.ejection_flits : config_.buffer_flits;
    const bool all = !config_.vc_classes && !node;
    const uint32_t first = all ? 0 : vc_class * config_.vcs_per_class;
    const uint32_t count = all ? vcs_ : node ? 1 : config_.vcs_per_class;
    const uint16_t* const used = &used_[output * vcs_];
    uint32_t best = first;
    for (uint32_t vc = first + 1; vc < first + count; ++vc)
        if (used[vc] < used[best]) best = vc;
    return used[best] + flits <= capacity ? static_cast<uint8_t>(best) : kUnrouted;
}

bool SwitchedNetwork::propose(uint32_t router, uint32_t in_port, uint32_t& out_port) {
    const uint32_t place = port_index(router, in_port);
    const uint64_t bit = uint64_t{1} << in_port;
    uint64_t vcs = input_vcs_[place];
    while (vcs != 0) {
        const uint32_t vc = first_from(vcs, input_turns_[place]);
        vcs &= ~(uint64_t{1} << vc);
        Input& input = inputs_[place * vcs_ + vc];
        if (input.port == kUnrouted) {
            Packet& packet = pool_[input.fifo.head];
            const Hop hop =
                routes_.next(router, packet, &used_flits_[port_index(router, 0)], routers_[router].random);
            input.port = hop.port;
            input.vc_class = hop.vc_class;
            input.head_flits = packet.flits;
        }
        const uint32_t out = port_index(router, input.port);
        if (vc_with_room(out, input.vc_class, input.head_flits) != kUnrouted) {
            out_port = input.port;
            input_turns_[place] = static_cast<uint8_t>(vc);  // proposes first until it is taken
            return true;
        }
        outputs_[out].waiters |= bit;
    }
    routers_[router].stalled |= bit;
    return false;
}

bool SwitchedNetwork::cross_once(uint32_t router) {
    uint64_t proposals[SwitchedTopology::kPortsMax];  // by output: the inputs
    uint64_t wanted = 0;
    const uint64_t inputs = routers_[router].inputs & ~routers_[router].stalled;
    for (uint64_t left = inputs; left != 0; left &= left - 1) {
        const auto in_port = static_cast<uint32_t>(std::countr_zero(left));
        uint32_t out_port = 0;
        if (!propose(router, in_port, out_port)) continue;
        const uint64_t bit = uint64_t{1} << out_port;
        if ((wanted & bit) == 0) proposals[out_port] = 0;
        wanted |= bit;
        proposals[out_port] |= uint64_t{1} << in_port;
    }
    if (wanted == 0) return false;
    for (uint64_t left = wanted; left != 0; left &= left - 1) {
        const auto out_port = static_cast<uint32_t>(std::countr_zero(left));
        Output& output = outputs_[port_index(router, out_port)];
        const uint32_t in_port = first_from(proposals[out_port], output.turn);
        output.turn = static_cast<uint8_t>(in_port + 1 == ports_ ? 0 : in_port + 1);
        take(router, in_port, out_port);
    }
    return true;
}

void SwitchedNetwork::take(uint32_t router, uint32_t in_port, uint32_t out_port) {
    const uint32_t place = port_index(router, in_port);
    const uint32_t vc = input_turns_[place];
    Input& input = inputs_[place * vcs_ + vc];
    const uint32_t out = port_index(router, out_port);
    const uint8_t out_vc = vc_with_room(out, input.vc_class, input.head_flits);
    input_turns_[place] = static_cast<uint8_t>(vc + 1 == vcs_ ? 0 : vc + 1);

    const uint32_t index = pool_.pop(input.fifo);
    Packet& packet = pool_[index];
    input.flits = static_cast<uint16_t>(input.flits - packet.flits);
    input.port = kUnrouted;
    if (input.fifo.head == kNoPacket) {
        input_vcs_[place] = static_cast<uint16_t>(input_vcs_[place] & ~(1u << vc));
        if (input_vcs_[place] == 0) routers_[router].inputs &= ~(uint64_t{1} << in_port);
    } else {
        prefetch(&pool_[input.fifo.head]);
    }
    freed_.push_back({feeders_[place], static_cast<uint8_t>(vc), packet.flits});

    Output& output = outputs_[out];
    uint16_t& used = used_[out * vcs_ + out_vc];
    if (config_.fecn_percent != 0) mark(router, packet, used, capacity_of(output.input));
    used = static_cast<uint16_t>(used + packet.flits);
    used_flits_[out] += packet.flits;
    packet.vc = out_vc;
    packet.place = output.input;
    if (output.kind == LinkKind::kGlobal) ++packet.globals;
    if (output.kind == LinkKind::kLocal && packet.globals == 0) ++packet.locals;
    pool_.append(output.fifo, index);
    routers_[router].outputs |= uint64_t{1} << out_port;
    moved();
}

/// FECN (RDRP 4.1): only where the next buffer is more than half full.
void SwitchedNetwork::mark(uint32_t router, Packet& packet, uint32_t used_flits, uint32_t capacity) {
    if (2 * used_flits <= capacity) return;
    const uint64_t above = 2 * used_flits - capacity;  // 0 .. capacity
    if (routers_[router].random.below(100 * capacity) >= above * config_.fecn_percent) return;
    packet.fecn = true;
    ++marks_;
}

void SwitchedNetwork::transmit(uint32_t out) {
    Output& output = outputs_[out];
    const auto slot_flits = static_cast<int16_t>(config_.packet_flits);
    output.room_flits = std::min<int16_t>(static_cast<int16_t>(output.room_flits + slot_flits), slot_flits);
    const uint32_t cycles = output.kind == LinkKind::kGlobal  ? config_.global_cycles
                            : output.kind == LinkKind::kLocal ? config_.local_cycles
                                                              : 0;
    const uint32_t slots = slots_of(cycles, config_.packet_flits);
    while (output.room_flits > 0 && output.fifo.head != kNoPacket) {
        const uint32_t index = pool_.pop(output.fifo);
        output.room_flits = static_cast<int16_t>(output.room_flits - pool_[index].flits);
        depart(index, slots);
        ++hops_;
        moved();
    }
    if (output.fifo.head == kNoPacket) routers_[out / ports_].outputs &= ~(uint64_t{1} << out % ports_);
}

void SwitchedNetwork::inject(uint32_t node_index) {
    Node& node = nodes_[node_index];
    Output& output = outputs_[first_nic_ + node_index];
    const auto slot_flits = static_cast<int16_t>(config_.packet_flits);
    output.room_flits = std::min<int16_t>(static_cast<int16_t>(output.room_flits + slot_flits), slot_flits);
    uint16_t* const used = &used_[(first_nic_ + node_index) * vcs_];
    while (output.room_flits > 0 && node.queue.count != 0) {
        // The emptiest VC, and among equals each in its turn.
        uint32_t best = node.turn;
        for (uint32_t i = 1; i < vcs_; ++i) {
            const uint32_t vc = node.turn + i < vcs_ ? node.turn + i : node.turn + i - vcs_;
            if (used[vc] < used[best]) best = vc;
        }
        Packet& first = pool_[node.queue.fifo.head];
        if (used[best] + first.flits > config_.buffer_flits) return;
        node.turn = static_cast<uint8_t>(best + 1 == vcs_ ? 0 : best + 1);
        used[best] = static_cast<uint16_t>(used[best] + first.flits);
        used_flits_[first_nic_ + node_index] += first.flits;
        output.room_flits = static_cast<int16_t>(output.room_flits - first.flits);
        first.vc = static_cast<uint8_t>(best);
        first.place = output.input;
        depart(pool_.pop(node.queue.fifo), 1);
        --node.queue.count;
        moved();
    }
}

void SwitchedNetwork::sink(uint32_t node_index) {
    Node& node = nodes_[node_index];
    const auto slot_flits = static_cast<int32_t>(config_.packet_flits);
    node.sink_room = std::min(node.sink_room + slot_flits, slot_flits);
    while (node.sink_room > 0 && node.arrived.head != kNoPacket) {
        const uint32_t index = pool_.pop(node.arrived);
        Packet& packet = pool_[index];
        node.sink_room -= packet.flits * static_cast<int32_t>(node.sink_interval);
        node.arrived_flits -= packet.flits;
        freed_.push_back({feeders_[first_nic_ + node_index], 0, packet.flits});
        const auto slots = static_cast<uint32_t>(slot_) - packet.sent_slot;
        taken_.push_back({.source = packet.source,
                          .target = packet.target,
                          .flits = packet.flits,
                          .fecn = packet.fecn,
                          .becn = packet.becn,
                          .tag = packet.tag,
                          .slots = slots});
        trace_.add(cluster::TraceEvent::kDeliver, node_index, slot_, uint64_t{packet.source} << 32 | slots);
        pool_.release(index);
        --packets_;
        moved();
    }
}

}  // namespace velo::switched
