/// Posts the operations of transfers and atomics at the device's ports, and keeps account of what the ports
/// do (rma/rails.h).
#pragma once

#include <string>
#include <utility>

#include "rma/rails.h"
#include "velo/base/text.h"
#include "velo/core/peer.h"
#include "velo/device/device.h"
#include "velo/rendezvous/pending_op.h"

namespace velo::rma {

/// Direction of the data.
[[nodiscard]] constexpr RailDirection direction_of(RmaKind kind) {
    return kind == RmaKind::kGet ? RailDirection::kReceiving : RailDirection::kSending;
}

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class RailDispatch {
  public:
    using Peer = velo_peer;
    using State = TransferState<Peer>;
    using Op = PendingOp<Peer>;

    explicit RailDispatch(Core& core) : core_(core), rails_(core.options.rails) {}

    /// kAgain: the queues of all ports that may be taken are full. kUnsupported: the device does not take
    /// this, or no rail works. `refused`: rails that it must not take.
    Status post_chunk(State& state, Op& waiting, RmaOperation& operation, RailMask refused);
    /// Posts an atomic. kAgain: the ports' queues are full, or others are under way by a rail that is out.
    /// kUnsupported: the device does not take this, or no rail works.
    Status post_atomic(State& state, Op& waiting, RmaOperation& operation);
    /// An operation that was posted has ended. True: the rail has failed it.
    bool chunk_ended(const Op& waiting, RailDirection direction, Status status) {
        rails_.ended(waiting.rail, direction, waiting.bytes);
        return account(waiting, status == Status::kOk ? waiting.bytes : 0, status);
    }
    bool atomic_ended(const Op& waiting, Status status) {
        VELO_DCHECK(sources_of(*waiting.state->peer).rails.atomics != 0, "an atomic ends on rail %u, of none",
                    waiting.rail);
        rails_.ended(waiting.rail, RailDirection::kSending, kAtomicBytes);
        --sources_of(*waiting.state->peer).rails.atomics;
        return account(waiting, status == Status::kOk ? kAtomicBytes : 0, status);
    }

    PeerSources& sources_of(Peer& peer) { return peer.sources ? *peer.sources : make_sources(peer); }
    [[nodiscard]] const Rails& rails() const { return rails_; }
    /// Rails::share().
    [[nodiscard]] RailMask share(RailMask free, uint64_t bytes) { return rails_.share(free, bytes); }

  private:
    Status post_by_choice(State& state, PeerRails& peer, Op& waiting, RmaOperation& operation, RailMask refused);
    static constexpr uint64_t kAtomicBytes = sizeof(uint64_t);
    /// Lines about rails that fail and come back, which one could do every second.
    static constexpr uint32_t kLinesMax = 8;

    [[gnu::cold]] PeerSources& make_sources(Peer& peer);
    bool account(const Op& waiting, uint64_t bytes, Status status);
    [[gnu::cold]] void account_failure(const Op& waiting);
    [[gnu::cold]] void report(const Peer& peer, uint32_t rail, Rails::Change change, bool works);
    [[gnu::cold]] void report_none(const Peer& peer);

    Core& core_;
    Rails rails_;
    uint32_t lines_ = 0;
    bool none_reported_ = false;
};

}  // namespace velo::rma
