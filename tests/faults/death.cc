// A rank that ends in some way while the others do something: what tests/faults/run_death looks at is what
// velo and mpirun say of it, and when.
//
//   death MODE
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

int rank_;
int size_;
char* program_;

void compute(int ms) {
    for (const auto end = Clock::now() + std::chrono::milliseconds(ms); Clock::now() < end;) {
    }
}

/// The script compares pid and time with what follows.
[[noreturn]] void die() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    std::printf("dying rank=%d pid=%d at=%.3f\n", rank_, static_cast<int>(getpid()),
                std::chrono::duration<double>(now).count());
    std::fflush(stdout);
    raise(SIGKILL);
    std::abort();
}

void wait_for_last_rank() {
    int value = 0;
    MPI_Recv(&value, 1, MPI_INT, size_ - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/// The last rank dies while the others are in `others`.
template <class Others>
void last_rank_dies(Others&& others) {
    if (rank_ == size_ - 1) {
        compute(200);
        die();
    }
    others();
    std::printf("FAIL rank %d went on\n", rank_);
}

void last_rank_dies_in_a_long_message() {
    std::vector<char> data(64 << 20);
    if (rank_ == size_ - 1) {
        std::vector<MPI_Request> requests(static_cast<size_t>(size_ - 1));
        for (int to = 0; to < size_ - 1; ++to) {
            MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_CHAR, to, 2, MPI_COMM_WORLD,
                      &requests[static_cast<size_t>(to)]);
        }
        for (const auto end = Clock::now() + std::chrono::milliseconds(15); Clock::now() < end;) {
            int done = 0;
            MPI_Testall(size_ - 1, requests.data(), &done, MPI_STATUSES_IGNORE);
        }
        die();
    }
    for (;;) {
        MPI_Recv(data.data(), static_cast<int>(data.size()), MPI_CHAR, size_ - 1, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
}

/// The last rank is killed wherever it is just then.
void last_rank_is_killed_in_an_exchange() {
    std::thread killer;
    if (rank_ == size_ - 1) {
        killer = std::thread([] {
            compute(200);
            die();
        });
    }
    const int next = (rank_ + 1) % size_;
    const int previous = (rank_ + size_ - 1) % size_;
    std::vector<char> out(3000), in(out.size());
    for (int status = MPI_SUCCESS; status == MPI_SUCCESS;) {
        status = MPI_Sendrecv(out.data(), static_cast<int>(out.size()), MPI_CHAR, next, 6, in.data(),
                              static_cast<int>(in.size()), MPI_CHAR, previous, 6, MPI_COMM_WORLD,
                              MPI_STATUS_IGNORE);
    }
    std::printf("FAIL rank %d went on\n", rank_);
    if (killer.joinable()) killer.join();
}

/// Rank 0 has long finished when the others still talk.
void rank_0_leaves_first() {
    // No rank waits for anything of rank 0 when it leaves.
    int value = 0;
    if (rank_ == 0) {
        for (int from = 1; from < size_; ++from) {
            MPI_Recv(&value, 1, MPI_INT, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        return;
    }
    MPI_Send(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    MPI_Comm rest;
    MPI_Comm_create_group(
        MPI_COMM_WORLD,
        [] {
            MPI_Group all, others;
            const int zero = 0;
            MPI_Comm_group(MPI_COMM_WORLD, &all);
            MPI_Group_excl(all, 1, &zero, &others);
            return others;
        }(),
        3, &rest);
    for (int round = 0; round < 10; ++round) {
        compute(100);
        MPI_Barrier(rest);
    }
    if (rank_ == 1) std::printf("PASS\n");
}

MPI_Comm spawn(const char* mode) {
    char* arguments[] = {const_cast<char*>(mode), nullptr};
    MPI_Comm child;
    MPI_Comm_spawn(program_, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE);
    int value = 0;
    if (rank_ == 0) MPI_Recv(&value, 1, MPI_INT, 0, 4, child, MPI_STATUS_IGNORE);
    return child;
}

void child(bool disconnects) {
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    const int value = 1;
    MPI_Send(&value, 1, MPI_INT, 0, 4, parent);
    if (disconnects) MPI_Comm_disconnect(&parent);
    compute(200);
    die();
}

void child_dies() {
    MPI_Comm child = spawn("child");
    int value = 0;
    if (rank_ == 0) MPI_Recv(&value, 1, MPI_INT, 0, 5, child, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    std::printf("FAIL rank %d went on\n", rank_);
}

void disconnected_child_dies() {
    MPI_Comm child = spawn("disconnected_child");
    MPI_Comm_disconnect(&child);
    for (int round = 0; round < 10; ++round) {
        compute(100);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank_ == 0) std::printf("PASS\n");
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    program_ = argv[0];
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "child") child(false);
    if (mode == "disconnected_child") child(true);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mode == "receive") {
        last_rank_dies(wait_for_last_rank);
    } else if (mode == "barrier") {
        last_rank_dies([] { MPI_Barrier(MPI_COMM_WORLD); });
    } else if (mode == "compute") {
        last_rank_dies([] {
            compute(600);
            wait_for_last_rank();
        });
    } else if (mode == "compute_for_long") {
        last_rank_dies([] { compute(20'000); });
    } else if (mode == "exchange") {
        last_rank_is_killed_in_an_exchange();
    } else if (mode == "long_message") {
        last_rank_dies_in_a_long_message();
    } else if (mode == "leave_first") {
        rank_0_leaves_first();
    } else if (mode == "child_dies") {
        child_dies();
    } else if (mode == "disconnected_child_dies") {
        disconnected_child_dies();
    } else {
        std::printf("FAIL no mode '%s'\n", mode.c_str());
    }
    MPI_Finalize();
    return 0;
}
