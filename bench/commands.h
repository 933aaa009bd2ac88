/// The commands of velo_bench, and what they share: options, failures, and a second process on another CPU.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <string>

#include "arguments.h"
#include "measuring.h"

namespace bench {

int chunks(int argc, char** argv);
int credits(int argc, char** argv);
int distance(int argc, char** argv);
int matching(int argc, char** argv);
int packets(int argc, char** argv);
int ring(int argc, char** argv);

/// Ends the process with status 2, and a line that begins with the command.
[[noreturn]] void fail(const std::string& why);

/// Reads the options of a command. Ends the process after --help, and where one is wrong.
void take_options(int argc, char** argv, std::initializer_list<measuring::Option> options);

inline constexpr measuring::NumberRange kRounds = {.smallest = 1, .largest = 1000};

/// Two CPUs, to the first of which the process is pinned.
measuring::Cpus two_cpus();

/// Memory of zeros, which a second process has as well.
std::byte* shared_memory(size_t bytes);
template <class T>
T& shared_object() {
    return *new (shared_memory(sizeof(T))) T;
}

/// Calls run(0, other) here, on the first CPU, and run(1, other) in a second process on the other CPU; `other` is the
/// process of the other one. Returns when both have ended.
template <class Run>
void run_both(const measuring::Cpus& cpus, Run&& run) {
    const pid_t self = getpid();
    const pid_t child = fork();
    if (child < 0) fail("there is no second process; more processes must be allowed (ulimit -u)");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != self) _exit(2);
        measuring::pin(cpus.second);
        run(1u, self);
        std::_Exit(0);
    }
    prctl(PR_SET_PTRACER, child);  // where ptrace is restricted, a child may not read its parent
    measuring::pin(cpus.first);
    run(0u, child);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) fail("the other process failed");
}

}  // namespace bench
