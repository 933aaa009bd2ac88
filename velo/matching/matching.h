/// Matching in the engine: messages with an envelope, to and from peers, by the pure machines of match/.
///
/// A message leaves eagerly where its receiver has granted room for it. Another one is requested: with its
/// data, where that fits one message of the path, otherwise with the handle of its data, which the receiver
/// fetches when it has matched (RDRP 3). A request that was accepted without data and matches later is asked
/// for the handle (MEM's CTS).
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "velo/base/endings.h"
#include "velo/base/spares.h"
#include "velo/matching/match_receiving.h"
#include "velo/matching/match_sending.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Env>
class Matching {
  public:
    using Core = typename Env::Core;
    using Parts = typename Env::Parts;
    using WireTag = match::WireTag;

    Matching(Core& core, Parts& parts)
        : sending(core, parts), receiving(core, parts), core_(core), parts_(parts) {}

    [[gnu::cold]] void open() {
        receiving.open();
        host_ = HostState::kPresent;
        self_ = &add_peer(nullptr);
        self_->eager_bytes_max = kSelfEagerBytesMax;
    }
    /// `peer`: nullptr is this process.
    [[nodiscard]] MatchPeer& peer_of(velo_peer* peer) {
        if (peer == nullptr) return *self_;
        return peer->match != nullptr ? *peer->match : add_peer(peer);
    }
    /// A peer by its Receiver::Sender::peer.
    [[nodiscard]] MatchPeer& peer_at(uint32_t index) { return peers_[index]; }
    [[nodiscard]] bool is_self(const MatchPeer& peer) const { return &peer == self_; }

    /// A message with one of the tags of velo/wire/match_wire.h. False: it is a host's, since nothing is matched here.
    [[nodiscard, gnu::always_inline]] bool receive(velo_peer& peer, uint8_t tag, const std::byte* data,
                                                   uint32_t bytes) {
        if (tag == static_cast<uint8_t>(WireTag::kEager) && peer.match != nullptr) [[likely]] {
            receiving.on_eager(*peer.match, data, bytes);
            return true;
        }
        if (self_ == nullptr) [[unlikely]]
            return receive_late(peer);
        receive_other(peer_of(&peer), tag, data, bytes);
        return true;
    }
    /// State of the part of the host that matches; kGone, too, while it was never there.
    [[nodiscard]] HostState host() const { return host_; }
    [[nodiscard]] PeerState state_of(const MatchPeer& peer) const {
        if (peer.peer != nullptr) return peer.peer->state;
        if (!is_self(peer)) return PeerState::kClosed;
        return host_ == HostState::kPresent ? PeerState::kPresent : PeerState::kLeft;
    }
    /// The host posts no receive any more. Its messages go on.
    [[gnu::cold]] void leave();
    /// A message that was sent waits for a peer that lives and can still receive it, or data of one is on its way here.
    [[nodiscard]] bool owes() const { return sending.owes() || receiving.owes() || !loop_.empty(); }
    /// The host is called no more, and its requests are looked at no more: nothing is owed.
    [[gnu::cold]] void close();
    /// The peer has failed, or ended in good order and all that it sent has been handed in.
    [[gnu::cold]] void finished(velo_peer& peer);
    /// The peer's place is another's from now on.
    [[gnu::cold]] void forget(velo_peer& peer) {
        if (peer.match == nullptr) return;
        peer.match->peer = nullptr;
        peer.match->out = {};
    }
    [[nodiscard]] bool due() const { return receiving.due() || !loop_.empty() || sending.due(); }
    /// Returns how much happened.
    uint32_t drive();
    /// A message waits, or its data does.
    [[nodiscard]] bool busy() const { return !loop_.empty() || sending.busy(); }

    // For the two sides.

    /// Short messages, in the order in which this is called. `answer`: to a request.
    void tell_bytes(MatchPeer& to, WireTag tag, const void* data, uint32_t bytes, bool answer = false);
    template <class Header>
    void tell(MatchPeer& to, WireTag tag, const Header& header, bool answer = false) {
        tell_bytes(to, tag, &header, sizeof header, answer);
    }
    /// A message to this process, which comes with the next drive().
    void loop(WireTag tag, std::span<const std::byte> header, std::span<const std::byte> data) {
        std::vector<std::byte>& bytes = loop_.emplace_back(Looped{tag, {}}).bytes;
        bytes.reserve(header.size() + data.size());
        bytes.insert(bytes.end(), header.begin(), header.end());
        bytes.insert(bytes.end(), data.begin(), data.end());
    }
    void reply_left(velo_send_t& message);
    /// A sender that waits to hear of its messages hears, once, that no receive follows.
    void tell_left(MatchPeer& to) {
        if (!std::exchange(to.told_left, true)) tell_bytes(to, WireTag::kLeft, nullptr, 0);
    }
    void malformed() { ++core_.counters.engine_malformed; }

    MatchSending<Env> sending;
    MatchReceiving<Env> receiving;

  private:
    static constexpr uint32_t kSelfEagerBytesMax = 32768;
    /// A longer message is faster fetched: unexpected, it would be copied twice, and by the cell
    /// (docs/results/mtl.md).
    static constexpr uint32_t kEagerBytesMax = 65536;

