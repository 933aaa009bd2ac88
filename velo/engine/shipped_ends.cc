// Connections, ends of peers and reports of the engine that ships (velo/core/instances.h).
#include "velo/engine/connector_impl.h"
#include "velo/engine/failures_impl.h"
#include "velo/engine/instances.h"
#include "velo/engine/serve_impl.h"
#include "velo/engine/shipped_system.h"
#include "velo/report/credit_tracer_impl.h"
#include "velo/report/stall_reporter_impl.h"

VELO_CORE_INSTANCES(extern template, velo::ShippedSystem)
VELO_RENDEZVOUS_INSTANCES(extern template, velo::ShippedSystem)
VELO_MATCHING_INSTANCES(extern template, velo::ShippedSystem)
VELO_ENGINE_INSTANCES(template, velo::ShippedSystem)
