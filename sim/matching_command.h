/// The command `velo_sim matching`.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace velo::sim {

/// Options of the command, while they are read and used.
class MatchingCommand {
  public:
    explicit MatchingCommand(CLI::App& app);
    ~MatchingCommand();

    /// The user has asked for it.
    [[nodiscard]] bool given() const;
    /// One run; prints its row. Throws as run_matching().
    void run() const;

  private:
    struct Arguments;
    std::unique_ptr<Arguments> arguments_;
};

}  // namespace velo::sim
