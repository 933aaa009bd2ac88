/// Engine: the messages between engines, and what this process does for its peers' transfers. Part of
/// engine.h.
///
/// A peer's request is checked against the own translation table, and answered with a status. An answer
/// counts only from the peer that was asked.
#pragma once

#include "velo/atomics.h"
#include "velo/engine.h"

namespace velo {

/// An answer that is one too many for a peer that takes none is dropped.
template <class D>
void Engine<D>::send_control(velo_peer& peer, const EngineHeader& header) {
    const bool answer = header.opcode == Opcode::kDone;
    if (answer && peer.answers == kAnswersMax) [[unlikely]] {
        ++counters_.engine_malformed;
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
    if (submit(peer, *control, MessageClass::kEngine, Origin::kControl)) {
        free_controls_.push_back(control);
    } else if (answer) {
        ++peer.answers;
    }
}

template <class D>
void Engine<D>::start_push(velo_peer& peer, const EngineHeader& header, uint64_t address, uint64_t bytes) {
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
template <class D>
void Engine<D>::advance_push(Push& push) {
    const uint32_t message_bytes_max = push.peer->path == VELO_PATH_ON_NODE
                                           ? on_node_.message_bytes_max()
                                           : options_.params.device_message_bytes_max;
    const uint32_t piece_max = std::min(static_cast<uint32_t>(options_.params.copy_chunk),
                                        message_bytes_max - static_cast<uint32_t>(sizeof(EngineHeader)));
    do {
        const uint32_t sent = push.bytes[1];  // by the message that has just left
        push.address += sent;
        if (push.header.opcode == Opcode::kPutData) {
            push.header.nla += sent;
        } else {
            push.header.value += sent;
        }
        if (push.left == 0) {
            push_ended(push, Status::kOk);
            return;
        }
        if (push.source_key != 0 && !on_node_.atu().view().valid(push.source_nla, push.source_key)) {
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
    } while (submit(*push.peer, push, MessageClass::kEngine, Origin::kPush));
}

/// All of a push has left, or nothing more of it will. A copied put that was refused meanwhile ends only now:
/// until here its memory was in use.
template <class D>
void Engine<D>::push_ended(Push& push, Status status) {
    const bool put = push.header.opcode == Opcode::kPutData;
    const uint32_t cookie = push.header.cookie;
    velo_peer& peer = *push.peer;
    free_pushes_.push_back(&push);
    if (!put) {
        --peer.pulls;
        if (status == Status::kOk || status == Status::kPeerDead) return;
        ++counters_.atu_faults;
        send_control(peer,
                     {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = cookie});
        return;
    }
    Waiting* waiting = slots_.find(cookie);
    if (waiting == nullptr) return;
    waiting->pushing = false;
    if (waiting->refused == Status::kOk) waiting->refused = status;
    if (waiting->refused != Status::kOk) wait_ended(cookie, waiting->refused, 0);
}

/// The operation that waits under a cookie ends; a cookie that nothing waits under is no error.
template <class D>
void Engine<D>::wait_ended(uint32_t cookie, Status status, uint64_t value) {
    Waiting* found = slots_.find(cookie);
    if (found == nullptr) return;
    if (found->pushing) {
        found->refused = status;
        return;
    }
    if (found->wait == Wait::kJoint) {
        const uint8_t slot = found->joint;
        Joint& joint = joints_[slot];
        // `value`: bytes that the owner had claimed and will not bring.
        joint.ended_bytes +=
            static_cast<uint32_t>(std::min<uint64_t>(value, joint.bytes - joint.ended_bytes));
        close_joint(joint, status);
        end_joint_if_done(slot);
        return;
    }
    const Waiting waiting = *found;
    slots_.release(cookie);
    if (waiting.wait == Wait::kAtomic) {
        atomic_done(*waiting.state, status, value);
    } else if (status == Status::kAtuFault) {
        chunk_refused(*waiting.state, waiting.offset, waiting.bytes);
    } else {
        chunk_done(*waiting.state, status);
    }
}

template <class D>
void Engine<D>::receive_engine_message(velo_peer& peer, const std::byte* data, uint32_t bytes) {
    EngineHeader header;
    if (bytes < sizeof header) {
        ++counters_.engine_malformed;
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
        case Opcode::kJoint: on_joint(peer, header); return;
        case Opcode::kJointData: on_joint_data(peer, header, data, bytes); return;
    }
    ++counters_.engine_malformed;
}

/// The address that a request names, by a registration or, where its sender's handle was of no use, by
/// itself. `nla` and `key` are the registration's afterwards.
template <class D>
Status Engine<D>::translate_request(uint64_t& nla, uint32_t& key, uint64_t bytes, uint32_t access,
                                    uint64_t& address) {
    const base::AtuView& atu = on_node_.atu().view();
    if (key == kKeyOfAddress && atu.find(nla, bytes, access, nla, key) != Status::kOk)
        return Status::kAtuFault;
    return atu.translate(nla, bytes, key, access, address);
}

template <class D>
void Engine<D>::on_pull(velo_peer& peer, const EngineHeader& header) {
    const auto refuse = [&](uint64_t& counter, Status status) {
        ++counter;
        send_control(
            peer, {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = header.cookie});
    };
    uint64_t address = 0;
    uint64_t nla = header.nla;
    uint32_t key = header.key;
    if (header.value == 0 || translate_request(nla, key, header.value, kAccessRead, address) != Status::kOk) {
        return refuse(counters_.atu_faults, Status::kAtuFault);
    }
    if (peer.pulls == kPullsMax) return refuse(counters_.engine_malformed, Status::kProtocol);
    ++peer.pulls;
    start_push(peer, {.opcode = Opcode::kPullData, .cookie = header.cookie, .nla = nla, .key = key}, address,
               header.value);
}

template <class D>
void Engine<D>::on_pull_data(const velo_peer& peer, const EngineHeader& header, const std::byte* data,
                             uint32_t bytes) {
    Waiting* waiting = slots_.find(header.cookie);
    if (waiting == nullptr || waiting->wait != Wait::kPullChunk || waiting->state->peer != &peer ||
        header.value != waiting->received || bytes > waiting->bytes - waiting->received) {
        ++counters_.engine_malformed;
        return;
    }
    std::memcpy(static_cast<std::byte*>(waiting->state->op->local) + waiting->offset + waiting->received,
                data, bytes);
    waiting->received += bytes;
    if (waiting->received != waiting->bytes) return;
    RmaState& state = *waiting->state;
    slots_.release(header.cookie);
    chunk_done(state, Status::kOk);
}

template <class D>
void Engine<D>::on_put_data(velo_peer& peer, const EngineHeader& header, const std::byte* data,
                            uint32_t bytes) {
    uint64_t address = 0;
    uint64_t nla = header.nla;
    uint32_t key = header.key;
    const Status status = translate_request(nla, key, bytes, kAccessWrite, address);
    if (status == Status::kOk) {
        std::memcpy(reinterpret_cast<void*>(address), data, bytes);
    } else {
        ++counters_.atu_faults;
    }
    // A piece that fails ends the whole; what is answered after that finds no one waiting.
    if (status != Status::kOk || header.last != 0) {
        send_control(
            peer, {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = header.cookie});
    }
}

template <class D>
void Engine<D>::on_atomic(velo_peer& peer, const EngineHeader& header) {
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
        ++counters_.atomics_served;
    } else {
        ++counters_.atu_faults;
    }
    answer.status = static_cast<uint8_t>(status);
    send_control(peer, answer);
}

template <class D>
void Engine<D>::on_done(const velo_peer& peer, const EngineHeader& header) {
    const Waiting* found = slots_.find(header.cookie);
    const auto status = static_cast<Status>(header.status);
    // A pull that went well ends with its last data, so only its failure is announced.
    const bool expected =
        found != nullptr && found->state->peer == &peer &&
        header.status <= static_cast<uint8_t>(kLastStatus) &&
        (found->wait == Wait::kPutChunk || found->wait == Wait::kAtomic ||
         ((found->wait == Wait::kPullChunk || found->wait == Wait::kJoint) && status != Status::kOk));
    if (!expected) {
        ++counters_.engine_malformed;
        return;
    }
    wait_ended(header.cookie, status, header.value);
}

}  // namespace velo
