#include "velo/ofi/peer_watch.h"

#include <memory>

namespace velo::ofi {

void PeerWatch::watch(DeviceAddr addr) {
    if (addr == kNoAddr) return watch_known();
    Peer& peer = peers_.checked(addr);
    if (peer.dead) return;
    health_.watch(peer.watch.health);
    if (peer.watch.listed) return;
    peer.watch.listed = true;
    listed_.push_back(addr);
}

/// Those that were never written to, and have not written, are not connected to for this.
void PeerWatch::watch_known() {
    for (DeviceAddr addr = 0; addr < peers_.size(); ++addr) {
        if (peers_[addr].at != FI_ADDR_NOTAVAIL || peers_[addr].in.hello_received) watch(addr);
    }
}

void PeerWatch::check() {
    for (size_t i = 0; i < listed_.size();) {
        const DeviceAddr addr = listed_[i];
        if (check_peer(addr)) {
            ++i;
            continue;
        }
        peers_[addr].watch.listed = false;
        peers_[addr].watch.probe.reset();
        listed_[i] = listed_.back();
        listed_.pop_back();
    }
}

/// Returns whether the peer is still watched.
bool PeerWatch::check_peer(DeviceAddr addr) {
    Peer& peer = peers_[addr];
    if (peer.dead) return false;
    switch (health_.due(peer.watch.health)) {
        case PeerHealth::Due::kDead: endings_.ended(addr, base::Ending::kNone, "it does not answer"); return false;
        case PeerHealth::Due::kProbe: probe(addr); break;
        case PeerHealth::Due::kPing:
            PeerHealth::pinged(peer.watch.health);
            transmitter_.say(addr, kPing);
            break;
        case PeerHealth::Due::kNothing:
            // Heard of, perhaps after a long silence.
            if (peer.watch.health.pings == 0) peer.watch.probe.reset();
            break;
    }
    return !peer.dead && health_.watches(peer.watch.health);
}

/// Asks its host whether a silent process runs.
void PeerWatch::probe(DeviceAddr addr) {
    Peer& peer = peers_[addr];
    if (!HostProbe::possible(endpoint_.info().addr_format)) return;
    if (!peer.watch.probe) peer.watch.probe = std::make_unique<HostProbe>();
    switch (peer.watch.probe->ask(peer.endpoint)) {
        case HostProbe::Answer::kRuns: health_.runs(peer.watch.health); break;
        case HostProbe::Answer::kGone:
            endings_.ended(addr, base::Ending::kNone, "its host says that it has ended");
            break;
        case HostProbe::Answer::kPending: break;
    }
}

}  // namespace velo::ofi
