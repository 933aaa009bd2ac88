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

}  // namespace velo
