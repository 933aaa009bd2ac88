// Random numbers by which processes tell each other apart; of its own for the libraries that need nothing else here.
#include <sys/random.h>
#include <unistd.h>

#include <ctime>

#include "velo/os/shared_segment.h"

namespace velo::base {

uint64_t random_token() noexcept {
    uint64_t token = 0;
    while (token == 0) {
        if (getrandom(&token, sizeof token, 0) != sizeof token) {
            timespec now = {};
            clock_gettime(CLOCK_REALTIME, &now);
            token = static_cast<uint64_t>(now.tv_nsec) << 32 ^ static_cast<uint64_t>(now.tv_sec) ^
                    static_cast<uint64_t>(getpid()) << 20;
        }
    }
    return token;
}

}  // namespace velo::base
