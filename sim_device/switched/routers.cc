#include "sim_device/switched/routers.h"

#include <bit>

namespace velo::switched {
namespace {

/// The first bit of `mask` at or above `from`, or below it.
uint32_t first_from(uint64_t mask, uint32_t from) {
    const uint64_t above = mask >> from << from;
    return static_cast<uint32_t>(std::countr_zero(above != 0 ? above : mask));
}

std::string number(uint64_t value) {
    return std::to_string(value);
}

}  // namespace

Routers::Routers(const SwitchedConfig& config, const SwitchedPorts& ports, PacketPool& pool, LinkCredits& credits,
                 Wires& wires)
    : config_(config),
      ports_(ports),
      pool_(pool),
      credits_(credits),
      wires_(wires),
      routes_(config),
      routers_(config.topology.routers()),
      inputs_(size_t{ports.first_nic()} * ports.vcs()),
      input_vcs_(ports.first_nic()),
      input_turns_(ports.first_nic()),
      outputs_(ports.first_nic()) {
    for (uint32_t router = 0; router < routers_.size(); ++router)
        routers_[router].random.state = Random::mix(Random::mix(config.seed) + router);
    for (uint32_t port = 0; port < outputs_.size(); ++port) {
        outputs_[port].input = ports.input_of(port);
        outputs_[port].kind = ports.kind_of(port);
    }
}

bool Routers::step(uint64_t slot) {
    const auto passes_by = [&](uint64_t end) { return end * config_.speedup_permille / 1000; };
    const auto passes = static_cast<uint32_t>(passes_by(slot) - passes_by(slot - 1));
    bool moved = false;
    for (uint32_t router = 0; router < routers_.size(); ++router) {
        if (routers_[router].inputs != 0) {
            for (uint32_t pass = 0; pass < passes && cross(router); ++pass) moved = true;
        }
        for (uint64_t left = routers_[router].outputs; left != 0; left &= left - 1) {
            const auto port = static_cast<uint32_t>(std::countr_zero(left));
            moved |= transmit(ports_.port_of(router, port), slot);
        }
    }
    return moved;
}

uint8_t Routers::vc_with_room(uint32_t output, uint32_t vc_class, uint32_t flits) const {
    const bool node = ports_.is_nic(outputs_[output].input);
    const uint32_t capacity = node ? config_.ejection_flits : config_.buffer_flits;
    const bool all = !config_.vc_classes && !node;
    const uint32_t first = all ? 0 : vc_class * config_.vcs_per_class;
    const uint32_t count = all ? ports_.vcs() : node ? 1 : config_.vcs_per_class;
    const uint16_t* const used = credits_.used(output);
    uint32_t best = first;
    for (uint32_t vc = first + 1; vc < first + count; ++vc)
        if (used[vc] < used[best]) best = vc;
    return used[best] + flits <= capacity ? static_cast<uint8_t>(best) : kUnrouted;
}

bool Routers::propose(uint32_t router, uint32_t in_port, uint32_t& out_port) {
    const uint32_t place = ports_.port_of(router, in_port);
    const uint64_t bit = uint64_t{1} << in_port;
    uint64_t vcs = input_vcs_[place];
    while (vcs != 0) {
        const uint32_t vc = first_from(vcs, input_turns_[place]);
        vcs &= ~(uint64_t{1} << vc);
        Input& input = inputs_[place * ports_.vcs() + vc];
        if (input.port == kUnrouted) {
            Packet& packet = pool_[input.fifo.head];
            const Hop hop = routes_.next(router, packet, credits_.used_flits(ports_.port_of(router, 0)),
                                         routers_[router].random);
            input.port = hop.port;
            input.vc_class = hop.vc_class;
            input.head_flits = packet.flits;
        }
        const uint32_t out = ports_.port_of(router, input.port);
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

bool Routers::cross(uint32_t router) {
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
        Output& output = outputs_[ports_.port_of(router, out_port)];
        const uint32_t in_port = first_from(proposals[out_port], output.turn);
        output.turn = static_cast<uint8_t>(in_port + 1 == ports_.per_router() ? 0 : in_port + 1);
        take(router, in_port, out_port);
    }
    return true;
}

void Routers::take(uint32_t router, uint32_t in_port, uint32_t out_port) {
    const uint32_t place = ports_.port_of(router, in_port);
    const uint32_t vc = input_turns_[place];
    const Input& input = inputs_[place * ports_.vcs() + vc];
    const uint32_t out = ports_.port_of(router, out_port);
    const uint8_t out_vc = vc_with_room(out, input.vc_class, input.head_flits);
    input_turns_[place] = static_cast<uint8_t>(vc + 1 == ports_.vcs() ? 0 : vc + 1);

    const uint32_t index = pop(router, in_port, vc);
    Packet& packet = pool_[index];
    Output& output = outputs_[out];
    if (config_.fecn_percent != 0)
        mark(router, packet, credits_.used(out)[out_vc], ports_.capacity_of(output.input));
    credits_.take(out, out_vc, packet.flits);
    packet.vc = out_vc;
    packet.place = output.input;
    if (output.kind == LinkKind::kGlobal) ++packet.globals;
    if (output.kind == LinkKind::kLocal && packet.globals == 0) ++packet.locals;
    pool_.append(output.fifo, index);
    routers_[router].outputs |= uint64_t{1} << out_port;
}

/// Takes the first packet out of its buffer, whose credits it gives back.
uint32_t Routers::pop(uint32_t router, uint32_t in_port, uint32_t vc) {
    const uint32_t place = ports_.port_of(router, in_port);
    Input& input = inputs_[place * ports_.vcs() + vc];
    const uint32_t index = pool_.pop(input.fifo);
    const uint8_t flits = pool_[index].flits;
    input.flits = static_cast<uint16_t>(input.flits - flits);
    input.port = kUnrouted;
    if (input.fifo.head == kNoPacket) {
        input_vcs_[place] = static_cast<uint16_t>(input_vcs_[place] & ~(1u << vc));
        if (input_vcs_[place] == 0) routers_[router].inputs &= ~(uint64_t{1} << in_port);
    } else {
        __builtin_prefetch(&pool_[input.fifo.head], 1);
    }
    credits_.give_back(ports_.feeder_of(place), static_cast<uint8_t>(vc), flits);
    return index;
}

/// FECN (RDRP 4.1): only where the next buffer is more than half full.
void Routers::mark(uint32_t router, Packet& packet, uint32_t used_flits, uint32_t capacity) {
    if (2 * used_flits <= capacity) return;
    const uint64_t above = 2 * used_flits - capacity;  // 0 .. capacity
    if (routers_[router].random.below(100 * capacity) >= above * config_.fecn_percent) return;
    packet.fecn = true;
    ++marks_;
}

/// Sends what the link can carry in this slot. True: that was something.
bool Routers::transmit(uint32_t out, uint64_t slot) {
    Output& output = outputs_[out];
    const auto slot_flits = static_cast<int16_t>(config_.packet_flits);
    output.room_flits = std::min<int16_t>(static_cast<int16_t>(output.room_flits + slot_flits), slot_flits);
    const uint32_t cycles = output.kind == LinkKind::kGlobal  ? config_.global_cycles
                            : output.kind == LinkKind::kLocal ? config_.local_cycles
                                                              : 0;
    const uint32_t slots = link_slots(cycles, config_.packet_flits);
    const uint64_t hops = hops_;
    while (output.room_flits > 0 && output.fifo.head != kNoPacket) {
        const uint32_t index = pool_.pop(output.fifo);
        output.room_flits = static_cast<int16_t>(output.room_flits - pool_[index].flits);
        wires_.send(index, pool_[index].place * ports_.vcs() + pool_[index].vc, slot + slots);
        ++hops_;
    }
    if (output.fifo.head == kNoPacket)
        routers_[out / ports_.per_router()].outputs &= ~(uint64_t{1} << out % ports_.per_router());
    return hops_ != hops;
}

uint32_t Routers::buffered_flits(uint32_t router) const {
    const size_t inputs = size_t{ports_.per_router()} * ports_.vcs();
    uint32_t flits = 0;
    for (size_t i = 0; i < inputs; ++i) flits += inputs_[router * inputs + i].flits;
    return flits;
}

std::string Routers::audit(PacketCount& count) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
        const uint32_t flits = count.add(inputs_[i].fifo);
        if (flits != inputs_[i].flits || flits > config_.buffer_flits)
            return "input " + number(i / ports_.vcs()) + " VC " + number(i % ports_.vcs()) + " has " + number(flits) +
                   " flits";
    }
    for (const Output& output : outputs_) count.add(output.fifo);
    return "";
}

