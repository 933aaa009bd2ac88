/// Latency and bandwidth between chosen pairs of ranks, one pair at a time, as CSV.
///
///   mpirun -np 4 … pairs --label velo --pairs 0-1,0-2 --sizes 8,2048,65536
///
/// Only the pair that is measured runs, pinned to two CPUs; all other ranks sleep. So a job of many ranks
/// measures on two CPUs what a job of two ranks would. Beside the figures of a pair stands how long one cache
/// line takes from the one CPU to the other, before and after them: every latency through shared memory is a
/// multiple of it, and on virtual machines it changes from minute to minute.
///
/// Latency is half a ping-pong. Bandwidth is that of windows of messages in one direction, each window
/// answered by an empty message. Both are medians over batches; all contents are checked once for each size.
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kTag = 1;
/// Many short batches: what else runs on the machine then spoils some of them, and the median is of the
/// others.
constexpr int kBatches = 31;
constexpr double kBatchSeconds = 0.0007;
constexpr int kWindow = 64;
/// Messages of a window lie in memory of their own, so long ones make a window shorter.
constexpr size_t kWindowBytesMax = size_t{32} << 20;
/// Waking this seldom takes less than a thousandth of a CPU from the pair that is measured.
constexpr useconds_t kNapUs = 5000;

struct Options {
    std::string label = "mpi";
    std::vector<std::pair<int, int>> pairs;
    std::vector<size_t> sizes;
};

/// The two CPUs that a pair is pinned to; -1: not pinned.
struct Cpus {
    int first = -1;
    int second = -1;
};

double seconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    const size_t middle = values.size() / 2;
    return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        parts.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

/// False, with a sentence in `error`, when the arguments are not usable in a job of `ranks`.
bool parse(int argc, char** argv, int ranks, Options& options, std::string& error) {
    for (int i = 1; i < argc; i += 2) {
        const std::string_view name = argv[i];
        if (i + 1 == argc) {
            error = std::string(name) + " lacks its value";
            return false;
        }
        if (name == "--label") {
            options.label = argv[i + 1];
        } else if (name == "--pairs") {
            for (const std::string& text : split(argv[i + 1], ',')) {
                int a = -1, b = -1, used = 0;
                if (std::sscanf(text.c_str(), "%d-%d%n", &a, &b, &used) != 2 ||
                    used != static_cast<int>(text.size()) || a < 0 || b < 0 || a == b ||
                    std::max(a, b) >= ranks) {
                    error = "'" + text + "' is not a pair of two of the job's " + std::to_string(ranks) +
                            " ranks; write pairs as 0-1,0-2";
                    return false;
                }
                options.pairs.emplace_back(a, b);
            }
        } else if (name == "--sizes") {
            for (const std::string& text : split(argv[i + 1], ',')) {
                char* end = nullptr;
                errno = 0;
                const unsigned long long bytes = std::strtoull(text.c_str(), &end, 10);
                if (*end != '\0' || errno != 0 || bytes > INT32_MAX || text.front() == '-') {
                    error = "'" + text + "' is not a size of 0 to 2147483647 bytes";
                    return false;
                }
                options.sizes.push_back(bytes);
            }
        } else {
            error = std::string(name) + " is unknown; there are --label, --pairs and --sizes";
            return false;
        }
    }
    if (options.pairs.empty() || options.sizes.empty()) error = "--pairs and --sizes must be given";
    return error.empty();
}

/// Two allowed CPUs that are not threads of one core, if there are such.
Cpus choose_cpus() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return {};
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    }
    const auto core_of = [](int cpu) {
        std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
        std::string text;
        std::getline(file, text);
        return text;
    };
    const std::string core = core_of(cpus[0]);
    for (size_t i = 1; i < cpus.size(); ++i) {
        if (core.empty() || core_of(cpus[i]) != core) return {cpus[0], cpus[i]};
    }
    return {cpus[0], cpus[1]};
}

