// Beginnings and ends: communicators made and freed, processes spawned, children forked in the middle of
// traffic, and a finalise that follows the last send at once. Started with `--child` it is the spawned side.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "intercomm.h"
#include "mpi_test.h"
#include "spawned.h"

namespace {

using mpi_test::Check;
using mpi_test::exchange_with_remote;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::kChildren;
using mpi_test::Message;
using mpi_test::own_path;
using mpi_test::Suite;

constexpr int kTag = 5;
constexpr char kLast[] = "late_receiver_at_finalize";

const std::vector<std::size_t> kSizes = {0, 1, 57, 1000, 2048, 5000, 100000, 1 << 20};

/// Both sides of a spawn: messages, a collective over the intercommunicator, and one over the union.
void meet(Check& check, MPI_Comm inter, bool parent) {
    exchange_with_remote(check, inter, parent ? 0 : 1, kSizes);
    MPI_Comm all;
    MPI_Intercomm_merge(inter, parent ? 0 : 1, &all);
    int size = 0;
    int rank = 0;
    MPI_Comm_size(all, &size);
    MPI_Comm_rank(all, &rank);
    std::vector<int> gathered(static_cast<std::size_t>(size), -1);
    MPI_Allgather(&rank, 1, MPI_INT, gathered.data(), 1, MPI_INT, all);
    for (int i = 0; i < size; ++i)
        check.equal(gathered[static_cast<std::size_t>(i)], i, "allgather over both jobs");
    MPI_Comm_free(&all);
}

void spawn(Check& check) {
    std::string path = own_path();
    char argument[] = "--child";
    char* arguments[] = {argument, nullptr};
    const int rounds = check.quick ? 1 : 2;
    for (int round = 0; round < rounds; ++round) {
        MPI_Comm children;
        std::vector<int> errors(kChildren, MPI_SUCCESS);
        MPI_Comm_spawn(path.c_str(), arguments, kChildren, MPI_INFO_NULL, 0, check.comm, &children,
                       errors.data());
        if (check.rank == 0) {
            for (const int error : errors) check.equal(error, MPI_SUCCESS, "spawn");
        }
        meet(check, children, true);
        int child_failures = -1;
        MPI_Bcast(&child_failures, 1, MPI_INT, 0, children);
        check.equal(child_failures, 0, "failures in the children");
        MPI_Comm_disconnect(&children);
    }
}

int child_main(MPI_Comm parents) {
    Check check(MPI_COMM_WORLD, {});
    meet(check, parents, false);
    int mine = static_cast<int>(check.failure_count());
    int total = 0;
    MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (mine != 0) std::fprintf(stderr, "spawned child: %s\n", check.texts().c_str());
    MPI_Bcast(&total, 1, MPI_INT, check.rank == 0 ? MPI_ROOT : MPI_PROC_NULL, parents);
    MPI_Comm_disconnect(&parents);
    MPI_Finalize();
    return total == 0 ? 0 : 1;
}

/// A verified ring exchange on any communicator of the check's ranks.
void ring(Check& check, MPI_Comm comm, std::size_t bytes, std::uint64_t iteration) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    const auto data = filled({rank, next, bytes, iteration});
    GuardedBuffer buffer(bytes);
    MPI_Sendrecv(data.data(), static_cast<int>(bytes), MPI_BYTE, next, kTag, buffer.data(),
                 static_cast<int>(bytes), MPI_BYTE, previous, kTag, comm, MPI_STATUS_IGNORE);
    check.received(buffer, {previous, rank, bytes, iteration});
}

void dup_and_free(Check& check) {
    const int rounds = check.quick ? 30 : 100;
    for (int round = 0; round < rounds; ++round) {
        MPI_Comm comm;
        MPI_Comm_dup(check.comm, &comm);
        ring(check, comm, kSizes[static_cast<std::size_t>(round) % kSizes.size()],
             static_cast<std::uint64_t>(round));
        MPI_Comm_free(&comm);
    }
}

