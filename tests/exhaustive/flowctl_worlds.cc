#include "tests/exhaustive/flowctl_worlds.h"

namespace velo::exhaustive {

template Verdict explore(const PairWorld& world, uint64_t states_max);
template Verdict explore(const TrioWorld& world, uint64_t states_max);

}  // namespace velo::exhaustive
