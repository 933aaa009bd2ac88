#include "velo/shm/on_node_impl.h"

namespace velo::shm {

// The header has no extern template for it: with one, compilers inline less of what is defined there.
template class BasicOnNode<NodeMemory>;

}  // namespace velo::shm
