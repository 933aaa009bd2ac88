/// The command line of velo_info.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace velo::info {

struct Arguments {
    bool check = false;
    uint32_t ranks = 0;                                    ///< of the job
    std::vector<std::pair<std::string, std::string>> mca;  ///< names and values, in their order
};

/// Ends the process after --help and --version, and on a wrong argument: then with a line of the argument and what to
/// write instead, and a status above 100.
Arguments read_arguments(int argc, char** argv);

}  // namespace velo::info
