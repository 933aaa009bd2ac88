#include "sim/imb_workloads.h"

#include <algorithm>
#include <array>
#include <bit>

#include "velo/os/shared_segment.h"

namespace velo::sim {
namespace {

using base::SetupError;

void need_even(const WorkloadConfig& config) {
    if (config.processes % 2 != 0) {
        throw SetupError(config.name + " with " + std::to_string(config.processes) +
                         " processes; give an even number");
    }
}

/// Both partners send at once. Each process of one node has its own partner on another.
class Pingping final : public Workload {
  public:
    explicit Pingping(const WorkloadConfig& config) : Workload(config) { need_even(config); }
    [[nodiscard]] Part part(uint32_t, uint32_t) const override { return {.sends = 1, .receives = 1}; }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t, uint32_t) const override {
        return (rank + config_.processes / 2) % config_.processes;
    }
    [[nodiscard]] bool between_two_nodes() const override { return true; }
};

/// A ring: to the next one; Exchange: to both neighbours.
template <uint32_t kNeighbours>
class Ring final : public Workload {
  public:
    explicit Ring(const WorkloadConfig& config) : Workload(config) {}
    [[nodiscard]] Part part(uint32_t, uint32_t) const override {
        return {.sends = kNeighbours, .receives = kNeighbours};
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t, uint32_t i) const override {
        return (rank + (i == 0 ? 1 : config_.processes - 1)) % config_.processes;
    }
};

/// Recursive doubling: in round k with the rank that differs in bit k.
class Allreduce final : public Workload {
  public:
    explicit Allreduce(const WorkloadConfig& config) : Workload(config) {
        if (!std::has_single_bit(config.processes)) {
            throw SetupError("allreduce with " + std::to_string(config.processes) +
                             " processes; give a power of two");
        }
    }
    [[nodiscard]] Part part(uint32_t, uint32_t) const override { return {.sends = 1, .receives = 1}; }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t phase, uint32_t) const override {
        return rank ^ (1u << phase % rounds());
    }

  private:
    [[nodiscard]] uint32_t rounds() const {
        return static_cast<uint32_t>(std::bit_width(config_.processes)) - 1;
    }
    [[nodiscard]] uint32_t phases_of_iteration() const override { return std::max(rounds(), 1u); }
};

class Barrier final : public Workload {
  public:
    explicit Barrier(const WorkloadConfig& config) : Workload(config) {}
    [[nodiscard]] Part part(uint32_t, uint32_t) const override { return {.barrier = true}; }
    [[nodiscard]] uint32_t destination(uint32_t, uint32_t, uint32_t) const override { return 0; }
};

/// Pairwise: in step k to rank + k and from rank - k, each step after the one before.
class Alltoallv final : public Workload {
  public:
    explicit Alltoallv(const WorkloadConfig& config) : Workload(config) {}
    [[nodiscard]] Part part(uint32_t, uint32_t) const override { return {.sends = 1, .receives = 1}; }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t phase, uint32_t) const override {
        return (rank + 1 + phase % phases_of_iteration()) % config_.processes;
    }

  private:
    [[nodiscard]] uint32_t phases_of_iteration() const override {
        return std::max(config_.processes - 1, 1u);
    }
};

/// Neighbour exchange: with one neighbour and the other in turn; each step but the first passes on the two
/// blocks that came last.
class Allgather final : public Workload {
  public:
    explicit Allgather(const WorkloadConfig& config) : Workload(config) { need_even(config); }
    [[nodiscard]] Part part(uint32_t, uint32_t) const override { return {.sends = 1, .receives = 1}; }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t phase, uint32_t) const override {
        const bool up = (rank % 2 == 0) == (phase % phases_of_iteration() % 2 == 0);
        return (rank + (up ? 1 : config_.processes - 1)) % config_.processes;
    }
    [[nodiscard]] uint32_t bytes(uint32_t, uint32_t phase, uint32_t) const override {
        return phase % phases_of_iteration() == 0 ? config_.bytes : 2 * config_.bytes;
    }

  private:
    [[nodiscard]] uint32_t phases_of_iteration() const override { return config_.processes / 2; }
};

/// Along a binomial tree: a process receives from one side, then sends to the other. The next rank is root in
/// the next iteration, as in IMB. kBlocks: a message has a block for each process below that edge.
template <bool kDown, bool kBlocks>
class Tree final : public Workload {
  public:
    explicit Tree(const WorkloadConfig& config) : Workload(config) {}
    [[nodiscard]] Part part(uint32_t rank, uint32_t phase) const override {
        const uint32_t node = node_of(rank, phase);
        const uint32_t parents = node == 0 ? 0 : 1;
        const uint32_t below = children(node);
        if (phase % 2 == 0) return {.receives = kDown ? parents : below};
        return {.sends = kDown ? below : parents};
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t phase, uint32_t i) const override {
        const uint32_t node = node_of(rank, phase);
        const uint32_t to = kDown ? child(node, i) : node & (node - 1);
        return (to + root(phase)) % config_.processes;
    }
    [[nodiscard]] uint32_t bytes(uint32_t rank, uint32_t phase, uint32_t i) const override {
        if (!kBlocks) return config_.bytes;
        const uint32_t node = node_of(rank, phase);
        return config_.bytes * (kDown ? subtree(child(node, i)) : subtree(node));
    }

  private:
    [[nodiscard]] uint32_t phases_of_iteration() const override { return 2; }
    [[nodiscard]] uint32_t root(uint32_t phase) const { return phase / 2 % config_.processes; }
    [[nodiscard]] uint32_t node_of(uint32_t rank, uint32_t phase) const {
        return (rank + config_.processes - root(phase)) % config_.processes;
    }
    /// Nodes below `node` and itself: it has those that it gets by setting a bit below its lowest one.
    [[nodiscard]] uint32_t subtree(uint32_t node) const {
        return std::min(node & (~node + 1), config_.processes - node);
    }
    [[nodiscard]] uint32_t children(uint32_t node) const {
        const uint32_t nodes = node == 0 ? config_.processes : subtree(node);
        return static_cast<uint32_t>(std::bit_width(nodes - 1));
    }
    /// The i-th, the largest subtree first.
    [[nodiscard]] uint32_t child(uint32_t node, uint32_t i) const {
        return node + (1u << (children(node) - 1 - i));
    }
};

template <class W>
std::unique_ptr<Workload> make(const WorkloadConfig& config) {
    return std::make_unique<W>(config);
}

constexpr std::array<NamedWorkload, 11> kImb{{{"pingping", make<Pingping>},
                                              {"sendrecv", make<Ring<1>>},
                                              {"exchange", make<Ring<2>>},
                                              {"allreduce", make<Allreduce>},
                                              {"reduce", make<Tree<false, false>>},
                                              {"bcast", make<Tree<true, false>>},
                                              {"barrier", make<Barrier>},
                                              {"alltoallv", make<Alltoallv>},
                                              {"allgather", make<Allgather>},
                                              {"gather", make<Tree<false, true>>},
                                              {"scatter", make<Tree<true, true>>}}};

}  // namespace

std::span<const NamedWorkload> imb_workloads() {
    return kImb;
}

}  // namespace velo::sim
