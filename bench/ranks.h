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

    /// The job, as rows name it.
    [[nodiscard]] std::string name() const { return "np" + std::to_string(ranks); }

    /// Rank 0 on one CPU, the others on another one.
    void pin_pair() const { pin(self == 0 ? cpus.first : cpus.second); }

    int self = 0;
    int ranks = 0;
    const Cpus cpus = choose_cpus();  ///< of two ranks, before any is pinned
};

/// Adds a setting of this rank's own to the network that the job emulates (btl_velo_emulate), if it does. To be called
/// before MPI_Init, where velo reads its parameters.
inline void emulate(const std::string& setting) {
    constexpr const char* kName = "OMPI_MCA_btl_velo_emulate";
    if (const char* common = std::getenv(kName)) setenv(kName, (std::string(common) + "," + setting).c_str(), 1);
}

/// KiB of this process's memory, by a name in one of its files: "VmRSS" in "status", "Pss" in "smaps_rollup". -1: the
/// kernel does not say.
inline double memory_kib(const std::string& file, const std::string& name) {
    std::ifstream lines("/proc/self/" + file);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(name + ":")) return std::strtod(line.c_str() + name.size() + 1, nullptr);
    }
    return -1;
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

/// Waits for all ranks, seldom awake.
inline void nap_at_barrier() {
    MPI_Request all = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &all);
    nap_until(all);
}

/// The row of a cache line's time, which rank 0 measures while the others nap. Empty at other ranks, and on one CPU.
inline std::string line_row(const Session& session, std::string_view label, std::string_view where) {
    std::string row;
    if (session.self == 0 && session.cpus.first >= 0) {
        const KeptAffinity kept;
        pin(session.cpus.first);
        row = line_transfer_row(label, where, session.cpus);
    }
    nap_at_barrier();
    return row;
}

/// The row of a cache line's time between two ranks that are each pinned to a CPU. The one that leads measures and has
/// both CPUs for itself, while its partner sleeps and gets no row.
inline std::string line_between(std::string_view label, std::string_view where, const Cpus& cpus, int peer,
                                bool leads) {
    constexpr int kTag = 77;
    if (cpus.first < 0) return {};
    if (!leads) {
        MPI_Request request;
        MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &request);
        nap_until(request);
        return {};
    }
    std::string row = line_transfer_row(label, where, cpus);
    MPI_Send(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD);
    return row;
}

/// `NAME@OFFSET`, of memory that begins so far behind a page's first byte; NAME where offsets are not asked for.
inline std::string at_offset(std::string_view name, size_t offset, bool said) {
    return said ? std::string(name) + "@" + std::to_string(offset) : std::string(name);
}

}  // namespace measuring
