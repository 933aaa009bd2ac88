/// The end of a peer, however it shows: the peer is marked, and all that is held for it is given back.
///
/// Owner: the device. Thread: the device's. A peer ends once.
#pragma once

#include "velo/ofi/contact_gate.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/log.h"
#include "velo/ofi/peer_table.h"
#include "velo/ofi/rma_unit.h"
#include "velo/ofi/transmitter.h"

namespace velo::ofi {

class PeerEndings {
  public:
    PeerEndings(const Endpoint& endpoint, PeerTable& peers, Transmitter& transmitter, ContactGate& gate, RmaUnit& rma,
                const Log& log)
        : endpoint_(endpoint), peers_(peers), transmitter_(transmitter), gate_(gate), rma_(rma), log_(log) {}

    /// `ending`: as the peer announced it; kNone: it died, or takes part no more. `why` is the log's.
    [[gnu::cold]] void ended(DeviceAddr addr, base::Ending ending, const char* why);
    /// Messages from or to the peer were lost, so what follows would come with a gap.
    [[gnu::cold]] void stream_broke(DeviceAddr addr, const char* why) {
        ++broken_streams_;
        ended(addr, base::Ending::kNone, why);
    }
    [[nodiscard]] uint64_t broken_streams() const { return broken_streams_; }
    /// Peers that have ended.
    [[nodiscard]] uint64_t count() const { return count_; }

  private:
    [[gnu::cold]] void report_unreached(const Peer& peer, const char* why) const;

    const Endpoint& endpoint_;
    PeerTable& peers_;
    Transmitter& transmitter_;
    ContactGate& gate_;
    RmaUnit& rma_;
    const Log& log_;
    uint64_t broken_streams_ = 0;
    uint64_t count_ = 0;
};

}  // namespace velo::ofi
