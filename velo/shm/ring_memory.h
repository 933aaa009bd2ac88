/// The memory of the rings that a process sends through: ranges of its segment, used again when a peer has gone.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "velo/os/shared_segment.h"
#include "velo/os/topology.h"
#include "velo/shm/ring_layout.h"

namespace velo::shm {

/// `Node`: as that of BasicOnNode, the owner. Thread: the engine's.
template <class Node>
class RingMemory {
  public:
    using Segment = typename Node::Segment;
    using Mapping = typename Node::Mapping;

    /// `segment` outlives this.
    RingMemory(Segment& segment, const RingGeometry& geometry) : segment_(segment), geometry_(geometry) {}

    /// Maps memory for a ring, on a NUMA node (-1: on any). `offset`: its place in the segment, or 0. A range that
    /// could not be mapped sets it, and is tried again with it.
    Status take(int numa_node, uint64_t& offset, Mapping& memory, base::Failure& failure) {
        const size_t bytes = ring_bytes(geometry_);
        if (offset == 0 && !spares_.empty()) {
            Spare& spare = spares_.back();
            if (numa_node >= 0) base::prefer_node(spare.memory.data(), bytes, numa_node);
            std::memset(spare.memory.data(), 0, ring_zero_bytes(geometry_));
            offset = spare.offset;
            memory = std::move(spare.memory);
            spares_.pop_back();
            return Status::kOk;
        }
        if (offset == 0) {
            const Status status = segment_.grow(bytes, offset, numa_node, &failure);
            if (status != Status::kOk) return status;
        }
        return segment_.map(offset, bytes, memory, &failure);
    }
    /// The ring's reader has gone.
    void give_back(uint64_t offset, Mapping memory) { spares_.push_back({offset, std::move(memory)}); }

  private:
    struct Spare {
        uint64_t offset = 0;
        Mapping memory;
    };

    Segment& segment_;
    RingGeometry geometry_;
    std::vector<Spare> spares_;
};

}  // namespace velo::shm
