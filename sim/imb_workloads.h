/// Communication patterns of the Intel MPI Benchmarks that FC 7.4 runs, as Open MPI's collectives make them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "sim/workload.h"

namespace velo::sim {

struct NamedWorkload {
    std::string_view name;
    std::unique_ptr<Workload> (*make)(const WorkloadConfig&);
};

/// Which algorithm a collective takes with blocks of 2 KiB and many processes is that of Open MPI's `tuned`
/// component. Alltoall is linear there, as the workload `alltoall`.
std::span<const NamedWorkload> imb_workloads();

}  // namespace velo::sim
