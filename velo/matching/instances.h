/// The parts of this room, each to be compiled once for a system (velo/core/instances.h).
#pragma once

#include "velo/matching/matching.h"
#include "velo/rendezvous/instances.h"

#define VELO_MATCHING_INSTANCES(declare, S)            \
    declare class velo::MatchPeers<velo::Core<S>>;     \
    declare class velo::MatchSending<velo::Core<S>>;   \
    declare class velo::MatchReceiving<velo::Core<S>>; \
    declare class velo::Matching<velo::Core<S>>;
