/// Bodies of velo/core/send_queue.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/base/copy.h"
#include "velo/core/send_queue.h"

namespace velo {

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
    if (parts.payload_bytes != 0) base::copy_long(data + parts.header_bytes, parts.payload, parts.payload_bytes);
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
