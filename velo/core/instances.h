/// The parts of this room and of velo/channels, each to be compiled once for a system S (velo/core/system.h):
/// `VELO_CORE_INSTANCES(template, S)` does so where their bodies are in view (files whose names end in _impl);
/// `VELO_CORE_INSTANCES(extern template, S)` says that it is done elsewhere. Later rooms have the same.
#pragma once

#include "velo/core/core.h"
#include "velo/core/send_queue.h"

#define VELO_CORE_INSTANCES(declare, S)                       \
    declare class velo::ControlPackets<typename S::Device>;   \
    declare class velo::PacketChannel<typename S::Device, S>; \
    declare class velo::RingChannel<typename S::OnNode>;      \
    declare class velo::SendQueue<velo::Core<S>>;
