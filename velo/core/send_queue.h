/// Messages on their way out: at once, or queued behind each other for each peer.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "velo/base/chunked_memory.h"
#include "velo/base/lock.h"
#include "velo/channels/packet_channel.h"
#include "velo/core/peer.h"
#include "velo/core/peer_end_sink.h"
#include "velo/core/peers.h"

namespace velo {

/// The part that queued messages belong to. It is called for messages that had to wait only. Thread: the engine's,
/// under its lock.
class SendOwner {
  public:
    /// The message has left, or never will.
    virtual void send_ended(velo_send_t& send, Status status) = 0;
    /// The memory of a message that waits was deregistered: it ends with kAtuFault.
    [[nodiscard]] virtual bool is_revoked(const velo_send_t& /*send*/) const { return false; }

  protected:
    ~SendOwner() = default;
};

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class SendQueue {
  public:
    SendQueue(Core& core, const Peers& peers) : core_(core), peers_(peers) {}

    /// Messages of this origin are of `owner`, but for the host's and copies of them. Both outlive the last drive().
    [[gnu::cold]] void belongs(Origin origin, SendOwner& owner) { owners_[static_cast<size_t>(origin)] = &owner; }
    /// Sends a host's message by the quickest way that takes it, or not at all: kAgain.
    [[gnu::always_inline]] Status try_send(velo_peer& peer, const MessageParts& parts, uint8_t tag) {
        return try_send_lines(peer, parts, tag) ? Status::kOk : try_send_whole(peer, parts, tag);
    }
    /// Sends a host's message as lines of an on-node ring. False: it cannot leave as such.
    [[gnu::always_inline]] bool try_send_lines(velo_peer& peer, const MessageParts& parts, uint8_t tag) {
        if (peer.path != VELO_PATH_ON_NODE || !peer.sending.pending.empty() || peer.reclaimed) return false;
        const bool one = parts.bytes() <= shm::kInlineBytesMax;
        if (one && core_.on_node.try_send_line(peer.node_index(), parts, tag)) {
            if (!core_.lock.threads()) peer.ready_ring = core_.on_node.ready_ring(peer.node_index());
            return true;
        }
        return core_.on_node.try_send_lines(peer.node_index(), parts, tag);
    }
    /// Sends a host's message on its peer's channel, all of it at once. kAgain: it cannot leave at once.
    [[gnu::noinline]] Status try_send_whole(velo_peer& peer, const MessageParts& parts, uint8_t tag);
    /// Sends a host's message as try_send_whole(), or queues a copy of it. kAgain: neither is possible.
    [[gnu::noinline]] Status try_send_or_copy(velo_peer& peer, const MessageParts& parts, uint8_t tag);
    /// Sends a message of the host's as queue_send(), and allows copies behind it where it waits.
    bool send(velo_peer& peer, velo_send_t& send);
    /// Sends a message, now or later. True: it has left. False: it is queued, and its owner is notified of its end.
    bool queue_send(velo_peer& peer, velo_send_t& send, MessageClass message_class, Origin origin);
    [[nodiscard]] bool empty() const { return waiting_.empty(); }
    /// Sends messages, or parts of them, as far as they may leave, at most `sends_max`, and returns their
    /// number. The peer after the last one that was served comes first.
    uint32_t drive(uint32_t sends_max);
    void unpark(velo_peer& peer);
    /// Allocates what the host keeps of messages to a peer.
    [[nodiscard]] void* allocate(velo_peer& peer, size_t bytes) {
        return memory_.allocate(peer.sending.memory, bytes);
    }
    void free(void* memory) { memory_.free(memory); }
    /// Calls visit(peer) for each peer with messages that wait.
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        for (velo_peer* peer : waiting_) visit(*peer);
    }

  private:
    /// Copies that the first message of the host's to wait allows behind it; each further one allows twice as
    /// many.
    static constexpr uint32_t kCopiesMin = 16;
    static constexpr uint32_t kCopiesMax = 1u << 16;
    static constexpr uint32_t kCopyBytesMax = 1024;
    static constexpr uint32_t kTogetherMax = 32;  ///< messages that leave in one go
    static constexpr uint32_t kGatheredBytesMax =
        16384 + 64;  ///< a longer message gains nothing by others beside it

    void enqueue(velo_peer& peer, velo_send_t& send);
    /// A message has gone to this peer since the last progress: further short ones go together, at the next.
    template <class Channel>
    [[nodiscard]] bool waits_for_others(const Channel& channel, const velo_peer& peer, uint32_t bytes) const {
        return channel.gathers() && bytes <= kGatheredBytesMax && peer.sending.poll == core_.clock.polls();
    }
    template <class Channel>
    uint32_t send_together(Channel& channel, velo_peer& peer);
    template <class Channel>
    uint32_t drive_peer(Channel& channel, velo_peer& peer, uint32_t sends_max);
    void completed(velo_send_t& send, Status status);
    [[nodiscard]] SendOwner& owner_of(const velo_send_t& send) const {
        VELO_DCHECK(send.origin < kOrigins && owners_[send.origin] != nullptr, "origin %u has no owner",
                    send.origin);
        return *owners_[send.origin];
    }
    [[nodiscard]] bool is_revoked(const velo_send_t& send) const {
        return static_cast<Origin>(send.origin) == Origin::kPush && owner_of(send).is_revoked(send);
    }

