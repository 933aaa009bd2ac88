/// The engine's lock: nothing when one thread uses the engine, a short spin when several do.
#pragma once

#include <sched.h>

#include <atomic>

namespace velo::base {

/// Held for short stretches only, never across an upcall, so a waiter spins, and yields when the holder
/// was preempted. Thread: any.
class OptionalLock {
  public:
    explicit OptionalLock(bool threads) : threads_(threads) {}

    /// Several may use what it protects.
    [[nodiscard]] bool threads() const { return threads_; }
    void lock() {
        if (threads_) lock_slow();
    }
    [[nodiscard]] bool try_lock() { return !threads_ || !held_.exchange(true, std::memory_order_acquire); }
    void unlock() {
        if (threads_) held_.store(false, std::memory_order_release);
    }

  private:
    [[gnu::noinline]] void lock_slow() {
        for (int spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) {
            while (held_.load(std::memory_order_relaxed)) {
                if (++spins > 64) {
                    sched_yield();
                    spins = 0;
                }
            }
        }
    }

    std::atomic<bool> held_{false};
    const bool threads_;
};

/// Gives the lock up for the time of an upcall.
class Unlocked {
  public:
    explicit Unlocked(OptionalLock& lock) : lock_(lock) { lock_.unlock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() { lock_.lock(); }

  private:
    OptionalLock& lock_;
};

}  // namespace velo::base
