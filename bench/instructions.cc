/// Windows of 8-byte messages in one direction, with what each side does in functions of its own and without
/// waiting: the receiver posts while the sender sleeps, and completes when all messages lie there. The command
/// `bench/run instructions` counts the instructions of these functions.
///
///   mpirun -np 2 … instructions WINDOWS
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kWindow = 16;  ///< fewer than the credits at a receiver
constexpr int kBytes = 8;
constexpr int kTag = 1;
/// Longer than the other side takes for a window, also where valgrind makes it slow.
constexpr useconds_t kNapUs = 15'000;

char memory[kWindow][kBytes];
MPI_Request requests[kWindow];

}  // namespace

// Names that callgrind is told.
extern "C" {
[[gnu::noinline]] void measured_send() {
    for (auto& message : memory) MPI_Send(message, kBytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
}
[[gnu::noinline]] void measured_post() {
    for (int i = 0; i < kWindow; ++i) {
        MPI_Irecv(memory[i], kBytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &requests[i]);
    }
}
[[gnu::noinline]] void measured_complete() {
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
}
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int windows = argc == 2 ? std::atoi(argv[1]) : 0;
    if (windows <= 0 || size != 2) {
        std::fprintf(stderr, "instructions: usage: mpirun -np 2 instructions WINDOWS\n");
        MPI_Finalize();
        return 2;
    }
    for (int window = 0; window < windows; ++window) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) measured_post();
        usleep(kNapUs);
        if (rank == 0) measured_send();
        if (rank == 1) {
            usleep(2 * kNapUs);
            measured_complete();
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
