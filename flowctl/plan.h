/// How a mailbox is divided: regions, quota and threshold (FC 5.2), computed once at set-up.
///
/// Every process of a job computes the same plan from the same parameters, which is how a sender knows its quota
/// without a message. Counts are 64-byte mailbox slots; one credit is the right to fill one slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>

#include "flowctl/mode.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// Dense number of a remote process: 0 .. peers - 1.
using PeerIndex = uint32_t;

/// A piggybacked return rides in the last two bytes of a packet (FC 5.4). Explicit credit packets keep to
/// the same bound, so that one field width does for both; what does not fit stays with the receiver.
inline constexpr uint32_t kReturnMax = std::numeric_limits<uint16_t>::max();

/// FC 5.3 studies 1 to 5 and settles on 2, so this is generous. It bounds what a peer costs under dynamic
/// mode, which keeps a list of credit_slots + 1 thresholds for each (FC 6.2).
inline constexpr uint32_t kCreditSlotsMax = 255;

/// FC 5.3: two credit slots is the best trade-off, and 58 slots for each process have very low overhead.
inline constexpr uint32_t kCreditSlotsDefault = 2;
inline constexpr uint32_t kSlotsPerPeerDefault = 58;

/// Retrieved packets after which credits go back to the sender: equation 1 of FC 5.2.
///
/// Let q be the quota, n the credit slots and t the threshold. With r credits kept by the receiver, and m
/// explicit credit packets that the sender has not read, each of at least t credits:
///   held + unread data + r + piggybacked and under way + (explicit and under way >= m * t) = q.
/// No overflow: (n + 1) * t > q, so m <= n, whatever piggybacking does, because piggybacking only moves
/// credits from r to another term of the same sum.
/// No deadlock: t <= q for q >= 1 and n >= 1. When nothing is held, unread or under way, r = q >= t; but
/// after every event r < t, unless a return is under way. So a sender never waits with nothing to wait for.
[[nodiscard]] constexpr uint32_t threshold_for(uint32_t quota, uint32_t credit_slots) noexcept {
    return quota / (credit_slots + 1) + 1;
}

static_assert((kCreditSlotsDefault + 1) * threshold_for(kSlotsPerPeerDefault, kCreditSlotsDefault) >
              kSlotsPerPeerDefault);

/// Smallest number of slots for one peer, credit slots included, with which a steady flow of messages of
/// message_packets packets does not stall: equations 3 and 4 of FC 5.3, solved exactly.
///
/// quota - quota div (n + 1) grows by one with every slot but each (n + 1)-th, so it reaches p first at
/// quota = p + (p - 1) div n. Equation 5 of the paper gives one slot more where n divides p. Both arguments
/// are at least 1.
[[nodiscard]] constexpr uint32_t slots_without_stall(uint32_t message_packets,
                                                     uint32_t credit_slots) noexcept {
    return message_packets + (message_packets - 1) / credit_slots + credit_slots;
}

/// IBFC 6.3.1: no explicit credit message for fewer credits than this, unless the share is smaller.
inline constexpr uint32_t kGrowingThreshold = 5;

/// Threshold of a share under Mode::kGrowing. At least equation 1's, so no credit region overflows; at most
/// the quota, so it can be reached.
[[nodiscard]] constexpr uint32_t growing_threshold(uint32_t quota, uint32_t credit_slots) noexcept {
    return std::max(threshold_for(quota, credit_slots), std::min(kGrowingThreshold, quota));
}

/// The user's choices.
struct Config {
    Mode mode = Mode::kStatic;
    /// Remote processes that may send to this one.
    uint32_t peers = 0;
    /// Slots that each peer brings to the mailbox, credit slots included. Used when mailbox_slots is 0.
    uint32_t slots_per_peer = kSlotsPerPeerDefault;
    /// Size of the whole mailbox; 0 means peers * slots_per_peer.
    uint32_t mailbox_slots = 0;
    uint32_t credit_slots = kCreditSlotsDefault;
    Rounding rounding = Rounding::kSubset;
    bool piggyback = true;
    /// Most slots of a mailbox that one sender comes to own under kGrowing and kDynamic; 0: as many as there
    /// are (FC 7.4.1 needed a limit).
    uint32_t sender_slots_max = 0;
    /// kDynamic.
    Stealing stealing = Stealing::kTurns;
    /// kDynamic: slots of the mailbox that are kept for packets of peers that own none, each of which owns
    /// some from the first contact on. 0: every peer owns its static slots from the start (FC 6.3).
    uint32_t contact_slots = 0;
    /// kGrowing: how a share grows, what it starts with, and by how many slots it grows linearly.
    Growth growth = Growth::kLinear;
    uint32_t growing_start = 4;
    uint32_t growing_step = 4;
};

