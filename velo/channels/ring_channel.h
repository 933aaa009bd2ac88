/// Messages over the rings of a node, as a channel: beside PacketChannel, in the same shape.
///
/// A channel sends what may leave of a message (send), or all of it and nothing else (send_whole), or several
/// messages (send_together); it says whether a message waits for something that it will report (waits), and how long
/// one may be. A ring takes a message whole, and reports nothing.
#pragma once

#include <span>

#include "velo/base/check.h"
#include "velo/base/copy.h"
#include "velo/channels/gather.h"
#include "velo/channels/peer_report.h"
#include "velo/shm/ring.h"
#include "velo/velo.h"

namespace velo {

/// Owner: the engine. Thread: the engine's.
template <class OnNode>
class RingChannel {
  public:
    static constexpr velo_path_t kPath = VELO_PATH_ON_NODE;

    explicit RingChannel(OnNode& on_node) : on_node_(on_node) {}

    template <class Peer>
    [[nodiscard]] static shm::PeerIndex name_of(const Peer& peer) {
        return peer.node_index();
    }

    Status send(shm::PeerIndex to, velo_send_t& send);
    Status send_whole(shm::PeerIndex to, velo_send_t& send) { return this->send(to, send); }
    static Status send_together(shm::PeerIndex, std::span<velo_send_t* const>) { return Status::kAgain; }
    [[nodiscard]] static bool prepare_packets(shm::PeerIndex, uint32_t) { return false; }
    [[nodiscard]] static constexpr bool gathers() { return false; }
    [[nodiscard]] static constexpr bool waits(shm::PeerIndex) { return false; }
    static void stall_ended(shm::PeerIndex) {}
    [[nodiscard]] uint32_t message_bytes_max() const { return on_node_.message_bytes_max(); }
    [[nodiscard]] base::Ending announced_ending(shm::PeerIndex peer) const { return on_node_.announced_ending(peer); }
    /// Fills in this channel's part of a report; returns when the peer was last in progress, in ns, 0: not known.
    [[gnu::cold]] uint64_t describe(shm::PeerIndex peer, PeerReport& out) const;

  private:
    OnNode& on_node_;
};

}  // namespace velo