    Core& core_;
    const Peers& peers_;
    std::array<SendOwner*, kOrigins> owners_{};
    std::vector<velo_peer*> waiting_;  ///< peers to which messages wait
    size_t parked_ = 0;                ///< of these, those whose first message waits for credits
    uint64_t queued_ = 0;
    size_t turn_ = 0;  ///< of `waiting_`, the peer that comes first
    base::ChunkedMemory memory_;
};

template <class Core>
Status SendQueue<Core>::try_send_whole(velo_peer& peer, const MessageParts& parts, uint8_t tag) {
    velo_send_t send = {.data = {parts.header, parts.payload},
                        .bytes = {parts.header_bytes, parts.payload_bytes},
                        .next = nullptr,
                        .total = parts.bytes(),
                        .done = 0,
                        .tag = tag,
                        .message_class = static_cast<uint8_t>(MessageClass::kHost),
                        .origin = 0,
                        .stalled = false};
    if (!peer.sending.pending.empty()) return Status::kAgain;
    if (peer.reclaimed) [[unlikely]]
        return Status::kPeerDead;
    return core_.on_channel(peer, [&](auto& channel) {
        // Half a message must not go: no sender would be left for the rest.
        if (waits_for_others(channel, peer, send.total)) return Status::kAgain;
        const Status status = channel.send_whole(channel.name_of(peer), send);
        if (channel.gathers() && status == Status::kOk) peer.sending.poll = core_.clock.polls();
        return status;
    });
}

/// A message of the host's that waits shows that the host does not wait for it: a blocking send would have
/// polled until it left. So the next short messages are copied, and the host is finished with them, until
/// that message leaves or as many were copied as it allowed; then the host's next one shows again.
template <class Core>
Status SendQueue<Core>::try_send_or_copy(velo_peer& peer, const MessageParts& parts, uint8_t tag) {
    const Status status = try_send_whole(peer, parts, tag);
    const uint32_t bytes = parts.bytes();
    if (status != Status::kAgain) [[likely]]
        return status;
    if (peer.sending.copies.left == 0 || bytes > kCopyBytesMax) return Status::kAgain;
    void* const memory = memory_.allocate(peer.sending.memory, sizeof(velo_send_t) + bytes);
    if (memory == nullptr) return Status::kAgain;
    auto* const copy = new (memory) velo_send_t{};
    auto* const data = reinterpret_cast<std::byte*>(copy + 1);
    if (parts.header_bytes != 0) std::memcpy(data, parts.header, parts.header_bytes);
    if (parts.payload_bytes != 0) std::memcpy(data + parts.header_bytes, parts.payload, parts.payload_bytes);
    copy->data[0] = data;
    copy->bytes[0] = copy->total = bytes;
    copy->tag = tag;
    copy->message_class = static_cast<uint8_t>(MessageClass::kHost);
    copy->origin = static_cast<uint8_t>(Origin::kCopy);
    --peer.sending.copies.left;
    enqueue(peer, *copy);
    return Status::kOk;
}

template <class Core>
bool SendQueue<Core>::send(velo_peer& peer, velo_send_t& send) {
    if (queue_send(peer, send, MessageClass::kHost, Origin::kHost)) return true;
    peer.sending.copies.granted = std::clamp(2 * peer.sending.copies.granted, kCopiesMin, kCopiesMax);
    peer.sending.copies.left = peer.sending.copies.granted;
    return false;
}

template <class Core>
bool SendQueue<Core>::queue_send(velo_peer& peer, velo_send_t& send, MessageClass message_class, Origin origin) {
    send.message_class = static_cast<uint8_t>(message_class);
    send.origin = static_cast<uint8_t>(origin);
    send.done = 0;
    send.total = send.bytes[0] + send.bytes[1];
    send.stalled = false;
    const bool sent = peer.sending.pending.empty() && !peer.reclaimed && core_.on_channel(peer, [&](auto& channel) {
        if (waits_for_others(channel, peer, send.total)) return false;
        if (channel.send(channel.name_of(peer), send) != Status::kOk) return false;
        peer.sending.poll = core_.clock.polls();
        return true;
    });
    if (!sent) enqueue(peer, send);
    return sent;
}

template <class Core>
void SendQueue<Core>::enqueue(velo_peer& peer, velo_send_t& send) {
    peer.sending.pending.push_back(&send);
    peer.ready_ring = nullptr;
    ++queued_;
    ++core_.counters.pending_count;
    core_.counters.pending_hwm = std::max(core_.counters.pending_hwm, queued_);
    if (!peer.sending.listed) {
        peer.sending.listed = true;
        waiting_.push_back(&peer);
    }
}

