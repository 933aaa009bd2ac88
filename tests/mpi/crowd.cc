// Hundreds of ranks on one host: each meets some others on the node, all hear of all, and a message goes round.
// Made for many more ranks than CPUs: little data, and few pairs that talk (`./check --long` has 300 ranks).
//
//   --one-message    only that, of a process that was spawned, for a look at how many are connected for it
#include <vector>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::mix;
using mpi_test::Suite;

/// No rank leaves the second barrier before the last one has entered the first.
void barriers(Check& check) {
    int entered = 1;
    int all = 0;
    MPI_Barrier(check.comm);
    MPI_Allreduce(&entered, &all, 1, MPI_INT, MPI_SUM, check.comm);
    MPI_Barrier(check.comm);
    if (all != check.size) check.fail("%d of %d ranks came", all, check.size);
}

void all_hear_of_all(Check& check) {
    const auto word_of = [&](int rank) { return mix(check.seed ^ static_cast<std::uint64_t>(rank)); };
    const std::uint64_t own = word_of(check.rank);
    std::vector<std::uint64_t> words(static_cast<std::size_t>(check.size));
    MPI_Allgather(&own, 1, MPI_UINT64_T, words.data(), 1, MPI_UINT64_T, check.comm);
    for (int rank = 0; rank < check.size; ++rank) {
        if (words[static_cast<std::size_t>(rank)] != word_of(rank)) check.fail("the word of rank %d is wrong", rank);
    }
}

/// Each rank sends to the next one, short and long, before it receives.
void messages_go_round(Check& check) {
    const int next = (check.rank + 1) % check.size;
    const int before = (check.rank + check.size - 1) % check.size;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{2000}, std::size_t{30'000}, std::size_t{200'000}}) {
        const Message out = {check.rank, next, bytes, 0};
        const Message in = {before, check.rank, bytes, 0};
        const std::vector<std::byte> data = filled(out);
        GuardedBuffer buffer(bytes);
        MPI_Sendrecv(data.data(), static_cast<int>(bytes), MPI_BYTE, next, 1, buffer.data(), static_cast<int>(bytes),
                     MPI_BYTE, before, 1, check.comm, MPI_STATUS_IGNORE);
        check.received(buffer, in);
    }
}

/// Rank 0 hears each of the others, which it did not know before.
void all_speak_to_one(Check& check) {
    constexpr std::size_t kBytes = 64;
    if (check.rank != 0) {
        const std::vector<std::byte> data = filled({check.rank, 0, kBytes, 7});
        MPI_Send(data.data(), kBytes, MPI_BYTE, 0, 2, check.comm);
        return;
    }
    for (int i = 1; i < check.size; ++i) {
        GuardedBuffer buffer(kBytes);
        MPI_Status status;
        MPI_Recv(buffer.data(), kBytes, MPI_BYTE, MPI_ANY_SOURCE, 2, check.comm, &status);
        check.received(buffer, {status.MPI_SOURCE, 0, kBytes, 7});
    }
}

/// One process spawns others, and hears of the last one alone, which it has not met. It prints which processes it
/// connects, and then that it has heard (tests/mpi/run counts).
int one_message(int argc, char** argv) {
    constexpr int kSpawned = 8;
    constexpr int kBytes = 64;
    MPI_Init(&argc, &argv);
    MPI_Comm others = MPI_COMM_NULL;
    MPI_Comm_get_parent(&others);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (others == MPI_COMM_NULL) {
        char option[] = "--one-message";
        char* options[] = {option, nullptr};
        MPI_Comm_spawn(argv[0], options, kSpawned, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others, MPI_ERRCODES_IGNORE);
        std::vector<std::byte> got(kBytes);
        MPI_Recv(got.data(), kBytes, MPI_BYTE, MPI_ANY_SOURCE, 1, others, MPI_STATUS_IGNORE);
        const bool right = got == filled({kSpawned - 1, 0, kBytes, 1});
        std::fprintf(stderr, "%s heard by process %05d\n", right ? "PASS" : "FAIL", static_cast<int>(getpid()));
    } else if (rank == kSpawned - 1) {
        const std::vector<std::byte> data = filled({rank, 0, kBytes, 1});
        MPI_Send(data.data(), kBytes, MPI_BYTE, 0, 1, others);
    }
    MPI_Comm_disconnect(&others);
    MPI_Finalize();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    // The launcher has to keep up with its ranks: a client of PMIx waits seconds for its answer to MPI_Finalize, and
    // mpirun then takes it for one that ended without (seen with 300 ranks on 2 CPUs, over vader as well).
    constexpr int kMany = 64;
    const char* ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (ranks != nullptr && std::atoi(ranks) > kMany && nice(19) == -1) std::perror("nice");
    if (argc == 2 && std::string_view(argv[1]) == "--one-message") return one_message(argc, argv);
    return mpi_test::run(argc, argv, [](Suite& suite) {
        suite.check("barriers", barriers);
        suite.check("all_hear_of_all", all_hear_of_all);
        suite.check("messages_go_round", messages_go_round);
        suite.check("all_speak_to_one", all_speak_to_one);
    });
}
