/// A get in chunks against one in a single chunk, over the software device, below MPI.
///
///   bench/chunks [--chunk 262144] [--against 8388608] [--sizes 262144,1048576,4194304,16777216] [--span 0]
///                [--rounds 21]
///
/// Two processes, pinned to two CPUs, each with two engines that differ in the length of a chunk, and both
/// over the same memory: two jobs differ by more than chunks cost, because their memory lies elsewhere. The
/// engines take turns. One of the processes gets from the other one, which calls progress: one get after the
/// other (alone), and all of a batch at once (stream). --span: bytes of memory that the gets go through, so
/// that they find none of it in caches; 0: the same memory each time. Prints the medians over rounds of
/// microseconds a get, and of the ratio of neighbouring rounds.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "arguments.h"
#include "engines.h"
#include "measuring.h"
#include "velo/velo.h"

namespace {

constexpr uint64_t kBatchBytes = 60'000'000;
constexpr uint32_t kWarmUp = 2;  ///< gets
constexpr unsigned kSecondsMax = 300;

[[noreturn]] void fail(const std::string& why) {
    std::fprintf(stderr, "chunks: %s\n", why.c_str());
    std::exit(2);
}

struct Options {
    uint32_t chunk = 256u << 10;
    uint32_t against = 8u << 20;
    std::vector<uint32_t> sizes = {256u << 10, 1u << 20, 4u << 20, 16u << 20};
    uint64_t span = 0;
    uint32_t rounds = 21;
};

Options parse(int argc, char** argv) {
    constexpr measuring::NumberRange kBytes = {.smallest = 4096, .largest = 1u << 30};
    Options options;
    const std::string error = measuring::parse_options(
        argc, argv, "chunks [--chunk N] [--against N] [--sizes LIST] [--span N] [--rounds N]", nullptr,
        [&](std::string_view name, std::string_view value) -> std::string {
            if (name == "--chunk") return measuring::parse_number(name, value, kBytes, options.chunk);
            if (name == "--against") return measuring::parse_number(name, value, kBytes, options.against);
            if (name == "--sizes")
                return measuring::parse_numbers(name, value, {.smallest = 1, .largest = kBytes.largest},
                                                options.sizes);
            if (name == "--span")
                return measuring::parse_number(name, value, {.largest = uint64_t{1} << 34}, options.span);
            if (name == "--rounds")
                return measuring::parse_number(name, value, {.smallest = 1, .largest = 1000}, options.rounds);
            return measuring::unknown_option(name);
        });
    if (!error.empty()) fail(error);
    return options;
}

/// Between the two processes.
struct Meeting {
    struct End {
        std::array<char, VELO_ADDRESS_BYTES_MAX> address;
        size_t bytes;
        velo_handle_t memory;
    };
    std::array<std::array<End, 2>, 2> ends = {};  ///< by process and engine
    std::array<std::atomic<uint32_t>, 2> step = {};
    std::atomic<uint32_t> turn = 0;  ///< the engine that works; another number: the end

    /// Neither process goes on before the other one is here.
    void meet(uint32_t process) {
        const uint32_t own = ++step[process];
        while (step[1 - process].load() < own) {
        }
    }
};

/// An engine of one of the processes.
class Engine {
  public:
    Engine(uint32_t rank, uint32_t job, uint32_t chunk) {
        velo_params_t params;
        velo_params_default(&params);
        params.ranks_per_node = 1;
        params.chunk = static_cast<int>(chunk);
        const velo_identity_t identity = measuring::identity_of(rank, 4, job);
        velo_host_t host = {};
        host.context = this;
        host.accepts = [](void*, uint8_t) { return true; };
        host.receive = [](void*, velo_path_t, void*, uint8_t, void*, size_t) {};
        host.sent = [](void*, velo_send_t*, int) {};
        host.rma_done = [](void* self, velo_rma_t*, int status) {
            if (status != VELO_OK) fail("a get failed");
            ++static_cast<Engine*>(self)->done_;
        };
        host.log = [](void*, int, const char* line) { std::fprintf(stderr, "%s\n", line); };
        char error[512] = "";
        engine_ = velo_open(&params, &identity, &host, error, sizeof error);
        if (engine_ == nullptr) fail(error);
    }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine() { velo_close(engine_); }

