// Channels and the send queue of the engine that ships (velo/core/instances.h).
#include "velo/channels/control_packets_impl.h"
#include "velo/channels/packet_channel_impl.h"
#include "velo/channels/ring_channel_impl.h"
#include "velo/core/instances.h"
#include "velo/core/send_queue_impl.h"
#include "velo/engine/shipped_system.h"

VELO_CORE_INSTANCES(template, velo::ShippedSystem)
