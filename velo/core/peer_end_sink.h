/// The part that judges what it means that a peer has ended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "velo/base/endings.h"
#include "velo/velo.h"

namespace velo {

/// The kind of a queued message, and so its owner.
enum class Origin : uint8_t { kHost, kControl, kPush, kCopy, kMatchSend, kMatchReply };
inline constexpr size_t kOrigins = 6;

/// Implemented above the parts that call it. Thread: the engine's, under its lock.
class PeerEndSink {
  public:
    /// A message of this origin was queued for the peer and never leaves, since the peer has ended.
    virtual void peer_gone(velo_peer& peer, Origin origin) = 0;
    /// Something that was accepted is lost with a peer that left or ended in good order: once a peer, the job ends,
    /// unless this process leaves as well, as it does within a job. `host`: the part that it belongs to. nullptr: the
    /// host is finished with the peer.
    virtual void report_lost(velo_peer* peer, Owed owed, HostState host) = 0;

  protected:
    ~PeerEndSink() = default;
};

}  // namespace velo
