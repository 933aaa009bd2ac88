/// The address that a process publishes, the peers that it connects to, and how each is reached.
#pragma once

#include <algorithm>
#include <string>

#include "velo/core/peer.h"
#include "velo/core/peers.h"
#include "velo/engine/failures.h"
#include "velo/options/engine_options.h"
#include "velo/os/topology.h"
#include "velo/rendezvous/denied_copies.h"

namespace velo {

/// How near a peer is, for the user, beside the name of the path.
inline std::string nearness_text(base::Place ours, base::Place theirs) {
    switch (base::nearness(ours, theirs)) {
        case base::Nearness::kSameCache: return " (same L3 cache)";
        case base::Nearness::kSameNode: return " (same NUMA node)";
        case base::Nearness::kOtherNode: return " (other NUMA node)";
        case base::Nearness::kUnknown: break;
    }
    return "";
}

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class Connector {
  public:

    Connector(Core& core, Peers& peers, rma::DeniedCopies<Core>& denied, Failures<Core>& failures)
        : core_(core),
          peers_(peers),
          denied_(denied),
          failures_(failures),
          probe_(core.system.random_token()),
          host_(core.system.host_identity()) {}

    [[nodiscard]] EngineAddress address() const;
    [[gnu::cold]] Status connect(const EngineAddress& address, bool same_host, void* context,
                                 velo_peer*& peer, std::string& error);
    bool disconnect(velo_peer& peer);

  private:
    [[gnu::cold]] Status check_address(const EngineAddress& address, Vicinity where,
                                       std::string& error) const;
    [[gnu::cold]] void show_path(const EngineAddress& address, const velo_peer& peer) const;
    [[gnu::cold]] std::string why_not_reached(const EngineAddress& address, Vicinity where) const;

    Core& core_;
    Peers& peers_;
    rma::DeniedCopies<Core>& denied_;
    Failures<Core>& failures_;
    uint64_t probe_;
    uint64_t host_;
};

}  // namespace velo
