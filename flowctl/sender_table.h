/// The sender role that all modes with credits share: what may go to each peer (FC 5.1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// One `Peer` for each peer; it has the member `credits`, packets that may still go there. Base of the modes'
/// own classes.
template <class Peer>
class SenderTable {
  public:
    [[nodiscard]] uint32_t sendable(PeerIndex to, uint32_t packets) const noexcept {
        return std::min(packets, at(to).credits);
    }

    void packets_sent(PeerIndex to, uint32_t packets) {
        Peer& peer = at(to);
        VELO_CHECK(packets <= peer.credits, "%u packets went to peer %u with %u credits", packets, to,
                   peer.credits);
        peer.credits -= packets;
    }

    [[nodiscard]] const Peer& peer(PeerIndex index) const noexcept { return at(index); }
    /// Peers that there is an entry for.
    [[nodiscard]] uint32_t known() const noexcept { return static_cast<uint32_t>(peers_.size()); }

  protected:
    explicit SenderTable(uint32_t peers) : peers_(peers) {}

    [[nodiscard]] const Peer& at(PeerIndex index) const noexcept {
        VELO_DCHECK(index < peers_.size(), "peer %u of %zu", index, peers_.size());
        return peers_[index];
    }
    [[nodiscard]] Peer& at(PeerIndex index) noexcept {
        VELO_DCHECK(index < peers_.size(), "peer %u of %zu", index, peers_.size());
        return peers_[index];
    }

    std::vector<Peer> peers_;
};

}  // namespace velo::flowctl
