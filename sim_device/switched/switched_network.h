/// A network in which saturation can happen: routers with finite buffers, credits and back-pressure
/// (RDRP 4.1).
///
/// It advances in slots, the time of a packet of `packet_flits` on a link. A router has a FIFO of
/// `buffer_flits` for each input port and virtual channel (VC), a crossbar of `speedup` passes a slot, and an
/// output queue a port. A packet crosses only with credits for the next buffer, which come back one slot
/// after it leaves that. So an output queue needs no bound of its own. In a pass each input proposes one
/// packet and each output takes one of the proposals, both round robin. Shorter packets take their share of a
/// link's slot. A packet's way is chosen once, when it is the first of its FIFO.
///
/// VC classes make routing free of deadlocks: a packet's classes rise in the order local 0, local 1 (PAR's
/// second hop in the source group), global 0, local 2, global 1, local 3.
///
/// Two networks of one configuration that are given the same packets at the same slots do the same. Within a
/// slot routers are independent. No allocation after the constructor. Owner and thread: one.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim_device/cluster/trace_hash.h"
#include "sim_device/switched/packet_pool.h"
#include "sim_device/switched/routes.h"
#include "sim_device/switched/switched_config.h"

namespace velo::switched {

/// Packets are in the network, and nothing moves any more. The text says which packets wait for what.
class Deadlock : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A node's packet, before and after the network.
struct NodePacket {
    uint16_t source = 0;
    uint16_t target = 0;
    uint8_t flits = 0;
    bool fecn = false;  ///< set by the network
    bool becn = false;  ///< carried, like `tag`
    uint32_t tag = 0;
    uint32_t slots = 0;  ///< from the NIC's queue to the node's software
};

class SwitchedNetwork {
  public:
    /// Throws base::SetupError for parameters that contradict each other.
    explicit SwitchedNetwork(const SwitchedConfig& config);
    SwitchedNetwork(const SwitchedNetwork&) = delete;
    SwitchedNetwork& operator=(const SwitchedNetwork&) = delete;

    /// Each node's software takes a packet every `slots` packet times at most (1: as fast as a link brings
    /// them). Set before the first step.
    void set_sink_interval(uint32_t node, uint32_t slots) { nodes_[node].sink_interval = slots; }

    /// The NIC's queue takes one more packet.
    [[nodiscard]] bool can_send(uint32_t node) const {
        return nodes_[node].queue.count < config_.nic_queue_packets && !pool_.empty();
    }
    /// Puts a packet into its source's queue; can_send() is true, and it has 1 to packet_flits flits.
    void send(const NodePacket& packet);

    /// One slot. Throws Deadlock.
    void step();

    /// Packets that software took in the last slot, in order of nodes.
    [[nodiscard]] const std::vector<NodePacket>& taken() const { return taken_; }
    [[nodiscard]] uint64_t slot() const { return slot_; }
    /// Packets between send() and taken().
    [[nodiscard]] uint32_t packets() const { return packets_; }
    [[nodiscard]] uint32_t queued(uint32_t node) const { return nodes_[node].queue.count; }
    [[nodiscard]] uint32_t nodes() const { return config_.topology.nodes(); }
    /// Over every packet taken, with its time.
    [[nodiscard]] uint64_t trace_hash() const { return trace_.value(); }
    /// Packets on a detour and links that packets have crossed, so far.
    [[nodiscard]] uint64_t detours() const { return routes_.detours(); }
    [[nodiscard]] uint64_t hops() const { return hops_; }
    [[nodiscard]] uint64_t marks() const { return marks_; }
    /// Flits in the input buffers of a router, and the largest fill of one of them.
    [[nodiscard]] uint32_t buffered_flits(uint32_t router) const;
    [[nodiscard]] uint32_t buffer_fill_max() const { return buffer_fill_max_; }

    /// Empty, or a sentence on the first buffer over its capacity or credit that is lost (for tests; slow).
    [[nodiscard]] std::string audit() const;

  private:
    static constexpr uint32_t kNone = UINT32_MAX;

