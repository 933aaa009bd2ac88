/// Reports of what waits for which peer.
///
/// Polled by the clock, from within progress, and only where a report was asked for by parameter: a process
/// that is not in MPI neither notices that it stalls nor answers a signal. All of it is off the hot path;
/// the report itself walks every queue.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "velo/core/peer.h"
#include "velo/os/dump_signal.h"
#include "velo/rendezvous/coop_owner.h"
#include "velo/rendezvous/coop_reader.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/transfers.h"
#include "velo/report/stall_report.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class StallReporter {
  public:
    using State = rma::TransferState<velo_peer>;
    using Op = rma::PendingOp<velo_peer>;

    StallReporter(Core& core, Peers& peers, const SendQueue<Core>& queue, rma::CookieTable<Op>& pending,
                  const rma::RailDispatch<Core>& rails, const rma::Reserving<Core>& reserving,
                  const rma::Atomics<Core>& atomics, const rma::CoopOwner<Core>& coop_owner,
                  const rma::CoopReader<Core>& coop_reader, const rma::Transfers<Core>& transfers)
        : core_(core),
          peers_(peers),
          queue_(queue),
          pending_(pending),
          rails_(rails),
          reserving_(reserving),
          atomics_(atomics),
          coop_owner_(coop_owner),
          coop_reader_(coop_reader),
          transfers_(transfers),
          watch_(core.options.stall.seconds * 1'000'000'000) {
        start();
    }

    /// Reports what has not moved for long, or whatever waits if a signal asks for it.
    void check(uint64_t now);

  private:
    /// Maximum interval between checks, when reports are enabled.
    static constexpr uint64_t kPeriodNsMax = 1'000'000'000;

    [[gnu::cold]] void start();
    template <class Visit>
    void for_each_wait(Visit&& visit);
    [[gnu::cold]] void check_progress(uint64_t now);
    [[gnu::cold]] void report(bool asked_for);
    [[gnu::cold]] PeerReport report_of(velo_peer& peer);
    void report_transfers(const velo_peer& peer, PeerReport::Operations& out);
    void report_rails(const velo_peer& peer, std::vector<PeerReport::Rail>& out);
    [[nodiscard]] bool report_reservations(const velo_peer& peer, PeerReport::Rail& out);
    static void report_copies(const velo_peer& peer, std::vector<PeerReport::Copies>& out);

    Core& core_;
    Peers& peers_;
    const SendQueue<Core>& queue_;
    rma::CookieTable<Op>& pending_;
    const rma::RailDispatch<Core>& rails_;
    const rma::Reserving<Core>& reserving_;
    const rma::Atomics<Core>& atomics_;
    const rma::CoopOwner<Core>& coop_owner_;
    const rma::CoopReader<Core>& coop_reader_;
    const rma::Transfers<Core>& transfers_;
    StallWatch watch_;
    uint64_t period_ns_ = 0;  ///< 0: no reports
    uint64_t next_check_ns_ = 0;
};

}  // namespace velo
