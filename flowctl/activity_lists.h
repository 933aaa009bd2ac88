/// The senders of one receiver in order of their activity: the four lists of FC 6.2.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// How active a sender is in the eyes of its receiver (FC 6.2, 6.5.2).
enum class Activity : uint8_t {
    kLow,
    kMedium,
    kHigh,
    /// Nothing but its static slots is left to it.
    kNull,
};

/// Four doubly linked lists over one table of senders, each of which is in exactly one of them. Every
/// operation is O(1), the shift of three lists included: their levels are exchanged, not their elements.
///
/// `Peer` has the members `newer`, `older` and `list`, which belong to this class.
/// Owner: DynamicCredits. Thread: the engine's.
template <class Peer>
class ActivityLists {
  public:
    static constexpr PeerIndex kNobody = ~PeerIndex{0};

    [[nodiscard]] Activity level_of(const Peer& peer) const noexcept { return level_[peer.list]; }
    [[nodiscard]] bool empty(Activity level) const noexcept { return last(level) == kNobody; }
    /// The sender that has been in the list longest; kNobody when the list is empty.
    [[nodiscard]] PeerIndex last(Activity level) const noexcept { return oldest_[list_[index(level)]]; }

    void add_front(std::vector<Peer>& peers, PeerIndex peer, Activity level) {
        VELO_DCHECK(peer < peers.size(), "peer %u of %zu", peer, peers.size());
        const uint8_t list = list_[index(level)];
        Peer& added = peers[peer];
        added.list = list;
        added.newer = kNobody;
        added.older = newest_[list];
        (newest_[list] == kNobody ? oldest_[list] : peers[newest_[list]].newer) = peer;
        newest_[list] = peer;
    }

    void remove(std::vector<Peer>& peers, PeerIndex peer) {
        const Peer& removed = peers[peer];
        VELO_DCHECK(
            (removed.newer == kNobody ? newest_[removed.list] : peers[removed.newer].older) == peer &&
                (removed.older == kNobody ? oldest_[removed.list] : peers[removed.older].newer) == peer,
            "peer %u is not where its links say", peer);
        (removed.newer == kNobody ? newest_[removed.list] : peers[removed.newer].older) = removed.older;
        (removed.older == kNobody ? oldest_[removed.list] : peers[removed.older].newer) = removed.newer;
    }

    void move_front(std::vector<Peer>& peers, PeerIndex peer, Activity level) {
        remove(peers, peer);
        add_front(peers, peer, level);
    }

    /// With no sender in the low list: medium becomes low, high becomes medium, and the high list is empty.
    void shift() {
        VELO_CHECK(empty(Activity::kLow), "a shift with sender %u in the low list", last(Activity::kLow));
        const uint8_t spare = list_[index(Activity::kLow)];
        list_[index(Activity::kLow)] = list_[index(Activity::kMedium)];
        list_[index(Activity::kMedium)] = list_[index(Activity::kHigh)];
        list_[index(Activity::kHigh)] = spare;
        for (const Activity level : {Activity::kLow, Activity::kMedium, Activity::kHigh}) {
            level_[list_[index(level)]] = level;
        }
    }

  private:
    static constexpr size_t index(Activity level) { return static_cast<size_t>(level); }

    std::array<PeerIndex, 4> newest_{kNobody, kNobody, kNobody, kNobody};
    std::array<PeerIndex, 4> oldest_{kNobody, kNobody, kNobody, kNobody};
    /// Which of the four lists serves as a level, and the reverse.
    std::array<uint8_t, 4> list_{0, 1, 2, 3};
    std::array<Activity, 4> level_{Activity::kLow, Activity::kMedium, Activity::kHigh, Activity::kNull};
};

}  // namespace velo::flowctl
