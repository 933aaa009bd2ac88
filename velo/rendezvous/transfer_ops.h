/// The fate of a transfer's chunks, for the parts that move them.
#pragma once

#include <cstdint>

#include "velo/base/status.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/velo.h"

namespace velo::rma {

/// Implemented by Transfers, which is above these parts. Thread: the engine's, under its lock.
class TransferOps {
  public:
    using State = TransferState<velo_peer>;

    /// The chunks of a transfer that is filled in may be issued; the first one only, until open(), if it says so.
    virtual void admit(State& state) = 0;
    virtual void open(State& state) = 0;
    /// Names the memory of an operation by the registration that holds its address now; for a handle that does
    /// not fit the address, or was revoked. False: there is none, or each one was revoked in its turn.
    virtual bool find_remote(State& state) = 0;
    virtual void chunk_done(State& state, uint32_t bytes, Status status) = 0;
    /// The owner's table refused a chunk, of which nothing that counts was moved.
    virtual void chunk_refused(State& state, uint64_t offset, uint32_t bytes) = 0;
    /// A direct copy ended in EFAULT: its memory is gone, or no other process may touch it (memfd_secret(2), devices').
    /// Both ends then move it by themselves, and find out which.
    virtual void memory_refused(State& state, uint64_t offset, uint32_t bytes) = 0;
    virtual void finished(velo_rma_t& op, Status status) = 0;

  protected:
    ~TransferOps() = default;
};

}  // namespace velo::rma
