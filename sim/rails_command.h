/// The commands `velo_sim rails` and `velo_sim allocation`.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace velo::sim {

/// One run of sim/rails.h. Its options, while they are read and used.
class RailsCommand {
  public:
    explicit RailsCommand(CLI::App& app);
    ~RailsCommand();

    /// The user has asked for it.
    [[nodiscard]] bool given() const;
    /// Prints the row. Throws as run_rails().
    void run() const;

  private:
    struct Arguments;
    std::unique_ptr<Arguments> arguments_;
};

/// Static allocation: the fewest rails, or a matrix (RAILS 2, figures 2 to 4).
class AllocationCommand {
  public:
    explicit AllocationCommand(CLI::App& app);
    ~AllocationCommand();

    /// The user has asked for it.
    [[nodiscard]] bool given() const;
    /// Prints the rows. Throws base::SetupError when so few rails do not connect the nodes.
    void run() const;

  private:
    struct Arguments;
    std::unique_ptr<Arguments> arguments_;
};

}  // namespace velo::sim
