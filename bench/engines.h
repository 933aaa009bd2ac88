/// Engines of measuring programs below MPI, which have no host to tell them who they are.
#pragma once

#include <cstdint>

#include "velo/velo.h"

namespace measuring {

/// Of `ranks` processes, all on this host.
[[nodiscard]] inline velo_identity_t identity_of(uint32_t rank, uint32_t ranks, uint32_t job) {
    return {.name = (uint64_t{job} << 32) + rank,
            .job = job,
            .rank = rank,
            .job_size = ranks,
            .local_rank = rank,
            .local_size = ranks,
            .host = 0,
            .hosts = 1,
            .host_ranks_min = ranks,
            .more_hosts = false,
            .other_host = {}};
}

}  // namespace measuring
