/// The parts that ended operations matter to.
#pragma once

#include "velo/base/status.h"
#include "velo/velo.h"

namespace velo::rma {

/// Implemented above the rendezvous. Thread: the engine's, under its lock.
class OperationSink {
  public:
    /// A message's data was fetched, or never will be.
    virtual void fetched(velo_rma_t& op, Status status) = 0;
    /// An operation is lost with its peer, which has ended. It is over after this.
    virtual void peer_gone(velo_peer& peer, const velo_rma_t& op) = 0;

  protected:
    ~OperationSink() = default;
};

}  // namespace velo::rma
