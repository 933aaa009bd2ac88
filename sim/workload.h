/// The program of the simulated processes: phases of messages, with or without a barrier between them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace velo::sim {

struct WorkloadConfig {
    std::string name = "alltoall";
    uint32_t processes = 256;
    uint32_t bytes = 2048;    ///< of a message, without its 16 bytes of header
    uint32_t iterations = 1;  ///< phases: of each step
    uint32_t warmup = 0;      ///< iterations before those, not timed; then a barrier
    uint32_t active = 0;      ///< alltoall: number of ranks that take part; hot_then_all: at first; 0: all
    bool barrier = false;     ///< after each iteration; phases: always after the last one of a step
    std::vector<uint32_t> steps{};  ///< phases: active ranks, one number for each step
    uint32_t repetitions = 1;       ///< scatterv: with one root
    uint32_t neighbours = 8;        ///< neighbours: partners on either side
    uint32_t messages = 0;          ///< random: that each process sends; new_partner, bursts: to a partner
    uint32_t idle_ns = 4'000'000;   ///< bursts: mean pause between two of a process
    uint64_t seed = 1;
};

/// One process's share of a phase. It ends when `sends` messages have left and as many as `receives` of all
/// phases so far have come; then comes a barrier of all processes, if asked for.
struct Part {
    uint32_t sends = 0;
    uint32_t receives = 0;
    bool barrier = false;
};

/// Immutable after construction; a pure function of its config.
class Workload {
  public:
    explicit Workload(const WorkloadConfig& config) : config_(config) {}
    virtual ~Workload() = default;

    [[nodiscard]] const WorkloadConfig& config() const { return config_; }
    [[nodiscard]] virtual uint32_t phases() const { return iterations() * phases_of_iteration(); }
    [[nodiscard]] uint32_t warmup_phases() const { return config_.warmup * phases_of_iteration(); }
    [[nodiscard]] virtual Part part(uint32_t rank, uint32_t phase) const = 0;
    /// Receiver of the i-th message of a rank's part.
    [[nodiscard]] virtual uint32_t destination(uint32_t rank, uint32_t phase, uint32_t i) const = 0;
    [[nodiscard]] virtual uint32_t bytes(uint32_t, uint32_t, uint32_t) const { return config_.bytes; }
    /// How long a process pauses before a phase. It takes what arrives in the meantime.
    [[nodiscard]] virtual uint64_t idle_ns(uint32_t, uint32_t) const { return 0; }
    /// Whether the time is the mean time of a phase with messages, from its beginning until they have left.
    [[nodiscard]] virtual bool times_bursts() const { return false; }
    /// Whether the phases after the warm-up are alike, and the first of them show how fast flow control
    /// adapts.
    [[nodiscard]] virtual bool adapts() const { return false; }
    /// Divisor that turns the time of all timed iterations into the time that the papers give.
    [[nodiscard]] virtual uint32_t time_divisor() const { return config_.iterations; }
    /// Whether the first half of the processes is on one node and the other on another.
    [[nodiscard]] virtual bool between_two_nodes() const { return false; }

  protected:
    [[nodiscard]] virtual uint32_t phases_of_iteration() const { return 1; }
    [[nodiscard]] uint32_t iterations() const { return config_.warmup + config_.iterations; }

    WorkloadConfig config_;
};

/// Throws base::SetupError for an unknown name or values that do not fit together.
std::unique_ptr<Workload> make_workload(const WorkloadConfig& config);

/// The names that make_workload() knows, for messages.
std::string workload_names();

}  // namespace velo::sim
