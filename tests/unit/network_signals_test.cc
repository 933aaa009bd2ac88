// Signals stay the program's when the network's library is opened, whatever it brings. Each test opens it in a process
// of its own.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "velo/device/network_library.h"

namespace velo {
namespace {

/// The wait status of a process that does `what`, and then ends well.
int process(const std::function<void()>& what) {
    const pid_t pid = fork();
    if (pid == 0) {
        const rlimit no_core = {};
        setrlimit(RLIMIT_CORE, &no_core);
        what();
        _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

/// Of libfabric as well, which loads some of its providers at the first look.
void open_library() {
    setenv("VELO_OFI_LIBRARY", VELO_OFI_BUILT, 1);
    // The scripts that run the tests set them, for those that are linked to libfabric.
    for (const char* variable : {"IPATH_NO_BACKTRACE", "HFI_NO_BACKTRACE"}) unsetenv(variable);
    std::string why;
    const NetworkLibrary* const library = network_library(why);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", why.c_str());
        _exit(2);
    }
    library->list({}, 1, nullptr, [](void*, const char*, const char*, const char*, const char*, uint32_t) {});
}

TEST(NetworkSignals, every_handler_is_the_same_after_the_library_was_opened) {
    const int status = process([] {
        for (const int signal : {SIGABRT, SIGBUS}) std::signal(signal, [](int) { _exit(3); });
        std::array<struct sigaction, NSIG> before = {};
        for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, nullptr, &before[signal]);
        open_library();
        for (int signal = 1; signal < NSIG; ++signal) {
            struct sigaction after = {};
            if (sigaction(signal, nullptr, &after) != 0 || after.sa_handler == before[signal].sa_handler) continue;
            std::fprintf(stderr, "signal %d has another handler\n", signal);
            _exit(1);
        }
    });
    EXPECT_EQ(status, 0);
}

TEST(NetworkSignals, a_process_that_ends_by_a_signal_leaves_no_file) {
    std::string folder = (std::filesystem::temp_directory_path() / "velo-signals-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    for (const int signal : {SIGABRT, SIGSEGV, SIGTERM}) {
        const int status = process([&] {
            std::filesystem::current_path(folder);
            std::signal(signal, SIG_DFL);
            open_library();
            raise(signal);
        });
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << "signal " << signal << ", status " << status;
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace velo