void many_communicators_alive(Check& check) {
    constexpr int kComms = 40;
    std::vector<MPI_Comm> comms(kComms);
    for (int i = 0; i < kComms; ++i) {
        if (i % 2) {
            MPI_Comm_split(check.comm, check.rank % (1 + i % 3), -check.rank, &comms[i]);
        } else {
            MPI_Comm_dup(check.comm, &comms[i]);
        }
    }
    for (int i = kComms - 1; i >= 0; --i) ring(check, comms[i], 1500, static_cast<std::uint64_t>(i));
    for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

/// Freed with messages still on their way: the free takes effect only after they arrived.
void free_with_messages_pending(Check& check) {
    for (const std::size_t bytes : kSizes) {
        MPI_Comm comm;
        MPI_Comm_dup(check.comm, &comm);
        const auto data = filled({check.rank, check.next(), bytes, 8});
        GuardedBuffer buffer(bytes);
        MPI_Request requests[2];
        MPI_Irecv(buffer.data(), static_cast<int>(bytes), MPI_BYTE, check.previous(), kTag, comm,
                  &requests[0]);
        MPI_Isend(data.data(), static_cast<int>(bytes), MPI_BYTE, check.next(), kTag, comm, &requests[1]);
        MPI_Comm_free(&comm);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        check.received(buffer, {check.previous(), check.rank, bytes, 8});
    }
}

/// A child process is made while messages are in flight in both directions, and again while they are half
/// done.
void child_process_amid_traffic(Check& check, const std::function<int()>& make_child) {
    for (const std::size_t bytes : kSizes) {
        const int count = static_cast<int>(bytes);
        constexpr int kMessages = 8;
        std::vector<std::vector<std::byte>> data;
        std::vector<GuardedBuffer> buffers;
        std::vector<MPI_Request> requests(2 * kMessages);
        for (int i = 0; i < kMessages; ++i) {
            data.push_back(filled({check.rank, check.next(), bytes, static_cast<std::uint64_t>(i)}));
            MPI_Isend(data.back().data(), count, MPI_BYTE, check.next(), i, check.comm, &requests[i]);
        }
        check.equal(make_child(), 0, "child's exit status");
        for (int i = 0; i < kMessages; ++i) {
            buffers.emplace_back(bytes);
            MPI_Irecv(buffers.back().data(), count, MPI_BYTE, check.previous(), i, check.comm,
                      &requests[kMessages + i]);
            if (i == kMessages / 2) check.equal(make_child(), 0, "child's exit status");
        }
        MPI_Waitall(2 * kMessages, requests.data(), MPI_STATUSES_IGNORE);
        for (int i = 0; i < kMessages; ++i) {
            check.received(buffers[i], {check.previous(), check.rank, bytes, static_cast<std::uint64_t>(i)});
        }
    }
}

// Writes to inherited heap memory before leaving, so that the pages the parent communicates from are copied.
int fork_and_wait() {
    std::vector<std::byte> scratch(1 << 16);
    const pid_t child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        std::memset(scratch.data(), 1, scratch.size());
        _exit(0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// The senders finalise as soon as their sends are complete, while rank 0 has not asked for anything yet;
/// nothing may be lost. Rank 0 alone judges, since the others are in MPI_Finalize already.
int late_receiver_at_finalize(Check& check) {
    constexpr int kMessages = 100;
    const auto bytes_of = [](int index) { return static_cast<std::size_t>(index * 37 % 2048); };
    if (check.rank != 0) {
        std::vector<MPI_Request> requests(kMessages);
        std::vector<std::vector<std::byte>> data;
        for (int i = 0; i < kMessages; ++i) {
            data.push_back(filled({check.rank, 0, bytes_of(i), static_cast<std::uint64_t>(i)}));
            MPI_Isend(data.back().data(), static_cast<int>(bytes_of(i)), MPI_BYTE, 0, kTag, MPI_COMM_WORLD,
                      &requests[i]);
        }
        MPI_Waitall(kMessages, requests.data(), MPI_STATUSES_IGNORE);
        MPI_Finalize();
        return 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    for (int peer = 1; peer < check.size; ++peer) {
        for (int i = 0; i < kMessages; ++i) {
            GuardedBuffer buffer(bytes_of(i));
            MPI_Recv(buffer.data(), static_cast<int>(bytes_of(i)), MPI_BYTE, peer, kTag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            check.received(buffer, {peer, 0, bytes_of(i), static_cast<std::uint64_t>(i)});
        }
    }
    return mpi_test::judge_and_finalize(kLast, check);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Comm parents = mpi_test::init_spawned(argc, argv);
    if (parents != MPI_COMM_NULL) return child_main(parents);
    const auto checks = [](Suite& suite) {
        suite.check("dup_and_free", dup_and_free);
        suite.check("many_communicators_alive", many_communicators_alive);
        suite.check("free_with_messages_pending", free_with_messages_pending);
        suite.check("system_amid_traffic", [](Check& check) {
            child_process_amid_traffic(check, [] { return std::system("true"); });
        });
        suite.check("fork_amid_traffic",
                    [](Check& check) { child_process_amid_traffic(check, fork_and_wait); });
        suite.check("comm_spawn", spawn);
    };
    return mpi_test::run_to_the_end(argc, argv, checks, kLast, late_receiver_at_finalize);
}
