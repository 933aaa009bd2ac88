/// Bodies of velo/engine/serve.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/engine/serve.h"

namespace velo {

template <class Core>
void Serve<Core>::receive(velo_peer& peer, const std::byte* data, uint32_t bytes) {
    using std::byte;
    switch (opcode_of(data, bytes)) {
        case Opcode::kPull:
            return read<PullHeader>(data, bytes, [&](auto& header, auto*, auto) { on_pull(peer, header); });
        case Opcode::kPullData:
            return read<PullDataHeader>(data, bytes, [&](auto& header, const byte* body, uint32_t body_bytes) {
                on_pull_data(peer, header, body, body_bytes);
            });
        case Opcode::kPutData:
            return read<PutDataHeader>(data, bytes, [&](auto& header, const byte* body, uint32_t body_bytes) {
                on_put_data(peer, header, body, body_bytes);
            });
        case Opcode::kAtomic:
            return read<AtomicHeader>(data, bytes, [&](auto& header, auto*, auto) { on_atomic(peer, header); });
        case Opcode::kDone:
            return read<DoneHeader>(data, bytes, [&](auto& header, auto*, auto) { on_done(peer, header); });
        case Opcode::kCoopCall:
            return read<CoopCallHeader>(data, bytes,
                                        [&](auto& header, auto*, auto) { coop_owner_.on_call(peer, header); });
        case Opcode::kCoopPart:
            return read<CoopPartHeader>(data, bytes,
                                        [&](auto& header, auto*, auto) { coop_owner_.on_part(peer, header); });
        case Opcode::kCoopData:
            return read<CoopDataHeader>(data, bytes, [&](auto& header, const byte* body, uint32_t body_bytes) {
                coop_reader_.on_data(peer, header, body, body_bytes);
            });
        case Opcode::kCoopWritten:
            return read<CoopWrittenHeader>(data, bytes,
                                           [&](auto& header, auto*, auto) { coop_reader_.on_written(peer, header); });
        case Opcode::kRail:
            return read<RailHeader>(data, bytes, [&](auto& header, auto*, auto) { reserving_.receive(peer, header); });
    }
    malformed();
}

/// The address that a request names, by a registration or, where its sender's handle was of no use, by
/// itself. `nla` and `key` are the registration's afterwards.
template <class Core>
Status Serve<Core>::translate_request(uint64_t& nla, uint32_t& key, uint64_t bytes, uint32_t access,
                                      uint64_t& address) {
    const base::AtuView& atu = core_.on_node.atu().view();
    if (key == kKeyOfAddress && atu.find(nla, bytes, access, nla, key) != Status::kOk)
        return Status::kAtuFault;
    return atu.translate(nla, bytes, key, access, address);
}

template <class Core>
void Serve<Core>::on_pull(velo_peer& peer, const PullHeader& header) {
    const auto refuse = [&](uint64_t& counter, Status status) {
        ++counter;
        messages_.send_control(peer, DoneHeader{.status = status, .cookie = header.cookie});
    };
    uint64_t address = 0;
    uint64_t nla = header.nla;
    uint32_t key = header.key;
    if (header.bytes == 0 || translate_request(nla, key, header.bytes, kAccessRead, address) != Status::kOk)
        return refuse(core_.counters.atu_faults, Status::kAtuFault);
    if (!messages_.answer_pull(peer, header, nla, key, address))
        refuse(core_.counters.engine_malformed, Status::kProtocol);
}

template <class Core>
void Serve<Core>::on_pull_data(const velo_peer& peer, const PullDataHeader& header, const std::byte* data,
                               uint32_t bytes) {
    Op* waiting = pending_.find(header.cookie);
    if (waiting == nullptr || waiting->kind != Op::Kind::kPullChunk || waiting->state->peer != &peer ||
        header.offset != waiting->received || bytes > waiting->bytes - waiting->received)
        return unexpected(peer);
    auto* local = static_cast<std::byte*>(waiting->state->op->local) + waiting->offset + waiting->received;
    if (!waiting->guarded) [[likely]] {
        base::copy_long(local, data, bytes);
    } else if (waiting->refused == Status::kOk && core_.copy_in(data, local, bytes) != Status::kOk) {
        waiting->refused = Status::kBadLocalMemory;
    }
    waiting->received += bytes;
    if (waiting->received != waiting->bytes) return;
    State& state = *waiting->state;
    const uint32_t moved = waiting->bytes;
    const Status status = waiting->refused;
    pending_.release(*waiting);
    transfers_.chunk_done(state, moved, status);
}

template <class Core>
void Serve<Core>::on_put_data(velo_peer& peer, const PutDataHeader& header, const std::byte* data,
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
        base::copy_long(reinterpret_cast<void*>(address), data, bytes);
    }
    // A piece that fails ends the whole; what is answered after that finds no one waiting.
    if (status != Status::kOk || header.last != 0)
        messages_.send_control(peer, DoneHeader{.status = status, .cookie = header.cookie});
}

template <class Core>
void Serve<Core>::on_atomic(velo_peer& peer, const AtomicHeader& header) {
    DoneHeader answer = {.status = Status::kProtocol, .cookie = header.cookie};
    uint64_t address = 0;
    uint64_t nla = header.nla;
    uint32_t key = header.key;
    if ((header.width == 4 || header.width == 8) && header.operation < VELO_ATOMIC_COUNT) {
        answer.status = translate_request(nla, key, header.width, kAccessAtomic, address);
        if (answer.status == Status::kOk && address % header.width != 0) answer.status = Status::kBadParam;
    }
    if (answer.status == Status::kOk) {
        answer.value = apply_atomic(static_cast<velo_atomic_t>(header.operation), header.width, address,
                                    header.operand, header.compare);
        ++core_.counters.atomics_served;
    } else {
        ++core_.counters.atu_faults;
    }
    messages_.send_control(peer, answer);
}

template <class Core>
void Serve<Core>::on_done(const velo_peer& peer, const DoneHeader& header) {
    const Op* found = pending_.find(header.cookie);
    // A pull that went well ends with its last data, so only its failure is announced.
    const bool expected = found != nullptr && found->state->peer == &peer &&
                          (found->kind == Op::Kind::kPutChunk || found->kind == Op::Kind::kAtomic ||
                           ((found->kind == Op::Kind::kPullChunk || found->kind == Op::Kind::kCoopBlock) &&
                            header.status != Status::kOk));
    if (!expected) return unexpected(peer);
    transfers_.end(header.cookie, header.status, header.value);
}

}  // namespace velo
