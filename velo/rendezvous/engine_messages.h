/// Messages to other engines: requests, answers, and memory that is sent in messages. (Those that come are served by
/// velo/engine/serve.h.)
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "velo/base/intrusive_queue.h"
#include "velo/core/peer.h"
#include "velo/core/send_queue.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/engine_wire.h"

namespace velo {

/// The part that operations under a cookie belong to. Thread: the engine's, under its lock.
class CookieOwner {
  public:
    /// The operation that waits under a cookie ends; a cookie that nothing waits under is no error.
    virtual void end(Cookie cookie, Status status, uint64_t value) = 0;

  protected:
    ~CookieOwner() = default;
};

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class EngineMessages final : public SendOwner {
  public:
    using Op = rma::PendingOp<velo_peer>;
    using PendingOps = rma::CookieTable<Op>;

    EngineMessages(Core& core, SendQueue<Core>& queue, PendingOps& pending)
        : core_(core), queue_(queue), pending_(pending) {
        queue_.belongs(Origin::kControl, *this);
        queue_.belongs(Origin::kPush, *this);
    }
    [[gnu::cold]] void reports_to(CookieOwner& operations) { operations_ = &operations; }

    void send_control(velo_peer& peer, const EngineHeader& header);
    void start_push(velo_peer& peer, const EngineHeader& header, uint64_t address, uint64_t bytes);
    /// Answers a pull with that memory. False: the peer has asked for more at a time than a well-behaved one can.
    [[nodiscard]] bool answer_pull(velo_peer& peer, const EngineHeader& header, uint64_t address, uint64_t bytes) {
        if (peer.pulls == kPullsMax) return false;
        ++peer.pulls;
        start_push(peer, header, address, bytes);
        return true;
    }
    void send_ended(velo_send_t& send, Status status) override;
    /// A piece of an answered pull that waited, and whose memory was deregistered meanwhile.
    [[nodiscard]] bool is_revoked(const velo_send_t& send) const override {
        if (static_cast<Origin>(send.origin) != Origin::kPush || send.done != 0) return false;
        const auto& push = static_cast<const Push&>(send);
        return push.source_key != 0 && !core_.on_node.atu().view().valid(push.source_nla, push.source_key);
    }

  private:
    /// A message that fits its header, queued until it has left.
    struct Control : velo_send_t {
        EngineHeader header;
        velo_peer* peer = nullptr;
    };
    /// Memory on its way out in messages: the answer to a pull, or a copied put.
    struct Push : velo_send_t {
        EngineHeader header;
        velo_peer* peer = nullptr;
        uint64_t address = 0;
        uint64_t left = 0;
        uint64_t source_nla = 0;  ///< of an answered pull: revoked, it stops
        uint32_t source_key = 0;
        std::vector<std::byte> piece;  ///< copied out of memory that may be unmapped
    };

    /// Limits of what is kept for each peer of what it asks for; a well-behaved peer cannot exceed them. A
    /// pull holds a cookie of the asker's until it is answered. So does whatever else is answered, but every
    /// piece of a put that fails has an answer of its own.
    static constexpr uint32_t kPullsMax = rma::kPendingOpsMax;
    static constexpr uint32_t kAnswersMax = 2 * rma::kPendingOpsMax;

    void advance_push(Push& push);
    [[gnu::cold]] [[nodiscard]] bool copy_piece(Push& push);
    void push_ended(Push& push, Status status);

    Core& core_;
    SendQueue<Core>& queue_;
    PendingOps& pending_;
    CookieOwner* operations_ = nullptr;
    base::IntrusiveQueue<velo_send_t> free_controls_;
    base::IntrusiveQueue<velo_send_t> free_pushes_;
    std::deque<Control> controls_;
    std::deque<Push> pushes_;
};

/// An answer that is one too many for a peer that takes none is dropped.
template <class Core>
void EngineMessages<Core>::send_control(velo_peer& peer, const EngineHeader& header) {
    const bool answer = header.opcode == Opcode::kDone;
    if (answer && peer.answers == kAnswersMax) [[unlikely]] {
        ++core_.counters.engine_malformed;
        return;
    }
    auto* control = static_cast<Control*>(free_controls_.pop_front());
    if (control == nullptr) control = &controls_.emplace_back();
    control->header = header;
    control->peer = &peer;
    control->data[0] = &control->header;
    control->bytes[0] = sizeof control->header;
    control->bytes[1] = 0;
    control->tag = 0;
    if (queue_.queue_send(peer, *control, MessageClass::kEngine, Origin::kControl)) {
        free_controls_.push_back(control);
    } else if (answer || header.opcode == Opcode::kRail) {
        ++peer.answers;
    }
}

template <class Core>
void EngineMessages<Core>::send_ended(velo_send_t& send, Status status) {
    if (static_cast<Origin>(send.origin) == Origin::kPush) {
        auto& push = static_cast<Push&>(send);
        return status == Status::kOk ? advance_push(push) : push_ended(push, status);
    }
    auto& control = static_cast<Control&>(send);
    const EngineHeader header = control.header;
    if (header.opcode == Opcode::kDone || header.opcode == Opcode::kRail) --control.peer->answers;
    free_controls_.push_back(&send);
    // A request that did not get there is not answered.
    const bool asked =
        header.opcode == Opcode::kPull || header.opcode == Opcode::kAtomic || header.opcode == Opcode::kCoop;
    if (status != Status::kOk && asked) operations_->end(header.cookie, status, 0);
}

template <class Core>
void EngineMessages<Core>::start_push(velo_peer& peer, const EngineHeader& header, uint64_t address,
                                     uint64_t bytes) {
    auto* push = static_cast<Push*>(free_pushes_.pop_front());
    if (push == nullptr) push = &pushes_.emplace_back();
    push->header = header;
    push->peer = &peer;
    push->address = address;
    push->left = bytes;
    push->source_nla = header.opcode == Opcode::kPullData ? header.nla : 0;
    push->source_key = header.opcode == Opcode::kPullData ? header.key : 0;
    push->bytes[1] = 0;
    advance_push(*push);
}

/// Sends the next pieces of a push, until one has to wait or all have left.
template <class Core>
void EngineMessages<Core>::advance_push(Push& push) {
    const uint32_t message_bytes_max =
        core_.on_channel(*push.peer, [](const auto& channel) { return channel.message_bytes_max(); });
    const uint32_t piece_max = std::min(static_cast<uint32_t>(core_.options.params.copy_chunk),
                                        message_bytes_max - static_cast<uint32_t>(sizeof(EngineHeader)));
    const bool put = push.header.opcode == Opcode::kPutData;
    do {
        const uint32_t sent = push.bytes[1];  // by the message that has just left
        push.address += sent;
        if (put) {
            push.header.nla += sent;
        } else {
            push.header.value += sent;
        }
        if (push.left == 0) {
            push_ended(push, Status::kOk);
            return;
        }
        if (push.source_key != 0 && !core_.on_node.atu().view().valid(push.source_nla, push.source_key)) {
            push_ended(push, Status::kAtuFault);
            return;
        }
        const auto piece = static_cast<uint32_t>(std::min<uint64_t>(push.left, piece_max));
        push.left -= piece;
        push.header.last = push.left == 0;
        push.data[0] = &push.header;
        push.bytes[0] = sizeof push.header;
        push.data[1] = reinterpret_cast<const void*>(push.address);
        push.bytes[1] = piece;
        push.tag = 0;
        if (push.header.guarded != 0 && !copy_piece(push)) [[unlikely]]
            return push_ended(push, put ? Status::kBadLocalMemory : Status::kBadMemory);
    } while (queue_.queue_send(*push.peer, push, MessageClass::kEngine, Origin::kPush));
}

/// Copies the next piece before it is sent. False: its memory is unmapped or protected.
template <class Core>
bool EngineMessages<Core>::copy_piece(Push& push) {
    const uint32_t bytes = push.bytes[1];
    if (push.piece.size() < bytes) push.piece.resize(bytes);
    const Status status = core_.copy_out(static_cast<const std::byte*>(push.data[1]), push.piece.data(), bytes);
    push.data[1] = push.piece.data();
    return status == Status::kOk;
}

/// All of a push has left, or nothing more of it will. A copied put that was refused meanwhile ends only now:
/// until here its memory was in use.
template <class Core>
void EngineMessages<Core>::push_ended(Push& push, Status status) {
    const bool put = push.header.opcode == Opcode::kPutData;
    const Cookie cookie = push.header.cookie;
    velo_peer& peer = *push.peer;
    free_pushes_.push_back(&push);
    if (!put) {
        --peer.pulls;
        if (status == Status::kOk || status == Status::kPeerDead) return;
        if (status == Status::kAtuFault) ++core_.counters.atu_faults;
        send_control(peer,
                     {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = cookie});
        return;
    }
    Op* waiting = pending_.find(cookie);
    if (waiting == nullptr) return;
    waiting->pushing = false;
    if (waiting->refused == Status::kOk) waiting->refused = status;
    if (waiting->refused != Status::kOk) operations_->end(cookie, waiting->refused, 0);
}

}  // namespace velo
