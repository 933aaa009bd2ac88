// For programs that are spawned: tells a hang of Open MPI's start from one of what is tested.
//
// About one in a hundred processes that MPI_Comm_spawn of Open MPI 4.1.4 starts with PMIx 4.2 never gets an
// answer in PMIx_Init, over every transport, tcp and vader included. Nothing of a transport has been loaded
// at that point.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

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

}  // namespace mpi_test
