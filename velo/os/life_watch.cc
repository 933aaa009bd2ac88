#include "velo/os/life_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string>

#include "velo/os/shared_segment.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace velo::base {
namespace {

int open_pidfd(pid_t pid) noexcept {
    return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

bool exists(pid_t pid) noexcept {
    return kill(pid, 0) == 0 || errno != ESRCH;
}

/// Descriptors are given out from the lowest on, so the number of one tells how many are open. The upper half of those
/// that may be open, and of those that select() takes, is the program's.
bool leaves_enough(int fd) {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    return static_cast<rlim_t>(fd) < std::min<rlim_t>(limit.rlim_cur, FD_SETSIZE) / 2;
}

ProcessState state_of(char letter) {
    switch (letter) {
        case 'Z':
        case 'X': return ProcessState::kEnded;
        case 'T':
        case 't': return ProcessState::kStopped;
        default: return ProcessState::kRuns;
    }
}

}  // namespace

const ProcessCalls kProcessCalls = {.open_pidfd = open_pidfd, .exists = exists, .facts = process_facts};

ProcessFacts facts_in(std::string_view stat) {
    // "pid (name) state ...": the name may hold anything, so the state is what follows the last parenthesis.
    constexpr uint32_t kStateField = 3;
    constexpr uint32_t kStartField = 22;
    ProcessFacts facts;
    const size_t name_end = stat.rfind(") ");
    if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return facts;
    size_t at = name_end + 2;
    facts.state = state_of(stat[at]);
    for (uint32_t field = kStateField; field < kStartField; ++field) {
        at = stat.find(' ', at);
        if (at == std::string_view::npos) return facts;
        ++at;
    }
    (void)std::from_chars(stat.data() + at, stat.data() + stat.size(), facts.started);
    return facts;
}

ProcessFacts process_facts(pid_t pid) {
    // Read often if there are no pidfds.
    char path[32] = "/proc/";
    char* const number_end = std::to_chars(path + std::strlen(path), std::end(path), pid).ptr;
    std::memcpy(number_end, "/stat", sizeof "/stat");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        const bool gone = errno == ENOENT || errno == ESRCH;
        return {.state = gone ? ProcessState::kEnded : ProcessState::kRuns};
    }
    char text[512];
    const ssize_t length = read(fd, text, sizeof text);
    close(fd);
    if (length <= 0) return {.state = ProcessState::kEnded};
    return facts_in({text, static_cast<size_t>(length)});
}

LifeWatch::LifeWatch(const ProcessCalls& calls) : calls_(calls), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) {
        const Failure failure = {.call = "epoll_create1", .error = errno};
        throw SetupError("cannot watch peer processes: " + to_text(failure) + ". " + remedy(failure));
    }
}

LifeWatch::~LifeWatch() {
    for (uint32_t id = 0; id < watched_.size(); ++id) stop(id);
    close(epoll_);
}

/// The id's process is asked for no more.
void LifeWatch::stop(uint32_t id) {
    Watched& watched = watched_[id];
    if (watched.pidfd >= 0) {
        close(watched.pidfd);
        watched.pidfd = -1;
    } else if (!watched.ended) {
        std::erase(by_pid_, id);
    }
    watched.ended = true;
}

/// False: the process has to be asked for by PID, or, with ESRCH in errno, does not exist.
bool LifeWatch::by_pidfd(pid_t pid, uint32_t id, int& pidfd) const {
    pidfd = calls_.open_pidfd(pid);
    if (pidfd < 0) return false;
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u32 = id;
    if (leaves_enough(pidfd) && epoll_ctl(epoll_, EPOLL_CTL_ADD, pidfd, &event) == 0) return true;
    close(pidfd);
    pidfd = -1;
    errno = 0;
    return false;
}

Status LifeWatch::add(pid_t pid, uint32_t id, Failure* failure) {
    const auto ended = [failure](const char* call) {
        if (failure != nullptr) *failure = {.call = call, .error = ESRCH};
        return Status::kUnsupported;
    };
    Watched watched = {.pid = pid, .pidfd = -1, .ended = false};
    if (!by_pidfd(pid, id, watched.pidfd)) {
        if (errno == ESRCH) return ended("pidfd_open");
        const ProcessFacts facts = calls_.facts(pid);
        if (facts.state == ProcessState::kEnded || !calls_.exists(pid)) return ended("/proc/PID/stat");
        watched.started = facts.started;
        by_pid_.push_back(id);
    }
    if (id >= watched_.size()) watched_.resize(id + 1);
    watched_[id] = watched;
    return Status::kOk;
}

void LifeWatch::remove(uint32_t id) {
    stop(id);
}

/// As /proc says: a zombie, or another process has its PID.
bool LifeWatch::is_gone(const Watched& watched) const {
    const ProcessFacts facts = calls_.facts(watched.pid);
    if (facts.state == ProcessState::kEnded) return true;
    return watched.started != 0 && facts.started != 0 && facts.started != watched.started;
}

void LifeWatch::poll(std::vector<uint32_t>& ended) {
    const auto end = [&](uint32_t id) {
        if (watched_[id].ended) return;
        stop(id);
        ended.push_back(id);
    };
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) end(events[static_cast<size_t>(i)].data.u32);

    // A process that is found gone leaves by_pid_, and another one takes its place.
    const auto asked = std::min<size_t>(kAskedAPoll, by_pid_.size());
    for (size_t i = 0; i < asked && !by_pid_.empty(); ++i) {
        const uint32_t id = by_pid_[next_asked_++ % by_pid_.size()];
        if (!calls_.exists(watched_[id].pid)) end(id);
    }
    // It costs as much as asking for 20, and is needed for zombies and for PIDs that are used again.
    if (by_pid_.empty()) return;
    if (const uint32_t id = by_pid_[next_read_++ % by_pid_.size()]; is_gone(watched_[id])) end(id);
}

}  // namespace velo::base
