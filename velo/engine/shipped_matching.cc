// Matching of the engine that ships (velo/core/instances.h).
#include "velo/engine/shipped_system.h"
#include "velo/matching/instances.h"
#include "velo/matching/match_peers_impl.h"
#include "velo/matching/match_receiving_impl.h"
#include "velo/matching/match_sending_impl.h"
#include "velo/matching/matching_impl.h"

VELO_CORE_INSTANCES(extern template, velo::ShippedSystem)
VELO_RENDEZVOUS_INSTANCES(extern template, velo::ShippedSystem)
VELO_MATCHING_INSTANCES(template, velo::ShippedSystem)
