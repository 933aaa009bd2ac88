/// Parts that the measuring programs over MPI share.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "measuring.h"

namespace measuring {

/// MPI, for as long as main() runs.
class Session {
  public:
    Session(int& argc, char**& argv) {
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &self);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() { MPI_Finalize(); }

    /// One rank says what is wrong with how the program was called. Returns the exit status for it.
    [[nodiscard]] int refuse(const std::string& message) const {
        if (self == 0) std::fprintf(stderr, "%s\n", message.c_str());
        return 2;
    }

    int self = 0;
    int ranks = 0;
};

/// Memory of this process.
inline double resident_bytes() {
    std::ifstream file("/proc/self/statm");
    long pages = 0, resident = 0;
    file >> pages >> resident;
    return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/// The most that was resident at a time.
inline double peak_bytes() {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("VmHWM:")) return 1024 * std::strtod(line.c_str() + 6, nullptr);
    }
    return 0;
}

/// Waking this seldom takes less than a thousandth of a CPU from those that are measured.
inline constexpr useconds_t kNapUs = 5000;

inline void nap_until(MPI_Request request) {
    for (int done = 0;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done != 0) return;
        usleep(kNapUs);
    }
}

}  // namespace measuring
