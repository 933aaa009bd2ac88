/// Bodies of velo/matching/match_peers.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/matching/match_peers.h"

namespace velo {

template <class Core>
void MatchPeers<Core>::close() {
    host_ = HostState::kGone;
    self_ = nullptr;
    for (MatchPeer& peer : peers_) {
        if (peer.peer != nullptr) peer.peer->match = nullptr;
        peer.out = {};
    }
    loop_.clear();
}

template <class Core>
MatchPeer& MatchPeers<Core>::add(velo_peer* peer) {
    MatchPeer& added = peers_.emplace_back();
    added.in.peer = static_cast<uint32_t>(peers_.size() - 1);
    added.peer = peer;
    if (peer != nullptr) {
        peer->match = &added;
        const uint32_t most =
            core_.on_channel(*peer, [](const auto& channel) { return channel.message_bytes_max(); });
        added.eager_bytes_max =
            std::min(most - static_cast<uint32_t>(sizeof(match::RequestHeader)), kEagerBytesMax);
    }
    return added;
}

template <class Core>
void MatchPeers<Core>::tell_bytes(MatchPeer& to, WireTag tag, const void* data, uint32_t bytes, bool answer) {
    if (&to == self_) {
        return loop(tag, {static_cast<const std::byte*>(data), bytes}, {});
    }
    if (to.peer == nullptr || to.peer->ended()) return;
    const auto wire_tag = static_cast<uint8_t>(tag);
    const MessageParts parts = {
        .header = data, .payload = nullptr, .header_bytes = bytes, .payload_bytes = 0};
    if (queue_.try_send_whole(*to.peer, parts, wire_tag) == Status::kOk) return;
    VELO_CHECK(bytes <= kReplyBytesMax, "a message of matching is longer than all kinds of them");
    Reply& reply = replies_.take();
    if (bytes != 0) std::memcpy(reply.bytes_of_it.data(), data, bytes);
    reply.to = &to;
    reply.answer = answer;
    reply.data[0] = reply.bytes_of_it.data();
    reply.bytes[0] = bytes;
    reply.bytes[1] = 0;
    reply.tag = wire_tag;
    if (queue_.queue_send(*to.peer, reply, MessageClass::kHost, Origin::kMatchReply)) {
        replies_.give_back(reply);
    } else {
        to.replies += answer;
    }
}

template <class Core>
void MatchPeers<Core>::send_ended(velo_send_t& message, Status /*status*/) {
    auto& reply = static_cast<Reply&>(message);
    VELO_DCHECK(reply.to->replies >= reply.answer, "a reply to peer %u leaves, of none", reply.to->in.peer);
    reply.to->replies -= reply.answer;
    replies_.give_back(reply);
}

}  // namespace velo
