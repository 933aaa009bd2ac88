/// The parts of this room, each to be compiled once for a system (velo/core/instances.h).
#pragma once

#include "velo/core/instances.h"
#include "velo/rendezvous/transfers.h"

#define VELO_RENDEZVOUS_INSTANCES(declare, S)                 \
    declare class velo::EngineMessages<velo::Core<S>>;        \
    declare class velo::rma::RailDispatch<velo::Core<S>>;     \
    declare class velo::rma::Reserving<velo::Core<S>>;        \
    declare class velo::rma::Atomics<velo::Core<S>>;          \
    declare class velo::rma::DeniedCopies<velo::Core<S>>;     \
    declare class velo::rma::CoopOwner<velo::Core<S>>;        \
    declare class velo::rma::CoopReader<velo::Core<S>>;       \
    declare class velo::rma::CopiedChunks<velo::Core<S>>;     \
    declare class velo::rma::DeviceOperations<velo::Core<S>>; \
    declare class velo::rma::Transfers<velo::Core<S>>;
