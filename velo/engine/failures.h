/// Peers that have ended, and what this process says of its own end.
///
/// A process that leaves in good order says so in its segments before it goes. One that is gone without a word has
/// failed, and the host is notified before anything that waited for it ends: what the host does about an operation
/// that failed may be the end of this process, and then the reason would not be heard.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "velo/core/peer.h"
#include "velo/core/peer_end_sink.h"
#include "velo/matching/matching.h"
#include "velo/rendezvous/coop_owner.h"
#include "velo/rendezvous/coop_reader.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/transfers.h"
#include "velo/report/stall_reporter.h"
#include "velo/shm/on_node.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class Failures final : public PeerEndSink {
  public:
    using State = rma::TransferState<velo_peer>;
    using Op = rma::PendingOp<velo_peer>;

    Failures(Core& core, Peers& peers, SendQueue<Core>& queue, rma::CookieTable<Op>& pending,
             rma::Reserving<Core>& reserving, rma::Atomics<Core>& atomics, rma::CoopOwner<Core>& coop_owner,
             rma::CoopReader<Core>& coop_reader, rma::Transfers<Core>& transfers, Matching<Core>& matching,
             StallReporter<Core>& stalls)
        : core_(core),
          peers_(peers),
          queue_(queue),
          pending_(pending),
          reserving_(reserving),
          atomics_(atomics),
          coop_owner_(coop_owner),
          coop_reader_(coop_reader),
          transfers_(transfers),
          matching_(matching),
          stalls_(stalls) {
        core.peer_ends = this;
        if (core.device && !core.device->traits().sees_processes) next_watch_ns_ = 0;
    }

    /// Time of the next poll of the peers, ns.
    [[nodiscard]] uint64_t next_poll_ns() const { return next_poll_ns_; }
    void poll_liveness(uint64_t now);
    /// The place of a peer whose end was dealt with, and with which the host is finished, is for another.
    void recycle(velo_peer& peer) {
        matching_.forget(peer);
        peers_.recycle(peer);
    }
    /// Nothing that the engine holds refers to this peer.
    [[nodiscard]] bool idle(const velo_peer& peer) const;
    /// Something that needs the peer cannot go on, since its process has ended. Once a peer, the host hears of a
    /// failure.
    void report_end(velo_peer& peer);
    [[gnu::cold]] void report_lost(velo_peer* peer, Owed owed, HostState host) override;
    /// Something of this process could not be carried out because the peer's process has ended in whatever way.
    [[gnu::cold]] void report_unreachable(velo_peer& peer, Owed owed, HostState host);
    /// A message of the engine's own is of no use to a peer that has ended; one of the host's was accepted.
    [[gnu::cold]] void peer_gone(velo_peer& peer, Origin origin) override;
    /// Announces to peers how this process is going to end.
    void announce_ending(base::Ending ending);
    /// True: this process reports the end of a peer, and no other one of its host does.
    [[nodiscard]] bool claim_report(const velo_peer& peer);

  private:
    /// Interval between notices to a device that does not see processes, for which peers something waits; and time
    /// without any event after which a process in MPI is taken for waiting.
    static constexpr uint64_t kWatchPeersNs = 250'000'000;
    static constexpr uint64_t kQuietNs = 1'000'000'000;
    /// Interval between polls of peers that something waits for, and of contacts that could not be answered.
    static constexpr uint64_t kPollNs = 10'000'000;
    /// About a second; a shorter shortage is not reported.
    static constexpr uint32_t kPollsUntilReported = 100;

    void watch_peers(uint64_t now);
    [[gnu::cold]] void peer_ended(velo_peer& peer);
    [[gnu::cold]] void finish(velo_peer& peer);
    [[gnu::cold]] void finish_closed();
    [[nodiscard]] base::Ending ending_of(const velo_peer& peer);
    [[gnu::cold]] void report_loss(const shm::Loss& loss);
    void reclaim();

    Core& core_;
    Peers& peers_;
    SendQueue<Core>& queue_;
    rma::CookieTable<Op>& pending_;
    rma::Reserving<Core>& reserving_;
    rma::Atomics<Core>& atomics_;
    rma::CoopOwner<Core>& coop_owner_;
    rma::CoopReader<Core>& coop_reader_;
    rma::Transfers<Core>& transfers_;
    Matching<Core>& matching_;
    StallReporter<Core>& stalls_;
    /// A peer that has ended in good order, of which something may lie unread here.
    struct Closed {
        velo_peer* peer;
        uint64_t written;  ///< position up to which the mailbox was written then
    };

    std::vector<Closed> closed_;
    std::vector<velo_peer*> finished_;  ///< on this node, ended, all read, and not reclaimed yet
    uint64_t next_poll_ns_ = 0;
    uint64_t next_watch_ns_ = UINT64_MAX;
    uint32_t unanswered_polls_ = 0;  ///< in a row
};

}  // namespace velo
