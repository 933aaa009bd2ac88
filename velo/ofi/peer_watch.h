/// The peers that something waits for: pinged while they are silent, and taken for ended when nothing answers for them.
///
/// peer_health.h has the rules, which are pure; here are the list of watched peers, their pings and their probes.
///
/// Owner: the device. Thread: the device's. Source: velo/device/device.h, watch().
#pragma once

#include <algorithm>
#include <vector>

#include "velo/ofi/endpoint.h"
#include "velo/ofi/peer_endings.h"
#include "velo/ofi/peer_health.h"
#include "velo/ofi/peer_table.h"
#include "velo/ofi/transmitter.h"

namespace velo::ofi {

class PeerWatch {
  public:
    /// Watched peers are looked at so often, or 32 times in the timeout where that is shorter.
    static constexpr uint64_t kCheckNs = 100'000'000;

    PeerWatch(const Endpoint& endpoint, PeerTable& peers, Transmitter& transmitter, PeerEndings& endings,
              uint64_t timeout_ns)
        : endpoint_(endpoint),
          peers_(peers),
          transmitter_(transmitter),
          endings_(endings),
          health_(timeout_ns),
          interval_ns_(std::min(kCheckNs, timeout_ns / 32)) {}

    /// The device's watch() (velo/device/device.h).
    void watch(DeviceAddr addr);
    /// A message of the peer came.
    void heard(Peer& peer) const { health_.heard(peer.watch.health); }

    [[nodiscard]] bool heard_lately(const Peer& peer) const { return health_.heard_lately(peer.watch.health); }

    /// This process polls: time goes on.
    void polled(uint64_t now_ns) { health_.polled(now_ns); }
    /// Whether to check now, which is then taken as done.
    [[nodiscard]] bool take_due(uint64_t now_ns) {
        if (now_ns < next_ns_) [[likely]]
            return false;
        next_ns_ = now_ns + interval_ns_;
        return true;
    }
    /// Looks at all watched peers.
    void check();

  private:
    void watch_known();
    bool check_peer(DeviceAddr addr);
    void probe(DeviceAddr addr);

    const Endpoint& endpoint_;
    PeerTable& peers_;
    Transmitter& transmitter_;
    PeerEndings& endings_;
    PeerHealth health_;
    std::vector<DeviceAddr> listed_;
    uint64_t interval_ns_;
    uint64_t next_ns_ = 0;
};

}  // namespace velo::ofi
