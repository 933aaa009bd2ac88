/// The network of the simulated cluster: when packets arrive, computed for a run of them in one go.
///
/// Each NIC (one unit for injection, one for ejection) and each directed link is a Server. Routers cut
/// through, so a packet's length counts once on its way (FC 2).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim_device/cluster/topology.h"

namespace velo::cluster {

/// All in ns. The time of a packet at a server is the inverse of its bandwidth: 64 bytes in 80 ns are 800
/// MB/s.
struct NetworkConfig {
    uint32_t nic_packet_ns = 80;   ///< injection, and ejection, of a packet
    uint32_t link_packet_ns = 80;  ///< a packet on a link
    uint32_t nic_ns = 300;         ///< latency of a NIC, on each side
    uint32_t link_ns = 20;         ///< latency of a link
    uint32_t hop_ns = 67;          ///< latency of the router behind a link
    /// Packets that have been written to a node's NIC and wait for injection, at most; 0: without end. A CPU
    /// that finds the queue full waits. 32 is an estimate: a dozen write-combining buffers of a core, and the
    /// posted writes that a device of PCIe grants.
    uint32_t nic_queue_packets = 32;
    bool control_free = false;  ///< packets of flow control take no time of NICs and links (FC 7.1)
};

/// A CPU that writes packets to its NIC: from `start_ns` on, in `packet_ns` each.
struct PacketWriter {
    uint64_t start_ns = 0;
    uint64_t packet_ns = 0;
};

/// Handles one packet at a time, for packet_ns each. Reservations are made a run at a time and so not in
/// order of time: a run reaches far ahead, and another one may come in between. Hence time is cut into slices
/// of kSlicePackets packets' times, and a slice takes that number of packets in any order. Within one, packets that
/// come in order queue exactly; one that comes out of order is not delayed. Memory follows the time that is
/// reserved ahead.
class Server {
  public:
    static constexpr uint32_t kSlicePackets = 16;

    /// When the packet that is there at `ready_ns` is begun. `oldest`: slices before it are never asked for
    /// again.
    uint64_t reserve(uint64_t oldest, uint64_t ready_ns, uint32_t packet_ns) {
        const uint64_t slice_ns = uint64_t{packet_ns} * kSlicePackets;
        uint64_t start_ns = ready_ns;
        for (uint64_t number = start_ns / slice_ns;; ++number) {
            const uint64_t end_ns = (number + 1) * slice_ns;
            Slice& slice = at(number, oldest);
            if (slice.packets != 0 && start_ns >= slice.last_ns) {
                start_ns = std::max(start_ns, slice.last_ns + packet_ns);
            }
            if (slice.packets < kSlicePackets && start_ns < end_ns) {
                ++slice.packets;
                slice.last_ns = std::max(slice.last_ns, start_ns);
                return start_ns;
            }
            start_ns = std::max(start_ns, end_ns);
        }
    }

  private:
    struct Slice {
        uint64_t number = 0;
        uint64_t last_ns = 0;
        uint32_t packets = 0;
    };

    Slice& at(uint64_t number, uint64_t oldest) {
        for (;;) {
            if (!slices_.empty()) {
                Slice& slice = slices_[number & (slices_.size() - 1)];
                if (slice.number == number) return slice;
                if (slice.packets == 0 || slice.number < oldest) {
                    slice = {.number = number};
                    return slice;
                }
            }
            grow(oldest);
        }
    }
    void grow(uint64_t oldest) {
        std::vector<Slice> old(std::max<size_t>(slices_.size() * 2, 16));
        old.swap(slices_);
        for (const Slice& slice : old) {
            if (slice.packets != 0 && slice.number >= oldest)
                slices_[slice.number & (slices_.size() - 1)] = slice;
        }
    }

    std::vector<Slice> slices_;  ///< a power of two; a slice is at its number modulo that
};

/// Owner: the Cluster.
class Network {
  public:
    Network(const Topology& topology, const NetworkConfig& config)
        : topology_(topology),
          config_(config),
          injection_(topology.nodes()),
          ejection_(topology.nodes()),
          links_(topology.links()) {}

    /// Reserves the way of as many packets as `times_ns` has entries, and sets them to when each is in the
    /// receiver's memory, in the same order. Returns when the writer has written the last one. `now_ns`: no
    /// later call has an earlier time.
    uint64_t carry(uint64_t now_ns, uint32_t from, uint32_t to, PacketWriter writer,
                   std::span<uint64_t> times_ns) {
        const uint64_t written_ns = inject(now_ns, from, writer, times_ns);
        uint32_t slowest_ns = config_.nic_packet_ns;
        topology_.route(from, to, [&](uint32_t link) {
            pass(links_[link], now_ns, config_.link_packet_ns, config_.link_ns + config_.hop_ns, times_ns);
            slowest_ns = std::max(slowest_ns, config_.link_packet_ns);
        });
        pass(ejection_[to], now_ns, config_.nic_packet_ns, slowest_ns + config_.nic_ns, times_ns);
        return written_ns;
    }

    /// Time of a packet that meets no other.
    [[nodiscard]] uint64_t latency_ns(uint32_t from, uint32_t to) const {
        uint64_t ns = 2 * uint64_t{config_.nic_ns} + config_.nic_packet_ns;
        bool links = false;
        topology_.route(from, to, [&](uint32_t) {
            ns += config_.link_ns + config_.hop_ns;
            links = true;
        });
        if (links && config_.link_packet_ns > config_.nic_packet_ns) {
            ns += config_.link_packet_ns - config_.nic_packet_ns;
        }
        return ns;
    }

  private:
    /// The queue is in order, so a packet finds a place in it when the one that is as many places before it as
    /// the queue has is injected. While the NIC is busy, that is the times of these packets before its own
    /// injection.
    uint64_t inject(uint64_t now_ns, uint32_t from, PacketWriter writer, std::span<uint64_t> times_ns) {
        const uint64_t packet_ns = config_.nic_packet_ns;
        const uint64_t queue_ns = config_.nic_queue_packets * packet_ns;
        const uint64_t oldest = now_ns / (packet_ns * Server::kSlicePackets);
        uint64_t written_ns = writer.start_ns;
        uint64_t free_ns = 0;
        for (uint64_t& time_ns : times_ns) {
            written_ns += writer.packet_ns;
            const uint64_t start_ns =
                injection_[from].reserve(oldest, std::max(written_ns, free_ns), config_.nic_packet_ns);
            if (queue_ns != 0 && start_ns > queue_ns) written_ns = std::max(written_ns, start_ns - queue_ns);
            free_ns = start_ns + packet_ns;
            time_ns = start_ns + config_.nic_ns;
        }
        return written_ns;
    }

    static void pass(Server& server, uint64_t now_ns, uint32_t packet_ns, uint32_t latency_ns,
                     std::span<uint64_t> times_ns) {
        uint64_t free_ns = 0;
        const uint64_t oldest = now_ns / (uint64_t{packet_ns} * Server::kSlicePackets);
        for (uint64_t& time_ns : times_ns) {
            const uint64_t start_ns = server.reserve(oldest, std::max(time_ns, free_ns), packet_ns);
            free_ns = start_ns + packet_ns;
            time_ns = start_ns + latency_ns;
        }
    }

    Topology topology_;
    NetworkConfig config_;
    std::vector<Server> injection_;
    std::vector<Server> ejection_;
    std::vector<Server> links_;
};

}  // namespace velo::cluster
