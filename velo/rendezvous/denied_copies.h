/// Direct copies that the kernel, or the device, does not permit: given up for a peer, and reported to the user.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "velo/base/text.h"
#include "velo/core/peer.h"
#include "velo/core/peers.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class DeniedCopies {
  public:
    using Peer = velo_peer;

    DeniedCopies(Core& core, const Peers& peers) : core_(core), peers_(peers) {}

    /// Direct copies from and to this peer are not possible from here on.
    void give_up_direct(Peer& peer) {
        if (!peer.direct) return;
        peer.direct = false;
        report(peer);
    }
    /// Counts each peer. The user is notified once a node, and once a process in any case at most.
    [[gnu::cold]] void report(const Peer& peer);

  private:
    [[nodiscard]] bool claim_report();

    Core& core_;
    const Peers& peers_;
    bool reported_ = false;
};

/// The node's processes agree by the segment of the one with the lowest name, as far as they know each other;
/// while they still connect, in an order that is not the same for all, more than one may tell.
template <class Core>
bool DeniedCopies<Core>::claim_report() {
    uint64_t lowest = core_.options.identity.name;
    std::optional<shm::PeerIndex> owner;
    for (const Peer* peer : peers_.on_node()) {
        if (peer == nullptr || !peer->connected || peer->name >= lowest) continue;
        lowest = peer->name;
        owner = peer->node_index();
    }
    return core_.on_node.claim_denial_report(owner ? &*owner : nullptr);
}

template <class Core>
void DeniedCopies<Core>::report(const Peer& peer) {
    ++core_.counters.rma_fallbacks;
    if (std::exchange(reported_, true) || !claim_report()) return;
    const base::Failure refused = core_.system.refused_copy();
    core_.say(0, "the kernel does not permit direct copies between it and rank " + std::to_string(peer.rank) +
                     " (" + (refused ? to_text(refused) : "the device refused one") +
                     "); large messages are copied in chunks instead, which is slower. The other "
                     "ranks of this node do not repeat this line. "
                     "Containers: allow ptrace (CAP_SYS_PTRACE or a seccomp profile that permits it). Hosts: "
                     "kernel.yama.ptrace_scope must not be above 1. Or set btl_velo_single_copy=none to silence this.");
}

}  // namespace velo::rma
