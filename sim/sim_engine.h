/// The engine of a simulated process. Its parts are compiled in engine_*.cc.
#pragma once

#include "sim/sim_system.h"
#include "velo/engine/engine.h"
#include "velo/engine/instances.h"

namespace velo::sim {

using SimEngine = Engine<SimSystem>;
using SimPackets = Core<SimSystem>::Packets;

}  // namespace velo::sim

VELO_ALL_INSTANCES(extern template, velo::sim::SimSystem)
