/// The parts of this room and of velo/report, each to be compiled once for a system (velo/core/instances.h), and those
/// of all rooms together.
#pragma once

#include "velo/engine/parts.h"
#include "velo/matching/instances.h"

#define VELO_ENGINE_INSTANCES(declare, S)             \
    declare class velo::StallReporter<velo::Core<S>>; \
    declare class velo::CreditTracer<velo::Core<S>>;  \
    declare class velo::Failures<velo::Core<S>>;      \
    declare class velo::Connector<velo::Core<S>>;     \
    declare class velo::Serve<velo::Core<S>>;
#define VELO_ALL_INSTANCES(declare, S)    \
    VELO_CORE_INSTANCES(declare, S)       \
    VELO_RENDEZVOUS_INSTANCES(declare, S) \
    VELO_MATCHING_INSTANCES(declare, S)   \
    VELO_ENGINE_INSTANCES(declare, S)
