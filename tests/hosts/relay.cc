// Joins two network namespaces by a link that delays, loses and can be cut, for kernels without netem.
//
//   relay [--delay-us US] [--loss-per-mille N] [--seed N] [--device NAME] PID PID
//
// Each PID is of a process in one of the namespaces. Both get a TAP device of the given name (default:
// slow0); the caller gives it an address and sets it up. A frame that enters one device leaves the other
// after the delay, and each frame is lost with the given probability, in both directions alike. Prints
// "ready" when the devices are there. SIGUSR1 cuts the link, which also loses what is on its way; SIGUSR2
// joins it. On SIGTERM and SIGINT the relay prints its counts and ends; the devices go with it. Exit status:
// 0, 1 on an error, 2 on wrong usage.
//
// Thread: one. Memory: at most kFramesMax frames a direction; what is above it waits in the device's own
// queue.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

/// Ethernet's largest frame over a device with the default MTU is 1514 bytes, 1518 with a VLAN tag.
constexpr std::size_t kFrameBytesMax = 2048;
/// 50 ms of 1 Gbit/s in full frames are about 4,200.
constexpr std::size_t kFramesMax = 8192;
/// Frames that are taken from one device before the other one has its turn.
constexpr int kBurstMax = 64;
constexpr microseconds kDelayMax = std::chrono::milliseconds(1000);
constexpr unsigned kPerMille = 1000;

struct Options {
    microseconds delay{0};
    unsigned loss_per_mille = 0;
    std::uint64_t seed = 1;
    std::string device = "slow0";
    std::array<std::string, 2> pids;
};

struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const std::string& what) {
    const int error = errno;
    throw std::runtime_error(what + ": " + std::strerror(error));
}

class Descriptor {
  public:
    explicit Descriptor(int fd = -1) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() {
        if (fd_ >= 0) close(fd_);
    }
    [[nodiscard]] int get() const { return fd_; }

  private:
    int fd_;
};

Descriptor open_or_fail(const std::string& path, int flags) {
    Descriptor descriptor(open(path.c_str(), flags | O_CLOEXEC));
    if (descriptor.get() < 0) fail("cannot open " + path);
    return descriptor;
}

void enter_network(const Descriptor& network, const std::string& whose) {
    if (setns(network.get(), CLONE_NEWNET) != 0) fail("cannot enter the network of " + whose);
}

/// A TAP device of the given name in the network of a process. This process stays in its own network.
Descriptor make_device(const std::string& pid, const std::string& name) {
    const Descriptor own = open_or_fail("/proc/self/ns/net", O_RDONLY);
    const Descriptor network = open_or_fail("/proc/" + pid + "/ns/net", O_RDONLY);
    enter_network(network, "process " + pid);
    Descriptor device = open_or_fail("/dev/net/tun", O_RDWR | O_NONBLOCK);
    ifreq request = {};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (ioctl(device.get(), TUNSETIFF, &request) != 0)
        fail("cannot make device " + name + " for process " + pid);
    enter_network(own, "this process");
    return device;
}

struct Frame {
    Clock::time_point due;
    std::size_t bytes = 0;
    std::array<std::byte, kFrameBytesMax> data;
};

struct Counts {
    std::uint64_t carried = 0;
    std::uint64_t lost = 0;     ///< at random
    std::uint64_t cut = 0;      ///< while the link was cut
    std::uint64_t refused = 0;  ///< by the device at the far end, which is down
};

/// One direction of the link: a ring of frames, in the order in which they are due.
class Direction {
  public:
    Direction(int from, int to, const Options& options, std::uint64_t seed)
        : from_(from),
          to_(to),
          delay_(options.delay),
          loss_per_mille_(options.loss_per_mille),
          random_(seed),
          ring_(kFramesMax) {}

    [[nodiscard]] bool has_room() const { return taken_ - delivered_ < kFramesMax; }
    [[nodiscard]] std::optional<Clock::time_point> next_due() const {
        if (taken_ == delivered_) return std::nullopt;
        return ring_[delivered_ % kFramesMax].due;
    }
    [[nodiscard]] const Counts& counts() const { return counts_; }

    void take(bool joined) {
        for (int i = 0; i < kBurstMax && has_room(); ++i) {
            Frame& frame = ring_[taken_ % kFramesMax];
            const ssize_t bytes = read(from_, frame.data.data(), frame.data.size());
            if (bytes < 0) {
                if (errno == EAGAIN || errno == EINTR) return;
                fail("cannot read from a device; has its namespace ended?");
            }
            if (!joined) {
                ++counts_.cut;
            } else if (random_() % kPerMille < loss_per_mille_) {
                ++counts_.lost;
            } else {
                frame.bytes = static_cast<std::size_t>(bytes);
                frame.due = Clock::now() + delay_;
                ++taken_;
            }
        }
    }

    void deliver(Clock::time_point now) {
        for (; taken_ != delivered_; ++delivered_) {
            const Frame& frame = ring_[delivered_ % kFramesMax];
            if (frame.due > now) return;
            if (write(to_, frame.data.data(), frame.bytes) >= 0) {
                ++counts_.carried;
            } else if (errno == EIO || errno == EAGAIN || errno == ENOBUFS) {
                ++counts_.refused;
            } else {
                fail("cannot write to a device; has its namespace ended?");
            }
        }
    }

