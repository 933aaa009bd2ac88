/// The cost of a message on the node below MPI and the engine: through the ring (velo/shm/ring.h), by each way
/// to write it, and by process_vm_readv.
///
///   velo_bench ring [--sizes 8,64,2048,16384,65536] [--rounds 5] [--ring-bytes 4194304] [--csv]
///
/// Two processes, pinned to two CPUs, each with messages in private memory, which the other one copies into
/// private memory of its own. Ways:
///   ordinary     memcpy into the ring, and out of it
///   nontemporal  into the ring with stores that do not fetch its lines from the reader first; from 128 bytes
///   cma          a line through the ring says that the message is there, and the reader fetches it
/// one way: half of a ping-pong. streaming: one direction, the writer ahead as far as the ring allows; for
/// cma the reader alone at work. Both in ns a message, the median over batches, then over rounds, in each of
/// which all ways take turns. Beside them stands how long a cache line takes from one CPU to the other,
/// before and after: the median and the range. Figures with near cores and with far ones (110 ns and more) do
/// not compare, and have rows of their own; a round in which that changed meanwhile does not count. --csv: medians as
/// rows of measuring.h.
#include "velo/shm/ring.h"

#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "commands.h"
#include "measuring.h"
#include "velo/base/copy.h"
#include "velo/os/cma.h"

namespace {

using namespace velo::shm;

constexpr int kBatches = 31;
constexpr uint32_t kWindow = 64;  ///< messages in memory of their own
constexpr uint32_t kNontemporalMin = 128;
constexpr useconds_t kNapUs = 100;

enum class Way : uint32_t { kOrdinary, kNontemporal, kCma };
constexpr const char* kWays[] = {"ordinary", "nontemporal", "cma"};

struct Options {
    std::vector<uint32_t> sizes = {8, 64, 2048, 16384, 65536};
    uint32_t rounds = 5;
    uint32_t ring_bytes = 4u << 20;
    bool csv = false;
};

Options options_of(int argc, char** argv) {
    Options options;
    bench::take_options(argc, argv,
                        {{"--sizes", &options.sizes, {.smallest = 1, .largest = 1u << 30}},
                         {"--rounds", &options.rounds, bench::kRounds},
                         {"--ring-bytes", &options.ring_bytes, {.smallest = 1, .largest = 1u << 30}},
                         {"--csv", &options.csv}});
    const RingGeometry geometry = {.lines = 256, .body_bytes = options.ring_bytes};
    if (!geometry.valid()) {
        bench::fail("--ring-bytes=" + std::to_string(options.ring_bytes) + " is not a power of two from 4096");
    }
    const uint32_t longest = *std::ranges::max_element(options.sizes);
    if (longest > geometry.message_bytes_max()) {
        bench::fail("--sizes: " + std::to_string(longest) + " bytes are more than half the ring; raise --ring-bytes");
    }
    return options;
}

/// The task of the other process; it naps until `sequence` moves.
struct Command {
    std::atomic<uint32_t> sequence{0};
    std::atomic<uint32_t> done{0};
    Way way = Way::kOrdinary;
    bool streaming = false;
    uint32_t bytes = 0;
    uint32_t count = 0;  ///< messages of each direction, in all batches; 0: the end
};

/// One of the two processes.
class Side {
  public:
    Side(RingView out, RingView in, uint32_t bytes_max)
        : producer_(out), consumer_(in), stride_(velo::base::round_up(bytes_max, 4096)) {
        out_ = static_cast<std::byte*>(std::aligned_alloc(4096, stride_ * kWindow));
        in_ = static_cast<std::byte*>(std::aligned_alloc(4096, stride_ * kWindow));
        if (out_ == nullptr || in_ == nullptr) bench::fail("no memory");
        for (uint32_t i = 0; i < kWindow; ++i)
            std::memset(out_ + i * stride_, static_cast<int>(i + 1), stride_);
        std::memset(in_, 0, stride_ * kWindow);
    }
    void set_peer(pid_t pid) { peer_ = pid; }

    void send(Way way, uint32_t bytes, bool streaming) {
        const std::byte* from = out_ + sent_++ % kWindow * stride_;
        if (way == Way::kCma) {
            const auto address = reinterpret_cast<uint64_t>(from);
            put(Way::kOrdinary, reinterpret_cast<const std::byte*>(&address), sizeof address, streaming);
        } else {
            put(way, from, bytes, streaming);
        }
    }

    void receive(Way way, uint32_t bytes) {
        Message message;
        while (consumer_.peek(message) != RingConsumer::Peek::kMessage) {
        }
        consumer_.take(message);
        std::byte* to = in_ + received_++ % kWindow * stride_;
        if (way == Way::kCma) {
            uint64_t address = 0;
            std::memcpy(&address, message.data, sizeof address);
            if (velo::base::cma_read(peer_, to, address, bytes) != velo::Status::kOk) {
                bench::fail("process_vm_readv is not permitted");
            }
        } else {
            std::memcpy(to, message.data, bytes);
        }
        consumer_.release();
    }

    /// The last message received is the one that was sent.
    void check(uint32_t bytes) const {
        const uint64_t last = received_ - 1;
        for (uint32_t i = 0; i < bytes; ++i) {
            if (in_[last % kWindow * stride_ + i] != static_cast<std::byte>(last % kWindow + 1)) {
                bench::fail("byte " + std::to_string(i) + " of " + std::to_string(bytes) + " is wrong");
            }
        }
    }

