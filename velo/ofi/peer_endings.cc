#include "velo/ofi/peer_endings.h"

#include <string>

#include "velo/ofi/interfaces.h"

namespace velo::ofi {

/// A peer that has never answered was perhaps never reached: that its address is of another network says why.
void PeerEndings::report_other_network(const Peer& peer) const {
    const uint32_t format = endpoint_.info().addr_format;
    const std::string clause =
        other_network(ip_text(format, endpoint_.name().data()), ip_text(format, peer.endpoint.data()));
    if (clause.empty()) return;
    log_(0,
         "node %u, VPID %u never answered: %s. btl_velo_if_include=NETWORK/BITS names a network that all hosts are in.",
         peer.facts.node, peer.facts.vpid, clause.c_str());
}

void PeerEndings::ended(DeviceAddr addr, base::Ending ending, const char* why) {
    Peer& peer = peers_[addr];
    if (peer.dead) return;
    if (!peer.in.hello_received && ending == base::Ending::kNone) report_other_network(peer);
    log_(ending == base::Ending::kNone ? 1 : 2, "the peer of node %u, VPID %u has ended: %s", peer.facts.node,
         peer.facts.vpid, why);
    ++count_;
    peer.dead = true;
    peer.ending = ending;
    transmitter_.peer_died(peer);
    gate_.peer_died(addr);
    rma_.peer_died(addr);
}

}  // namespace velo::ofi
