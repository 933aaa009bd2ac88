// Processes that end in good order while others have not received all of what they sent: workers that are spawned,
// send their results and end, and sends that were given up before MPI_Finalize. Started with `--worker` or `--flood` it
// is the spawned side.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "intercomm.h"
#include "mpi_test.h"
#include "spawned.h"

namespace {

using mpi_test::Check;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::own_path;
using mpi_test::Suite;

constexpr int kTag = 5;
constexpr int kPidTag = 6;
constexpr char kLast[] = "freed_sends_at_finalize";
constexpr int kFlood = 20'000;
constexpr std::size_t kFloodBytes = 8;
const std::vector<std::size_t> kResults = {4, 800, 4, 0, 1000, 56, 2000};

MPI_Comm spawn(const char* role) {
    std::string argument = role;
    char* arguments[] = {argument.data(), nullptr};
    MPI_Comm worker;
    MPI_Comm_spawn(own_path().c_str(), arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &worker, MPI_ERRCODES_IGNORE);
    return worker;
}

/// Makes progress until the process has ended, as far as its number says, or for three seconds.
void progress_until_ended(int pid) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    auto gone = std::chrono::steady_clock::time_point::max();
    while (std::chrono::steady_clock::now() < end) {
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        const auto now = std::chrono::steady_clock::now();
        if (gone > now && kill(pid, 0) != 0) gone = std::min(gone, now + std::chrono::milliseconds(300));
        if (now >= gone) return;
    }
}

/// By the tag, in another order than they were sent.
void results_of_a_worker_that_has_ended(Check& check) {
    if (check.rank != 0) return;
    MPI_Comm worker = spawn("--worker");
    int pid = 0;
    MPI_Recv(&pid, 1, MPI_INT, 0, kPidTag, worker, MPI_STATUS_IGNORE);
    progress_until_ended(pid);
    for (std::size_t i = kResults.size(); i-- != 0;) {
        GuardedBuffer buffer(kResults[i]);
        MPI_Recv(buffer.data(), static_cast<int>(kResults[i]), MPI_BYTE, 0, kTag + 10 + static_cast<int>(i), worker,
                 MPI_STATUS_IGNORE);
        check.received(buffer, Message{0, 0, kResults[i], i});
    }
    MPI_Comm_free(&worker);
}

/// All sends of the worker are complete, and it is in MPI_Finalize, while its parent takes nothing for longer than any
/// clock of velo's once allowed.
void flood_of_a_worker_that_ends(Check& check) {
    if (check.rank != 0) return;
    MPI_Comm worker = spawn("--flood");
    for (int i = 0; i < kFlood; ++i) {
        GuardedBuffer buffer(kFloodBytes);
        MPI_Recv(buffer.data(), kFloodBytes, MPI_BYTE, 0, kTag, worker, MPI_STATUS_IGNORE);
        check.received(buffer, Message{0, 0, kFloodBytes, static_cast<std::uint64_t>(i)});
        if (i == kFlood / 4) std::this_thread::sleep_for(std::chrono::seconds(4));
    }
    MPI_Comm_free(&worker);
}

int worker_main(MPI_Comm parent, bool flood) {
    if (flood) {
        std::vector<std::vector<std::byte>> data;
        for (std::uint64_t i = 0; i < kFlood; ++i) data.push_back(filled(Message{0, 0, kFloodBytes, i}));
        std::vector<MPI_Request> requests(kFlood);
        for (std::size_t i = 0; i < kFlood; ++i) {
            MPI_Isend(data[i].data(), kFloodBytes, MPI_BYTE, 0, kTag, parent, &requests[i]);
        }
        MPI_Waitall(kFlood, requests.data(), MPI_STATUSES_IGNORE);
    } else {
        const int pid = getpid();
        MPI_Send(&pid, 1, MPI_INT, 0, kPidTag, parent);
        for (std::size_t i = 0; i < kResults.size(); ++i) {
            const auto data = filled(Message{0, 0, kResults[i], i});
            MPI_Send(data.data(), static_cast<int>(kResults[i]), MPI_BYTE, 0, kTag + 10 + static_cast<int>(i), parent);
        }
    }
    MPI_Finalize();
    return 0;
}

/// Each rank but the first gives its sends up, and some of their ends are heard of in MPI_Finalize.
int freed_sends_at_finalize(Check& check) {
    constexpr int kMessages = 100;
    const std::vector<std::size_t> sizes = {4, 500, 100'000};
    std::vector<std::vector<std::byte>> data;
    // So that senders have been granted room.
    for (int peer = 1; peer < check.size; ++peer) {
        for (int i = 0; i < 200 && (check.rank == 0 || check.rank == peer); ++i) {
            if (check.rank == 0) MPI_Recv(nullptr, 0, MPI_BYTE, peer, kPidTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (check.rank != 0) MPI_Send(nullptr, 0, MPI_BYTE, 0, kPidTag, MPI_COMM_WORLD);
        }
    }
    if (check.rank != 0) {
        for (std::uint64_t i = 0; i < kMessages; ++i) {
            const std::size_t bytes = sizes[i % sizes.size()];
            data.push_back(filled(Message{check.rank, 0, bytes, i}));
            MPI_Request request;
            const auto send = i % 2 == 0 ? MPI_Issend : MPI_Isend;
            send(data.back().data(), static_cast<int>(bytes), MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
            MPI_Request_free(&request);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    for (int peer = 1; check.rank == 0 && peer < check.size; ++peer) {
        for (std::uint64_t i = 0; i < kMessages; ++i) {
            GuardedBuffer buffer(sizes[i % sizes.size()]);
            MPI_Recv(buffer.data(), static_cast<int>(buffer.bytes()), MPI_BYTE, peer, kTag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            check.received(buffer, Message{peer, 0, buffer.bytes(), i});
        }
    }
    return mpi_test::judge_and_finalize(kLast, check);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Comm parent = mpi_test::init_spawned(argc, argv);
    if (parent != MPI_COMM_NULL) return worker_main(parent, argc > 1 && std::strcmp(argv[1], "--flood") == 0);
    const auto checks = [](Suite& suite) {
        suite.check("results_of_a_worker_that_has_ended", results_of_a_worker_that_has_ended);
        suite.check("flood_of_a_worker_that_ends", flood_of_a_worker_that_ends);
    };
    return mpi_test::run_to_the_end(argc, argv, checks, kLast, freed_sends_at_finalize);
}
