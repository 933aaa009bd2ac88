/// The rails of a process: which one a chunk or an atomic takes, and which of them work.
///
/// A transfer is given rails by the policy when its first chunk is issued, and each chunk takes the one of
/// them with the fewest bytes under way. RAILS cuts a message into one fragment a rail instead; chunks come
/// out alike where all rails are as fast as each other, and nothing waits for the slowest where they are not.
///
/// No transfer waits for a rail. RAILS 3 has it wait until one is free, which its bus wants, that carries one
/// direction at a time; here that would let a transfer with a slow peer hold up all others. One that finds no
/// rail free takes a busy one.
///
/// A *path* is one of our rails and all that it meets on its way to a peer. Paths fail, one peer's or all of
/// a rail's; both are taken out of use (rma/rail_outages.h).
///
/// A pure machine: no I/O, clock, lock or log; an allocation at a first failure only. Owner: the engine.
/// Thread: the engine's. Cost of a choice: O(rails), and a branch where there is only one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "rma/rail_outages.h"
#include "rma/rail_policy.h"
#include "rma/static_allocation.h"
#include "velo/base/check.h"

namespace velo::rma {

/// Facts about the rails to a peer with transfers.
struct PeerRails {
    RailOutages paths;
    RailMask column = 0;        ///< rails on which its node sends; 0: not known
    uint32_t atomics = 0;       ///< under way by the device
    uint32_t atomics_rail = 0;  ///< the rail that they took
    /// The peer's rails are not asked for before; kNever: it reserves none.
    uint64_t reserve_after_ns = 0;
    static constexpr uint64_t kNever = UINT64_MAX;
};
static_assert(sizeof(PeerRails) <= 64, "memory of an active peer");

struct RailsSettings {
    uint32_t rails = 1;
    RailSettings policy;
    RailMask own_column = 0;  ///< static allocation: rails on which this node sends; 0: another policy
    uint64_t retry_ns = 1'000'000'000;  ///< first wait of a rail that is out
    uint64_t reserve_ns = 0;  ///< most that a transfer waits for a reserved rail; 0: none are reserved
};

class Rails {
  public:
    static constexpr uint32_t kNone = UINT32_MAX;      ///< no rail is in use to that peer
    static constexpr uint32_t kFull = UINT32_MAX - 1;  ///< none of them takes an operation now
    /// Failures in a row of a path that has others beside it, of one that has none, and of a rail with any
    /// peers.
    static constexpr uint32_t kPathFailuresMax = 2;
    static constexpr uint32_t kLastPathFailuresMax = 16;
    static constexpr uint32_t kRailFailuresMax = 4;

    struct Counters {
        uint64_t chunks = 0;
        uint64_t bytes = 0;
        uint64_t failed = 0;
    };
    /// Consequence of a failure or a success.
    enum class Change : uint8_t { kNone, kPath, kRail };

    explicit Rails(const RailsSettings& settings)
        : settings_(settings), set_(settings.rails), policy_(settings.policy), all_(set_.live()) {}

    /// The rail of the next chunk of a transfer of `bytes`. `assigned`: the transfer's rails, 0 at first.
    /// `full`: rails that have just refused it, or that failed it. `strict`: rather none than one that is not
    /// of the transfer.
    [[nodiscard]] uint32_t pick(RailMask& assigned, const PeerRails& peer, RailDirection direction,
                                uint64_t bytes, RailMask full, uint64_t now_ns, bool strict = false) {
        if (sole(peer)) [[likely]]
            return full == 0 ? 0 : kFull;
        const RailMask usable = this->usable(peer, now_ns);
        if (usable == 0) return kNone;
        VELO_DCHECK((assigned & ~all_) == 0, "a transfer has a rail of %u that is none", settings_.rails);
        if ((assigned & usable) == 0) assigned = assign(peer, direction, bytes, usable);
        RailMask rails = assigned & usable & ~full;
        // A rail beyond those assigned is better than to wait.
        if (rails == 0 && !strict) rails = usable & ~full;
        return rails == 0 ? kFull : fewest_bytes(rails);
    }
    /// The only rail works, so that there is nothing to choose.
    [[nodiscard]] bool sole(const PeerRails& peer) const {
        return all_ == 1 && own_.clear() && peer.paths.clear();
    }
    /// Rails that may be taken to that peer now.
    [[nodiscard]] RailMask usable(const PeerRails& peer, uint64_t now_ns) const {
        return all_ & ~own_.barred(now_ns) & ~peer.paths.barred(now_ns);
    }
    /// Rails that a transfer of `bytes` takes of the free ones.
    [[nodiscard]] RailMask share(RailMask free, uint64_t bytes) { return policy_.share(free, bytes); }
    /// The rail of an atomic. Those to one peer take the same one, so that they stay in order: another one
    /// when none is under way. `steady`: a number that does not change for this peer.
    [[nodiscard]] uint32_t pick_for_atomic(const PeerRails& peer, uint32_t steady, uint64_t now_ns) const {
        VELO_DCHECK(peer.atomics_rail < settings_.rails, "atomics on rail %u", peer.atomics_rail);
        const RailMask usable = this->usable(peer, now_ns);
        if (peer.atomics != 0) return (usable >> peer.atomics_rail & 1) != 0 ? peer.atomics_rail : kFull;
        if (usable == 0) return kNone;
        const RailMask behind = usable & ~(rail_bit(steady % settings_.rails) - 1);
        return static_cast<uint32_t>(std::countr_zero(behind != 0 ? behind : usable));
    }

