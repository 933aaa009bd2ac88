// Ranks that fork, and run commands: the child touches nothing of the job, the parent goes on.
#include <fcntl.h>
#include <sys/wait.h>

#include "tests/mpi/mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::GuardedBuffer;
using mpi_test::Suite;

/// Sends to the next rank and receives from the one before, small and large, with `meanwhile` while all of it
/// is under way.
template <class Meanwhile>
void exchange(Check& check, Meanwhile&& meanwhile) {
    const std::size_t sizes[] = {8, 1000, 60000, 4u << 20};
    std::vector<std::vector<std::byte>> out;
    std::vector<GuardedBuffer> in;
    std::vector<MPI_Request> requests;
    in.reserve(std::size(sizes));
    for (const std::size_t bytes : sizes) {
        out.push_back(mpi_test::filled({check.rank, check.next(), bytes, 0}));
        in.emplace_back(bytes);
        MPI_Irecv(in.back().data(), static_cast<int>(bytes), MPI_BYTE, check.previous(), 1, check.comm,
                  &requests.emplace_back());
    }
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
        MPI_Isend(out[i].data(), static_cast<int>(sizes[i]), MPI_BYTE, check.next(), 1, check.comm,
                  &requests.emplace_back());
        if (i == 1) meanwhile();
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
        check.received(in[i], {check.previous(), check.rank, sizes[i], 0});
    }
}

template <class Child>
pid_t start(Child&& child) {
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) child();
    return pid;
}

void expect_clean_end(Check& check, pid_t pid) {
    int status = -1;
    check.equal(waitpid(pid, &status, 0), pid, "waitpid");
    if (WIFSIGNALED(status)) check.fail("the child was ended by signal %d", WTERMSIG(status));
    check.equal(WEXITSTATUS(status), 0, "the child's exit status");
}

void commands(Check& check) {
    exchange(check, [] {});
    for (int i = 0; i < 3; ++i) {
        exchange(check, [&] { check.equal(std::system("true"), 0, "system()"); });
        // grep finds nothing (1): no descriptor of velo's reaches a command.
        const int status = std::system("ls -l /proc/self/fd | grep -q velo");
        check.equal(WEXITSTATUS(status), 1, "descriptors of velo in a command");
    }
}

/// exit() runs the destructors and handlers of everything that is loaded.
void child_exits(Check& check) {
    exchange(check, [&] { expect_clean_end(check, start([] { std::exit(0); })); });
    expect_clean_end(check, start([] { std::exit(0); }));
    exchange(check, [&] { expect_clean_end(check, start([] { _exit(0); })); });
}

/// The child has the parent's heap as it was; that it writes to its copy must not matter to anyone.
void child_writes_and_lives_on(Check& check) {
    std::vector<std::byte> memory(8u << 20, std::byte{1});
    int go[2];
    if (pipe(go) != 0) return check.fail("pipe");
    const pid_t pid = start([&] {
        close(go[1]);
        std::memset(memory.data(), 2, memory.size());
        char byte = 0;
        const bool told = read(go[0], &byte, 1) == 1;
        std::exit(told && memory.back() == std::byte{2} ? 0 : 1);
    });
    for (int i = 0; i < 5; ++i) exchange(check, [] {});
    check.equal(write(go[1], "x", 1), 1, "write");
    expect_clean_end(check, pid);
    close(go[0]);
    close(go[1]);
    exchange(check, [] {});
}

void window(Check& check) {
    std::vector<std::uint64_t> memory(1u << 18);
    MPI_Win win;
    MPI_Win_create(memory.data(), static_cast<MPI_Aint>(memory.size() * 8), 8, MPI_INFO_NULL, check.comm,
                   &win);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        const std::vector<std::uint64_t> out(memory.size(), round);
        MPI_Win_fence(0, win);
        // The parent's pages are shared with the child now: a put must reach the parent's, and the child's
        // writes must not.
        const pid_t pid = start([&] {
            std::fill(memory.begin(), memory.end(), 99);
            std::exit(0);
        });
        MPI_Put(out.data(), static_cast<int>(out.size()), MPI_UINT64_T, check.next(), 0,
                static_cast<int>(out.size()), MPI_UINT64_T, win);
        expect_clean_end(check, pid);
        MPI_Win_fence(0, win);
        check.equal(static_cast<long long>(memory.front()), static_cast<long long>(round), "first word");
        check.equal(static_cast<long long>(memory.back()), static_cast<long long>(round), "last word");
    }
    MPI_Win_free(&win);
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        suite.check("commands", commands);
        suite.check("child_exits", child_exits);
        suite.check("child_writes_and_lives_on", child_writes_and_lives_on);
        suite.check("window", window);
    });
}