  private:
    void put(Way way, const std::byte* from, uint32_t bytes, bool streaming) {
        RingProducer::Room room;
        while ((room = producer_.reserve(bytes, streaming)).first == nullptr) {
        }
        const uint32_t first = std::min(bytes, kInlineBytesMax);
        velo::base::copy_small(room.first, from, first);
        if (way == Way::kNontemporal) {
            velo::base::copy_nontemporal(room.rest, from + first, bytes - first);
        } else if (bytes > first) {
            std::memcpy(room.rest, from + first, bytes - first);
        }
        (void)producer_.commit(velo::MessageClass::kHost, 0, bytes);
    }

    RingProducer producer_;
    RingConsumer consumer_;
    size_t stride_;
    std::byte* out_;
    std::byte* in_;
    uint64_t sent_ = 0;
    uint64_t received_ = 0;
    pid_t peer_ = 0;
};

/// The process that answers and, for streaming, writes.
void follow(Side& side, Command& command) {
    for (uint32_t sequence = 1;; ++sequence) {
        while (command.sequence.load(std::memory_order_acquire) != sequence) usleep(kNapUs);
        if (command.count == 0) return;
        for (uint32_t i = 0; i < command.count; ++i) {
            if (!command.streaming) side.receive(command.way, command.bytes);
            side.send(command.way, command.bytes, command.streaming);
        }
        if (!command.streaming) side.check(command.bytes);
        command.done.store(sequence, std::memory_order_release);
    }
}

/// ns a message, by the process that times and, for streaming, reads.
double lead(Side& side, Command& command, Way way, uint32_t bytes, bool streaming) {
    const uint32_t count = std::clamp(1u << 20 >> std::bit_width(bytes), 16u, 4096u);
    command.way = way;
    command.streaming = streaming;
    command.bytes = bytes;
    command.count = count * (kBatches + 1);
    const uint32_t sequence = command.sequence.load(std::memory_order_relaxed) + 1;
    command.sequence.store(sequence, std::memory_order_release);
    std::vector<double> batches;
    for (int batch = 0; batch < kBatches + 1; ++batch) {
        const double start = measuring::seconds();
        for (uint32_t i = 0; i < count; ++i) {
            if (!streaming) side.send(way, bytes, false);
            side.receive(way, bytes);
        }
        batches.push_back((measuring::seconds() - start) / count * 1e9 / (streaming ? 1 : 2));
    }
    while (command.done.load(std::memory_order_acquire) != sequence) {
    }
    side.check(bytes);
    batches.erase(batches.begin());  // the other one may still have slept
    return measuring::median(batches);
}

struct Figures {
    std::vector<double> one_way, streaming, line;
};

/// A size and a way, with cores that were near all the time, or far.
struct Row {
    measuring::Cores cores;
    uint32_t bytes;
    Way way;
    auto operator<=>(const Row&) const = default;
};

std::map<Row, Figures> measure(const Options& options, Side& leader, Command& command, const measuring::Cpus& cpus) {
    std::map<Row, Figures> table;
    for (uint32_t round = 0; round < options.rounds; ++round) {
        for (const uint32_t bytes : options.sizes) {
            for (const Way way : {Way::kOrdinary, Way::kNontemporal, Way::kCma}) {
                if (way == Way::kNontemporal && bytes < kNontemporalMin) continue;
                const double before = measuring::line_transfer_ns(cpus);
                const double one_way = lead(leader, command, way, bytes, false);
                const double streaming = lead(leader, command, way, bytes, true);
                const double after = measuring::line_transfer_ns(cpus);
                const measuring::Cores cores = measuring::cores_of(before, after);
                if (cores == measuring::Cores::kMixed) continue;
                Figures& figures = table[{cores, bytes, way}];
                figures.one_way.push_back(one_way);
                figures.streaming.push_back(streaming);
                figures.line.insert(figures.line.end(), {before, after});
            }
        }
    }
    command.count = 0;
    command.sequence.fetch_add(1, std::memory_order_release);
    return table;
}

void report(bool csv, const Row& row, const Figures& figures) {
    const char* const cores = to_string(row.cores);
    const char* const way = kWays[static_cast<uint32_t>(row.way)];
    const double one_way = measuring::median(figures.one_way);
    const double streaming = measuring::median(figures.streaming);
    const double line = measuring::median(figures.line);
    if (csv) {
        measuring::print(measuring::row(way, cores, "one_way", row.bytes, one_way) +
                         measuring::row(way, cores, "streaming", row.bytes, streaming) +
                         measuring::row(way, cores, "line", row.bytes, line));
        return;
    }
    const auto [nearest, farthest] = std::ranges::minmax(figures.line);
    std::printf("%-5s %8u  %-12s %10.0f %13.0f %8.2f %7zu %8.0f  (%.0f to %.0f)\n", cores, row.bytes, way, one_way,
                streaming, row.bytes / streaming, figures.one_way.size(), line, nearest, farthest);
}

}  // namespace

int bench::ring(int argc, char** argv) {
    const Options options = options_of(argc, argv);
    const measuring::Cpus cpus = two_cpus();
    const RingGeometry geometry = {.lines = 256, .body_bytes = options.ring_bytes};
    const RingView there(shared_memory(ring_bytes(geometry)), geometry);
    const RingView back(shared_memory(ring_bytes(geometry)), geometry);
    auto& command = shared_object<Command>();
    const uint32_t bytes_max = *std::ranges::max_element(options.sizes);
    Side leader(there, back, bytes_max), follower(back, there, bytes_max);
    std::map<Row, Figures> table;
    run_both(cpus, [&](uint32_t process, pid_t other) {
        (process == 0 ? leader : follower).set_peer(other);
        if (process == 0) {
            table = measure(options, leader, command, cpus);
        } else {
            follow(follower, command);
        }
    });
    if (!options.csv) {
        std::puts("cores    bytes  way          one way ns  streaming ns     GB/s  rounds  line ns");
    }
    for (const auto& [row, figures] : table) report(options.csv, row, figures);
    return 0;
}
