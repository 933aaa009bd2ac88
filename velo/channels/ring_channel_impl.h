/// Bodies of velo/channels/ring_channel.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/channels/ring_channel.h"

namespace velo {

template <class OnNode>
Status RingChannel<OnNode>::send(shm::PeerIndex to, velo_send_t& send) {
    VELO_DCHECK(send.total == send.bytes[0] + send.bytes[1], "%u bytes in parts of %u and %u", send.total,
                send.bytes[0], send.bytes[1]);
    Status status = Status::kOk;
    const auto room = on_node_.reserve(to, send.total, status);
    if (room.first == nullptr) return status;
    if (room.rest == nullptr) {
        gather(send, 0, room.first, send.total);
    } else {
        gather(send, 0, room.first, shm::kInlineBytesMax);
        const uint32_t rest = send.total - shm::kInlineBytesMax;
        if (on_node_.nontemporal(to, send.total)) {
            gather(send, shm::kInlineBytesMax, room.rest, rest, base::copy_nontemporal);
        } else {
            gather(send, shm::kInlineBytesMax, room.rest, rest);
        }
    }
    on_node_.commit(to, static_cast<MessageClass>(send.message_class), send.tag, send.total);
    return Status::kOk;
}

template <class OnNode>
uint64_t RingChannel<OnNode>::describe(shm::PeerIndex peer, PeerReport& out) const {
    out.ring.made = on_node_.fill(peer, out.ring.fill);
    out.ring.lines = on_node_.geometry().lines;
    out.ring.bytes = on_node_.geometry().body_bytes;
    out.ring.unread = on_node_.unread(peer);
    return on_node_.last_beat_ns(peer);
}

}  // namespace velo
