#include "velo/shm/on_node_impl.h"

namespace velo::shm {

template class BasicOnNode<NodeMemory>;

}  // namespace velo::shm
