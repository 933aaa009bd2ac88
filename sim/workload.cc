#include "sim/workload.h"

#include <algorithm>
#include <array>
#include <random>
#include <span>

#include "sim/changing_workloads.h"
#include "sim/draw.h"
#include "sim/imb_workloads.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {
namespace {

using base::SetupError;

/// FC 5.3: the processes of one node, each with its own partner on another.
class MultiPingpong final : public Workload {
  public:
    explicit MultiPingpong(const WorkloadConfig& config) : Workload(config) {
        if (config.processes < 2 || config.processes % 2 != 0) {
            throw SetupError("multi_pingpong with " + std::to_string(config.processes) +
                             " processes; give an even number");
        }
    }
    [[nodiscard]] Part part(uint32_t rank, uint32_t phase) const override {
        const bool sends = (rank < config_.processes / 2) == (phase % 2 == 0);
        return {.sends = sends ? 1u : 0u, .receives = sends ? 0u : 1u};
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t, uint32_t) const override {
        return (rank + config_.processes / 2) % config_.processes;
    }
    [[nodiscard]] uint32_t time_divisor() const override { return 2 * config_.iterations; }
    [[nodiscard]] bool between_two_nodes() const override { return true; }

  private:
    [[nodiscard]] uint32_t phases_of_iteration() const override { return 2; }
};

/// FC 5.3: to every other one, in the order rank + 1, rank + 2, ...; the ranks from `active` on only wait
/// (FC 5.5).
Part alltoall_part(uint32_t rank, uint32_t active, bool barrier) {
    const uint32_t others = rank < active ? active - 1 : 0;
    return {.sends = others, .receives = others, .barrier = barrier};
}

class Alltoall final : public Workload {
  public:
    explicit Alltoall(const WorkloadConfig& config) : Workload(config) {
        if (config_.active == 0) config_.active = config_.processes;
        if (config_.active > config_.processes) {
            throw SetupError("--active " + std::to_string(config_.active) + " of " +
                             std::to_string(config_.processes) +
                             " processes; give at most that many, or 0 for all");
        }
    }
    [[nodiscard]] Part part(uint32_t rank, uint32_t) const override {
        return alltoall_part(rank, config_.active, config_.barrier);
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t, uint32_t i) const override {
        return (rank + 1 + i) % config_.active;
    }
};

[[noreturn]] void refuse_warmup(const WorkloadConfig& config) {
    throw SetupError("--warmup " + std::to_string(config.warmup) + " with workload '" + config.name +
                     "', whose phases differ; give 0");
}

/// FC 7.3: alltoalls of changing numbers of ranks, a barrier of all after the last one of each step.
class Phases final : public Workload {
  public:
    explicit Phases(const WorkloadConfig& config) : Workload(config) {
        if (config_.steps.empty()) {
            const uint32_t n = config_.processes;
            config_.steps = {n, n / 4, n / 2, n, n / 2, n / 4, n};
        }
        if (config_.warmup != 0) refuse_warmup(config_);
        for (uint32_t& active : config_.steps) {
            if (active > config_.processes) {
                throw SetupError("--steps names " + std::to_string(active) + " ranks of " +
                                 std::to_string(config_.processes) + " processes; give at most that many");
            }
            active = std::max(active, 1u);
        }
    }
    [[nodiscard]] Part part(uint32_t rank, uint32_t phase) const override {
        return alltoall_part(rank, active(phase), config_.barrier || (phase + 1) % config_.iterations == 0);
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t phase, uint32_t i) const override {
        return (rank + 1 + i) % active(phase);
    }
    [[nodiscard]] uint32_t time_divisor() const override { return phases(); }

  private:
    [[nodiscard]] uint32_t phases_of_iteration() const override {
        return static_cast<uint32_t>(config_.steps.size());
    }
    [[nodiscard]] uint32_t active(uint32_t phase) const { return config_.steps[phase / config_.iterations]; }
};

/// FC 7.4.1: a root sends to every other one; the next rank is root after some repetitions.
class Scatterv final : public Workload {
  public:
    explicit Scatterv(const WorkloadConfig& config) : Workload(config) {
        if (config.repetitions == 0) throw SetupError("--repetitions 0; give at least 1");
    }
    [[nodiscard]] Part part(uint32_t rank, uint32_t phase) const override {
        const bool sends = rank == root(phase);
        return {.sends = sends ? config_.processes - 1 : 0,
                .receives = sends ? 0u : 1u,
                .barrier = config_.barrier};
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t, uint32_t i) const override {
        return (rank + 1 + i) % config_.processes;
    }

