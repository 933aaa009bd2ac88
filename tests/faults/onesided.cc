// One-sided operations that cannot be carried out, or only in another way than the first one tried.
//
//   onesided get | put    rank 0's window lies in pages that it has protected meanwhile; rank 1 gets or puts
//   onesided add          every rank adds to a number of rank 0, and rank 0 verifies the sum
//   onesided move         every rank puts to rank 0, gets it back and compares
// Prints PASS when all ended well and every result is right, and FAIL when a result is wrong.
#include <sys/mman.h>

#include "tests/mpi/mpi_test.h"

namespace {

constexpr std::size_t kBytes = 1 << 20;

void protected_pages(MPI_Win window, void* memory, int rank, bool get) {
    if (rank == 0 && mprotect(memory, kBytes, get ? PROT_NONE : PROT_READ) != 0) std::abort();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        std::int64_t value = 7;
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        if (get) {
            MPI_Get(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
        } else {
            MPI_Put(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
        }
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) mprotect(memory, kBytes, PROT_READ | PROT_WRITE);
}

bool add(MPI_Win window, const void* memory, int rank, int size) {
    constexpr std::int64_t kRounds = 300;
    MPI_Win_lock_all(0, window);
    for (std::int64_t round = 0; round < kRounds; ++round) {
        const std::int64_t one = 1;
        std::int64_t before = -1;
        MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    std::int64_t sum = -1;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    std::memcpy(&sum, memory, sizeof sum);
    MPI_Win_unlock(rank, window);
    return rank != 0 || sum == kRounds * size;
}

bool move(MPI_Win window, int rank, int size) {
    bool right = true;
    const std::size_t part = kBytes / static_cast<std::size_t>(size);
    const auto at = static_cast<MPI_Aint>(part) * rank;
    MPI_Win_lock_all(0, window);
    for (std::uint64_t round = 0; round < 50; ++round) {
        const std::size_t bytes = round % 2 == 0 ? 8 : part;
        const auto count = static_cast<int>(bytes);
        const mpi_test::Message message = {rank, 0, bytes, round};
        const auto data = mpi_test::filled(message);
        std::vector<std::byte> back(bytes);
        MPI_Put(data.data(), count, MPI_BYTE, 0, at, count, MPI_BYTE, window);
        MPI_Win_flush(0, window);
        MPI_Get(back.data(), count, MPI_BYTE, 0, at, count, MPI_BYTE, window);
        MPI_Win_flush(0, window);
        right = right && back == data;
    }
    MPI_Win_unlock_all(window);
    return right;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc == 2 ? argv[1] : "";
    if (what != "get" && what != "put" && what != "add" && what != "move") {
        std::fprintf(stderr, "usage: onesided get|put|add|move\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    MPI_Win window;
    MPI_Win_create(memory, kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    bool right = true;
    if (what == "add") {
        right = add(window, memory, rank, size);
    } else if (what == "move") {
        right = move(window, rank, size);
    } else {
        protected_pages(window, memory, rank, what == "get");
    }
    MPI_Win_free(&window);
    int wrong = right ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) std::printf("%s %s\n", wrong == 0 ? "PASS" : "FAIL", what.c_str());
    MPI_Finalize();
    return wrong;
}
