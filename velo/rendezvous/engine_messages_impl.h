/// Bodies of velo/rendezvous/engine_messages.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/rendezvous/engine_messages.h"

namespace velo {

/// nullptr: it is an answer too many.
template <class Core>
typename EngineMessages<Core>::Control* EngineMessages<Core>::take_control(velo_peer& peer, Opcode opcode) {
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
typename EngineMessages<Core>::Push& EngineMessages<Core>::take_push(velo_peer& peer, uint64_t address,
                                                                     uint64_t bytes) {
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
