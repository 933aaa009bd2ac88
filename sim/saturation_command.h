/// The command `velo_sim saturation`.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace velo::sim {

/// Options of the command, while they are read and used.
class SaturationCommand {
  public:
    explicit SaturationCommand(CLI::App& app);
    ~SaturationCommand();

    /// The user has asked for it.
    [[nodiscard]] bool given() const;
    /// One run; prints its row. Throws as run_saturation().
    void run() const;

  private:
    struct Arguments;
    std::unique_ptr<Arguments> arguments_;
};

}  // namespace velo::sim
