/// Tells which watched processes have ended, without a word from them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "velo/base/failure.h"
#include "velo/base/status.h"

namespace velo::base {

enum class ProcessState : uint8_t { kRuns, kStopped, kEnded };

/// As /proc says. A zombie has ended; where /proc cannot be read a process runs.
ProcessState process_state(pid_t pid);

/// A pidfd a process, all in one epoll set, so that asking costs one system call however many are watched.
/// A zombie counts as ended. If the kernel has no pidfd (before 5.3) or denies it, /proc is read instead,
/// one process a call. Thread: the owner's.
class LifeWatch {
  public:
    /// Throws SetupError when no epoll set can be had.
    LifeWatch();
    LifeWatch(const LifeWatch&) = delete;
    LifeWatch& operator=(const LifeWatch&) = delete;
    ~LifeWatch();

    /// Watches process `pid` under the name `id`: the next one from 0, or one that was removed. kUnsupported:
    /// there is no such process, as `failure` says. To be called before anything is read from the process by
    /// its pid: should the pid be given to another process meanwhile, what is read does not fit, and what is
    /// watched is not alive.
    Status add(pid_t pid, uint32_t id, Failure* failure = nullptr);

    /// Undoes the add() of `id`, whether its process has ended or not.
    void remove(uint32_t id);

    /// Appends ids newly found ended to `ended`; each is told once.
    void poll(std::vector<uint32_t>& ended);

  private:
    struct Watched {
        pid_t pid = 0;
        int pidfd = -1;     ///< -1: by /proc
        bool ended = true;  ///< told, or not watched at all
    };
    void close_pidfd(Watched& watched);

    int epoll_ = -1;
    std::vector<Watched> watched_;
    uint32_t by_proc_ = 0;  ///< how many are watched through /proc
    uint32_t next_by_proc_ = 0;
};

}  // namespace velo::base
