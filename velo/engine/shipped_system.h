/// The system of the engine that ships: a process of an operating system, over the job's device.
#pragma once

#include "velo/core/system.h"
#include "velo/engine/any_device.h"

namespace velo {

using ShippedSystem = System<AnyDevice>;

}  // namespace velo
