/// Messages from other engines: each goes to the part that it is for, and what is asked of this process is
/// answered.
///
/// A peer's request is checked against the own translation table, and answered with a status. An answer
/// counts only from the peer that was asked.
#pragma once

#include <cstring>

#include "velo/core/peer.h"
#include "velo/rendezvous/apply_atomic.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/transfers.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/engine_wire.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class Serve {
  public:
    using State = rma::TransferState<velo_peer>;
    using Op = rma::PendingOp<velo_peer>;
    using PendingOps = rma::CookieTable<Op>;

    Serve(Core& core, PendingOps& pending, EngineMessages<Core>& messages, rma::Transfers<Core>& transfers,
          rma::CoopCopy<Core>& coop, rma::Reserving<Core>& reserving)
        : core_(core),
          pending_(pending),
          messages_(messages),
          transfers_(transfers),
          coop_(coop),
          reserving_(reserving) {}

    void receive(velo_peer& peer, const std::byte* data, uint32_t bytes);

  private:
    Status translate_request(uint64_t& nla, uint32_t& key, uint64_t bytes, uint32_t access,
                             uint64_t& address);
    void on_pull(velo_peer& peer, const EngineHeader& header);
    void on_pull_data(const velo_peer& peer, const EngineHeader& header, const std::byte* data,
                      uint32_t bytes);
    void on_put_data(velo_peer& peer, const EngineHeader& header, const std::byte* data, uint32_t bytes);
    void on_atomic(velo_peer& peer, const EngineHeader& header);
    void on_done(const velo_peer& peer, const EngineHeader& header);

    Core& core_;
    PendingOps& pending_;
    EngineMessages<Core>& messages_;
    rma::Transfers<Core>& transfers_;
    rma::CoopCopy<Core>& coop_;
    rma::Reserving<Core>& reserving_;
};

template <class Core>
void Serve<Core>::receive(velo_peer& peer, const std::byte* data, uint32_t bytes) {
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
        case Opcode::kCoop: coop_.on_call(peer, header); return;
        case Opcode::kCoopData: coop_.on_data(peer, header, data, bytes); return;
        case Opcode::kRail: reserving_.receive(peer, header); return;
    }
    ++core_.counters.engine_malformed;
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
void Serve<Core>::on_pull(velo_peer& peer, const EngineHeader& header) {
    const auto refuse = [&](uint64_t& counter, Status status) {
        ++counter;
        messages_.send_control(
            peer, {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = header.cookie});
    };
    uint64_t address = 0;
    uint64_t nla = header.nla;
    uint32_t key = header.key;
    if (header.value == 0 || translate_request(nla, key, header.value, kAccessRead, address) != Status::kOk) {
        return refuse(core_.counters.atu_faults, Status::kAtuFault);
    }
    const EngineHeader data = {.opcode = Opcode::kPullData,
                               .cookie = header.cookie,
                               .nla = nla,
                               .key = key,
                               .guarded = header.guarded};
    if (!messages_.answer_pull(peer, data, address, header.value))
        refuse(core_.counters.engine_malformed, Status::kProtocol);
}

template <class Core>
void Serve<Core>::on_pull_data(const velo_peer& peer, const EngineHeader& header, const std::byte* data,
                               uint32_t bytes) {
    Op* waiting = pending_.find(header.cookie);
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
    pending_.release(*waiting);
    transfers_.chunk_done(state, moved, status);
}

template <class Core>
void Serve<Core>::on_put_data(velo_peer& peer, const EngineHeader& header, const std::byte* data,
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
        messages_.send_control(
            peer, {.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = header.cookie});
    }
}

template <class Core>
void Serve<Core>::on_atomic(velo_peer& peer, const EngineHeader& header) {
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
    messages_.send_control(peer, answer);
}

template <class Core>
void Serve<Core>::on_done(const velo_peer& peer, const EngineHeader& header) {
    const Op* found = pending_.find(header.cookie);
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
    transfers_.end(header.cookie, status, header.value);
}

}  // namespace velo
