/// Settings that Open MPI would give to a job that is started here: its version, its components, and every parameter
/// with where it came from. Asked of ompi_info, which reads environment and files as a job does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace velo::info {

struct Setting {
    std::string value;
    std::string source;
};

class Settings {
  public:
    /// Runs the ompi_info on the path, or else the one that velo was built with.
    static Settings read();

    /// "4.1.4"; empty: there is no ompi_info that runs.
    [[nodiscard]] const std::string& version() const { return version_; }
    [[nodiscard]] const std::string& command() const { return command_; }
    /// How ompi_info ended in the middle of its answer, which is none then: as a job ends that loads the same plugins.
    /// Empty: it answered.
    [[nodiscard]] const std::string& failure() const { return failure_; }
    /// Whether Open MPI finds and can open this component, such as ("btl", "velo").
    [[nodiscard]] bool has(const std::string& framework, const std::string& component) const;
    [[nodiscard]] std::optional<Setting> find(const std::string& name) const;
    /// Names of all parameters.
    [[nodiscard]] std::vector<std::string> names() const;
    /// The files of parameters that Open MPI reads.
    [[nodiscard]] std::vector<std::string> files() const;
    /// The directories in which ranks look for plugins, in their order.
    [[nodiscard]] std::vector<std::string> directories() const;
    /// All of velo's parameters, in Open MPI's order.
    [[nodiscard]] const std::vector<std::string>& of_velo() const { return of_velo_; }
    /// The mca_base_component_path that mpirun gives to ranks; empty: none, or mpirun does not run.
    [[nodiscard]] std::string path_of_ranks() const;
    /// A number, or `otherwise` where there is none.
    [[nodiscard]] long long number(const std::string& name, long long otherwise) const;

  private:
    void take(const std::string& line);

    std::string command_;
    std::string version_;
    std::string failure_;
    std::string system_directory_;  ///< of Open MPI's own plugins
    std::vector<std::string> components_;  ///< "btl:velo"
    std::map<std::string, Setting> settings_;
    std::vector<std::string> of_velo_;
};

}  // namespace velo::info
