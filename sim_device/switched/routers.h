/// The routers of a switched network: input buffers, arbitration of the crossbars, and outputs.
///
/// In a pass of a crossbar each input proposes one packet and each output takes one of the proposals, both round
/// robin. A packet crosses only with credits for the buffer behind its output, so an output's queue needs no bound
/// of its own. A packet's way is chosen once, when it is the first of its FIFO.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sim_device/switched/link_credits.h"
#include "sim_device/switched/packet_count.h"
#include "sim_device/switched/packet_pool.h"
#include "sim_device/switched/routes.h"
#include "sim_device/switched/switched_config.h"
#include "sim_device/switched/switched_ports.h"
#include "sim_device/switched/wires.h"

namespace velo::switched {

/// Owner: the network, whose parts it is made of. Thread: one. Within a slot routers are independent.
class Routers {
  public:
    Routers(const SwitchedConfig& config, const SwitchedPorts& ports, PacketPool& pool, LinkCredits& credits,
            Wires& wires);

    /// The cache line that receive() will need.
    void prefetch(uint32_t input) const { __builtin_prefetch(&inputs_[input], 1); }
    /// The last packet of an input's FIFO, or kNoPacket.
    [[nodiscard]] uint32_t last_of(uint32_t input) const {
        const Fifo& fifo = inputs_[input].fifo;
        return fifo.head == kNoPacket ? kNoPacket : fifo.tail;
    }
    /// A packet arrives at an input, by port and VC.
    void receive(uint32_t index, uint32_t at) {
        const Packet& packet = pool_[index];
        Input& input = inputs_[at];
        input.flits = static_cast<uint16_t>(input.flits + packet.flits);
        buffer_fill_max_ = std::max<uint32_t>(buffer_fill_max_, input.flits);
        const bool first = input.fifo.head == kNoPacket;
        pool_.append(input.fifo, index);
        if (!first) return;
        const uint32_t place = packet.place;
        input_vcs_[place] = static_cast<uint16_t>(input_vcs_[place] | 1u << packet.vc);
        const uint64_t bit = uint64_t{1} << place % ports_.per_router();
        Router& router = routers_[place / ports_.per_router()];
        router.inputs |= bit;
        router.stalled &= ~bit;
    }
    /// Credits of an output have come back.
    void credits_returned(uint32_t port) {
        if (ports_.is_nic(port) || outputs_[port].waiters == 0) return;
        routers_[port / ports_.per_router()].stalled &= ~outputs_[port].waiters;
        outputs_[port].waiters = 0;
    }
    /// One slot of every router. True: a packet has moved.
    bool step(uint64_t slot);

    /// Packets sent on a detour, links crossed and packets marked so far.
    [[nodiscard]] uint64_t detours() const { return routes_.detours(); }
    [[nodiscard]] uint64_t hops() const { return hops_; }
    [[nodiscard]] uint64_t marks() const { return marks_; }
    /// Flits in the input buffers of a router, and the largest fill of one buffer of all.
    [[nodiscard]] uint32_t buffered_flits(uint32_t router) const;
    [[nodiscard]] uint32_t buffer_fill_max() const { return buffer_fill_max_; }

    /// Counts the packets. Empty, or a sentence on the first buffer over its capacity.
    [[nodiscard]] std::string audit(PacketCount& count) const;
    /// The packets that wait for each other, from the first one until one comes again.
    [[nodiscard]] std::string waiting_report() const;

  private:
    static constexpr uint8_t kUnrouted = 0xff;

    /// One input FIFO. `port`, `vc_class` and `head_flits` are of its first packet, once that is routed.
    struct Input {
        Fifo fifo;
        uint16_t flits = 0;
        uint8_t port = kUnrouted;
        uint8_t vc_class = 0;
        uint8_t head_flits = 0;

        [[nodiscard]] bool waits() const { return fifo.head != kNoPacket && port != kUnrouted; }
    };
    /// The sending end of a link.
    struct Output {
        uint64_t waiters = 0;  ///< inputs to look at again when credits come back
        Fifo fifo;
        uint32_t input = 0;      ///< the other end
        int16_t room_flits = 0;  ///< of the link's slot
        uint8_t turn = 0;        ///< the input that is served next
        LinkKind kind = LinkKind::kNone;
    };
    struct Router {
        uint64_t inputs = 0;   ///< ports with packets
        uint64_t outputs = 0;  ///< ports with packets
        uint64_t stalled = 0;  ///< inputs of which no first packet has buffers behind its output
        Random random;
    };

    bool cross(uint32_t router);
    /// Whether an input has a packet to propose; if so it is the first of the VC that has the turn.
    [[nodiscard]] bool propose(uint32_t router, uint32_t in_port, uint32_t& out_port);
    /// A VC of the output with buffers for the packet, or kUnrouted.
    [[nodiscard]] uint8_t vc_with_room(uint32_t output, uint32_t vc_class, uint32_t flits) const;
    void take(uint32_t router, uint32_t in_port, uint32_t out_port);
    [[nodiscard]] uint32_t pop(uint32_t router, uint32_t in_port, uint32_t vc);
    void mark(uint32_t router, Packet& packet, uint32_t used_flits, uint32_t capacity);
    bool transmit(uint32_t output, uint64_t slot);

    const SwitchedConfig& config_;
    const SwitchedPorts& ports_;
    PacketPool& pool_;
    LinkCredits& credits_;
    Wires& wires_;
    Routes routes_;
    std::vector<Router> routers_;
    std::vector<Input> inputs_;         ///< by port and VC
    std::vector<uint16_t> input_vcs_;   ///< by port: VCs with packets
    std::vector<uint8_t> input_turns_;  ///< by port: the VC that proposes first
    std::vector<Output> outputs_;       ///< by port
    uint64_t hops_ = 0;
    uint64_t marks_ = 0;
    uint32_t buffer_fill_max_ = 0;
};

}  // namespace velo::switched
