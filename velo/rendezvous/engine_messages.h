/// Messages between engines: what this process asks of its peers, and what it does for their transfers.
///
/// A peer's request is checked against the own translation table, and answered with a status. An answer
/// counts only from the peer that was asked.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "velo/base/intrusive_queue.h"
#include "velo/core/peer.h"
#include "velo/core/send_queue.h"
#include "velo/rendezvous/apply_atomic.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/engine_wire.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Env>
class EngineMessages {
  public:
    using Core = typename Env::Core;
    using Parts = typename Env::Parts;
    using State = rma::TransferState<velo_peer>;
    using Op = rma::PendingOp<velo_peer>;

    EngineMessages(Core& core, Parts& parts) : core_(core), parts_(parts) {}

    void send_control(velo_peer& peer, const EngineHeader& header);
    void start_push(velo_peer& peer, const EngineHeader& header, uint64_t address, uint64_t bytes);
    void receive(velo_peer& peer, const std::byte* data, uint32_t bytes);
    /// A message of Origin::kControl or kPush that was queued has left, or never will.
    void completed(velo_send_t& send, Status status);
    /// A piece of an answered pull that waited, and whose memory was deregistered meanwhile.
    [[nodiscard]] bool source_gone(const velo_send_t& send) const {
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
    Status translate_request(uint64_t& nla, uint32_t& key, uint64_t bytes, uint32_t access,
                             uint64_t& address);
    void on_pull(velo_peer& peer, const EngineHeader& header);
    void on_pull_data(const velo_peer& peer, const EngineHeader& header, const std::byte* data,
                      uint32_t bytes);
    void on_put_data(velo_peer& peer, const EngineHeader& header, const std::byte* data, uint32_t bytes);
    void on_atomic(velo_peer& peer, const EngineHeader& header);
    void on_done(const velo_peer& peer, const EngineHeader& header);

    Core& core_;
    Parts& parts_;
    base::IntrusiveQueue<velo_send_t> free_controls_;
    base::IntrusiveQueue<velo_send_t> free_pushes_;
    std::deque<Control> controls_;
    std::deque<Push> pushes_;
};

/// An answer that is one too many for a peer that takes none is dropped.
template <class Env>
void EngineMessages<Env>::send_control(velo_peer& peer, const EngineHeader& header) {
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
    if (parts_.queue.submit(peer, *control, MessageClass::kEngine, Origin::kControl)) {
        free_controls_.push_back(control);
    } else if (answer || header.opcode == Opcode::kRail) {
        ++peer.answers;
    }
}

template <class Env>
void EngineMessages<Env>::completed(velo_send_t& send, Status status) {
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
    if (status != Status::kOk && asked) parts_.transfers.end(header.cookie, status, 0);
}

template <class Env>
void EngineMessages<Env>::start_push(velo_peer& peer, const EngineHeader& header, uint64_t address,
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
template <class Env>
void EngineMessages<Env>::advance_push(Push& push) {
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
    } while (parts_.queue.submit(*push.peer, push, MessageClass::kEngine, Origin::kPush));
}

/// Copies the next piece before it is sent. False: its memory is unmapped or protected.
template <class Env>
bool EngineMessages<Env>::copy_piece(Push& push) {
    const uint32_t bytes = push.bytes[1];
    if (push.piece.size() < bytes) push.piece.resize(bytes);
    const Status status = core_.copy_out(static_cast<const std::byte*>(push.data[1]), push.piece.data(), bytes);
    push.data[1] = push.piece.data();
    return status == Status::kOk;
}

/// All of a push has left, or nothing more of it will. A copied put that was refused meanwhile ends only now:
/// until here its memory was in use.
template <class Env>
void EngineMessages<Env>::push_ended(Push& push, Status status) {
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
    Op* waiting = parts_.pending.find(cookie);
    if (waiting == nullptr) return;
    waiting->pushing = false;
    if (waiting->refused == Status::kOk) waiting->refused = status;
    if (waiting->refused != Status::kOk) parts_.transfers.end(cookie, waiting->refused, 0);
}

template <class Env>
void EngineMessages<Env>::receive(velo_peer& peer, const std::byte* data, uint32_t bytes) {
    EngineHeader header;
    if (bytes < sizeof header) {
        ++core_.counters.engine_malformed;
        return;
    }
    std::memcpy(&header, data, sizeof header);
    const std::byte* body = data + sizeof header;
    const uint32_t body_bytes = bytes - static_cast<uint32_t>(sizeof header);
    switch (header.opcode) {
        case Opcode::kPull: on_pull(peer, header); return;
        case Opcode::kPullData: on_pull_data(peer, header, body, body_bytes); return;
        case Opcode::kPutData: on_put_data(peer, header, body, body_bytes); return;
        case Opcode::kAtomic: on_atomic(peer, header); return;
        case Opcode::kDone: on_done(peer, header); return;
        case Opcode::kCoop: parts_.coop.on_call(peer, header); return;
        case Opcode::kCoopData: parts_.coop.on_data(peer, header, data, bytes); return;
        case Opcode::kRail: parts_.reserving.receive(peer, header); return;
    }
    ++core_.counters.engine_malformed;
}

/// The address that a request names, by a registration or, where its sender's handle was of no use, by
/// itself. `nla` and `key` are the registration's afterwards.
template <class Env>
Status EngineMessages<Env>::translate_request(uint64_t& nla, uint32_t& key, uint64_t bytes, uint32_t access,
                                              uint64_t& address) {
    const base::AtuView& atu = core_.on_node.atu().view();
    if (key == kKeyOfAddress && atu.find(nla, bytes, access, nla, key) != Status::kOk)
        return Status::kAtuFault;
    return atu.translate(nla, bytes, key, access, address);
}

template <class Env>
void EngineMessages<Env>::on_pull(velo_peer& peer, const EngineHeader& header) {
    const auto refuse = [&](uint64_t& counter, Status status) {
        ++counter;
        send_control(
            peer, {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = header.cookie});
    };
    uint64_t address = 0;
    uint64_t nla = header.nla;
    uint32_t key = header.key;
    if (header.value == 0 || translate_request(nla, key, header.value, kAccessRead, address) != Status::kOk) {
        return refuse(core_.counters.atu_faults, Status::kAtuFault);
    }
    if (peer.pulls == kPullsMax) return refuse(core_.counters.engine_malformed, Status::kProtocol);
    ++peer.pulls;
    start_push(peer,
               {.opcode = Opcode::kPullData,
                .cookie = header.cookie,
                .nla = nla,
                .key = key,
                .guarded = header.guarded},
               address, header.value);
}

template <class Env>
void EngineMessages<Env>::on_pull_data(const velo_peer& peer, const EngineHeader& header,
                                       const std::byte* data, uint32_t bytes) {
    Op* waiting = parts_.pending.find(header.cookie);
    if (waiting == nullptr || waiting->kind != Op::Kind::kPullChunk || waiting->state->peer != &peer ||
        header.value != waiting->received || bytes > waiting->bytes - waiting->received) {
        ++core_.counters.engine_malformed;
        return;
    }
    auto* local = static_cast<std::byte*>(waiting->state->op->local) + waiting->offset + waiting->received;
    if (!waiting->guarded) [[likely]] {
        std::memcpy(local, data, bytes);
    } else if (waiting->refused == Status::kOk && core_.copy_in(data, local, bytes) != Status::kOk) {
        waiting->refused = Status::kBadLocalMemory;
    }
    waiting->received += bytes;
    if (waiting->received != waiting->bytes) return;
    State& state = *waiting->state;
    const uint32_t moved = waiting->bytes;
    const Status status = waiting->refused;
    parts_.pending.release(*waiting);
    parts_.transfers.chunk_done(state, moved, status);
}

template <class Env>
void EngineMessages<Env>::on_put_data(velo_peer& peer, const EngineHeader& header, const std::byte* data,
                                      uint32_t bytes) {
    uint64_t address = 0;
    uint64_t nla = header.nla;
    uint32_t key = header.key;
    Status status = translate_request(nla, key, bytes, kAccessWrite, address);
    if (status != Status::kOk) {
        ++core_.counters.atu_faults;
    } else if (header.guarded != 0) [[unlikely]] {
        status = core_.copy_in(data, reinterpret_cast<std::byte*>(address), bytes);
    } else {
        std::memcpy(reinterpret_cast<void*>(address), data, bytes);
    }
    // A piece that fails ends the whole; what is answered after that finds no one waiting.
    if (status != Status::kOk || header.last != 0) {
        send_control(
            peer, {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = header.cookie});
    }
}

template <class Env>
void EngineMessages<Env>::on_atomic(velo_peer& peer, const EngineHeader& header) {
    EngineHeader answer = {.opcode = Opcode::kDone, .cookie = header.cookie};
    uint64_t address = 0;
    uint64_t nla = header.nla;
    uint32_t key = header.key;
    Status status = Status::kProtocol;
    if ((header.width == 4 || header.width == 8) && header.atomic < VELO_ATOMIC_COUNT) {
        status = translate_request(nla, key, header.width, kAccessAtomic, address);
        if (status == Status::kOk && address % header.width != 0) status = Status::kBadParam;
    }
    if (status == Status::kOk) {
        answer.value = apply_atomic(static_cast<velo_atomic_t>(header.atomic), header.width, address,
                                    header.value, header.compare);
        ++core_.counters.atomics_served;
    } else {
        ++core_.counters.atu_faults;
    }
    answer.status = static_cast<uint8_t>(status);
    send_control(peer, answer);
}

template <class Env>
void EngineMessages<Env>::on_done(const velo_peer& peer, const EngineHeader& header) {
    const Op* found = parts_.pending.find(header.cookie);
    const auto status = static_cast<Status>(header.status);
    // A pull that went well ends with its last data, so only its failure is announced.
    const bool expected = found != nullptr && found->state->peer == &peer &&
                          header.status <= static_cast<uint8_t>(kLastStatus) &&
                          (found->kind == Op::Kind::kPutChunk || found->kind == Op::Kind::kAtomic ||
                           ((found->kind == Op::Kind::kPullChunk || found->kind == Op::Kind::kCoopBlock) &&
                            status != Status::kOk));
    if (!expected) {
        ++core_.counters.engine_malformed;
        return;
    }
    parts_.transfers.end(header.cookie, status, header.value);
}

}  // namespace velo
