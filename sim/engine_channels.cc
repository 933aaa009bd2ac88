// Channels and the send queue of the simulated engine (velo/core/instances.h).
#include "sim/sim_system.h"
#include "velo/channels/control_packets_impl.h"
#include "velo/channels/packet_channel_impl.h"
#include "velo/channels/ring_channel_impl.h"
#include "velo/core/instances.h"
#include "velo/core/send_queue_impl.h"

VELO_CORE_INSTANCES(template, velo::sim::SimSystem)
