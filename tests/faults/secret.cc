// Memory that the kernel lets no other process touch, as buffers and as a window: data must be right, as with any
// other memory.
//
//   secret memfd    memory of memfd_secret(2); the next, where the kernel has none
//   secret filter   the kernel answers EFAULT to direct copies with other processes, as it does for such memory
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "tests/mpi/mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::Suite;

constexpr std::size_t kBytes = 3u << 20;
constexpr long kMemfdSecret = 447;

/// From now on process_vm_readv and process_vm_writev of another process's memory fail with EFAULT, in every thread.
void refuse_memory_of_others() {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(getpid()), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (EFAULT & SECCOMP_RET_DATA)),
    };
    const sock_fprog filter = {.len = std::size(program), .filter = program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
        std::perror("secret: seccomp");
        std::exit(5);
    }
}

/// nullptr: this kernel has no such memory.
std::byte* secret_memory() {
    const auto fd = static_cast<int>(syscall(kMemfdSecret, 0));
    if (fd < 0 || ftruncate(fd, kBytes) != 0) return nullptr;
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

/// Rank 0 sends to rank 1: from secret memory, into it, or both.
void messages(Check& check, std::byte* secret, bool from, bool into) {
    std::vector<std::byte> open(kBytes);
    std::uint64_t round = 0;
    for (const std::size_t bytes : {8u, 3000u, 20'000u, 100'000u, 390'000u, 3'000'000u}) {
        const mpi_test::Message message = {0, 1, bytes, ++round};
        std::byte* buffer = (check.rank == 0 ? from : into) ? secret : open.data();
        if (check.rank == 0) {
            mpi_test::fill(buffer, message);
            MPI_Send(buffer, static_cast<int>(bytes), MPI_BYTE, 1, 1, check.comm);
        } else if (check.rank == 1) {
            std::memset(buffer, 0, bytes);
            MPI_Recv(buffer, static_cast<int>(bytes), MPI_BYTE, 0, 1, check.comm, MPI_STATUS_IGNORE);
            check.equal(mpi_test::first_difference(buffer, message, bytes), bytes, "a message's first difference");
        }
    }
}

/// Puts, gets and atomics on a window in secret memory; `origin`: the local end is, too.
void one_sided(Check& check, std::byte* secret, bool origin) {
    constexpr std::size_t kHalf = kBytes / 2;
    constexpr std::size_t kCounterAt = kHalf - 8;
    MPI_Win win;
    std::memset(secret, 0, kBytes);
    MPI_Win_create(secret, kHalf, 1, MPI_INFO_NULL, check.comm, &win);
    std::vector<std::byte> open(kHalf);
    std::byte* local = origin ? secret + kHalf : open.data();
    MPI_Win_lock_all(0, win);
    std::uint64_t round = 0;
    for (const std::size_t bytes : {8u, 3000u, 100'000u, 700'000u}) {
        const auto count = static_cast<int>(bytes);
        const mpi_test::Message message = {check.rank, check.next(), bytes, ++round};
        mpi_test::fill(local, message);
        MPI_Put(local, count, MPI_BYTE, check.next(), 0, count, MPI_BYTE, win);
        MPI_Win_flush(check.next(), win);
        std::memset(local, 0, bytes);
        MPI_Get(local, count, MPI_BYTE, check.next(), 0, count, MPI_BYTE, win);
        MPI_Win_flush(check.next(), win);
        check.equal(mpi_test::first_difference(local, message, bytes), bytes, "a get's first difference");
    }
    const std::int64_t one = 1;
    std::int64_t before = -1;
    for (std::int64_t add = 0; add < 10; ++add) {
        MPI_Fetch_and_op(&one, &before, MPI_INT64_T, check.next(), kCounterAt, MPI_SUM, win);
        MPI_Win_flush(check.next(), win);
        check.equal(before, add, "the number before an addition");
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string how = argc == 2 ? argv[1] : "";
    if (how != "memfd" && how != "filter") {
        std::fprintf(stderr, "usage: secret memfd|filter\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    std::byte* secret = how == "memfd" ? secret_memory() : nullptr;
    if (secret == nullptr) {
        refuse_memory_of_others();
        secret = static_cast<std::byte*>(std::malloc(kBytes));
    }
    int result = 0;
    {
        char* none[] = {argv[0], nullptr};
        Suite suite(1, none);
        suite.check("messages_from_it", [&](Check& check) { messages(check, secret, true, false); });
        suite.check("messages_into_it", [&](Check& check) { messages(check, secret, false, true); });
        suite.check("messages_from_it_and_into_it", [&](Check& check) { messages(check, secret, true, true); });
        suite.check("one_sided", [&](Check& check) { one_sided(check, secret, false); });
        suite.check("one_sided_with_it_at_both_ends", [&](Check& check) { one_sided(check, secret, true); });
        result = suite.finish();
    }
    MPI_Finalize();
    return result;
}