/// A message of this peer's is tried again.
template <class Core>
void SendQueue<Core>::unpark(velo_peer& peer) {
    VELO_CHECK(parked_ >= peer.sending.parked, "%zu peers are parked, without peer %u", parked_, peer.index);
    parked_ -= peer.sending.parked;
    peer.sending.parked = false;
}

/// Peers whose messages wait for credits are left alone until flow control says that they can send.
template <class Core>
uint32_t SendQueue<Core>::drive(uint32_t sends_max) {
    if (parked_ != 0) {
        for (DeviceAddr ready = kNoAddr; core_.packets->take_ready(ready);) {
            if (ready < peers_.device().size() && peers_.device()[ready] != nullptr) unpark(*peers_.device()[ready]);
        }
        if (parked_ == waiting_.size()) return 0;
    }
    VELO_DCHECK(parked_ <= waiting_.size(), "%zu peers are parked, of %zu", parked_, waiting_.size());
    uint32_t sent = 0;
    // An answer that has left may have others follow, so nothing of the list and the queues is held across one.
    for (size_t left = waiting_.size(); left != 0 && sent < sends_max && !waiting_.empty(); --left) {
        if (turn_ >= waiting_.size()) turn_ = 0;
        const size_t at = turn_;
        velo_peer& peer = *waiting_[at];
        if (!peer.sending.parked) {
            sent += core_.on_channel(
                peer, [&](auto& channel) { return drive_peer(channel, peer, sends_max - sent); });
        }
        if (peer.sending.pending.empty() && at < waiting_.size() && waiting_[at] == &peer) {
            peer.sending.listed = false;
            waiting_[at] = waiting_.back();
            waiting_.pop_back();
        } else {
            turn_ = at + 1;
        }
    }
    return sent;
}

/// Sends of a peer's queue what may leave.
template <class Core>
template <class Channel>
uint32_t SendQueue<Core>::drive_peer(Channel& channel, velo_peer& peer, uint32_t sends_max) {
    uint32_t sent = 0;
    while (velo_send_t* send = peer.sending.pending.front()) {
        if (sent >= sends_max) break;
        if (channel.gathers()) {
            const uint32_t together = send_together(channel, peer);
            sent += together;
            if (together != 0) continue;
        }
        const uint32_t before = send->done;
        const Status status = peer.reclaimed     ? Status::kPeerDead
                              : is_revoked(*send) ? Status::kAtuFault
                                                  : channel.send(channel.name_of(peer), *send);
        if (status == Status::kAgain) {
            sent += send->done != before;
            peer.sending.parked = channel.waits(channel.name_of(peer));
            parked_ += peer.sending.parked;
            break;
        }
        if (status == Status::kPeerDead) [[unlikely]]
            core_.peer_ends->peer_gone(peer, static_cast<Origin>(send->origin));
        if (status != Status::kOk && send->stalled) [[unlikely]]
            channel.stall_ended(channel.name_of(peer));
        VELO_DCHECK(queued_ != 0 && peer.sending.listed, "a message of peer %u leaves a queue of none",
                    peer.index);
        peer.sending.pending.pop_front();
        --queued_;
        ++sent;
        if (static_cast<Origin>(send->origin) == Origin::kHost) peer.sending.copies = {};
        completed(*send, status);
    }
    return sent;
}

/// Sends messages from the front of a peer's queue in one go. Returns how many left; 0 leaves the first to
/// be sent alone.
template <class Core>
template <class Channel>
uint32_t SendQueue<Core>::send_together(Channel& channel, velo_peer& peer) {
    std::array<velo_send_t*, kTogetherMax> sends;
    uint32_t count = 0;
    uint32_t packets = 0;
    for (velo_send_t* send = peer.sending.pending.front(); send != nullptr && count < sends.size();
         send = send->next) {
        packets += packets_for(send->total);
        if (send->total > kGatheredBytesMax) break;
        if (send->done != 0 || is_revoked(*send) ||
            !channel.prepare_packets(channel.name_of(peer), packets))
            break;
        sends[count++] = send;
    }
    if (count < 2 || channel.send_together(channel.name_of(peer), std::span(sends).first(count)) != Status::kOk)
        return 0;
    peer.sending.poll = core_.clock.polls();
    for (uint32_t i = 0; i < count; ++i) peer.sending.pending.pop_front();
    VELO_DCHECK(queued_ >= count, "%u messages leave a queue of fewer", count);
    queued_ -= count;
    for (velo_send_t* send : std::span(sends).first(count)) {
        if (static_cast<Origin>(send->origin) == Origin::kHost) peer.sending.copies = {};
        completed(*send, Status::kOk);
    }
    return count;
}

/// A queued message has left, or never will.
template <class Core>
void SendQueue<Core>::completed(velo_send_t& send, Status status) {
    switch (static_cast<Origin>(send.origin)) {
        case Origin::kHost: return core_.events.sent(send, status);
        case Origin::kCopy: return memory_.free(&send);  // the host was told before that it never will
        default: return owner_of(send).send_ended(send, status);
    }
}

}  // namespace velo
