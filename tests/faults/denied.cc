// Direct copies that the kernel denies, at the start or in mid-run, to some ranks or to all: data must be
// right and every transfer must end.
//
//   denied RANKS WHEN ERRNO      RANKS: a rank or "all"; WHEN: start or middle; ERRNO: EPERM or ENOSYS
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>

#include "tests/mpi/mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

/// From now on process_vm_readv and process_vm_writev fail with `error`, in every thread.
void deny_direct_copies(int error) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (static_cast<unsigned>(error) & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter = {.len = std::size(program), .filter = program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
        std::perror("denied: seccomp");
        std::exit(5);
    }
    char byte = 0;
    const iovec here = {&byte, 1};
    if (process_vm_readv(getpid(), &here, 1, &here, 1, 0) != -1 || errno != error) {
        std::fprintf(stderr, "denied: the filter does not hold\n");
        std::exit(5);
    }
}

struct Denial {
    bool here;  ///< this rank is one of those that are denied
    bool at_start;
    int error;
    bool done = false;

    void happen() {
        if (here && !done) deny_direct_copies(error);
        done = true;
    }
};

/// Messages in both directions with a denial while they are under way.
void exchange(Check& check, Denial& denial, int count, std::size_t bytes) {
    std::vector<std::vector<std::byte>> out;
    std::vector<GuardedBuffer> in(static_cast<std::size_t>(count), GuardedBuffer(bytes));
    std::vector<MPI_Request> requests(2 * static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        out.push_back(mpi_test::filled({check.rank, check.next(), bytes, at}));
        MPI_Irecv(in[at].data(), static_cast<int>(bytes), MPI_BYTE, check.previous(), i, check.comm,
                  &requests[2 * at]);
        MPI_Isend(out[at].data(), static_cast<int>(bytes), MPI_BYTE, check.next(), i, check.comm,
                  &requests[2 * at + 1]);
    }
    int index = 0;
    MPI_Waitany(static_cast<int>(requests.size()), requests.data(), &index, MPI_STATUS_IGNORE);
    denial.happen();
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        check.received(in[at], {check.previous(), check.rank, bytes, at});
    }
}

/// Puts and gets in memory that both registered before anything was denied.
void one_sided(Check& check, Denial& denial) {
    constexpr std::size_t kBytes = 3u << 20;
    std::vector<std::byte> window(2 * kBytes);
    const std::vector<std::byte> mine = mpi_test::filled({check.rank, check.rank, kBytes, 1});
    std::copy(mine.begin(), mine.end(), window.begin());
    GuardedBuffer fetched(kBytes);
    MPI_Win win;
    MPI_Win_create(window.data(), static_cast<MPI_Aint>(window.size()), 1, MPI_INFO_NULL, check.comm, &win);
    for (std::uint64_t round = 0; round < 3; ++round) {
        if (round == 1) denial.happen();
        const std::vector<std::byte> out = mpi_test::filled({check.rank, check.next(), kBytes, round});
        MPI_Win_fence(0, win);
        fetched.poison();
        MPI_Get(fetched.data(), kBytes, MPI_BYTE, check.next(), 0, kBytes, MPI_BYTE, win);
        MPI_Put(out.data(), kBytes, MPI_BYTE, check.next(), kBytes, kBytes, MPI_BYTE, win);
        MPI_Win_fence(0, win);
        check.received(fetched, {check.next(), check.next(), kBytes, 1});
        const Message put = {check.previous(), check.rank, kBytes, round};
        check.equal(mpi_test::first_difference(window.data() + kBytes, put, kBytes), kBytes,
                    "a put's first difference");
        MPI_Barrier(check.comm);
    }
    MPI_Win_free(&win);
}

int usage() {
    std::fprintf(stderr, "usage: denied RANK|all start|middle EPERM|ENOSYS\n");
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return usage();
    const std::string ranks = argv[1];
    const std::string when = argv[2];
    const std::string error = argv[3];
    if ((when != "start" && when != "middle") || (error != "EPERM" && error != "ENOSYS")) return usage();
    const char* own = std::getenv("OMPI_COMM_WORLD_RANK");
    if (own == nullptr) return usage();
    Denial denial = {.here = ranks == "all" || ranks == own,
                     .at_start = when == "start",
                     .error = error == "EPERM" ? EPERM : ENOSYS};
    if (denial.at_start) denial.happen();
    MPI_Init(&argc, &argv);
    int result = 0;
    {
        char* none[] = {argv[0], nullptr};
        Suite suite(1, none);
        suite.check("messages", [&](Check& check) { exchange(check, denial, 12, (1u << 20) + 3); });
        suite.check("long_messages", [&](Check& check) { exchange(check, denial, 2, (9u << 20) + 1); });
        suite.check("one_sided", [&](Check& check) { one_sided(check, denial); });
        result = suite.finish();
    }
    MPI_Finalize();
    return result;
}
