/// Tells which watched processes have ended, without a word from them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "velo/base/status.h"
#include "velo/os/failure.h"

namespace velo::base {

enum class ProcessState : uint8_t { kRuns, kStopped, kEnded };

/// Facts of /proc about a process.
struct ProcessFacts {
    ProcessState state = ProcessState::kRuns;
    /// Ticks of the kernel since boot, which tell a process from a later one of its PID; 0: unknown.
    uint64_t started = 0;
};

/// The facts in the text of /proc/PID/stat.
ProcessFacts facts_in(std::string_view stat);
/// As /proc says. A zombie has ended; where /proc cannot be read a process runs.
ProcessFacts process_facts(pid_t pid);
inline ProcessState process_state(pid_t pid) {
    return process_facts(pid).state;
}

/// The system calls behind a watch.
struct ProcessCalls {
    int (*open_pidfd)(pid_t) noexcept;  ///< -1: errno says why
    bool (*exists)(pid_t) noexcept;     ///< a zombie does
    ProcessFacts (*facts)(pid_t);
};
extern const ProcessCalls kProcessCalls;

/// A pidfd a process, all in one epoll set, so that asking costs one system call however many are watched.
/// A zombie counts as ended. Descriptors are taken below 512 only, and below half of the soft limit: the program keeps
/// the others. Further processes, and all if the kernel has no pidfd (before 5.3) or denies it, are asked for by PID, a
/// few in each poll, which takes no descriptor that stays. Thread: the owner's.
class LifeWatch {
  public:
    /// Most processes that one poll asks for by PID: of 1,023, each is asked for in every 32nd poll.
    static constexpr uint32_t kAskedAPoll = 32;

    /// Throws SetupError when no epoll set can be had.
    explicit LifeWatch(const ProcessCalls& calls = kProcessCalls);
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

    /// Appends ids newly found ended to `ended`; each is reported once.
    void poll(std::vector<uint32_t>& ended);

    /// Processes that are asked for by PID.
    [[nodiscard]] uint32_t by_pid() const { return static_cast<uint32_t>(by_pid_.size()); }

  private:
    struct Watched {
        pid_t pid = 0;
        int pidfd = -1;     ///< -1: by PID
        bool ended = true;  ///< reported, or not watched at all
        uint64_t started = 0;  ///< ProcessFacts::started, by PID only
    };
    void stop(uint32_t id);
    [[nodiscard]] bool by_pidfd(pid_t pid, uint32_t id, int& pidfd) const;
    [[nodiscard]] bool is_gone(const Watched& watched) const;

    ProcessCalls calls_;
    int epoll_ = -1;
    std::vector<Watched> watched_;
    std::vector<uint32_t> by_pid_;  ///< ids
    uint32_t next_asked_ = 0;       ///< of by_pid_
    uint32_t next_read_ = 0;        ///< of by_pid_, read in /proc
};

}  // namespace velo::base