std::string Routers::waiting_report() const {
    const uint32_t vcs = ports_.vcs();
    size_t at = 0;
    while (at < inputs_.size() && !inputs_[at].waits()) ++at;
    if (at == inputs_.size()) return "none waits in a router";
    std::vector<size_t> seen;
    std::string text;
    constexpr size_t kLinksMax = 16;
    while (std::find(seen.begin(), seen.end(), at) == seen.end()) {
        seen.push_back(at);
        const Input& input = inputs_[at];
        const Packet& packet = pool_[input.fifo.head];
        const auto place = static_cast<uint32_t>(at / vcs);
        const uint32_t router = place / ports_.per_router();
        const Output& output = outputs_[ports_.port_of(router, input.port)];
        if (seen.size() <= kLinksMax) {
            text += (text.empty() ? "" : ", ") + ("router " + number(router)) + " port " +
                    number(place % ports_.per_router()) + " VC " + number(at % vcs) + " (" +
                    number(packet.source) + " to " + number(packet.target) + ") waits for port " + number(input.port);
        }
        if (ports_.is_nic(output.input)) return text + ", node " + number(output.input - ports_.first_nic());
        const uint32_t vc = config_.vc_classes ? input.vc_class * config_.vcs_per_class : 0;
        at = size_t{output.input} * vcs + vc;
        if (!inputs_[at].waits()) return text;
    }
    return text + (seen.size() > kLinksMax ? ", and more" : "") + ", and so on in a circle";
}

}  // namespace velo::switched
