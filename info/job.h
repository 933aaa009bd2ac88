/// The job that velo_info speaks of: what a rank of it would be opened with, and what that costs.
#pragma once

#include <list>
#include <string>

#include "info/settings.h"
#include "velo/options/options.h"

namespace velo::info {

/// Rank 0 of a job of `ranks` processes on this host, with the parameters that Open MPI would give it.
class Job {
  public:
    Job(const Settings& settings, uint32_t ranks);

    /// Not empty: velo refuses these parameters, and this is what it says.
    [[nodiscard]] const std::string& refusal() const { return refusal_; }
    [[nodiscard]] const EngineOptions& options() const { return options_; }
    /// The place of this process, and the reason why hwloc does not tell.
    [[nodiscard]] const base::Locality& locality() const { return locality_; }
    [[nodiscard]] const std::string& why_not_hwloc() const { return why_not_hwloc_; }
    [[nodiscard]] uint32_t ranks() const { return ranks_; }
    /// Large messages are moved by direct copies: wanted, and permitted by the kernel.
    [[nodiscard]] bool direct() const { return direct_; }
    /// Other ranks, by the path to them.
    [[nodiscard]] uint32_t on_node_peers() const;
    [[nodiscard]] uint32_t device_peers() const { return ranks_ - 1 - on_node_peers(); }

  private:
    uint32_t ranks_;
    std::list<std::string> texts_;  ///< that the parameters point to
    base::Locality locality_;
    std::string why_not_hwloc_;
    EngineOptions options_;
    std::string refusal_;
    bool direct_ = false;
};

/// Sections of the report; each returns whole lines.
std::string machine_text(const Job& job);
std::string paths_text(const Job& job);
std::string protocols_text(const Job& job, const Settings& settings);
std::string rails_text(const Job& job);
std::string memory_text(const Job& job);
std::string parameters_text(const Settings& settings);

}  // namespace velo::info
