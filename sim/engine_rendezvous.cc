// The rendezvous of the simulated engine (velo/core/instances.h).
#include "sim/sim_system.h"
#include "velo/rendezvous/atomics_impl.h"
#include "velo/rendezvous/coop_owner_impl.h"
#include "velo/rendezvous/coop_reader_impl.h"
#include "velo/rendezvous/device_operations_impl.h"
#include "velo/rendezvous/engine_messages_impl.h"
#include "velo/rendezvous/instances.h"
#include "velo/rendezvous/rail_dispatch_impl.h"
#include "velo/rendezvous/reserving_impl.h"
#include "velo/rendezvous/transfers_impl.h"

VELO_CORE_INSTANCES(extern template, velo::sim::SimSystem)
VELO_RENDEZVOUS_INSTANCES(template, velo::sim::SimSystem)
