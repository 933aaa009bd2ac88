#include "sim/changing_workloads.h"

#include <algorithm>
#include <array>

#include "sim/draw.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {
namespace {

using base::SetupError;

/// Messages to one partner after the other, each another than the one before, chosen by the seed. A process
/// goes on to its next partner when its messages have left, and waits for what others send to it at the end
/// only: no process holds up another but by flow control. An iteration is a partner.
class NewPartner : public Workload {
  public:
    explicit NewPartner(const WorkloadConfig& config) : Workload(config), receives_(config.processes) {
        if (config.processes < 2) throw SetupError(config.name + " with 1 process; give at least 2");
        if (config_.messages == 0) config_.messages = kMessages;
        partners_.reserve(size_t{config.processes} * iterations());
        for (uint32_t rank = 0; rank < config.processes; ++rank) {
            uint32_t last = rank;
            for (uint32_t i = 0; i < iterations(); ++i) {
                last = next_partner(rank, i, last);
                partners_.push_back(last);
                receives_[last] += config_.messages;
            }
        }
    }
    [[nodiscard]] uint32_t phases() const override { return iterations() + 1; }
    [[nodiscard]] Part part(uint32_t rank, uint32_t phase) const override {
        if (phase == iterations()) return {.receives = receives_[rank]};
        return {.sends = config_.messages};
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t phase, uint32_t) const override {
        return partners_[size_t{rank} * iterations() + phase];
    }

  private:
    static constexpr uint32_t kMessages = 10;

    [[nodiscard]] uint32_t next_partner(uint32_t rank, uint32_t i, uint32_t last) const {
        const auto number = draw(config_.seed, rank, i);
        const uint32_t processes = config_.processes;
        if (last == rank || processes == 2) {
            return (rank + 1 + static_cast<uint32_t>(number % (processes - 1))) % processes;
        }
        // One of those that are neither the process itself nor its last partner, by their distances.
        const auto distance = static_cast<uint32_t>(1 + number % (processes - 2));
        const uint32_t last_distance = (last + processes - rank) % processes;
        return (rank + distance + (distance >= last_distance ? 1 : 0)) % processes;
    }

    std::vector<uint32_t> partners_;
    std::vector<uint32_t> receives_;
};

/// Messages to changing partners, with a pause before each burst, of up to twice `--idle-ns`, in which the
/// process takes what arrives.
class Bursts final : public NewPartner {
  public:
    using NewPartner::NewPartner;
    [[nodiscard]] uint64_t idle_ns(uint32_t rank, uint32_t phase) const override {
        if (phase == iterations()) return 0;
        return draw(~config_.seed, rank, phase) % (2 * uint64_t{config_.idle_ns} + 1);
    }
    [[nodiscard]] bool times_bursts() const override { return true; }
};

/// Some of the processes exchange in alltoalls, then all of them. The first ones are the warm-up.
class HotThenAll final : public Workload {
  public:
    explicit HotThenAll(const WorkloadConfig& config) : Workload(config) {
        if (config_.active == 0) config_.active = std::max(config_.processes / kPart, 1u);
        if (config_.active > config_.processes) {
            throw SetupError("--active " + std::to_string(config_.active) + " of " +
                             std::to_string(config_.processes) +
                             " processes; give at most that many, or 0 for an eighth of them");
        }
        if (config_.warmup == 0) config_.warmup = config_.iterations;
    }
    [[nodiscard]] Part part(uint32_t rank, uint32_t phase) const override {
        const uint32_t others = rank < active(phase) ? active(phase) - 1 : 0;
        return {.sends = others, .receives = others, .barrier = config_.barrier};
    }
    [[nodiscard]] uint32_t destination(uint32_t rank, uint32_t phase, uint32_t i) const override {
        return (rank + 1 + i) % active(phase);
    }
    [[nodiscard]] bool adapts() const override { return true; }

  private:
    static constexpr uint32_t kPart = 8;

    [[nodiscard]] uint32_t active(uint32_t phase) const {
        return phase < config_.warmup ? config_.active : config_.processes;
    }
};

/// All send a message to a root; the next rank is root in the next iteration.
class Incast final : public Workload {
  public:
    explicit Incast(const WorkloadConfig& config) : Workload(config) {
        if (config.processes < 2) throw SetupError("incast with 1 process; give at least 2");
    }
    [[nodiscard]] Part part(uint32_t rank, uint32_t phase) const override {
        const bool receives = rank == root(phase);
        return {.sends = receives ? 0u : 1u,
                .receives = receives ? config_.processes - 1 : 0,
                .barrier = config_.barrier};
    }
    [[nodiscard]] uint32_t destination(uint32_t, uint32_t phase, uint32_t) const override {
        return root(phase);
    }

  private:
    [[nodiscard]] uint32_t root(uint32_t phase) const { return phase % config_.processes; }
};

template <class W>
std::unique_ptr<Workload> make(const WorkloadConfig& config) {
    return std::make_unique<W>(config);
}

constexpr std::array<NamedWorkload, 4> kChanging{{{"new_partner", make<NewPartner>},
                                                  {"hot_then_all", make<HotThenAll>},
                                                  {"bursts", make<Bursts>},
                                                  {"incast", make<Incast>}}};

}  // namespace

std::span<const NamedWorkload> changing_workloads() {
    return kChanging;
}

}  // namespace velo::sim
