// Connections, ends of peers and reports of the simulated engine (velo/core/instances.h).
#include "sim/sim_system.h"
#include "velo/engine/connector_impl.h"
#include "velo/engine/failures_impl.h"
#include "velo/engine/instances.h"
#include "velo/engine/serve_impl.h"
#include "velo/report/credit_tracer_impl.h"
#include "velo/report/stall_reporter_impl.h"

VELO_CORE_INSTANCES(extern template, velo::sim::SimSystem)
VELO_RENDEZVOUS_INSTANCES(extern template, velo::sim::SimSystem)
VELO_MATCHING_INSTANCES(extern template, velo::sim::SimSystem)
VELO_ENGINE_INSTANCES(template, velo::sim::SimSystem)
