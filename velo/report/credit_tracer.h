/// Credits and stalls of each device peer, for the trace.
///
/// Polled by the clock, from within progress, and at the end; off the hot path.
#pragma once

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "flowctl/flow_control.h"
#include "velo/core/peer.h"
#include "velo/core/peers.h"
#include "velo/report/credit_trace.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class CreditTracer {
  public:
    struct Sums {
        uint32_t held = 0;       ///< here, for the mailboxes of all peers
        uint32_t granted = 0;    ///< slots of the own mailbox, granted to peers
        uint32_t available = 0;  ///< data slots of the own mailbox, not granted
    };

    CreditTracer(Core& core, const Peers& peers) : core_(core), peers_(peers) { start(); }

    [[nodiscard]] uint64_t next_sample_ns() const { return next_sample_ns_; }
    void sample(uint64_t now);
    [[nodiscard]] Sums sums() const;
    /// The trace's last lines.
    [[gnu::cold]] void finish(const velo_counters_t& counters);

  private:
    [[gnu::cold]] void start();
    [[gnu::cold]] void check();
    [[nodiscard]] PeerCredits credits_of(const velo_peer& peer, uint64_t now) const;
    template <class Visit>
    void for_each_credited(Visit&& visit) const;

    Core& core_;
    const Peers& peers_;
    std::unique_ptr<CreditTrace> trace_;
    uint64_t next_sample_ns_ = UINT64_MAX;
};

}  // namespace velo
