/// The machine's requests to its driver: the control packets that are due to each peer, which of them leaves
/// next, and which peers' messages may go on.
///
/// Owner: FlowControl, whose modes and links add to it. Thread: the engine's. O(1) an operation; only know()
/// allocates.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

/// Kinds of control packets, in the order in which those that are due to one peer leave.
enum class ControlKind : uint8_t {
    /// Answer to kClose: its sender uses no slots of the peer's and returns no credits from here on, until it
    /// opens again. Fills a contact slot.
    kClosed,
    /// The peer owns slots here from now on; the value is its first credits. Fills a contact slot.
    kOpen,
    /// An explicit credit packet; the value is the credits. It costs no credit and always finds a slot
    /// (FC 5.2).
    kCredits,
    /// Compulsory credit return request (FC 6.1). Costs a credit.
    kReturnRequest,
    /// The response to a compulsory request; the value is the credits that are given up, perhaps 0. Costs a
    /// credit.
    kReturnResponse,
    /// The peer's slots here are wanted back, and its own are given back. Fills a contact slot.
    kClose,
};
inline constexpr uint32_t kControlKinds = 6;

[[nodiscard]] constexpr bool fills_contact_slot(ControlKind kind) noexcept {
    return kind == ControlKind::kClosed || kind == ControlKind::kOpen || kind == ControlKind::kClose;
}
[[nodiscard]] constexpr bool costs_a_credit(ControlKind kind) noexcept {
    return kind == ControlKind::kReturnRequest || kind == ControlKind::kReturnResponse;
}

/// A set of kinds.
class ControlSet {
  public:
    constexpr ControlSet() = default;
    template <class... Kinds>
    explicit constexpr ControlSet(Kinds... kinds) : bits_(static_cast<uint8_t>((bit(kinds) | ...))) {}

    [[nodiscard]] constexpr bool has(ControlKind kind) const noexcept { return (bits_ & bit(kind)) != 0; }
    [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
    [[nodiscard]] constexpr ControlKind first() const noexcept {
        return static_cast<ControlKind>(std::countr_zero(bits_));
    }
    [[nodiscard]] constexpr uint8_t bits() const noexcept { return bits_; }
    constexpr void add(ControlKind kind) noexcept { bits_ |= bit(kind); }
    constexpr void remove(ControlSet others) noexcept { bits_ = static_cast<uint8_t>(bits_ & ~others.bits_); }
    [[nodiscard]] constexpr ControlSet without(ControlSet others) const noexcept {
        ControlSet rest = *this;
        rest.remove(others);
        return rest;
    }

  private:
    static constexpr uint8_t bit(ControlKind kind) noexcept {
        return static_cast<uint8_t>(1u << static_cast<uint8_t>(kind));
    }
    uint8_t bits_ = 0;
};
static_assert(kControlKinds <= 8, "the kinds of a set are the bits of a byte");
static_assert(ControlSet(ControlKind::kCredits, ControlKind::kClosed).first() == ControlKind::kClosed);

/// Kinds that a link which closes makes void where they have not left.
inline constexpr ControlSet kVoidWhenClosing(ControlKind::kCredits, ControlKind::kReturnRequest,
                                             ControlKind::kReturnResponse);
inline constexpr ControlSet kCostACredit(ControlKind::kReturnRequest, ControlKind::kReturnResponse);

/// The control packets that are due, by peer. A peer with something due is in one of two queues:
/// - *fresh*, until the device was asked;
/// - *refused*, after the device has refused a packet of the peer's.
///
/// A peer whose packets all wait for a credit is in neither, and is enqueued when credits come. At most one
/// packet of each kind is due to a peer. Returns that wait become one of their sum.
class Outbox {
  public:
    /// Bytes of state a peer.
    [[nodiscard]] static constexpr uint32_t bytes_per_peer() noexcept {
        return sizeof(Entry) + 3 * sizeof(PeerIndex);
    }

    void know(PeerIndex peer) {
        if (peer < entries_.size()) return;
        entries_.resize(size_t{peer} + 1);
        // Each peer is in a queue once at most, so that no queue allocates from here on.
        fresh_.reserve(entries_.size());
        refused_.reserve(entries_.size());
        ready_.reserve(entries_.size());
    }

    void add_credits(PeerIndex to, uint32_t credits) {
        Entry& entry = at(to);
        VELO_DCHECK(credits != 0 && !entry.due.has(ControlKind::kClose), "a return of %u credits to peer %u",
                    credits, to);
        entry.credits += credits;
        add(to, ControlKind::kCredits);
    }
    void add_open(PeerIndex to, uint32_t credits) {
        Entry& entry = at(to);
        VELO_CHECK(credits != 0 && credits <= kReturnMax && !entry.due.has(ControlKind::kOpen),
                   "a second opening to peer %u", to);
        entry.first_credits = static_cast<uint16_t>(credits);
        add(to, ControlKind::kOpen);
    }
    void add(PeerIndex to, ControlKind kind) {
        ++added_;
        at(to).due.add(kind);
        line_up(to);
    }
    /// Packets of these kinds that have not left are void.
    void remove(PeerIndex to, ControlSet kinds) {
        Entry& entry = at(to);
        entry.due.remove(kinds);
        if (kinds.has(ControlKind::kCredits)) entry.credits = 0;
        if (kinds.has(ControlKind::kOpen)) entry.first_credits = 0;
    }
    /// Something that waited for a credit may go.
    void credits_came(PeerIndex peer) {
        if (!entries_[peer].due.without(kWithoutCredits).empty()) [[unlikely]]
            line_up(peer);
        can_send(peer);
    }

    // Messages that wait.

