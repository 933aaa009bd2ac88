/// Bodies of velo/matching/matching.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/matching/matching.h"

namespace velo {

template <class Core>
void Matching<Core>::receive_other(MatchPeer& from, uint8_t tag, const std::byte* data, uint32_t bytes) {
    switch (static_cast<WireTag>(tag)) {
        case WireTag::kEager: return receiving.on_other_eager(from, data, bytes);
        case WireTag::kRequest: return receiving.on_request(from, data, bytes);
        case WireTag::kAnswer: return sending.on_answer(from, data, bytes);
        case WireTag::kOffers: return sending.on_offers(from, data, bytes);
        case WireTag::kEnd: return receiving.on_end(from, data, bytes);
        case WireTag::kClearToSend: return sending.on_clear_to_send(from, data, bytes);
        case WireTag::kReady: return receiving.on_ready(from, data, bytes);
        case WireTag::kDone: return sending.on_done(from, data, bytes);
        case WireTag::kGrant: {
            match::GrantHeader grant;
            if (!match::read_header(grant, data, bytes)) return peers_.malformed();
            return sending.on_grant(from, grant.room());
        }
        case WireTag::kLeft: return on_left(from);
    }
    peers_.malformed();
}

template <class Core>
uint32_t Matching<Core>::drive() {
    if (receiving.due()) receiving.drive();
    uint32_t events = 0;
    // All of them, the answers to them and to those: both ends are done in one call of progress then.
    for (size_t left = peers_.looped(), answers = 2; left != 0; ++events) {
        const auto message = peers_.take_looped();
        receive_other(peers_.self(), static_cast<uint8_t>(message.tag), message.bytes.data(),
                      static_cast<uint32_t>(message.bytes.size()));
        if (--left == 0 && answers != 0) {
            --answers;
            left = peers_.looped();
        }
    }
    if (sending.due()) sending.drive();
    return events;
}

template <class Core>
void Matching<Core>::on_left(MatchPeer& from) {
    if (from.peer == nullptr) return;
    from.peer->state = after(from.peer->state, PeerEvent::kLeft);
    sending.settle(from);
}

template <class Core>
void Matching<Core>::leave() {
    if (host() != HostState::kPresent) return;
    peers_.leave();
    peers_.for_each([this](MatchPeer& peer) {
        if (peer.asks) peers_.tell_left(peer);
        if (peers_.state_of(peer) != PeerState::kPresent) sending.settle(peer);
    });
}

template <class Core>
void Matching<Core>::close() {
    if (host() == HostState::kGone) return;
    leave();
    if (sending.owes()) core_.say(0, "matching is closed with messages that are not received; they are lost.");
    peers_.close();
    sending.close();
    receiving.close();
}

/// A message came after matching was closed, or where it was never open: then it is a host's. Its sender may wait to
/// hear of it.
template <class Core>
bool Matching<Core>::receive_late(velo_peer& peer) {
    if (!peers_.any()) return false;
    peers_.tell_left(peers_.again(peer));
    return true;
}

template <class Core>
void Matching<Core>::finished(velo_peer& peer) {
    if (peer.match == nullptr) return;
    MatchPeer& match = *peer.match;
    if (peer.state == PeerState::kFailed) {
        receiving.failed(match);
    } else {
        receiving.closed(match);
    }
    match.finished = true;
    sending.settle(match);
}

}  // namespace velo
