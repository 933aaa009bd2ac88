/// Windows of 8-byte messages in one direction, with what each side does in functions of its own and without
/// waiting: the receiver posts while the sender sleeps, and completes when all messages lie there. The command
/// `bench/run instructions` counts the instructions of these functions.
///
///   mpirun -np 2 … instructions WINDOWS
#include "arguments.h"
#include "ranks.h"

namespace {

constexpr int kWindow = 16;  ///< fewer than the credits at a receiver
/// Windows that do not count: a sender waits in the first ones, because it has few credits at first.
constexpr int kFirstWindows = 4;
constexpr int kBytes = 8;
constexpr int kTag = 1;
/// Longer than the other side takes for a window, also where valgrind makes it slow.
constexpr useconds_t kNapUs = 15'000;

char memory[kWindow][kBytes];
MPI_Request requests[kWindow];

void send_window() {
    for (auto& message : memory) MPI_Send(message, kBytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
}

void post_window() {
    for (int i = 0; i < kWindow; ++i) {
        MPI_Irecv(memory[i], kBytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &requests[i]);
    }
}

void complete_window() {
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
}

/// One window in which the receiver completes after it was all sent.
void run_window(int self, void (*send_all)(), void (*post_all)(), void (*complete_all)()) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (self == 1) post_all();
    usleep(kNapUs);
    if (self == 0) send_all();
    if (self == 1) {
        usleep(2 * kNapUs);
        complete_all();
    }
}

}  // namespace

// Names that callgrind gets.
extern "C" {
[[gnu::noinline]] void measured_send() { send_window(); }
[[gnu::noinline]] void measured_post() { post_window(); }
[[gnu::noinline]] void measured_complete() { complete_window(); }
}

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    measuring::Places given("instructions", "WINDOWS", argc, argv);
    const int windows = given.number<int>();
    given.require(session.ranks == 2, "two ranks are needed");
    if (!given.error().empty()) return session.refuse(given.error());
    for (int window = 0; window < kFirstWindows; ++window) {
        run_window(session.self, send_window, post_window, complete_window);
    }
    for (int window = 0; window < windows; ++window) {
        run_window(session.self, measured_send, measured_post, measured_complete);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}
