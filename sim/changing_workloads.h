/// Patterns in which a sender's partner, or the set of senders, changes: what flow control has learnt is of
/// no use.
#pragma once

#include <span>

#include "sim/imb_workloads.h"

namespace velo::sim {

std::span<const NamedWorkload> changing_workloads();

}  // namespace velo::sim
