#include "velo/ofi/peer_endings.h"

#include <string>

#include "velo/ofi/interfaces.h"

namespace velo::ofi {

/// A peer that has never answered was perhaps never reached: its address may say why.
void PeerEndings::report_unreached(const Peer& peer) const {
    const uint32_t format = endpoint_.info().addr_format;
    const std::string own = ip_text(format, endpoint_.name().data());
    const std::string its = ip_text(format, peer.endpoint.data());
    const std::string interface = peer.facts.node == own_.head.node ? "" : interface_of(its);
    if (const std::string clause = other_network(own, its); !clause.empty()) {
        log_(0,
             "node %u, VPID %u never answered: %s. btl_velo_if_include=NETWORK/BITS names a network that all hosts are "
             "in.",
             peer.facts.node, peer.facts.vpid, clause.c_str());
    } else if (!interface.empty()) {
        log_(0,
             "node %u, VPID %u never answered: its address %s is one of this host, too (%s), and leads back here. "
             "btl_velo_if_exclude=%s leaves it out.",
             peer.facts.node, peer.facts.vpid, its.c_str(), interface.c_str(), its.c_str());
    }
}

void PeerEndings::ended(DeviceAddr addr, base::Ending ending, const char* why) {
    Peer& peer = peers_[addr];
    if (peer.dead) return;
    if (!peer.in.hello_received && ending == base::Ending::kNone) report_unreached(peer);
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
