// Two ranks, one of which leaves the other one waiting for some seconds: what tests/faults/run_stall looks at
// is whether velo's report says who waits for what.
//
//   stall MODE
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kAwayMs = 3500;
constexpr int kHeldUpMs = 1000;

/// A process that wakes this one after it has stopped itself. Made before MPI, which does not like forks.
class Waker {
  public:
    Waker() {
        int ends[2];
        if (pipe(ends) != 0) return;
        const pid_t sleeper = getpid();
        if (fork() == 0) {
            close(ends[1]);
            char word = 0;
            if (read(ends[0], &word, 1) == 1) {
                usleep(kAwayMs * 1000);
                kill(sleeper, SIGCONT);
            }
            _exit(0);
        }
        close(ends[0]);
        end_ = ends[1];
    }
    void stop_for_a_while() const {
        if (write(end_, "x", 1) == 1) raise(SIGSTOP);
    }

  private:
    int end_ = -1;
};

/// How long this process was not run at a stretch, by a thread of its own: a machine that stands still for seconds
/// leaves velo no time in which it could have seen that nothing moves.
class Gaps {
  public:
    Gaps() : thread_([this] { watch(); }) {}
    ~Gaps() {
        over_ = true;
        thread_.join();
    }
    Gaps(const Gaps&) = delete;
    Gaps& operator=(const Gaps&) = delete;
    /// The process was away by its own will.
    void forget() { longest_ms_ = 0; }
    [[nodiscard]] int longest_ms() const { return longest_ms_; }

  private:
    void watch() {
        for (auto last = Clock::now(); !over_;) {
            usleep(10'000);
            const auto now = Clock::now();
            const auto gap = std::chrono::duration_cast<std::chrono::milliseconds>(now - last);
            longest_ms_ = std::max<int>(longest_ms_, static_cast<int>(gap.count()));
            last = now;
        }
    }
    std::atomic<int> longest_ms_{0};
    std::atomic<bool> over_{false};
    std::thread thread_;
};

void compute(int ms) {
    for (const auto end = Clock::now() + std::chrono::milliseconds(ms); Clock::now() < end;) {
    }
}

constexpr int kMessages = 2000;
constexpr int kBytes = 1024;
constexpr int kLongBytes = 1 << 20;

/// Rank 0 sends more than the path to rank 1 holds, which is `away` meanwhile.
template <class Away>
void queue(int rank, Away&& away, int messages = kMessages) {
    std::vector<char> data(static_cast<size_t>(messages) * kBytes);
    std::vector<MPI_Request> requests(static_cast<size_t>(messages));
    if (rank == 1) away();
    for (int i = 0; i < messages; ++i) {
        char* at = data.data() + size_t{kBytes} * static_cast<size_t>(i);
        MPI_Request* request = &requests[static_cast<size_t>(i)];
        if (rank == 0) {
            MPI_Isend(at, kBytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, request);
        } else {
            MPI_Irecv(at, kBytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, request);
        }
    }
    MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
}

/// Rank 1 fetches from rank 0, which is away when its message has been announced.
template <class Stop>
void get(int rank, Stop&& stop) {
    std::vector<char> data(kLongBytes);
    if (rank == 1) {
        MPI_Recv(data.data(), kLongBytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    MPI_Request request;
    MPI_Isend(data.data(), kLongBytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &request);
    stop();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// Rank 0 waits for what rank 1 does not send for long: nothing is pending in velo.
void idle(int rank) {
    int value = 0;
    if (rank == 1) {
        compute(kAwayMs);
        MPI_Send(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

void busy(int rank) {
    std::vector<char> data(kLongBytes);
    const auto end = Clock::now() + std::chrono::milliseconds(kAwayMs);
    for (int round = 0, last = 0; last == 0; ++round) {
        last = Clock::now() > end;
        MPI_Bcast(&last, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Sendrecv_replace(data.data(), round % 2 == 0 ? kBytes : kLongBytes, MPI_CHAR, 1 - rank, 4,
                             1 - rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/// Rank 1 asks rank 0 for a report.
void ask(int rank) {
    auto pid = static_cast<int>(getpid());
    MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
    queue(rank, [pid] {
        compute(500);
        kill(pid, SIGUSR1);
        compute(1000);
    });
}

std::atomic<int> signals{0};

}  // namespace

int main(int argc, char** argv) {
    const Waker waker;
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "own_handler") signal(SIGUSR1, [](int) { ++signals; });
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int nothing = 0;
    MPI_Bcast(&nothing, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(&nothing, 1, MPI_INT, 1, MPI_COMM_WORLD);
    bool right = true;
    Gaps gaps;
    const auto stop = [&] {
        waker.stop_for_a_while();
        usleep(50'000);  // the thread has seen it
        gaps.forget();
    };
    if (mode == "stopped") {
        queue(rank, stop);
    } else if (mode == "computes") {
        queue(rank, [] { compute(kAwayMs); });
    } else if (mode == "few") {
        queue(
            rank, [] {}, 200);
    } else if (mode == "get") {
        get(rank, stop);
    } else if (mode == "idle") {
        idle(rank);
    } else if (mode == "busy") {
        busy(rank);
    } else if (mode == "ask" || mode == "own_handler") {
        ask(rank);
        right = mode == "ask" || rank != 0 || signals == 1;
    } else {
        right = false;
    }
    if (gaps.longest_ms() >= kHeldUpMs) std::printf("rank %d was held up for %d ms\n", rank, gaps.longest_ms());
    std::printf(right ? "PASS\n" : "FAIL rank %d in mode '%s'\n", rank, mode.c_str());
    MPI_Finalize();
    return 0;
}
