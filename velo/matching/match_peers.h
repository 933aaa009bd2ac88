/// The processes that messages are matched with, and what both sides of matching tell them.
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
#include "velo/core/send_queue.h"
#include "velo/matching/match_requests.h"

namespace velo {

/// Owner: Matching. Thread: the engine's, under its lock.
template <class Core>
class MatchPeers final : public SendOwner {
  public:
    using WireTag = match::WireTag;

    /// A message to this process.
    struct Looped {
        WireTag tag;
        std::vector<std::byte> bytes;
    };

    MatchPeers(Core& core, SendQueue<Core>& queue) : core_(core), queue_(queue) {
        queue_.belongs(Origin::kMatchReply, *this);
    }

    [[gnu::cold]] void open() {
        host_ = HostState::kPresent;
        self_ = &add(nullptr);
        self_->eager_bytes_max = kSelfEagerBytesMax;
    }
    [[nodiscard]] bool is_open() const { return self_ != nullptr; }
    [[gnu::cold]] void leave() { host_ = HostState::kLeaving; }
    [[gnu::cold]] void close();
    /// State of the part of the host that matches; kGone, too, while it was never there.
    [[nodiscard]] HostState host() const { return host_; }
    [[nodiscard]] PeerState state_of(const MatchPeer& peer) const {
        if (peer.peer != nullptr) return peer.peer->state;
        if (!is_self(peer)) return PeerState::kClosed;
        return host_ == HostState::kPresent ? PeerState::kPresent : PeerState::kLeft;
    }

    /// `peer`: nullptr is this process.
    [[nodiscard]] MatchPeer& of(velo_peer* peer) {
        if (peer == nullptr) return *self_;
        return peer->match != nullptr ? *peer->match : add(peer);
    }
    /// A peer by its Receiver::Sender::peer.
    [[nodiscard]] MatchPeer& at(uint32_t index) {
        VELO_DCHECK(index < peers_.size(), "peer %u of %zu", index, peers_.size());
        return peers_[index];
    }
    [[nodiscard]] MatchPeer& self() { return *self_; }
    [[nodiscard]] bool is_self(const MatchPeer& peer) const { return &peer == self_; }
    [[nodiscard]] bool any() const { return !peers_.empty(); }
    template <class Visit>
    void for_each(Visit&& visit) {
        for (MatchPeer& peer : peers_) visit(peer);
    }
    /// The one that was matched with before matching was closed, or a new one.
    [[gnu::cold]] MatchPeer& again(velo_peer& peer) {
        const auto known = std::ranges::find_if(peers_, [&peer](const MatchPeer& one) { return one.peer == &peer; });
        MatchPeer& found = known != peers_.end() ? *known : add(&peer);
        peer.match = nullptr;
        return found;
    }

    /// Short messages, in the order in which this is called. `answer`: to a request.
    void tell_bytes(MatchPeer& to, WireTag tag, const void* data, uint32_t bytes, bool answer = false);
    template <class Header>
    void tell(MatchPeer& to, WireTag tag, const Header& header, bool answer = false) {
        tell_bytes(to, tag, &header, sizeof header, answer);
    }
    /// A sender that waits to hear of its messages hears, once, that no receive follows.
    void tell_left(MatchPeer& to) {
        if (!std::exchange(to.told_left, true)) tell_bytes(to, WireTag::kLeft, nullptr, 0);
    }
    /// A message to this process, which comes with the next drive().
    void loop(WireTag tag, std::span<const std::byte> header, std::span<const std::byte> data) {
        std::vector<std::byte>& bytes = loop_.emplace_back(Looped{tag, {}}).bytes;
        bytes.reserve(header.size() + data.size());
        bytes.insert(bytes.end(), header.begin(), header.end());
        bytes.insert(bytes.end(), data.begin(), data.end());
    }
    [[nodiscard]] bool has_looped() const { return !loop_.empty(); }
    [[nodiscard]] size_t looped() const { return loop_.size(); }
    [[nodiscard]] Looped take_looped() {
        Looped first = std::move(loop_.front());
        loop_.pop_front();
        return first;
    }
    void malformed() { ++core_.counters.engine_malformed; }
    /// A reply that was queued has left, or never will.
    void send_ended(velo_send_t& message, Status status) override;

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
    [[gnu::cold, gnu::noinline]] MatchPeer& add(velo_peer* peer);

    Core& core_;
    SendQueue<Core>& queue_;
    std::deque<MatchPeer> peers_;
    MatchPeer* self_ = nullptr;  ///< nullptr: matching is not open, or closed again
    HostState host_ = HostState::kGone;
    std::deque<Looped> loop_;
    base::Spares<Reply> replies_;
};

}  // namespace velo
