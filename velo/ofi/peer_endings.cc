#include "velo/ofi/peer_endings.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "velo/ofi/interfaces.h"

namespace velo::ofi {

namespace {

/// The cause that an errno of a connection speaks of, and the remedy.
std::string cause_of(int error) {
    if (error == 0) return "Its port is open: it may be stopped.";
    const char* cause = "No way leads there, or a firewall forbids it.";
    if (error == ECONNREFUSED || error == ECONNRESET) {
        cause = "It has ended before its first message, or a firewall rejects connections to that port.";
    } else if (error == ETIMEDOUT) {
        cause = "A firewall drops connections to that port, or its host or the network to it has gone.";
    }
    return std::string(cause) +
           " btl_velo_port_range=LOW-HIGH has all ranks listen at ports that a firewall can admit.";
}

}  // namespace

/// A peer that has never answered was perhaps never reached. The line names its address and what a connection met.
void PeerEndings::report_unreached(const Peer& peer, const char* why) const {
    const uint32_t format = endpoint_.info().addr_format;
    const std::string own = ip_text(format, endpoint_.name());
    const std::string its = ip_text(format, peer.endpoint);
    const int error = peer.watch.probe ? peer.watch.probe->error() : 0;
    const std::string met = error != 0 ? std::strerror(error) : why;
    std::string cause;
    std::string where;
    if (!its.empty()) {
        where = ", at " + its + " port " + std::to_string(ip_port(format, peer.endpoint)) + ",";
        cause = peer.watch.probe ? cause_of(error) : "";
    }
    const std::string interface = interface_of(its);
    if (const std::string network = other_network(own, its); !network.empty()) {
        cause = "Its address " + network + ". btl_velo_if_include=NETWORK/BITS names a network that all hosts are in.";
    } else if (!interface.empty()) {
        // Ranks of one host share addresses; the device does not know which ranks those are.
        cause += " Its address is one of this host, too (" + interface +
                 "): of a rank on another host it leads back here, and ^" + its +
                 " in btl_velo_if_include leaves it out.";
    }
    log_(0, "node %u, VPID %u%s never answered (%s). %s", peer.facts.node, peer.facts.vpid, where.c_str(), met.c_str(),
         cause.c_str());
}

void PeerEndings::ended(DeviceAddr addr, base::Ending ending, const char* why) {
    Peer& peer = peers_[addr];
    if (peer.dead) return;
    if (!peer.in.hello_received && ending == base::Ending::kNone) report_unreached(peer, why);
    log_(ending == base::Ending::kNone ? 1 : 2, "the peer of node %u, VPID %u has ended: %s", peer.facts.node,
         peer.facts.vpid, why);
    ++count_;
    VELO_CHECK(count_ <= peers_.size(), "%u peers have ended, of %u", static_cast<unsigned>(count_),
               uint32_t{peers_.size()});
    peer.dead = true;
    peer.ending = ending;
    transmitter_.peer_died(peer);
    gate_.peer_died(addr);
    rma_.peer_died(addr);
}

}  // namespace velo::ofi
