/// Chunks that go in messages between engines, where no direct copy is possible or one was just refused.
#pragma once

#include <cstdint>

#include "velo/core/peer.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/velo.h"
#include "velo/wire/engine_wire.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class CopiedChunks {
  public:
    using Peer = velo_peer;
    using Op = PendingOp<Peer>;

    CopiedChunks(Core& core, EngineMessages<Core>& messages) : core_(core), messages_(messages) {}

    /// Asks the owner for a get's chunk, or sends a put's.
    void issue(Op& chunk);
    /// Memory of this chunk may be unmapped, at either end.
    [[gnu::cold]] void guard(Op& chunk) {
        chunk.guarded = chunk.state->guarded = true;
        ++core_.counters.rma_guarded;
    }
    [[gnu::cold]] void issue_guarded(Op& chunk) {
        guard(chunk);
        issue(chunk);
    }

  private:
    Core& core_;
    EngineMessages<Core>& messages_;
};

template <class Core>
void CopiedChunks<Core>::issue(Op& chunk) {
    VELO_DCHECK(chunk.bytes != 0 && chunk.offset + chunk.bytes <= chunk.state->bytes, "%u bytes of a chunk",
                chunk.bytes);
    const velo_rma_t& op = *chunk.state->op;
    Peer& peer = *chunk.state->peer;
    chunk.kind = op.kind == VELO_RMA_GET ? Op::Kind::kPullChunk : Op::Kind::kPutChunk;
    chunk.received = 0;
    chunk.pushing = chunk.kind == Op::Kind::kPutChunk;
    core_.counters.rma_copied_bytes += chunk.bytes;
    const uint64_t nla = op.remote.nla[0] + (op.remote_address - op.remote.base) + chunk.offset;
    if (op.kind == VELO_RMA_GET) {
        return messages_.send_control(peer, PullHeader{.guarded = chunk.guarded,
                                                       .cookie = chunk.cookie,
                                                       .nla = nla,
                                                       .bytes = chunk.bytes,
                                                       .key = op.remote.on_node_key});
    }
    messages_.put(
        peer,
        {.guarded = chunk.guarded, .cookie = chunk.cookie, .nla = nla, .key = op.remote.on_node_key},
        reinterpret_cast<uint64_t>(op.local) + chunk.offset, chunk.bytes);
}

}  // namespace velo::rma
