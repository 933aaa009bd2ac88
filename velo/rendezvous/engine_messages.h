/// Messages to other engines: requests, answers, and memory that is sent in messages. (Those that come are served by
/// velo/engine/serve.h.)
#pragma once

#include <algorithm>
#include <array>
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

    /// Sends a message without data, now or later. An answer too many, to a peer that takes none, is dropped.
    template <class Header>
    void send_control(velo_peer& peer, const Header& header) {
        static_assert(sizeof header <= kControlBytesMax && Header::kOpcode != Opcode::kPullData &&
                      Header::kOpcode != Opcode::kPutData);
        Control* const control = take_control(peer, Header::kOpcode);
        if (control == nullptr) [[unlikely]]
            return;
        write_header(control->header.data(), header);
        send(*control, sizeof header);
    }
    /// Sends memory of this process to be written at the peer, piece after piece. bytes != 0.
    void put(velo_peer& peer, const PutDataHeader& header, uint64_t address, uint64_t bytes) {
        Push& push = take_push(peer, address, bytes);
        push.put = header;
        push.is_put = true;
        push.guarded = header.guarded != 0;
        advance_push(push);
    }
    /// Answers a pull with memory of this process, which is registered by `nla` and `key`. bytes != 0. False: the peer
    /// has asked for more at a time than a well-behaved one can.
    [[nodiscard]] bool answer_pull(velo_peer& peer, const PullHeader& pull, uint64_t nla, uint32_t key,
                                   uint64_t address) {
        if (peer.serving.pulls == kPullsMax) return false;
        ++peer.serving.pulls;
        Push& push = take_push(peer, address, pull.bytes);
        push.pulled = {.cookie = pull.cookie};
        push.is_put = false;
        push.guarded = pull.guarded != 0;
        push.source_nla = nla;
        push.source_key = key;
        advance_push(push);
        return true;
    }
    void send_ended(velo_send_t& send, Status status) override;
    /// A piece of an answered pull that waited, and whose memory was deregistered meanwhile.
    [[nodiscard]] bool is_revoked(const velo_send_t& send) const override {
        if (static_cast<Origin>(send.origin) != Origin::kPush || send.done != 0) return false;
        const auto& push = static_cast<const Push&>(send);
        return is_revoked(push);
    }

  private:
    /// A message that is its header, queued until it has left.
    struct Control : velo_send_t {
        alignas(8) std::array<std::byte, kControlBytesMax> header;
        velo_peer* peer = nullptr;
        Opcode opcode{};
    };
    /// Memory on its way out in messages: the answer to a pull, or a copied put.
    struct Push : velo_send_t {
        PullDataHeader pulled;
        PutDataHeader put;
        bool is_put = false;
        bool guarded = false;
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

    [[nodiscard]] static constexpr bool counts_as_answer(Opcode opcode) {
        return opcode == Opcode::kDone || opcode == Opcode::kRail;
    }
    /// An operation of this process waits for the answer.
    [[nodiscard]] static constexpr bool is_request(Opcode opcode) {
        return opcode == Opcode::kPull || opcode == Opcode::kAtomic || opcode == Opcode::kCoopCall ||
               opcode == Opcode::kCoopPart;
    }

    [[nodiscard]] Control* take_control(velo_peer& peer, Opcode opcode);
    void send(Control& control, uint32_t bytes);
    [[nodiscard]] Push& take_push(velo_peer& peer, uint64_t address, uint64_t bytes);
    [[nodiscard]] bool is_revoked(const Push& push) const {
        return push.source_key != 0 && !core_.on_node.atu().view().valid(push.source_nla, push.source_key);
    }
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

/// nullptr: it is an answer too many.
template <class Core>
EngineMessages<Core>::Control* EngineMessages<Core>::take_control(velo_peer& peer, Opcode opcode) {
    if (opcode == Opcode::kDone && peer.serving.answers == kAnswersMax) [[unlikely]] {
        ++core_.counters.engine_malformed;
        return nullptr;
    }
    auto* control = static_cast<Control*>(free_controls_.pop_front());
    if (control == nullptr) control = &controls_.emplace_back();
    control->peer = &peer;
    control->opcode = opcode;
    return control;
}

template <class Core>
void EngineMessages<Core>::send(Control& control, uint32_t bytes) {
    control.data[0] = control.header.data();
    control.bytes[0] = bytes;
    control.bytes[1] = 0;
    control.tag = 0;
    if (queue_.queue_send(*control.peer, control, MessageClass::kEngine, Origin::kControl)) {
        free_controls_.push_back(&control);
    } else if (counts_as_answer(control.opcode)) {
        ++control.peer->serving.answers;
    }
}

template <class Core>
void EngineMessages<Core>::send_ended(velo_send_t& send, Status status) {
    if (static_cast<Origin>(send.origin) == Origin::kPush) {
        auto& push = static_cast<Push&>(send);
        return status == Status::kOk ? advance_push(push) : push_ended(push, status);
    }
    auto& control = static_cast<Control&>(send);
    const Opcode opcode = control.opcode;
    OperationHead head;
    std::memcpy(&head, control.header.data(), sizeof head);
    VELO_DCHECK(!counts_as_answer(opcode) || control.peer->serving.answers != 0,
                "an answer to rank %u leaves, of none", control.peer->rank);
    if (counts_as_answer(opcode)) --control.peer->serving.answers;
    free_controls_.push_back(&send);
    // A request that did not get there is not answered.
    if (status != Status::kOk && is_request(opcode)) operations_->end(head.cookie, status, 0);
}

template <class Core>
EngineMessages<Core>::Push& EngineMessages<Core>::take_push(velo_peer& peer, uint64_t address, uint64_t bytes) {
    VELO_CHECK(bytes != 0, "no memory is sent to rank %u", peer.rank);
    auto* push = static_cast<Push*>(free_pushes_.pop_front());
    if (push == nullptr) push = &pushes_.emplace_back();
    push->peer = &peer;
    push->address = address;
    push->left = bytes;
    push->source_nla = 0;
    push->source_key = 0;
    push->bytes[1] = 0;
    return *push;
}

/// Sends the next pieces of a push, until one has to wait or all have left.
template <class Core>
void EngineMessages<Core>::advance_push(Push& push) {
    const uint32_t message_bytes_max =
        core_.on_channel(*push.peer, [](const auto& channel) { return channel.message_bytes_max(); });
    const auto header_bytes = static_cast<uint32_t>(push.is_put ? sizeof push.put : sizeof push.pulled);
    VELO_DCHECK(message_bytes_max > header_bytes, "messages of %u bytes hold no data", message_bytes_max);
    const uint32_t piece_max = std::min(core_.options.tuning.copy_bytes, message_bytes_max - header_bytes);
    do {
        const uint32_t sent = push.bytes[1];  // by the message that has just left
        push.address += sent;
        (push.is_put ? push.put.nla : push.pulled.offset) += sent;
        if (push.left == 0) {
            push_ended(push, Status::kOk);
            return;
        }
        if (is_revoked(push)) return push_ended(push, Status::kAtuFault);
        const auto piece = static_cast<uint32_t>(std::min<uint64_t>(push.left, piece_max));
        push.left -= piece;
        push.put.last = push.left == 0;
        push.data[0] = push.is_put ? static_cast<const void*>(&push.put) : &push.pulled;
        push.bytes[0] = header_bytes;
        push.data[1] = reinterpret_cast<const void*>(push.address);
        push.bytes[1] = piece;
        push.tag = 0;
        if (push.guarded && !copy_piece(push)) [[unlikely]]
            return push_ended(push, push.is_put ? Status::kBadLocalMemory : Status::kBadMemory);
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
    const bool is_put = push.is_put;
    const Cookie cookie = is_put ? push.put.cookie : push.pulled.cookie;
    velo_peer& peer = *push.peer;
    free_pushes_.push_back(&push);
    if (!is_put) {
        VELO_DCHECK(peer.serving.pulls != 0, "a pull of rank %u ends, of none", peer.rank);
        --peer.serving.pulls;
        if (status == Status::kOk || status == Status::kPeerDead) return;
        if (status == Status::kAtuFault) ++core_.counters.atu_faults;
        return send_control(peer, DoneHeader{.status = status, .cookie = cookie});
    }
    Op* waiting = pending_.find(cookie);
    if (waiting == nullptr) return;
    waiting->pushing = false;
    if (waiting->refused == Status::kOk) waiting->refused = status;
    if (waiting->refused != Status::kOk) operations_->end(cookie, waiting->refused, 0);
}

}  // namespace velo
