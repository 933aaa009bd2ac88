#include "info/probes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "velo/os/cma.h"
#include "velo/os/shared_segment.h"

namespace velo::info {
namespace {

/// A process's offer to its sibling.
struct Offer {
    base::SegmentAddress segment;
    int32_t pid = 0;
    uint64_t address = 0;
    uint64_t value = 0;
};

constexpr int kWorks = 0;

/// An exit code that is no errno.
constexpr int kOtherBytes = 255;

/// Child one makes an offer and waits; child two is given it and returns kWorks, an errno or kOtherBytes.
template <class Try>
Probe between_siblings(Try&& attempt) {
    int ends[2];
    if (pipe(ends) != 0) return {false, std::string("pipe: ") + std::strerror(errno)};
    const pid_t one = fork();
    if (one == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        try {
            static uint64_t value = base::random_token();
            const base::SharedSegment segment = base::SharedSegment::create("velo-info", 4096);
            base::permit_copies();
            const Offer offer = {segment.address(), getpid(), reinterpret_cast<uint64_t>(&value), value};
            if (write(ends[1], &offer, sizeof offer) == ssize_t{sizeof offer}) {
                for (;;) pause();
            }
        } catch (const base::SetupError& error) {
            std::fprintf(stderr, "%s\n", error.what());
        }
        _exit(1);
    }
    close(ends[1]);
    Offer offer;
    const bool offered = one > 0 && read(ends[0], &offer, sizeof offer) == ssize_t{sizeof offer};
    close(ends[0]);
    int ended = -1;
    if (offered) {
        const pid_t two = fork();
        if (two == 0) _exit(attempt(offer));
        waitpid(two, &ended, 0);
    }
    if (one > 0) {
        kill(one, SIGKILL);
        waitpid(one, nullptr, 0);
    }
    if (!offered) return {false, "a process could not create a memory file (memfd_create)"};
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == kWorks) return {true, ""};
    if (!WIFEXITED(ended)) return {false, "it crashed"};
    const int code = WEXITSTATUS(ended);
    return {false, code == kOtherBytes ? "other bytes than were offered" : std::strerror(code)};
}

}  // namespace

Probe probe_shared_memory() {
    return between_siblings([](const Offer& offer) {
        base::SharedSegment segment;
        base::Failure failure;
        if (base::SharedSegment::attach(offer.segment, segment, 0, &failure) == Status::kOk) return kWorks;
        return failure.error == 0 ? kOtherBytes : failure.error;
    });
}

Probe probe_direct_copy() {
    Probe probe = between_siblings([](const Offer& offer) {
        uint64_t seen = 0;
        auto* to = reinterpret_cast<std::byte*>(&seen);
        if (base::cma_read(offer.pid, to, offer.address, sizeof seen) == Status::kOk && seen == offer.value) {
            return kWorks;
        }
        const base::Failure failure = base::refused_copy();
        return failure ? failure.error : kOtherBytes;
    });
    if (!probe.works) probe.why = "process_vm_readv: " + probe.why;
    return probe;
}

std::string ptrace_scope() {
    std::FILE* file = std::fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (file == nullptr) return "";
    char text[16] = "";
    if (std::fgets(text, sizeof text, file) == nullptr) text[0] = '\0';
    std::fclose(file);
    text[std::strcspn(text, "\n")] = '\0';
    return text;
}

}  // namespace velo::info
