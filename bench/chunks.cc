/// A get in chunks against one in a single chunk, over the software device, below MPI.
///
///   velo_bench chunks [--chunk 262144] [--against 8388608] [--sizes 262144,1048576,4194304,16777216] [--span 0]
///                     [--rounds 21]
///
/// Two processes, pinned to two CPUs, each with two engines that differ in the length of a chunk, and both
/// over the same memory: two jobs differ by more than chunks cost, because their memory lies elsewhere. The
/// engines take turns. One of the processes gets from the other one, which calls progress: one get after the
/// other (alone), and all of a batch at once (stream). --span: bytes of memory that the gets go through, so
/// that they find none of it in caches; 0: the same memory each time. Prints the medians over rounds of
/// microseconds a get, and of the ratio of neighbouring rounds.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

#include "commands.h"
#include "engines.h"
#include "measuring.h"
#include "velo/velo.h"

namespace {

constexpr uint64_t kBatchBytes = 60'000'000;
constexpr uint32_t kWarmUp = 2;  ///< gets
constexpr unsigned kSecondsMax = 300;

struct Options {
    uint32_t chunk = 256u << 10;
    uint32_t against = 8u << 20;
    std::vector<uint32_t> sizes = {256u << 10, 1u << 20, 4u << 20, 16u << 20};
    uint64_t span = 0;
    uint32_t rounds = 21;
};

constexpr measuring::NumberRange kBytes = {.smallest = 4096, .largest = 1u << 30};

/// Between the two processes.
struct Shared : bench::Meeting {
    struct End {
        bench::Address address;
        velo_handle_t memory;
    };
    std::array<std::array<End, 2>, 2> ends = {};  ///< by process and engine
    std::atomic<uint32_t> turn = 0;               ///< the engine that works; another number: the end

    void meet(uint32_t process) {
        Meeting::meet(process, [] {});
    }
};

/// An engine of one of the processes.
class Engine {
  public:
    Engine(uint32_t rank, uint32_t job, uint32_t chunk) : engine_(params_of(chunk), rank, 4, job, host()) {}

    void publish(Shared::End& end, std::byte* memory, size_t bytes) {
        engine_.publish(end.address);
        if (velo_register(engine_.get(), memory, bytes, 7, &end.memory) != VELO_OK)
            bench::fail("memory cannot be registered");
    }
    void connect(const Shared::End& end) {
        engine_.connect(end.address);
        remote_ = end.memory;
    }
    void progress() { engine_.progress(); }

    void get(velo_rma_t& op, std::byte* to, size_t offset, size_t bytes) {
        op = {};
        op.kind = VELO_RMA_GET;
        op.local = to + offset;
        op.remote = remote_;
        op.remote_address = remote_.base + offset;
        op.bytes = bytes;
        ++posted_;
        velo_rma(engine_.get(), engine_.peer(), &op);
    }
    void await_all() {
        while (done_ != posted_) progress();
    }

  private:
    static velo_params_t params_of(uint32_t chunk) {
        velo_params_t params;
        velo_params_default(&params);
        params.chunk = static_cast<int>(chunk);
        return params;
    }
    velo_host_t host() {
        velo_host_t host = {};
        host.context = this;
        host.rma_done = [](void* self, velo_rma_t*, int status) {
            if (status != VELO_OK) bench::fail("a get failed");
            ++static_cast<Engine*>(self)->done_;
        };
        return host;
    }

    bench::Engine engine_;
    velo_handle_t remote_ = {};
    uint64_t posted_ = 0;
    uint64_t done_ = 0;
};

using Engines = std::array<std::unique_ptr<Engine>, 2>;

/// Microseconds of a get.
double batch_us(Engine& engine, std::byte* memory, size_t span, size_t bytes, bool stream) {
    const auto gets = static_cast<uint32_t>(kBatchBytes / bytes + 1);
    std::vector<velo_rma_t> ops(gets);
    size_t offset = 0;
    double start = 0;
    for (uint32_t i = 0; i < kWarmUp + gets; ++i) {
        if (i == kWarmUp) {
            engine.await_all();
            start = measuring::seconds();
        }
        engine.get(ops[i % gets], memory, offset, bytes);
        if (!stream || i < kWarmUp) engine.await_all();
        offset = offset + 2 * bytes <= span ? offset + bytes : 0;
    }
    engine.await_all();
    return 1e6 * (measuring::seconds() - start) / gets;
}

void measure(const Options& options, Shared& shared, const Engines& engines, std::byte* memory) {
    std::printf("%-7s %10s %14s %14s %8s\n", "", "bytes", "chunks, us", "against, us", "ratio");
    for (const bool stream : {false, true}) {
        for (const uint32_t bytes : options.sizes) {
            std::array<std::vector<double>, 2> us;
            std::vector<double> ratios;
            for (uint32_t round = 0; round < options.rounds; ++round) {
                for (uint32_t turn = 0; turn < 2; ++turn) {
                    shared.turn = turn;
                    us[turn].push_back(batch_us(*engines[turn], memory, options.span, bytes, stream));
                }
                ratios.push_back(us[0].back() / us[1].back());
            }
            std::printf("%-7s %10u %14.2f %14.2f %8.3f\n", stream ? "stream" : "alone", bytes,
                        measuring::median(us[0]), measuring::median(us[1]), measuring::median(ratios));
            std::fflush(stdout);
        }
    }
    shared.turn = 2;
}

void run(const Options& options, Shared& shared, uint32_t process, uint32_t job) {
    alarm(kSecondsMax);
    const size_t bytes = std::max<size_t>(options.span, *std::ranges::max_element(options.sizes));
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench::fail("no memory of " + std::to_string(bytes) + " bytes; a shorter --span may fit");
    std::memset(memory, static_cast<int>(process) + 1, bytes);
    Engines engines;
    for (uint32_t i = 0; i < 2; ++i) {
        engines[i] = std::make_unique<Engine>(process + 2 * i, job, i == 0 ? options.chunk : options.against);
        engines[i]->publish(shared.ends[process][i], static_cast<std::byte*>(memory), bytes);
    }
    shared.meet(process);
    for (uint32_t i = 0; i < 2; ++i) engines[i]->connect(shared.ends[1 - process][i]);
    shared.meet(process);
    if (process == 0) {
        measure(options, shared, engines, static_cast<std::byte*>(memory));
    } else {
        for (uint32_t turn = 0; (turn = shared.turn) < 2;) engines[turn]->progress();
    }
    shared.meet(process);
    alarm(0);
}

}  // namespace

int bench::chunks(int argc, char** argv) {
    Options options;
    take_options(argc, argv,
                 {{"--chunk", &options.chunk, kBytes},
                  {"--against", &options.against, kBytes},
                  {"--sizes", &options.sizes, {.smallest = 1, .largest = kBytes.largest}},
                  {"--span", &options.span, {.largest = uint64_t{1} << 34}},
                  {"--rounds", &options.rounds, kRounds}});
    const measuring::Cpus cpus = two_cpus();
    std::printf("chunks of %u bytes against %u; line transfer %.0f ns\n", options.chunk, options.against,
                measuring::line_transfer_ns(cpus));
    std::fflush(stdout);
    auto& shared = shared_object<Shared>();
    const auto job = static_cast<uint32_t>(getpid());
    run_both(cpus, [&](uint32_t process, pid_t) { run(options, shared, process, job); });
    std::printf("line transfer %.0f ns\n", measuring::line_transfer_ns(cpus));
    return 0;
}
