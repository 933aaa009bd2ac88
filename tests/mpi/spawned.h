// For programs that spawn and are spawned: their start and their end. A hang of Open MPI's start is
// distinguished from one of what is tested.
//
// About one in a hundred processes that MPI_Comm_spawn of Open MPI 4.1.4 starts with PMIx 4.2 never gets an
// answer in PMIx_Init, over every transport, tcp and vader included. Nothing of a transport has been loaded
// at that point.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "mpi_test.h"

namespace mpi_test {

/// The script `run` looks for it, to start such a run again.
inline constexpr char kHungAtStart[] = "hung in PMIx_Init, before any BTL was loaded\n";

/// To be called before MPI_Init: ends this process, with a line that says so, if it hangs there without a
/// BTL.
class StartWatch {
  public:
    explicit StartWatch(unsigned seconds) {
        seconds_ = seconds;
        std::signal(SIGALRM, on_alarm);
        alarm(seconds);
    }
    ~StartWatch() { alarm(0); }
    StartWatch(const StartWatch&) = delete;
    StartWatch& operator=(const StartWatch&) = delete;

  private:
    // Nothing here may allocate or lock: the interrupted code may hold either.
    static void on_alarm(int) {
        static char maps[1 << 18];
        std::size_t length = 0;
        const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        while (fd >= 0 && length < sizeof maps - 1) {
            const ssize_t got = read(fd, maps + length, sizeof maps - 1 - length);
            if (got <= 0) break;
            length += static_cast<std::size_t>(got);
        }
        close(fd);
        maps[length] = '\0';
        if (std::strstr(maps, "mca_btl_") == nullptr) {
            const ssize_t written = write(STDERR_FILENO, kHungAtStart, sizeof kHungAtStart - 1);
            _exit(written < 0 ? 4 : 3);
        }
        alarm(seconds_);
    }

    inline static unsigned seconds_ = 0;
};

/// Initialises MPI. Returns the processes that spawned this one; MPI_COMM_NULL: none did.
inline MPI_Comm init_spawned(int& argc, char**& argv) {
    constexpr unsigned kStartSeconds = 30;
    {
        const StartWatch watch(kStartSeconds);
        MPI_Init(&argc, &argv);
    }
    MPI_Comm parents;
    MPI_Comm_get_parent(&parents);
    return parents;
}

/// The file of this program.
inline std::string own_path() {
    char path[PATH_MAX] = "";
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : std::string();
}

/// The verdict on a check that rank 0 alone judges, because the others may be in MPI_Finalize, and MPI's end. Returns
/// this process's exit status.
inline int judge_and_finalize(const char* name, const Check& check) {
    const bool passed = check.failure_count() == 0;
    if (check.rank == 0) {
        std::printf("%s %s%s\n", passed ? "PASS" : "FAIL", name, passed ? "" : (": " + check.texts()).c_str());
    }
    std::fflush(stdout);
    MPI_Finalize();
    return passed ? 0 : 1;
}

/// Runs checks, and behind them `last`, which ends MPI itself and returns an exit status. Returns this process's.
inline int run_to_the_end(int argc, char** argv, const std::function<void(Suite&)>& body, const char* last_name,
                          const std::function<int(Check&)>& last) {
    int result = 0;
    bool last_runs = false;
    {
        Suite suite(argc, argv);
        body(suite);
        last_runs = suite.watch(last_name);
        result = suite.finish();
    }
    if (!last_runs) {
        MPI_Finalize();
        return result;
    }
    // Communicators cannot be duplicated any more: that would need ranks that are finalising.
    Check check(MPI_COMM_WORLD, {});
    const int last_result = last(check);
    return result != 0 ? result : last_result;
}

}  // namespace mpi_test
