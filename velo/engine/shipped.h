/// The engine that ships. Its parts are compiled in shipped_*.cc.
#pragma once

#include "velo/engine/engine.h"
#include "velo/engine/instances.h"
#include "velo/engine/shipped_system.h"

VELO_ALL_INSTANCES(extern template, velo::ShippedSystem)