void pin(int cpu) {
    if (cpu < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

void nap_until(MPI_Request request) {
    for (int done = 0;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done != 0) return;
        usleep(kNapUs);
    }
}

/// Nanoseconds for one cache line from one CPU to the other. The calling thread must be pinned to `first`.
double line_transfer_ns(const Cpus& cpus) {
    constexpr uint32_t kRoundTrips = 1000;
    // Two lines' worth of alignment: adjacent lines are prefetched together.
    struct alignas(128) {
        std::atomic<uint32_t> turn{0};
    } line;
    std::thread other([&] {
        pin(cpus.second);
        for (uint32_t i = 0; i < kRoundTrips * kBatches; ++i) {
            while (line.turn.load(std::memory_order_acquire) != 2 * i + 1) {
            }
            line.turn.store(2 * i + 2, std::memory_order_release);
        }
    });
    std::vector<double> batches;
    uint32_t turn = 0;
    for (int batch = 0; batch < kBatches; ++batch) {
        const double start = seconds();
        for (uint32_t i = 0; i < kRoundTrips; ++i) {
            line.turn.store(++turn, std::memory_order_release);
            ++turn;
            while (line.turn.load(std::memory_order_acquire) != turn) {
            }
        }
        batches.push_back((seconds() - start) / (2.0 * kRoundTrips) * 1e9);
    }
    other.join();
    return median(batches);
}

/// Byte `i` of message `number` from `rank`, so that neither a message nor a part of one can stand for
/// another.
unsigned char expected(size_t i, size_t number, int rank) {
    return static_cast<unsigned char>((i * 2654435761u >> 16) + i + number * 97 +
                                      static_cast<size_t>(rank) * 59);
}

/// One rank's side of a measurement with one size.
class Side {
  public:
    Side(int self, int peer, bool leads, size_t bytes)
        : self_(self),
          peer_(peer),
          leads_(leads),
          bytes_(bytes),
          window_(
              static_cast<int>(std::clamp<size_t>(kWindowBytesMax / std::max<size_t>(bytes, 1), 1, kWindow))),
          memory_(static_cast<size_t>(window_) * bytes) {}

    /// A window in each direction with known contents; ends the job when one byte is wrong.
    void verify() {
        for (const bool sends : {leads_, !leads_}) {
            for (int number = 0; number < window_; ++number) {
                for (size_t i = 0; i < bytes_; ++i) {
                    message(number)[i] = sends ? expected(i, static_cast<size_t>(number), self_) : 0;
                }
            }
            move_window(sends);
            for (int number = 0; number < window_ && !sends; ++number) check(number);
        }
    }

    double latency_us() {
        return timed([this](int count) {
                   for (int i = 0; i < count; ++i) {
                       if (leads_) send();
                       receive();
                       if (!leads_) send();
                   }
               }) /
               2 * 1e6;
    }

    double bandwidth_mb_s() {
        const double window_seconds = timed([this](int count) {
            for (int i = 0; i < count; ++i) move_window(leads_);
        });
        return static_cast<double>(window_) * static_cast<double>(bytes_) / window_seconds / 1e6;
    }

  private:
    unsigned char* message(int number) { return memory_.data() + static_cast<size_t>(number) * bytes_; }
    [[nodiscard]] int count() const { return static_cast<int>(bytes_); }
    void send() { MPI_Send(message(0), count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD); }
    void receive() {
        MPI_Recv(message(0), count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }

    void move_window(bool sends) {
        MPI_Request requests[kWindow];
        for (int number = 0; number < window_; ++number) {
            if (sends) {
                MPI_Isend(message(number), count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD, &requests[number]);
            } else {
                MPI_Irecv(message(number), count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD, &requests[number]);
            }
        }
        MPI_Waitall(window_, requests, MPI_STATUSES_IGNORE);
        if (sends) {
            MPI_Recv(nullptr, 0, MPI_BYTE, peer_, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(nullptr, 0, MPI_BYTE, peer_, kTag, MPI_COMM_WORLD);
        }
    }

    void check(int number) {
        for (size_t i = 0; i < bytes_; ++i) {
            const unsigned char right = expected(i, static_cast<size_t>(number), peer_);
            if (message(number)[i] == right) continue;
            std::fprintf(stderr, "pairs: byte %zu of message %d of %zu bytes from rank %d is %u, not %u\n", i,
                         number, bytes_, peer_, unsigned{message(number)[i]}, unsigned{right});
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }

    /// Seconds for one of what run(count) does `count` of. The leader finds out how many make a batch.
    double timed(const std::function<void(int)>& run) {
        struct {
            int count = 1;
            int final = 0;
        } plan;
        for (;;) {
            if (leads_) {
                MPI_Send(&plan, 2, MPI_INT, peer_, kTag, MPI_COMM_WORLD);
            } else {
                MPI_Recv(&plan, 2, MPI_INT, peer_, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            if (plan.final != 0) break;
            const double start = seconds();
            run(plan.count);
            const double taken = seconds() - start;
            plan.final = taken >= kBatchSeconds / 4 ? 1 : 0;
            plan.count = plan.final == 0
                             ? plan.count * 4
                             : static_cast<int>(std::max(plan.count * kBatchSeconds / taken, 1.0));
        }
        std::vector<double> batches;
        for (int batch = 0; batch < kBatches; ++batch) {
            const double batch_start = seconds();
            run(plan.count);
            batches.push_back((seconds() - batch_start) / plan.count);
        }
        return median(batches);
    }

    int self_;
    int peer_;
    bool leads_;
    size_t bytes_;
    int window_;
    std::vector<unsigned char> memory_;
};

/// While the leader has both CPUs for itself, its partner sleeps.
void record_line_transfer(const Options& options, const std::string& pair, const Cpus& cpus, int peer,
                          bool leads, std::string& csv) {
    if (cpus.first < 0) return;
    if (leads) {
        csv += "#line_transfer_ns," + options.label + "," + pair + "," +
               std::to_string(line_transfer_ns(cpus)) + "\n";
        MPI_Send(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD);
    } else {
        MPI_Request request;
        MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &request);
        nap_until(request);
    }
}

/// Both ranks of a pair call this; the first one prints.
void measure(const Options& options, const std::pair<int, int>& ranks, int self, const Cpus& cpus) {
    const bool leads = self == ranks.first;
    const int peer = leads ? ranks.second : ranks.first;
    const std::string pair = std::to_string(ranks.first) + "-" + std::to_string(ranks.second);
    cpu_set_t before;
    const bool restorable = sched_getaffinity(0, sizeof before, &before) == 0;
    pin(leads ? cpus.first : cpus.second);

    std::string csv;
    record_line_transfer(options, pair, cpus, peer, leads, csv);
    for (const size_t bytes : options.sizes) {
        Side side(self, peer, leads, bytes);
        side.verify();
        const double latency = side.latency_us();
        const double bandwidth = side.bandwidth_mb_s();
        char line[160];
        std::snprintf(line, sizeof line, "%s,%s,%zu,%.4f,%.2f\n", options.label.c_str(), pair.c_str(), bytes,
                      latency, bandwidth);
        csv += line;
    }
    record_line_transfer(options, pair, cpus, peer, leads, csv);
    if (leads) {
        std::fwrite(csv.data(), 1, csv.size(), stdout);
        std::fflush(stdout);
    }
    if (restorable) sched_setaffinity(0, sizeof before, &before);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int self = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    Options options;
    std::string error;
    if (!parse(argc, argv, ranks, options, error)) {
        if (self == 0) std::fprintf(stderr, "pairs: %s\n", error.c_str());
        MPI_Finalize();
        return 2;
    }
    const Cpus cpus = choose_cpus();
    if (self == 0) {
        std::puts("label,pair,size,latency_us,bandwidth_mb_s");
        if (cpus.first < 0) std::puts("#fewer than two CPUs: nothing is pinned, and the figures mean little");
        std::fflush(stdout);
    }
    for (const auto& pair : options.pairs) {
        if (self == pair.first || self == pair.second) measure(options, pair, self, cpus);
        MPI_Request everybody;
        MPI_Ibarrier(MPI_COMM_WORLD, &everybody);
        nap_until(everybody);
    }
    MPI_Finalize();
    return 0;
}
