/// Messages on their way out: at once, or queued behind each other for each peer.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "velo/base/chunked_memory.h"
#include "velo/base/copy.h"
#include "velo/base/lock.h"
#include "velo/peer.h"
#include "velo/shm/on_node.h"
#include "velo/velo_path.h"

namespace velo {

/// The owner of a queued message, and so what its completion means.
enum class Origin : uint8_t { kHost, kControl, kPush, kCopy };

/// Owner: the engine. Thread: the engine's, under its lock, which is given up during upcalls.
template <class Env>
class SendQueue {
  public:
    using Core = typename Env::Core;
    using Parts = typename Env::Parts;

    SendQueue(Core& core, Parts& parts) : core_(core), parts_(parts) {
        gathers_ = core.device && core.device->traits().gathers;
    }

    /// kAgain: it cannot leave at once.
    [[gnu::noinline]] Status send_other_now(velo_peer& peer, const void* header, uint32_t header_bytes,
                                            const void* payload, uint32_t payload_bytes, uint8_t tag);
    [[gnu::noinline]] Status send_or_copy(velo_peer& peer, const void* header, uint32_t header_bytes,
                                          const void* payload, uint32_t payload_bytes, uint8_t tag);
    /// The host's. True: it has left.
    bool send(velo_peer& peer, velo_send_t& send);
    bool submit(velo_peer& peer, velo_send_t& send, MessageClass message_class, Origin origin);
    [[nodiscard]] bool empty() const { return waiting_.empty(); }
    uint32_t drive();
    void unpark(velo_peer& peer);
    /// For what the host keeps of messages to a peer.
    [[nodiscard]] void* allocate(velo_peer& peer, size_t bytes) {
        return memory_.allocate(peer.memory, bytes);
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

    Status try_send(velo_peer& peer, velo_send_t& send);
    void enqueue(velo_peer& peer, velo_send_t& send);
    /// A message has gone to this peer since the last progress: further short ones go together, at the next.
    [[nodiscard]] bool waits_for_others(const velo_peer& peer, uint32_t bytes) const {
        return gathers_ && bytes <= kGatheredBytesMax && peer.path == VELO_PATH_DEVICE &&
               peer.sent_poll == core_.clock.polls();
    }
    uint32_t send_together(velo_peer& peer);
    void completed(velo_send_t& send, Status status);

    Core& core_;
    Parts& parts_;
    std::vector<velo_peer*> waiting_;  ///< peers to which messages wait
    size_t parked_ = 0;                ///< of these, those whose first message waits for credits
    uint64_t queued_ = 0;
    base::ChunkedMemory memory_;
    bool gathers_ = false;  ///< DeviceTraits::gathers
};

template <class Env>
Status SendQueue<Env>::send_other_now(velo_peer& peer, const void* header, uint32_t header_bytes,
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
    if (waits_for_others(peer, send.total) || !core_.packets->prepare(peer.index, send.total))
        return Status::kAgain;
    const Status status = core_.packets->send_whole(peer.index, send);
    if (status == Status::kOk) peer.sent_poll = core_.clock.polls();
    return status;
}

/// A message of the host's that waits shows that the host does not wait for it: a blocking send would have
/// polled until it left. So the next short messages are copied, and the host is finished with them, until
/// that message leaves or as many were copied as it allowed; then the host's next one shows again.
template <class Env>
Status SendQueue<Env>::send_or_copy(velo_peer& peer, const void* header, uint32_t header_bytes,
                                    const void* payload, uint32_t payload_bytes, uint8_t tag) {
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

template <class Env>
bool SendQueue<Env>::send(velo_peer& peer, velo_send_t& send) {
    if (submit(peer, send, MessageClass::kHost, Origin::kHost)) return true;
    peer.copies_grant = std::clamp(2 * peer.copies_grant, kCopiesMin, kCopiesMax);
    peer.copies_left = peer.copies_grant;
    return false;
}

/// True: the message has left. False: it is queued, and completed() will be called for it.
template <class Env>
bool SendQueue<Env>::submit(velo_peer& peer, velo_send_t& send, MessageClass message_class, Origin origin) {
    send.message_class = static_cast<uint8_t>(message_class);
    send.origin = static_cast<uint8_t>(origin);
    send.done = 0;
    send.total = send.bytes[0] + send.bytes[1];
    send.stalled = false;
    if (peer.pending.empty() && !waits_for_others(peer, send.total) && try_send(peer, send) == Status::kOk) {
        peer.sent_poll = core_.clock.polls();
        return true;
    }
    enqueue(peer, send);
    return false;
}

template <class Env>
Status SendQueue<Env>::try_send(velo_peer& peer, velo_send_t& send) {
    if (peer.path == VELO_PATH_DEVICE) return core_.packets->send(peer.index, send);
    if (peer.reclaimed) [[unlikely]]
        return Status::kPeerDead;
    Status status = Status::kOk;
    const auto room = core_.on_node.reserve(peer.index, send.total, status);
    if (room.first == nullptr) return status;
    if (room.rest == nullptr) {
        gather(send, 0, room.first, send.total);
    } else {
        gather(send, 0, room.first, shm::kInlineBytesMax);
        const uint32_t rest = send.total - shm::kInlineBytesMax;
        if (core_.on_node.nontemporal(peer.index, send.total)) {
            gather(send, shm::kInlineBytesMax, room.rest, rest, base::copy_nontemporal);
        } else {
            gather(send, shm::kInlineBytesMax, room.rest, rest);
        }
    }
    core_.on_node.commit(peer.index, static_cast<MessageClass>(send.message_class), send.tag, send.total);
    return Status::kOk;
}

template <class Env>
void SendQueue<Env>::enqueue(velo_peer& peer, velo_send_t& send) {
    peer.pending.push_back(&send);
    ++queued_;
    ++core_.counters.pending_count;
    core_.counters.pending_hwm = std::max(core_.counters.pending_hwm, queued_);
    if (!peer.in_pending) {
        peer.in_pending = true;
        waiting_.push_back(&peer);
    }
}

/// A message of this peer's is tried again.
template <class Env>
void SendQueue<Env>::unpark(velo_peer& peer) {
    parked_ -= peer.parked;
    peer.parked = false;
}

/// Peers whose messages wait for credits are left alone until flow control says that they can send.
template <class Env>
uint32_t SendQueue<Env>::drive() {
    uint32_t sent = 0;
    if (parked_ != 0) {
        for (DeviceAddr ready = kNoAddr; core_.packets->take_ready(ready);) {
            if (ready < parts_.peers.device().size() && parts_.peers.device()[ready] != nullptr)
                unpark(*parts_.peers.device()[ready]);
        }
        if (parked_ == waiting_.size()) return 0;
    }
    // An upcall may change the list and every queue, so nothing of them is held across one.
    for (size_t i = 0; i < waiting_.size(); ++i) {
        velo_peer& peer = *waiting_[i];
        if (peer.parked) continue;
        while (velo_send_t* send = peer.pending.front()) {
            if (gathers_ && peer.path == VELO_PATH_DEVICE) {
                const uint32_t together = send_together(peer);
                sent += together;
                if (together != 0) continue;
            }
            const Status status =
                parts_.messages.source_gone(*send) ? Status::kAtuFault : try_send(peer, *send);
            if (status == Status::kAgain) {
                peer.parked = peer.path == VELO_PATH_DEVICE && core_.packets->waits_for_credits(peer.index);
                parked_ += peer.parked;
                break;
            }
            if (status == Status::kPeerDead) [[unlikely]]
                parts_.failures.report_end(peer);
            if (status != Status::kOk && send->stalled) [[unlikely]]
                core_.packets->stall_ended(peer.index);
            peer.pending.pop_front();
            --queued_;
            ++sent;
            if (static_cast<Origin>(send->origin) == Origin::kHost) peer.copies_left = peer.copies_grant = 0;
            completed(*send, status);
        }
        if (peer.pending.empty() && i < waiting_.size() && waiting_[i] == &peer) {
            peer.in_pending = false;
            waiting_[i] = waiting_.back();
            waiting_.pop_back();
            --i;
        }
    }
    return sent;
}

/// Sends messages from the front of a peer's queue in one go. Returns how many left; 0 leaves the first to
/// try_send().
template <class Env>
uint32_t SendQueue<Env>::send_together(velo_peer& peer) {
    std::array<velo_send_t*, kTogetherMax> sends;
    uint32_t count = 0;
    uint32_t packets = 0;
    for (velo_send_t* send = peer.pending.front(); send != nullptr && count < sends.size();
         send = send->next) {
        packets += packets_for(send->total);
        if (send->total > kGatheredBytesMax) break;
        if (send->done != 0 || parts_.messages.source_gone(*send) ||
            !core_.packets->prepare_packets(peer.index, packets))
            break;
        sends[count++] = send;
    }
    if (count < 2 || core_.packets->send_together(peer.index, std::span(sends).first(count)) != Status::kOk)
        return 0;
    peer.sent_poll = core_.clock.polls();
    // An upcall may look at the queue, and send.
    for (uint32_t i = 0; i < count; ++i) peer.pending.pop_front();
    queued_ -= count;
    for (velo_send_t* send : std::span(sends).first(count)) {
        if (static_cast<Origin>(send->origin) == Origin::kHost) peer.copies_left = peer.copies_grant = 0;
        completed(*send, Status::kOk);
    }
    return count;
}

/// A queued message has left, or never will.
template <class Env>
void SendQueue<Env>::completed(velo_send_t& send, Status status) {
    switch (static_cast<Origin>(send.origin)) {
        case Origin::kHost: {
            base::Unlocked unlocked(core_.lock);
            core_.options.host.sent(core_.options.host.context, &send, static_cast<int>(status));
            break;
        }
        case Origin::kCopy:
            // If it never will, the peer's end is reported to the host.
            memory_.free(&send);
            break;
        case Origin::kControl:
        case Origin::kPush: parts_.messages.completed(send, status); break;
    }
}

}  // namespace velo
