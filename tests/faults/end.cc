// A job that ends in the way that its argument names, with messages of every kind under way until then.
//
//   end clean | abort | kill | stay | short | scarce | hidden | secret
//                      abort, kill: rank 1 does it; stay: until it is ended from outside; short: as clean,
//                      but rank 1 has no address space left; scarce: every rank has some left, not enough for
//                      all its rings of 16 MiB; hidden: rank 1 is not dumpable any more after MPI_Init;
//                      secret: before it
// Each rank prints "pid N" when it is in the middle of it, and a clean end prints "PASS".
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/mpi/mpi_test.h"

namespace {

constexpr int kSmall = 64;
constexpr int kLarge = 2 << 20;

/// Every rank with every other, small and large.
void exchange(std::vector<char>& out, std::vector<char>& in, int rank, int size) {
    std::vector<MPI_Request> requests;
    for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        char* to = in.data() + static_cast<std::size_t>(peer) * (kSmall + kLarge);
        MPI_Irecv(to, kSmall, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &requests.emplace_back());
        MPI_Irecv(to + kSmall, kLarge, MPI_CHAR, peer, 2, MPI_COMM_WORLD, &requests.emplace_back());
        MPI_Isend(out.data(), kSmall, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &requests.emplace_back());
        MPI_Isend(out.data(), kLarge, MPI_CHAR, peer, 2, MPI_COMM_WORLD, &requests.emplace_back());
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

/// From now on this process gets this much address space more.
void limit_address_space(rlim_t more) {
    unsigned long pages = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%lu", &pages) != 1) std::abort();
    std::fclose(file);
    const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more;
    const rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

/// Code or memory of velo, which nothing may call or read any more.
bool velo_is_mapped() {
    std::ifstream maps("/proc/self/maps");
    if (!maps) std::abort();
    for (std::string line; std::getline(maps, line);) {
        if (line.find("mca_btl_velo") != std::string::npos || line.find("memfd:velo") != std::string::npos)
            return true;
    }
    return false;
}

/// A process that may trace all others also sees what is not dumpable.
void respect_dumpable() {
    __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    if (syscall(SYS_capget, &header, data) != 0) std::abort();
    // All of them: a process that has fewer than another one may not look into that either.
    for (__user_cap_data_struct& part : data) part.effective = part.permitted = 0;
    if (syscall(SYS_capset, &header, data) != 0) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string how = argc == 2 ? argv[1] : "";
    constexpr const char* kWays[] = {"clean", "abort", "kill", "stay", "short", "scarce", "hidden", "secret"};
    if (std::find(std::begin(kWays), std::end(kWays), how) == std::end(kWays)) {
        std::fprintf(stderr, "usage: end clean|abort|kill|stay|short|scarce|hidden|secret\n");
        return 2;
    }
    if (how == "hidden" || how == "secret") respect_dumpable();
    const char* own = std::getenv("OMPI_COMM_WORLD_RANK");
    if (how == "secret" && own != nullptr && std::string(own) == "1" && prctl(PR_SET_DUMPABLE, 0) != 0)
        std::abort();
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<char> out(kLarge, 'x');
    std::vector<char> in(static_cast<std::size_t>(size) * (kSmall + kLarge));
    constexpr int kRounds = 20;
    const bool ends = how == "clean" || how == "short" || how == "scarce" || how == "hidden";
    if (how == "short" && rank == 1) limit_address_space(4u << 20);
    if (how == "hidden" && rank == 1 && prctl(PR_SET_DUMPABLE, 0) != 0) std::abort();
    if (how == "scarce") limit_address_space(80u << 20);
    for (int round = 0; round < kRounds || !ends; ++round) {
        exchange(out, in, rank, size);
        if (round != kRounds) continue;
        std::printf("pid %d\n", getpid());
        std::fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(200'000);  // what was printed should be read before mpirun ends
        if (rank == 1 && how == "abort") MPI_Abort(MPI_COMM_WORLD, 7);
        if (rank == 1 && how == "kill") kill(getpid(), SIGKILL);
    }
    if (how == "clean") {
        std::printf("pid %d\n", getpid());
        std::fflush(stdout);
    }
    MPI_Finalize();
    if (velo_is_mapped()) {
        std::printf("FAIL: something of velo is mapped after MPI_Finalize\n");
        return 1;
    }
    if (rank == 0) std::printf("PASS\n");
    return 0;
}
