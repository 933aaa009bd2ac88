/// Ends: the parts that may still be notified, and what is still owed, when a process or a part of its host leaves.
///
/// A host has two parts, which leave one after the other: the one that matches (MTL), and the one that takes messages
/// (BTL). A part that leaves posts no receive and takes no message any more, but its own messages are still delivered;
/// one that is gone is called no more, and nothing of its memory is touched. A peer that ended in good order had all of
/// its own messages delivered first, so these stay to be received; only what needs the peer itself ends.
///
/// Pure. Owner: the engine (the host's parts), and each velo_peer (its state). Explored:
/// tests/exhaustive/endings_test.cc.
#pragma once

#include <cstdint>

namespace velo {

/// A part of this process's host.
enum class HostState : uint8_t {
    kPresent,
    kLeaving,  ///< no receive follows, and no message is taken; what it has sent is on its way
    kGone,     ///< it is called no more
};

/// A peer, as far as it is known here. States follow each other downwards; the last two are final.
enum class PeerState : uint8_t {
    kPresent,
    kLeft,    ///< its matching has left: it takes messages, and no receive of its waits for one
    kClosed,  ///< its process has ended in good order
    kFailed,  ///< its process has ended otherwise
};

enum class PeerEvent : uint8_t { kLeft, kClosed, kFailed };

[[nodiscard]] constexpr bool has_ended(PeerState state) {
    return state >= PeerState::kClosed;
}

/// The state after an event. An ended peer stays what it is.
[[nodiscard]] constexpr PeerState after(PeerState state, PeerEvent event) {
    if (has_ended(state)) return state;
    switch (event) {
        case PeerEvent::kLeft: return PeerState::kLeft;
        case PeerEvent::kClosed: return PeerState::kClosed;
        case PeerEvent::kFailed: return PeerState::kFailed;
    }
    return state;
}

static_assert(after(PeerState::kClosed, PeerEvent::kFailed) == PeerState::kClosed);
static_assert(after(PeerState::kFailed, PeerEvent::kClosed) == PeerState::kFailed);
static_assert(!has_ended(PeerState::kLeft) &&
              after(PeerState::kLeft, PeerEvent::kFailed) == PeerState::kFailed);

/// Something that was accepted, by what it lacks. A message of the peer that lies in this process lacks nothing.
enum class Owed : uint8_t {
    kArrival,  ///< from here, and not yet in memory that its receiver holds
    kReceive,  ///< from here: the receiver has to match it, or to fetch its data
    kSource,   ///< from the peer: its data, or a part of it, is still there
};

enum class Fate : uint8_t {
    kWaits,
    kVoid,   ///< none of the two ends needs it any more, or the peer's failure ends the job
    kLost,   ///< the program needs it, and it can never be carried out: the job ends with a line
};

/// `host`: the part of this process's host that it belongs to.
[[nodiscard]] constexpr Fate fate(Owed owed, HostState host, PeerState peer) {
    if (peer == PeerState::kFailed) return Fate::kVoid;
    const bool peer_helps = owed == Owed::kReceive ? peer == PeerState::kPresent : !has_ended(peer);
    if (peer_helps) return Fate::kWaits;
    return host == HostState::kPresent ? Fate::kLost : Fate::kVoid;
}

}  // namespace velo
