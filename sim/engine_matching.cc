// Matching of the simulated engine (velo/core/instances.h).
#include "sim/sim_system.h"
#include "velo/matching/instances.h"
#include "velo/matching/match_peers_impl.h"
#include "velo/matching/match_receiving_impl.h"
#include "velo/matching/match_sending_impl.h"
#include "velo/matching/matching_impl.h"

VELO_CORE_INSTANCES(extern template, velo::sim::SimSystem)
VELO_RENDEZVOUS_INSTANCES(extern template, velo::sim::SimSystem)
VELO_MATCHING_INSTANCES(template, velo::sim::SimSystem)
