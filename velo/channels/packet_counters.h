/// Events that the channel over a device counts; what the device sees is in DeviceCounters.
#pragma once

#include <cstdint>

namespace velo {

struct PacketChannelCounters {
#define VELO_PACKETS_COUNTER(name, field, text) uint64_t field = 0;
#include "velo/counters.def"
};

}  // namespace velo