    void lose_what_is_on_its_way() {
        counts_.cut += taken_ - delivered_;
        delivered_ = taken_;
    }

  private:
    const int from_;
    const int to_;
    const microseconds delay_;
    const unsigned loss_per_mille_;
    std::mt19937_64 random_;
    std::vector<Frame> ring_;
    std::size_t taken_ = 0;
    std::size_t delivered_ = 0;
    Counts counts_;
};

Descriptor make_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) sigaddset(&set, signal);
    if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) fail("cannot block signals");
    Descriptor signals(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (signals.get() < 0) fail("cannot receive signals");
    return signals;
}

class Relay {
  public:
    explicit Relay(const Options& options)
        : signals_(make_signals()),
          devices_{make_device(options.pids[0], options.device),
                   make_device(options.pids[1], options.device)},
          directions_{Direction(devices_[0].get(), devices_[1].get(), options, options.seed),
                      Direction(devices_[1].get(), devices_[0].get(), options, ~options.seed)} {}

    void run() {
        while (!ended_) {
            wait();
            handle_signals();
            for (Direction& direction : directions_) direction.take(joined_);
            for (Direction& direction : directions_) direction.deliver(Clock::now());
        }
    }

    void print_counts() const {
        for (std::size_t i = 0; i < directions_.size(); ++i) {
            const Counts& counts = directions_[i].counts();
            std::printf(
                "from device %zu: %llu carried, %llu lost, %llu cut, %llu refused\n", i,
                static_cast<unsigned long long>(counts.carried), static_cast<unsigned long long>(counts.lost),
                static_cast<unsigned long long>(counts.cut), static_cast<unsigned long long>(counts.refused));
        }
    }

  private:
    /// Returns when a frame is due, or a device or a signal has something. A direction that is full is not
    /// looked at.
    void wait() {
        std::array<pollfd, 3> polled{};
        polled[0] = {signals_.get(), POLLIN, 0};
        std::optional<Clock::time_point> due;
        for (std::size_t i = 0; i < directions_.size(); ++i) {
            polled[i + 1] = {directions_[i].has_room() ? devices_[i].get() : -1, POLLIN, 0};
            const auto next = directions_[i].next_due();
            if (next && (!due || *next < *due)) due = next;
        }
        timespec timeout = {};
        if (due) {
            const auto left = std::max(*due - Clock::now(), Clock::duration::zero());
            timeout.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
            timeout.tv_nsec = std::chrono::nanoseconds(left % std::chrono::seconds(1)).count();
        }
        if (ppoll(polled.data(), polled.size(), due ? &timeout : nullptr, nullptr) < 0 && errno != EINTR)
            fail("cannot wait");
    }

    void handle_signals() {
        signalfd_siginfo info;
        while (read(signals_.get(), &info, sizeof info) == sizeof info) {
            if (info.ssi_signo == SIGUSR1) {
                joined_ = false;
                for (Direction& direction : directions_) direction.lose_what_is_on_its_way();
            } else if (info.ssi_signo == SIGUSR2) {
                joined_ = true;
            } else {
                ended_ = true;
            }
        }
    }

    Descriptor signals_;
    std::array<Descriptor, 2> devices_;
    std::array<Direction, 2> directions_;
    bool joined_ = true;
    bool ended_ = false;
};

std::uint64_t number(std::string_view what, const std::string& text, std::uint64_t max) {
    char* end = nullptr;
    errno = 0;
    const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
    if (text.empty() || text[0] == '-' || *end != '\0' || errno != 0 || value > max) {
        throw UsageError(std::string(what) + " is a number of 0 to " + std::to_string(max) + ", not '" +
                         text + "'");
    }
    return value;
}

Options parse(int argc, char** argv) {
    Options options;
    std::size_t pids = 0;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (!argument.starts_with("--")) {
            if (pids == options.pids.size()) throw UsageError("a link has two ends, not three");
            number("a process", argument, INT32_MAX);
            options.pids[pids++] = argument;
            continue;
        }
        if (++i == argc) throw UsageError(argument + " needs a value");
        const std::string value = argv[i];
        if (argument == "--delay-us") {
            options.delay = microseconds(number(argument, value, kDelayMax / microseconds(1)));
        } else if (argument == "--loss-per-mille") {
            options.loss_per_mille = static_cast<unsigned>(number(argument, value, kPerMille));
        } else if (argument == "--seed") {
            options.seed = number(argument, value, UINT64_MAX);
        } else if (argument == "--device") {
            if (value.empty() || value.size() >= IFNAMSIZ)
                throw UsageError("a device's name has 1 to " + std::to_string(IFNAMSIZ - 1) + " characters");
            options.device = value;
        } else {
            throw UsageError("unknown option " + argument);
        }
    }
    if (pids != options.pids.size()) throw UsageError("the processes of two namespaces are needed");
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Relay relay(parse(argc, argv));
        // Delays are as exact as the kernel's timers.
        prctl(PR_SET_TIMERSLACK, 1);
        std::puts("ready");
        std::fflush(stdout);
        relay.run();
        relay.print_counts();
        return 0;
    } catch (const UsageError& error) {
        std::fprintf(
            stderr,
            "relay: %s\nusage: relay [--delay-us US] [--loss-per-mille N] [--seed N] [--device NAME] "
            "PID PID\n",
            error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "relay: %s\n", error.what());
        return 1;
    }
}
