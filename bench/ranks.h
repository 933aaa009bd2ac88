/// What the measuring programs over MPI share.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include "measuring.h"

namespace measuring {

/// Waking this seldom takes less than a thousandth of a CPU from those that are measured.
inline constexpr useconds_t kNapUs = 5000;

inline void nap_until(MPI_Request request) {
    for (int done = 0;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done != 0) return;
        usleep(kNapUs);
    }
}

}  // namespace measuring
