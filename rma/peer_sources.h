/// The ways in which data of one peer moves.
#pragma once

#include "rma/chunk_scheduler.h"
#include "rma/rails.h"

namespace velo::rma {

/// The two ways of moving data of a peer's, one of which waits for the peer to enter progress; and its rails.
struct PeerSources {
    Source direct;
    Source copied;
    PeerRails rails;
};

}  // namespace velo::rma