    /// A message to the peer has no credits. The driver asks again when take_ready() names the peer.
    void wait_to_send(PeerIndex to) { at(to).waits = true; }
    [[nodiscard]] bool waits_to_send(PeerIndex to) const noexcept {
        return to < entries_.size() && entries_[to].waits;
    }
    /// Credits have come, or the peer's messages go by contact slots from here on.
    void can_send(PeerIndex peer) {
        Entry& entry = at(peer);
        if (!entry.waits) [[likely]]
            return;
        entry.waits = false;
        if (entry.ready) return;
        entry.ready = true;
        VELO_DCHECK(ready_.size() < entries_.size(), "the queue of %zu peers grows", ready_.size());
        ready_.push_back(peer);
    }
    /// A peer whose message may go on, each once. False: none.
    [[nodiscard]] bool take_ready(PeerIndex& peer) {
        if (ready_.empty()) [[likely]]
            return false;
        peer = ready_.back();
        ready_.pop_back();
        entries_[peer].ready = false;
        return true;
    }

    [[nodiscard]] bool has(PeerIndex peer, ControlKind kind) const noexcept {
        return peer < entries_.size() && entries_[peer].due.has(kind);
    }
    [[nodiscard]] bool due(PeerIndex peer) const noexcept {
        return peer < entries_.size() && !entries_[peer].due.empty();
    }
    /// Credits that are due explicitly.
    [[nodiscard]] uint32_t credits(PeerIndex peer) const noexcept {
        return peer < entries_.size() ? entries_[peer].credits : 0;
    }
    [[nodiscard]] uint32_t first_credits(PeerIndex peer) const noexcept {
        return peer < entries_.size() ? entries_[peer].first_credits : 0;
    }
    /// The kinds that could leave now, for a sender that has or has not credits at the peer.
    [[nodiscard]] ControlSet ready(PeerIndex peer, bool has_credits) const noexcept {
        if (peer >= entries_.size()) return {};
        return has_credits ? entries_[peer].due : entries_[peer].due.without(kCostACredit);
    }
    /// A packet of this kind has left; `credits`: of an explicit return.
    void left(PeerIndex to, ControlKind kind, uint32_t credits) {
        Entry& entry = at(to);
        VELO_CHECK(entry.due.has(kind), "control packet %u to peer %u was not due",
                   static_cast<unsigned>(kind), to);
        if (kind == ControlKind::kCredits) {
            VELO_CHECK(credits <= entry.credits, "%u of %u credits left for peer %u", credits, entry.credits,
                       to);
            entry.credits -= credits;
            if (entry.credits != 0) return;
        }
        if (kind == ControlKind::kOpen) entry.first_credits = 0;
        entry.due.remove(ControlSet(kind));
    }

    // The queues.

    [[nodiscard]] bool fresh_empty() const noexcept { return fresh_.empty(); }
    [[nodiscard]] bool refused_empty() const noexcept { return refused_.empty(); }
    /// Visits every fresh peer, the first in the queue first: visit(peer) says whether all of it left that
    /// could.
    template <class Visit>
    void visit_fresh(Visit&& visit) {
        for (size_t at = 0; at < fresh_.size(); ++at) {
            const PeerIndex peer = fresh_[at];
            VELO_DCHECK(entries_[peer].lined, "peer %u is queued, and not marked", peer);
            if (visit(peer)) {
                entries_[peer].lined = false;
            } else {
                refused_.push_back(peer);
            }
        }
        fresh_.clear();
    }
    /// Visits every refused peer, each once: visit(peer) says whether all of it left that could.
    template <class Visit>
    void visit_refused(Visit&& visit) {
        for (size_t at = 0; at < refused_.size();) {
            const PeerIndex peer = refused_[at];
            if (!visit(peer)) {
                ++at;
                continue;
            }
            entries_[peer].lined = false;
            refused_[at] = refused_.back();
            refused_.pop_back();
        }
    }

    /// Control packets that became due since the mark, for rules that bound what one event asks for.
    [[nodiscard]] uint32_t added_since_mark() const noexcept { return added_; }
    void mark() noexcept { added_ = 0; }

    template <typename Visit>
    void visit_state(Visit&& visit) const {
        for (const Entry& entry : entries_) {
            visit(entry.due.bits() * 4u + entry.lined * 2u + entry.waits);
            visit(entry.credits);
            visit(entry.first_credits);
        }
    }

  private:
    struct Entry {
        uint32_t credits = 0;
        uint16_t first_credits = 0;
        ControlSet due;
        bool lined : 1 = false;
        /// A message waits for credits.
        bool waits : 1 = false;
        /// In the queue of take_ready(), perhaps with a message that waits again.
        bool ready : 1 = false;
    };
    static_assert(sizeof(Entry) == 8);
    static constexpr ControlSet kWithoutCredits{ControlKind::kClosed, ControlKind::kOpen,
                                                ControlKind::kCredits, ControlKind::kClose};

    [[nodiscard]] Entry& at(PeerIndex peer) noexcept {
        VELO_DCHECK(peer < entries_.size(), "peer %u of %zu", peer, entries_.size());
        return entries_[peer];
    }
    void line_up(PeerIndex peer) {
        Entry& entry = at(peer);
        if (entry.lined) return;
        entry.lined = true;
        VELO_DCHECK(fresh_.size() < entries_.size(), "the queue of %zu peers grows", fresh_.size());
        fresh_.push_back(peer);
    }

    std::vector<Entry> entries_;
    std::vector<PeerIndex> fresh_;
    std::vector<PeerIndex> refused_;
    std::vector<PeerIndex> ready_;
    uint32_t added_ = 0;
};

}  // namespace velo::flowctl