  private:
    [[nodiscard]] uint32_t root(uint32_t phase) const {
        return phase / config_.repetitions % config_.processes;
    }
};

/// Few partners each, spread over the whole job: a torus of one dimension with seeded distances.
class Neighbours final : public Workload {
  public:
    explicit Neighbours(const WorkloadConfig& config) : Workload(config) {
        if (config.neighbours == 0 || config.neighbours > (config.processes - 1) / 2) {
            throw SetupError("--neighbours " + std::to_string(config.neighbours) + " on either side of " +
                             std::to_string(config.processes) + " processes; give 1 to " +
                             std::to_string((config.processes - 1) / 2));
        }
        std::mt19937_64 random(config.seed);
        while (distances_.size() < config.neighbours) {
            const auto distance = static_cast<uint32_t>(1 + random() % ((config.processes - 1) / 2));
            if (std::find(distances_.begin(), distances_.end(), distance) == distances_.end()) {
                distances_.push_back(distance);
            }
        }
    }
    [[nodiscard]] Part part(uint32_t, uint32_t) const override {
        const uint32_t partners = 2 * config_.neighbours;
        return {.sends = partners, .receives = partners, .barrier = config_.barrier};
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t, uint32_t i) const override {
        const uint32_t distance = distances_[i / 2];
        return (rank + (i % 2 == 0 ? distance : config_.processes - distance)) % config_.processes;
    }

  private:
    std::vector<uint32_t> distances_;
};

/// Messages of any length to anybody, by the seed.
class Random final : public Workload {
  public:
    explicit Random(const WorkloadConfig& config) : Workload(config), receives_(config.processes) {
        if (config.processes < 2) throw SetupError("random with 1 process; give at least 2");
        if (config.warmup != 0) refuse_warmup(config);
        config_.iterations = 1;
        if (config_.messages == 0) config_.messages = kMessages;
        for (uint32_t rank = 0; rank < config.processes; ++rank) {
            for (uint32_t i = 0; i < config_.messages; ++i) ++receives_[destination(rank, 0, i)];
        }
    }
    [[nodiscard]] Part part(uint32_t rank, uint32_t) const override {
        return {.sends = config_.messages, .receives = receives_[rank], .barrier = config_.barrier};
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t, uint32_t i) const override {
        const uint32_t others = config_.processes - 1;
        return (rank + 1 + static_cast<uint32_t>(draw(config_.seed, rank, i) % others)) % config_.processes;
    }
    [[nodiscard]] uint32_t bytes(uint32_t rank, uint32_t, uint32_t i) const override {
        return static_cast<uint32_t>((draw(config_.seed, rank, i) >> 32) % (uint64_t{config_.bytes} + 1));
    }

  private:
    static constexpr uint32_t kMessages = 100;

    std::vector<uint32_t> receives_;
};

template <class W>
std::unique_ptr<Workload> make(const WorkloadConfig& config) {
    return std::make_unique<W>(config);
}

constexpr std::array<NamedWorkload, 6> kOwn{{{"multi_pingpong", make<MultiPingpong>},
                                             {"alltoall", make<Alltoall>},
                                             {"phases", make<Phases>},
                                             {"scatterv", make<Scatterv>},
                                             {"neighbours", make<Neighbours>},
                                             {"random", make<Random>}}};

std::array<std::span<const NamedWorkload>, 3> tables() {
    return {std::span<const NamedWorkload>(kOwn), changing_workloads(), imb_workloads()};
}

}  // namespace

std::unique_ptr<Workload> make_workload(const WorkloadConfig& config) {
    if (config.processes == 0 || config.iterations == 0) {
        throw SetupError(std::to_string(config.processes) + " processes and " +
                         std::to_string(config.iterations) + " iterations; give at least 1 of each");
    }
    for (const auto& [name, maker] : imb_workloads()) {
        if (name == config.name && config.processes < 2) {
            throw SetupError(config.name + " with 1 process; give at least 2");
        }
    }
    for (const auto table : tables()) {
        for (const auto& [name, maker] : table) {
            if (name == config.name) return maker(config);
        }
    }
    throw SetupError("workload '" + config.name + "' is not known; give one of " + workload_names());
}

std::string workload_names() {
    std::string names;
    for (const auto table : tables()) {
        for (const auto& [name, maker] : table) names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return names;
}

}  // namespace velo::sim
