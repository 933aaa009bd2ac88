/// Matching in the engine: messages with an envelope, to and from peers, by the pure machines of match/.
///
/// A message leaves eagerly where its receiver has granted room for it. Another one is requested: with its
/// data, where that fits one message of the path, otherwise with the handle of its data, which the receiver
/// fetches when it has matched (RDRP 3). A request that was accepted without data and matches later is asked
/// for the handle (MEM's CTS).
#pragma once

#include <cstddef>
#include <cstdint>

#include "velo/base/endings.h"
#include "velo/matching/match_peers.h"
#include "velo/matching/match_receiving.h"
#include "velo/matching/match_sending.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class Matching {
  public:
    using WireTag = match::WireTag;

    Matching(Core& core, SendQueue<Core>& queue, rma::Registrations<Core>& registrations,
             rma::Transfers<Core>& transfers)
        : peers_(core, queue),
          sending(core, peers_, queue, registrations),
          receiving(core, peers_, sending, transfers),
          core_(core) {}

    [[gnu::cold]] void open() {
        receiving.open();
        peers_.open();
    }
    /// `peer`: nullptr is this process.
    [[nodiscard]] MatchPeer& peer_of(velo_peer* peer) { return peers_.of(peer); }

    /// A message with one of the tags of velo/wire/match_wire.h. False: it is a host's, since nothing is matched here.
    [[nodiscard, gnu::always_inline]] bool receive(velo_peer& peer, uint8_t tag, const std::byte* data,
                                                   uint32_t bytes) {
        if (tag == static_cast<uint8_t>(WireTag::kEager) && peer.match != nullptr) [[likely]] {
            receiving.on_eager(*peer.match, data, bytes);
            return true;
        }
        if (!peers_.is_open()) [[unlikely]]
            return receive_late(peer);
        receive_other(peers_.of(&peer), tag, data, bytes);
        return true;
    }
    /// State of the part of the host that matches; kGone, too, while it was never there.
    [[nodiscard]] HostState host() const { return peers_.host(); }
    /// The host posts no receive any more. Its messages go on.
    [[gnu::cold]] void leave();
    /// A message that was sent waits for a peer that lives and can still receive it, or data of one is on its way here.
    [[nodiscard]] bool owes() const { return sending.owes() || receiving.owes() || peers_.has_looped(); }
    /// The host is called no more, and its requests are looked at no more: nothing is owed.
    [[gnu::cold]] void close();
    /// The peer has failed, or ended in good order and all that it sent has been handed in.
    [[gnu::cold]] void finished(velo_peer& peer);
    /// The peer's place is another's from now on.
    [[gnu::cold]] void forget(velo_peer& peer) {
        if (peer.match == nullptr) return;
        peer.match->peer = nullptr;
        peer.match->out.reset();
    }
    [[nodiscard]] bool due() const { return receiving.due() || peers_.has_looped() || sending.due(); }
    /// Returns how much happened.
    uint32_t drive();
    /// A message waits, or its data does.
    [[nodiscard]] bool busy() const { return peers_.has_looped() || sending.busy(); }

  private:
    [[gnu::cold, gnu::noinline]] bool receive_late(velo_peer& peer);
    void on_left(MatchPeer& from);
    [[gnu::noinline]] void receive_other(MatchPeer& from, uint8_t tag, const std::byte* data, uint32_t bytes);

    MatchPeers<Core> peers_;

  public:
    MatchSending<Core> sending;
    MatchReceiving<Core> receiving;

  private:
    Core& core_;
};

}  // namespace velo