/// The division that follows from a Config. Invariant under the modes with credits:
/// mailbox_slots = data_region_slots + credit_region_slots, and under `static`
/// data_region_slots = peers * quota + excess_peers. Under `growing` and `dynamic` the peers start with
/// `quota` each, and the rest is handed out as they go. With contact slots, mailbox_slots =
/// data_region_slots + contact_slots: a peer's credit slots come out of the data region when its link opens.
struct Plan {
    Mode mode = Mode::kNone;
    uint32_t peers = 0;
    /// Slots the mailbox must have: more or fewer than asked for where the rounding says so.
    uint32_t mailbox_slots = 0;
    uint32_t data_region_slots = 0;
    uint32_t credit_region_slots = 0;
    uint32_t credit_slots = 0;
    /// Slots for packets that have no credit because their sender owns no slot yet; 0: there are no such
    /// senders. At most that number of these packets are under way to the mailbox or in it.
    uint32_t contact_slots = 0;
    /// Credits a sender starts with at every receiver, or is given at its first contact; 0 under a mode
    /// without credits.
    uint32_t quota = 0;
    /// Intended quota of a peer whose link opens (kDynamic with contact slots), where so much is left.
    uint32_t initial_quota = 0;
    /// The peers 0 .. excess_peers - 1 own quota + 1 slots here (Rounding::kSubset).
    uint32_t excess_peers = 0;
    /// Threshold of a peer that owns `quota` slots.
    uint32_t threshold = 0;
    /// Threshold of a peer that owns quota + 1 slots; equals `threshold` where no peer does.
    uint32_t favoured_threshold = 0;
    /// Most credits in one return. Invariant: at least either threshold, or a credit packet could carry
    /// less than the threshold, and the proof beside threshold_for would not hold.
    uint32_t return_max = kReturnMax;
    /// Most slots that a sender comes to own (kGrowing, kDynamic); under kDynamic, of its intended quota.
    uint32_t sender_slots_max = 0;
    uint32_t growing_step = 0;
    Growth growth = Growth::kLinear;
    Stealing stealing = Stealing::kTurns;
    bool piggyback = false;

    [[nodiscard]] constexpr bool favours(PeerIndex peer) const noexcept { return peer < excess_peers; }
    [[nodiscard]] constexpr uint32_t quota_of(PeerIndex peer) const noexcept { return quota + favours(peer); }
    [[nodiscard]] constexpr uint32_t threshold_of(PeerIndex peer) const noexcept {
        return favours(peer) ? favoured_threshold : threshold;
    }
    /// Most credits that any sender can come to hold at one receiver.
    [[nodiscard]] constexpr uint32_t quota_max() const noexcept { return quota + (excess_peers > 0); }
};

/// Why a Config cannot be carried out.
struct PlanError {
    Status status = Status::kBadParam;
    /// The smallest mailbox that satisfies equation 2 of FC 5.2 for these peers and credit slots; 0 where
    /// no mailbox would do.
    uint32_t smallest_mailbox_slots = 0;
    /// The mistake, the value, and a remedy: fit to be shown to the user as it is.
    std::string message;
};

using PlanResult = std::variant<Plan, PlanError>;

/// Contact slots for a mailbox of this config: at most `most` and a 64th of it, at least 1. 0 where they
/// would leave too little for the only peer, under the paper's stealing, which expects every peer to own
/// slots from the start, and under other modes.
[[nodiscard, gnu::cold]] uint32_t contact_slots_for(const Config& config, uint32_t most);

/// Set-up only: may allocate. A pure function of the config.
[[nodiscard, gnu::cold]] PlanResult plan(const Config& config);

}  // namespace velo::flowctl
