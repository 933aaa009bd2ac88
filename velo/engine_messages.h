/// Engine: messages on their way out, at once or queued. Part of engine.h.
#pragma once

#include "velo/base/copy.h"
#include "velo/engine.h"

namespace velo {

template <class D>
template <bool kCopies>
inline Status Engine<D>::send_now(velo_peer& peer, const shm::LineParts& parts, uint8_t tag) {
    const std::lock_guard guard(lock_);
    if (peer.path == VELO_PATH_ON_NODE && parts.bytes() <= shm::kInlineBytesMax && peer.pending.empty() &&
        !peer.gone && on_node_.send_line(peer.index, parts, tag)) {
        return Status::kOk;
    }
    if constexpr (kCopies) {
        return send_or_copy(peer, parts.header, parts.header_bytes, parts.payload, parts.payload_bytes, tag);
    } else {
        return send_other_now(peer, parts.header, parts.header_bytes, parts.payload, parts.payload_bytes, tag);
    }
}

template <class D>
Status Engine<D>::send_other_now(velo_peer& peer, const void* header, uint32_t header_bytes,
                                 const void* payload, uint32_t payload_bytes, uint8_t tag) {
    velo_send_t send = {.data = {header, payload},
                        .bytes = {header_bytes, payload_bytes},
                        .next = nullptr,
                        .total = header_bytes + payload_bytes,
                        .done = 0,
                        .tag = tag,
                        .message_class = static_cast<uint8_t>(MessageClass::kHost),
                        .origin = 0,
                        .stalled = false};
    if (!peer.pending.empty()) return Status::kAgain;
    if (peer.path != VELO_PATH_DEVICE) return try_send(peer, send);
    // Half a message must not go: no sender would be left for the rest.
    if (waits_for_others(peer, send.total) || !velo_->sendable(peer.index, send.total)) return Status::kAgain;
    const Status status = velo_->send_whole(peer.index, send);
    if (status == Status::kOk) peer.sent_poll = polls_;
    return status;
}

template <class D>
std::byte* Engine<D>::reserve(velo_peer& peer, uint32_t bytes) {
    lock_.lock();
    Status status = Status::kOk;
    if (peer.path == VELO_PATH_ON_NODE && peer.pending.empty() && !peer.gone) {
        if (std::byte* room = on_node_.reserve_whole(peer.index, bytes, status)) return room;
    }
    lock_.unlock();
    return nullptr;
}

template <class D>
void Engine<D>::commit(velo_peer& peer, uint8_t tag, uint32_t bytes) {
    on_node_.commit(peer.index, MessageClass::kHost, tag, bytes, true);
    lock_.unlock();
}

/// A message of the host's that waits shows that the host does not wait for it: a blocking send would have polled
/// until it left. So the next short messages are copied, and the host is finished with them, until that message
/// leaves or as many were copied as it allowed; then the host's next one shows again.
template <class D>
Status Engine<D>::send_or_copy(velo_peer& peer, const void* header, uint32_t header_bytes, const void* payload,
                               uint32_t payload_bytes, uint8_t tag) {
    const Status status = send_other_now(peer, header, header_bytes, payload, payload_bytes, tag);
    const uint32_t bytes = header_bytes + payload_bytes;
    if (status != Status::kAgain) [[likely]]
        return status;
    if (peer.copies_left == 0 || bytes > kCopyBytesMax) return Status::kAgain;
    void* const memory = memory_.allocate(peer.memory, sizeof(velo_send_t) + bytes);
    if (memory == nullptr) return Status::kAgain;
    auto* const copy = new (memory) velo_send_t{};
    auto* const data = reinterpret_cast<std::byte*>(copy + 1);
    if (header_bytes != 0) std::memcpy(data, header, header_bytes);
    if (payload_bytes != 0) std::memcpy(data + header_bytes, payload, payload_bytes);
    copy->data[0] = data;
    copy->bytes[0] = copy->total = bytes;
    copy->tag = tag;
    copy->message_class = static_cast<uint8_t>(MessageClass::kHost);
    copy->origin = static_cast<uint8_t>(Origin::kCopy);
    --peer.copies_left;
    enqueue(peer, *copy);
    return Status::kOk;
}

template <class D>
bool Engine<D>::send(velo_peer& peer, velo_send_t& send) {
    const std::lock_guard guard(lock_);
    if (submit(peer, send, MessageClass::kHost, Origin::kHost)) return true;
    peer.copies_grant = std::clamp(2 * peer.copies_grant, kCopiesMin, kCopiesMax);
    peer.copies_left = peer.copies_grant;
    return false;
}

/// True: the message has left. False: it is queued, and completed() will be called for it.
template <class D>
bool Engine<D>::submit(velo_peer& peer, velo_send_t& send, MessageClass message_class, Origin origin) {
    send.message_class = static_cast<uint8_t>(message_class);
    send.origin = static_cast<uint8_t>(origin);
    send.done = 0;
    send.total = send.bytes[0] + send.bytes[1];
    send.stalled = false;
    if (peer.pending.empty() && !waits_for_others(peer, send.total) && try_send(peer, send) == Status::kOk) {
        peer.sent_poll = polls_;
        return true;
    }
    enqueue(peer, send);
    return false;
}

template <class D>
Status Engine<D>::try_send(velo_peer& peer, velo_send_t& send) {
    if (peer.path == VELO_PATH_DEVICE) return velo_->send(peer.index, send);
    if (peer.gone) [[unlikely]]
        return Status::kPeerDead;
    Status status = Status::kOk;
    const auto room = on_node_.reserve(peer.index, send.total, status);
    if (room.first == nullptr) return status;
    if (room.rest == nullptr) {
        gather(send, 0, room.first, send.total);
    } else {
        gather(send, 0, room.first, shm::kInlineBytesMax);
        const uint32_t rest = send.total - shm::kInlineBytesMax;
        if (on_node_.nontemporal(peer.index, send.total)) {
            gather(send, shm::kInlineBytesMax, room.rest, rest, base::copy_nontemporal);
        } else {
            gather(send, shm::kInlineBytesMax, room.rest, rest);
        }
    }
    on_node_.commit(peer.index, static_cast<MessageClass>(send.message_class), send.tag, send.total);
    return Status::kOk;
}

template <class D>
void Engine<D>::enqueue(velo_peer& peer, velo_send_t& send) {
    peer.pending.push_back(&send);
    ++pending_;
    ++counters_.pending_count;
    counters_.pending_hwm = std::max(counters_.pending_hwm, pending_);
    if (!peer.in_pending) {
        peer.in_pending = true;
        pending_peers_.push_back(&peer);
    }
}

/// A piece of an answered pull that waited, and whose memory was deregistered meanwhile.
template <class D>
bool Engine<D>::source_gone(const velo_send_t& send) {
    if (static_cast<Origin>(send.origin) != Origin::kPush || send.done != 0) return false;
    const auto& push = static_cast<const Push&>(send);
    return push.source_key != 0 && !on_node_.atu().view().valid(push.source_nla, push.source_key);
}

/// A message of this peer's is tried again.
template <class D>
void Engine<D>::unpark(velo_peer& peer) {
    parked_peers_ -= peer.parked;
    peer.parked = false;
}

/// Peers whose messages wait for credits are left alone until flow control says that they can send.
template <class D>
uint32_t Engine<D>::drive_pending() {
    uint32_t sent = 0;
    if (parked_peers_ != 0) {
        for (DeviceAddr ready = kNoAddr; velo_->take_ready(ready);) {
            if (ready < by_device_.size() && by_device_[ready] != nullptr) unpark(*by_device_[ready]);
        }
        if (parked_peers_ == pending_peers_.size()) return 0;
    }
    // An upcall may change the list and every queue, so nothing of them is held across one.
    for (size_t i = 0; i < pending_peers_.size(); ++i) {
        velo_peer& peer = *pending_peers_[i];
        if (peer.parked) continue;
        while (velo_send_t* send = peer.pending.front()) {
            if (gathers_ && peer.path == VELO_PATH_DEVICE) {
                const uint32_t together = send_together(peer);
                sent += together;
                if (together != 0) continue;
            }
            const Status status = source_gone(*send) ? Status::kAtuFault : try_send(peer, *send);
            if (status == Status::kAgain) {
                peer.parked = peer.path == VELO_PATH_DEVICE && velo_->waits_for_credits(peer.index);
                parked_peers_ += peer.parked;
                break;
            }
            if (status == Status::kPeerDead) [[unlikely]]
                tell_of_end(peer);
            if (status != Status::kOk && send->stalled) [[unlikely]]
                velo_->stall_ended(peer.index);
            peer.pending.pop_front();
            --pending_;
            ++sent;
            if (static_cast<Origin>(send->origin) == Origin::kHost) peer.copies_left = peer.copies_grant = 0;
            completed(*send, status);
        }
        if (peer.pending.empty() && i < pending_peers_.size() && pending_peers_[i] == &peer) {
            peer.in_pending = false;
            pending_peers_[i] = pending_peers_.back();
            pending_peers_.pop_back();
            --i;
        }
    }
    return sent;
}

/// Sends messages from the front of a peer's queue in one go. Returns how many left; 0 leaves the first to try_send().
template <class D>
uint32_t Engine<D>::send_together(velo_peer& peer) {
    std::array<velo_send_t*, kTogetherMax> sends;
    uint32_t count = 0;
    uint32_t packets = 0;
    for (velo_send_t* send = peer.pending.front(); send != nullptr && count < sends.size(); send = send->next) {
        packets += packets_for(send->total);
        if (send->total > kGatheredBytesMax) break;
        if (send->done != 0 || source_gone(*send) || !velo_->sendable_whole(peer.index, packets)) break;
        sends[count++] = send;
    }
    if (count < 2 || velo_->send_together(peer.index, std::span(sends).first(count)) != Status::kOk) return 0;
    peer.sent_poll = polls_;
    // An upcall may look at the queue, and send.
    for (uint32_t i = 0; i < count; ++i) peer.pending.pop_front();
    pending_ -= count;
    for (velo_send_t* send : std::span(sends).first(count)) {
        if (static_cast<Origin>(send->origin) == Origin::kHost) peer.copies_left = peer.copies_grant = 0;
        completed(*send, Status::kOk);
    }
    return count;
}

/// A queued message has left, or never will.
template <class D>
void Engine<D>::completed(velo_send_t& send, Status status) {
    switch (static_cast<Origin>(send.origin)) {
        case Origin::kHost: {
            base::Unlocked unlocked(lock_);
            options_.host.sent(options_.host.context, &send, static_cast<int>(status));
            break;
        }
        case Origin::kCopy:
            // If it never will, the peer's end is reported to the host.
            memory_.free(&send);
            break;
        case Origin::kControl: {
            auto& control = static_cast<Control&>(send);
            const EngineHeader header = control.header;
            if (header.opcode == Opcode::kDone) --control.peer->answers;
            free_controls_.push_back(&send);
            // A request that did not get there has no answer.
            const bool asked = header.opcode == Opcode::kPull || header.opcode == Opcode::kAtomic ||
                               header.opcode == Opcode::kJoint;
            if (status != Status::kOk && asked) wait_ended(header.cookie, status, 0);
            break;
        }
        case Origin::kPush: {
            auto& push = static_cast<Push&>(send);
            if (status == Status::kOk) {
                advance_push(push);
            } else {
                push_ended(push, status);
            }
            break;
        }
    }
}

}  // namespace velo