    void publish(Meeting::End& end, std::byte* memory, size_t bytes) {
        end.bytes = velo_address(engine_, end.address.data(), end.address.size());
        if (velo_register(engine_, memory, bytes, 7, &end.memory) != VELO_OK)
            fail("memory cannot be registered");
    }
    void connect(const Meeting::End& end) {
        char error[512] = "";
        if (velo_connect(engine_, end.address.data(), end.bytes, true, nullptr, &peer_, error,
                         sizeof error) != VELO_OK)
            fail(error);
        if (velo_peer_path(peer_) != VELO_PATH_DEVICE)
            fail("the other process is not reached through the device");
        remote_ = end.memory;
    }
    void progress() { velo_progress(engine_); }

    void get(velo_rma_t& op, std::byte* to, size_t offset, size_t bytes) {
        op = {};
        op.kind = VELO_RMA_GET;
        op.local = to + offset;
        op.remote = remote_;
        op.remote_address = remote_.base + offset;
        op.bytes = bytes;
        ++posted_;
        velo_rma(engine_, peer_, &op);
    }
    void await_all() {
        while (done_ != posted_) progress();
    }

  private:
    velo_engine_t* engine_ = nullptr;
    velo_peer_t* peer_ = nullptr;
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

void measure(const Options& options, Meeting& meeting, const Engines& engines, std::byte* memory) {
    std::printf("%-7s %10s %14s %14s %8s\n", "", "bytes", "chunks, us", "against, us", "ratio");
    for (const bool stream : {false, true}) {
        for (const uint32_t bytes : options.sizes) {
            std::array<std::vector<double>, 2> us;
            std::vector<double> ratios;
            for (uint32_t round = 0; round < options.rounds; ++round) {
                for (uint32_t turn = 0; turn < 2; ++turn) {
                    meeting.turn = turn;
                    us[turn].push_back(batch_us(*engines[turn], memory, options.span, bytes, stream));
                }
                ratios.push_back(us[0].back() / us[1].back());
            }
            std::printf("%-7s %10u %14.2f %14.2f %8.3f\n", stream ? "stream" : "alone", bytes,
                        measuring::median(us[0]), measuring::median(us[1]), measuring::median(ratios));
            std::fflush(stdout);
        }
    }
    meeting.turn = 2;
}

void run(const Options& options, Meeting& meeting, uint32_t process, uint32_t job) {
    alarm(kSecondsMax);
    const size_t bytes = std::max<size_t>(options.span, *std::ranges::max_element(options.sizes));
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory of " + std::to_string(bytes) + " bytes; a shorter --span may fit");
    std::memset(memory, static_cast<int>(process) + 1, bytes);
    Engines engines;
    for (uint32_t i = 0; i < 2; ++i) {
        engines[i] = std::make_unique<Engine>(process + 2 * i, job, i == 0 ? options.chunk : options.against);
        engines[i]->publish(meeting.ends[process][i], static_cast<std::byte*>(memory), bytes);
    }
    meeting.meet(process);
    for (uint32_t i = 0; i < 2; ++i) engines[i]->connect(meeting.ends[1 - process][i]);
    meeting.meet(process);
    if (process == 0) {
        measure(options, meeting, engines, static_cast<std::byte*>(memory));
    } else {
        for (uint32_t turn = 0; (turn = meeting.turn) < 2;) engines[turn]->progress();
    }
    meeting.meet(process);
    alarm(0);
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const measuring::Cpus cpus = measuring::choose_cpus();
    if (cpus.second < 0) fail("two CPUs are needed, and fewer are allowed");
    measuring::pin(cpus.first);
    std::printf("chunks of %u bytes against %u; line transfer %.0f ns\n", options.chunk, options.against,
                measuring::line_transfer_ns(cpus));
    std::fflush(stdout);
    void* const shared =
        mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("no memory");
    auto& meeting = *new (shared) Meeting;
    const auto job = static_cast<uint32_t>(getpid());
    const pid_t child = fork();
    if (child < 0) fail("no second process");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        measuring::pin(cpus.second);
        run(options, meeting, 1, job);
        std::_Exit(0);
    }
    run(options, meeting, 0, job);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) fail("the other process failed");
    std::printf("line transfer %.0f ns\n", measuring::line_transfer_ns(cpus));
    return 0;
}