    /// The longest are requests that name a place, and offers.
    static constexpr size_t kReplyBytesMax =
        std::max(sizeof(match::RequestHeader) + sizeof(match::Place),
                 sizeof(match::OffersHeader) + sizeof(match::Offers::Batch::receives));

    struct Reply : velo_send_t {
        MatchPeer* to = nullptr;
        bool answer = false;
        alignas(8) std::array<std::byte, kReplyBytesMax> bytes_of_it;
    };
    struct Looped {
        WireTag tag;
        std::vector<std::byte> bytes;
    };

    [[gnu::cold, gnu::noinline]] bool receive_late(velo_peer& peer);
    void on_left(MatchPeer& from);
    [[gnu::noinline]] void receive_other(MatchPeer& from, uint8_t tag, const std::byte* data, uint32_t bytes);
    [[gnu::cold, gnu::noinline]] MatchPeer& add_peer(velo_peer* peer);

    Core& core_;
    Parts& parts_;
    std::deque<MatchPeer> peers_;
    MatchPeer* self_ = nullptr;  ///< nullptr: matching is not open, or closed again
    HostState host_ = HostState::kGone;
    std::deque<Looped> loop_;
    base::Spares<Reply> replies_;
};

template <class Env>
MatchPeer& Matching<Env>::add_peer(velo_peer* peer) {
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

template <class Env>
void Matching<Env>::tell_bytes(MatchPeer& to, WireTag tag, const void* data, uint32_t bytes, bool answer) {
    if (&to == self_) {
        return loop(tag, {static_cast<const std::byte*>(data), bytes}, {});
    }
    if (to.peer == nullptr || to.peer->ended()) return;
    const auto wire_tag = static_cast<uint8_t>(tag);
    const MessageParts parts = {
        .header = data, .payload = nullptr, .header_bytes = bytes, .payload_bytes = 0};
    if (parts_.queue.send_now(*to.peer, parts, wire_tag) == Status::kOk) return;
    VELO_CHECK(bytes <= kReplyBytesMax, "a message of matching is longer than all kinds of them");
    Reply& reply = replies_.take();
    if (bytes != 0) std::memcpy(reply.bytes_of_it.data(), data, bytes);
    reply.to = &to;
    reply.answer = answer;
    reply.data[0] = reply.bytes_of_it.data();
    reply.bytes[0] = bytes;
    reply.bytes[1] = 0;
    reply.tag = wire_tag;
    if (parts_.queue.submit(*to.peer, reply, MessageClass::kHost, Origin::kMatchReply)) {
        replies_.give_back(reply);
    } else {
        to.replies += answer;
    }
}

template <class Env>
void Matching<Env>::reply_left(velo_send_t& message) {
    auto& reply = static_cast<Reply&>(message);
    reply.to->replies -= reply.answer;
    replies_.give_back(reply);
}

template <class Env>
void Matching<Env>::receive_other(MatchPeer& from, uint8_t tag, const std::byte* data, uint32_t bytes) {
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
            if (!match::read_header(grant, data, bytes)) return malformed();
            return sending.on_grant(from, grant.room());
        }
        case WireTag::kLeft: return on_left(from);
    }
    malformed();
}

template <class Env>
uint32_t Matching<Env>::drive() {
    if (receiving.due()) receiving.drive();
    uint32_t events = 0;
    // All of them, the answers to them and to those: both ends are done in one call of progress then.
    for (size_t left = loop_.size(), answers = 2; left != 0; ++events) {
        const Looped message = std::move(loop_.front());
        loop_.pop_front();
        receive_other(*self_, static_cast<uint8_t>(message.tag), message.bytes.data(),
                      static_cast<uint32_t>(message.bytes.size()));
        if (--left == 0 && answers != 0) {
            --answers;
            left = loop_.size();
        }
    }
    if (sending.due()) sending.drive();
    return events;
}

template <class Env>
void Matching<Env>::on_left(MatchPeer& from) {
    if (from.peer == nullptr) return;
    from.peer->state = after(from.peer->state, PeerEvent::kLeft);
    sending.settle(from);
}

template <class Env>
void Matching<Env>::leave() {
    if (host_ != HostState::kPresent) return;
    host_ = HostState::kLeaving;
    for (MatchPeer& peer : peers_) {
        if (peer.asks) tell_left(peer);
        if (state_of(peer) != PeerState::kPresent) sending.settle(peer);
    }
}

template <class Env>
void Matching<Env>::close() {
    if (host_ == HostState::kGone) return;
    leave();
    if (sending.owes()) core_.say(0, "matching is closed with messages that are not received; they are lost.");
    host_ = HostState::kGone;
    self_ = nullptr;
    for (MatchPeer& peer : peers_) {
        if (peer.peer != nullptr) peer.peer->match = nullptr;
        peer.out = {};
    }
    loop_.clear();
    sending.close();
    receiving.close();
}

/// A message came after matching was closed, or where it was never open: then it is a host's. Its sender may wait to
/// hear of it.
template <class Env>
bool Matching<Env>::receive_late(velo_peer& peer) {
    if (peers_.empty()) return false;
    const auto known = std::ranges::find_if(peers_, [&peer](const MatchPeer& one) { return one.peer == &peer; });
    MatchPeer& from = known != peers_.end() ? *known : add_peer(&peer);
    peer.match = nullptr;
    tell_left(from);
    return true;
}

template <class Env>
void Matching<Env>::finished(velo_peer& peer) {
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
