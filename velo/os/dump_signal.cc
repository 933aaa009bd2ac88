#include "velo/os/dump_signal.h"

#include <signal.h>

#include <atomic>

namespace velo::base {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores to it");
int caught = 0;

void request(int) {
    requested.store(true, std::memory_order_relaxed);
}

}  // namespace

SignalOutcome catch_dump_signal(int number) noexcept {
    struct sigaction present = {};
    if (sigaction(number, nullptr, &present) != 0) return SignalOutcome::kImpossible;
    if (present.sa_handler == &request) return SignalOutcome::kInstalled;
    if ((present.sa_flags & SA_SIGINFO) != 0 || present.sa_handler != SIG_DFL) return SignalOutcome::kTaken;
    struct sigaction ours = {};
    ours.sa_handler = &request;
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    if (sigaction(number, &ours, nullptr) != 0) return SignalOutcome::kImpossible;
    caught = number;
    return SignalOutcome::kInstalled;
}

void release_dump_signal() noexcept {
    struct sigaction present = {};
    if (caught == 0 || sigaction(caught, nullptr, &present) != 0) return;
    if (present.sa_handler == &request) signal(caught, SIG_DFL);
    caught = 0;
}

bool take_dump_request() noexcept {
    return requested.load(std::memory_order_relaxed) && requested.exchange(false, std::memory_order_relaxed);
}

}  // namespace velo::base