    /// One input FIFO. `port`, `vc_class` and `head_flits` are of its first packet, once that is routed.
    struct Input {
        Fifo fifo;
        uint16_t flits = 0;
        uint8_t port = kUnrouted;
        uint8_t vc_class = 0;
        uint8_t head_flits = 0;
    };
    static constexpr uint8_t kUnrouted = 0xff;
    /// The sending end of a link: a router's port, or a node's NIC.
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
    struct Node {
        struct {
            Fifo fifo;
            uint32_t count = 0;
        } queue;  ///< to be injected
        Fifo arrived;
        uint32_t arrived_flits = 0;
        uint32_t sink_interval = 1;
        int32_t sink_room = 0;
        uint8_t turn = 0;  ///< VC of the next injection
    };
    struct Arrival {
        uint32_t packet = 0;
        uint32_t input = 0;  ///< by port and VC; a node's has no VC
    };
    struct Freed {
        uint32_t output = 0;
        uint8_t vc = 0;
        uint8_t flits = 0;
    };
    void return_credits();
    void depart(uint32_t packet, uint32_t slots);
    void arrive();
    static void prefetch(const void* at) { __builtin_prefetch(at, 1); }
    void cross(uint32_t router, uint32_t passes);
    bool cross_once(uint32_t router);
    /// Whether an input has a packet to propose; if so it is the first of the VC that has the turn.
    [[nodiscard]] bool propose(uint32_t router, uint32_t in_port, uint32_t& out_port);
    /// A VC of the output with buffers for the packet, or kUnrouted.
    [[nodiscard]] uint8_t vc_with_room(uint32_t output, uint32_t vc_class, uint32_t flits) const;
    void take(uint32_t router, uint32_t in_port, uint32_t out_port);
    void mark(uint32_t router, Packet& packet, uint32_t used_flits, uint32_t capacity);
    void transmit(uint32_t output);
    void inject(uint32_t node);
    void sink(uint32_t node);
    void check_progress();
    [[nodiscard]] std::string waiting_report() const;

    void moved() { last_move_ = slot_; }

    [[nodiscard]] uint32_t port_index(uint32_t router, uint32_t port) const { return router * ports_ + port; }
    [[nodiscard]] uint32_t capacity_of(uint32_t input) const {
        return input < first_nic_ ? config_.buffer_flits : config_.ejection_flits;
    }
    /// Channels of the other end of an output: a node has one.
    [[nodiscard]] uint32_t vcs_behind(const Output& output) const {
        return output.input < first_nic_ ? vcs_ : 1;
    }

    SwitchedConfig config_;
    Routes routes_;
    uint32_t ports_;      ///< of a router
    uint32_t vcs_;        ///< of an input port
    uint32_t first_nic_;  ///< ports of routers come first, then a port of each node
    std::vector<Router> routers_;
    std::vector<Node> nodes_;
    std::vector<Input> inputs_;         ///< by port and VC
    std::vector<uint16_t> input_vcs_;   ///< by port: VCs with packets
    std::vector<uint8_t> input_turns_;  ///< by port: the VC that proposes first
    std::vector<uint32_t> feeders_;     ///< by port: the output that sends to it
    std::vector<Output> outputs_;       ///< by port, NICs included
    std::vector<uint16_t> used_;        ///< by port and VC: flits of credit in use
    std::vector<uint32_t> used_flits_;  ///< by port: flits of credit in use, over all VCs
    PacketPool pool_;
    std::vector<std::vector<Arrival>> wires_;  ///< packets that arrive, by slot modulo
    std::vector<Freed> freed_;                 ///< credits that come back in the next slot
    std::vector<NodePacket> taken_;
    uint32_t packets_ = 0;
    uint64_t slot_ = 0;
    uint64_t last_move_ = 0;
    uint64_t hops_ = 0;
    uint64_t marks_ = 0;
    uint32_t buffer_fill_max_ = 0;
    cluster::TraceHash trace_;
};

}  // namespace velo::switched
