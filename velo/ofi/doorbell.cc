#include "velo/ofi/doorbell.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

namespace velo::ofi {
namespace {

// An eventfd adds up: the end shows whatever else was told.
constexpr uint64_t kArmed = 1;
constexpr uint64_t kEnd = uint64_t{1} << 32;

}  // namespace

Doorbell::Doorbell(int ready) : told_(eventfd(0, EFD_CLOEXEC)) {
    if (told_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread(&Doorbell::watch, this, ready);
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        close(told_);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_.native_handle(), "velo-doorbell");
}

Doorbell::~Doorbell() {
    tell(kEnd);
    thread_.join();
    close(told_);
}

void Doorbell::tell(uint64_t word) const {
    // It blocks never: the sum stays far below its bound.
    while (write(told_, &word, sizeof word) < 0 && errno == EINTR) {
    }
}

void Doorbell::arm() {
    armed_ = true;
    rang_.store(false, std::memory_order_relaxed);
    tell(kArmed);
}

void Doorbell::watch(int ready) {
    for (;;) {
        uint64_t told = 0;
        if (read(told_, &told, sizeof told) < 0) {
            if (errno == EINTR) continue;
            return;
        }
        if (told >= kEnd) return;
        std::array<pollfd, 2> waited = {pollfd{.fd = ready, .events = POLLIN, .revents = 0},
                                        pollfd{.fd = told_, .events = POLLIN, .revents = 0}};
        while (poll(waited.data(), waited.size(), -1) < 0 && errno == EINTR) {
        }
        rang_.store(true, std::memory_order_release);
    }
}

}  // namespace velo::ofi
