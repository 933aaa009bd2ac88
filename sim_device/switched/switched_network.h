/// A network in which saturation can happen: routers with finite buffers, credits and back-pressure
/// (RDRP 4.1).
///
/// It advances in slots, the time of a packet of `packet_flits` on a link. A router (routers.h) has a FIFO of
/// `buffer_flits` for each input port and virtual channel (VC), a crossbar of `speedup` passes a slot, and an
/// output queue a port. Credits for a buffer (link_credits.h) come back one slot after a packet leaves it. Shorter
/// packets take their share of a link's slot.
///
/// VC classes make routing free of deadlocks: a packet's classes rise in the order local 0, local 1 (PAR's
/// second hop in the source group), global 0, local 2, global 1, local 3.
///
/// Two networks of one configuration that are given the same packets at the same slots do the same. No allocation
/// after the constructor. Owner and thread: one.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim_device/cluster/trace_hash.h"
#include "sim_device/switched/link_credits.h"
#include "sim_device/switched/nics.h"
#include "sim_device/switched/packet_pool.h"
#include "sim_device/switched/routers.h"
#include "sim_device/switched/switched_config.h"
#include "sim_device/switched/switched_ports.h"
#include "sim_device/switched/wires.h"

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
    void set_sink_interval(uint32_t node, uint32_t slots) { nics_.set_sink_interval(node, slots); }

    /// The NIC's queue takes one more packet.
    [[nodiscard]] bool can_send(uint32_t node) const {
        return nics_.queued(node) < config_.nic_queue_packets && !pool_.empty();
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
    [[nodiscard]] uint32_t queued(uint32_t node) const { return nics_.queued(node); }
    [[nodiscard]] uint32_t nodes() const { return config_.topology.nodes(); }
    /// Over every packet taken, with its time.
    [[nodiscard]] uint64_t trace_hash() const { return trace_.value(); }
    /// Packets on a detour and links that packets have crossed, so far.
    [[nodiscard]] uint64_t detours() const { return routers_.detours(); }
    [[nodiscard]] uint64_t hops() const { return routers_.hops(); }
    [[nodiscard]] uint64_t marks() const { return routers_.marks(); }
    /// Flits in the input buffers of a router, and the largest fill of one of them.
    [[nodiscard]] uint32_t buffered_flits(uint32_t router) const { return routers_.buffered_flits(router); }
    [[nodiscard]] uint32_t buffer_fill_max() const { return routers_.buffer_fill_max(); }

    /// Empty, or a sentence on the first buffer over its capacity or credit that is lost (for tests; slow).
    [[nodiscard]] std::string audit() const;

  private:
    void arrive();
    bool take_at(uint32_t node);
    [[noreturn]] void report_deadlock() const;

    SwitchedConfig config_;
    SwitchedPorts ports_;
    PacketPool pool_;
    LinkCredits credits_;
    Wires wires_;
    Routers routers_;
    Nics nics_;
    std::vector<NodePacket> taken_;
    uint32_t packets_ = 0;
    uint64_t slot_ = 0;
    uint64_t last_move_ = 0;
    cluster::TraceHash trace_;
};

}  // namespace velo::switched
