/// The end of MPI of a process that matches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "velo/velo_match.h"

namespace velo::test {

/// As the components make it, but for velo_close. `progress()` polls the engine.
template <class Progress>
void leave_mpi(velo_engine_t* engine, Progress&& progress) {
    velo_host_t rest = {};
    rest.accepts = [](void*, uint8_t) { return true; };
    rest.receive = [](void*, velo_path_t, void*, uint8_t, void*, size_t) {};
    velo_leave(engine, &rest);
    velo_match_leave(engine);
    while (velo_match_owes(engine)) progress();
    velo_match_close(engine);
    while (velo_busy(engine)) progress();
}

}  // namespace velo::test
