#include "velo/base/life_watch.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string>

#include "velo/base/shared_segment.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace velo::base {

ProcessState process_state(pid_t pid) {
    // Read often if there are no pidfds.
    char path[32] = "/proc/";
    char* const number_end = std::to_chars(path + std::strlen(path), std::end(path), pid).ptr;
    std::memcpy(number_end, "/stat", sizeof "/stat");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == ESRCH ? ProcessState::kEnded : ProcessState::kRuns;
    char text[512];
    const ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return ProcessState::kEnded;
    text[length] = '\0';
    // "pid (name) state": the name may hold anything, so the state is what follows the last parenthesis.
    const char* name_end = std::strrchr(text, ')');
    if (name_end == nullptr || name_end[1] == '\0') return ProcessState::kRuns;
    switch (name_end[2]) {
        case 'Z':
        case 'X': return ProcessState::kEnded;
        case 'T':
        case 't': return ProcessState::kStopped;
        default: return ProcessState::kRuns;
    }
}

LifeWatch::LifeWatch() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) {
        const Failure failure = {.call = "epoll_create1", .error = errno};
        throw SetupError("cannot watch peer processes: " + to_text(failure) + ". " + remedy(failure));
    }
}

LifeWatch::~LifeWatch() {
    for (Watched& watched : watched_) close_pidfd(watched);
    close(epoll_);
}

void LifeWatch::close_pidfd(Watched& watched) {
    if (watched.pidfd >= 0) close(watched.pidfd);
    watched.pidfd = -1;
}

Status LifeWatch::add(pid_t pid, uint32_t id, Failure* failure) {
    const auto ended = [failure](const char* call) {
        if (failure != nullptr) *failure = {.call = call, .error = ESRCH};
        return Status::kUnsupported;
    };
    auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd < 0 && errno == ESRCH) return ended("pidfd_open");
    if (pidfd >= 0) {
        epoll_event event = {};
        event.events = EPOLLIN;
        event.data.u32 = id;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, pidfd, &event) != 0) {
            close(pidfd);
            pidfd = -1;
        }
    }
    if (pidfd < 0) {
        if (process_state(pid) == ProcessState::kEnded) return ended("/proc/PID/stat");
        ++by_proc_;
    }
    if (id >= watched_.size()) watched_.resize(id + 1);
    watched_[id] = {.pid = pid, .pidfd = pidfd, .ended = false};
    return Status::kOk;
}

void LifeWatch::remove(uint32_t id) {
    Watched& watched = watched_[id];
    if (watched.pidfd < 0 && !watched.ended) --by_proc_;
    close_pidfd(watched);
    watched.ended = true;
}

void LifeWatch::poll(std::vector<uint32_t>& ended) {
    const auto end = [&](uint32_t id) {
        Watched& watched = watched_[id];
        if (watched.ended) return;
        watched.ended = true;
        close_pidfd(watched);
        ended.push_back(id);
    };
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) end(events[static_cast<size_t>(i)].data.u32);

    for (size_t tried = 0; by_proc_ != 0 && tried < watched_.size(); ++tried) {
        const auto id = static_cast<uint32_t>(next_by_proc_++ % watched_.size());
        if (watched_[id].pidfd >= 0 || watched_[id].ended) continue;
        if (process_state(watched_[id].pid) == ProcessState::kEnded) {
            end(id);
            --by_proc_;
        }
        break;
    }
}

}  // namespace velo::base