    /// An operation of `bytes` was posted at the rail.
    void began(uint32_t rail, PeerRails& peer, RailDirection direction, uint64_t bytes) {
        VELO_DCHECK((all_ & rail_bit(rail)) != 0, "an operation on rail %u of %u", rail, settings_.rails);
        ++counters_[rail].chunks;
        own_.began(rail);
        peer.paths.began(rail);
        if (all_ != 1) set_.begin(rail, direction, bytes);
    }
    /// An operation was posted at the sole rail.
    void began_on_sole() { ++counters_[0].chunks; }
    /// An operation has ended, well or not; followed by succeeded() or failed().
    void ended(uint32_t rail, RailDirection direction, uint64_t bytes) {
        if (all_ != 1) set_.end(rail, direction, bytes);
    }
    /// The peer was reached by this rail. `bytes`: that it moved.
    Change succeeded(uint32_t rail, PeerRails& peer, uint64_t bytes) {
        counters_[rail].bytes += bytes;
        if (own_.clear() && peer.paths.clear()) [[likely]]
            return Change::kNone;
        const bool path = peer.paths.succeeded(rail);
        if (own_.succeeded(rail)) return Change::kRail;
        return path ? Change::kPath : Change::kNone;
    }
    [[gnu::cold]] Change failed(uint32_t rail, PeerRails& peer, uint64_t now_ns) {
        ++counters_[rail].failed;
        const RailMask others = all_ & ~own_.out() & ~peer.paths.out() & ~rail_bit(rail);
        const bool path = peer.paths.failed(
            rail, now_ns, others != 0 ? kPathFailuresMax : kLastPathFailuresMax, settings_.retry_ns);
        // The only rail is not worse than its paths.
        const bool whole = all_ != 1 && own_.failed(rail, now_ns, kRailFailuresMax, settings_.retry_ns);
        if (path || whole) give_up_static();
        return whole ? Change::kRail : path ? Change::kPath : Change::kNone;
    }

    /// Static allocation has no detour for a rail that fails: all rails by another rule from then on.
    [[nodiscard]] bool is_static() const { return settings_.own_column != 0; }
    [[nodiscard]] uint32_t count() const { return settings_.rails; }
    [[nodiscard]] bool several() const { return all_ != 1; }
    [[nodiscard]] RailMask all() const { return all_; }
    /// Rails that are out whatever the peer, and those that are to this one.
    [[nodiscard]] RailMask out() const { return own_.out(); }
    [[nodiscard]] RailMask out(const PeerRails& peer) const { return own_.out() | peer.paths.out(); }
    /// When the rail is tried next with this peer; 0: it is in use.
    [[nodiscard]] uint64_t retry_ns(uint32_t rail, const PeerRails& peer) const {
        return std::max(own_.retry_ns(rail), peer.paths.retry_ns(rail));
    }
    /// When the rail is tried next with any peer; 0: it is in use.
    [[nodiscard]] uint64_t retry_ns(uint32_t rail) const { return own_.retry_ns(rail); }
    [[nodiscard]] uint64_t bytes_under_way(uint32_t rail) const { return set_.bytes_under_way(rail); }
    [[nodiscard]] const Counters& counters(uint32_t rail) const { return counters_[rail]; }

  private:
    void give_up_static() { settings_.own_column = 0; }

    [[nodiscard]] RailMask assign(const PeerRails& peer, RailDirection direction, uint64_t bytes,
                                  RailMask usable) {
        if (settings_.own_column != 0 && peer.column != 0) {
            const RailMask rails = direction == RailDirection::kSending
                                       ? rails_between(settings_.own_column, peer.column)
                                       : rails_between(peer.column, settings_.own_column);
            if ((rails & usable) != 0) return rails & usable;
        }
        const RailMask rails = policy_.choose(set_, bytes, usable, direction);
        return rails != 0 ? rails : rail_bit(fewest_bytes(usable));
    }
    /// The rail with the fewest bytes under way of `rails`, which has one at least: in turns where several have as
    /// few.
    [[nodiscard]] uint32_t fewest_bytes(RailMask rails) {
        VELO_DCHECK(rails != 0, "one rail of none is chosen");
        const RailMask behind = rails & ~(rail_bit(next_) - 1);
        uint32_t found = kNone;
        for (RailMask part : {behind, rails & ~behind}) {
            for (; part != 0; part &= part - 1) {
                const auto rail = static_cast<uint32_t>(std::countr_zero(part));
                if (found == kNone || set_.bytes_under_way(rail) < set_.bytes_under_way(found)) found = rail;
            }
        }
        next_ = (found + 1) % kRailsMax;
        return found;
    }

    RailsSettings settings_;
    RailSet set_;
    RailPolicy policy_;
    RailOutages own_;
    RailMask all_;
    uint32_t next_ = 0;
    std::array<Counters, kRailsMax> counters_{};
};

}  // namespace velo::rma
