/// The cost of a message between two processes over the device, below MPI: by mode of flow control, size of the mailbox
/// and length.
///
///   velo_bench packets [--modes none,static,dynamic] [--slots 0] [--sizes 8,256,1024,2048] [--rounds 5] [--csv]
///
/// Two engines in two processes, pinned to two CPUs, each on a node of its own. --slots: of the whole mailbox; 0: what
/// the mode has by itself. one way: half of a ping-pong, ns. streaming: windows of 64 messages, which the other side
/// answers with an empty one, MB/s; what finds no credits is queued in one piece, as Open MPI does it. Lengths are
/// without the header, of as many bytes as ob1's. Medians over rounds, in which all rows take turns. A round counts
/// where a cache line took less than 110 ns from CPU to CPU before and after it ("near"), or neither time ("far").
/// --csv: medians as rows of measuring.h, labelled MODE-SLOTS.
#include <array>
#include <cstdio>
#include <cstring>
#include <map>

#include "commands.h"
#include "engines.h"
#include "measuring.h"
#include "velo/velo.h"

namespace {

constexpr uint32_t kHeaderBytes = 14;
constexpr uint32_t kBytesMax = 4096;
constexpr uint32_t kWindow = 64;
constexpr int kBatches = 15;
constexpr uint32_t kRoundTrips = 1000;  ///< of a batch
constexpr uint32_t kWindows = 100;      ///< of a batch
constexpr unsigned kSecondsMax = 60;  ///< of one row in one round
constexpr uint8_t kTag = 1;

struct Options {
    std::vector<std::string> modes = {"none", "static", "dynamic"};
    std::vector<uint32_t> slots = {0};
    std::vector<uint32_t> sizes = {8, 256, 1024, 2048};
    uint32_t rounds = 5;
    bool csv = false;
};

/// Between the two processes.
struct Shared : bench::Meeting {
    uint32_t job = 0;
    std::array<bench::Address, 2> addresses = {};
};

/// One of the two processes.
class Side {
  public:
    Side(Shared& shared, uint32_t rank, const std::string& mode, uint32_t slots)
        : shared_(shared), rank_(rank), engine_(params_of(mode, slots), rank, 2, shared.job, host()) {
        engine_.publish(shared.addresses[rank]);
        meet();
        engine_.connect(shared.addresses[1 - rank]);
        meet();
    }

    void meet() {
        shared_.meet(rank_, [this] { engine_.progress(); });
    }

    double one_way_ns(uint32_t bytes) {
        return 1e9 / (2 * kRoundTrips) * median_seconds([&] {
                   for (uint32_t i = 0; i < kRoundTrips; ++i) {
                       if (rank_ == 0) send_now(bytes);
                       await(1);
                       if (rank_ == 1) send_now(bytes);
                   }
               });
    }

    double stream_mbps(uint32_t bytes) {
        return 1e-6 * bytes * kWindows * kWindow / median_seconds([&] {
                   for (uint32_t i = 0; i < kWindows; ++i) {
                       if (rank_ == 0) {
                           for (uint32_t k = 0; k < kWindow; ++k) send_or_queue(bytes, k);
                           while (queued_ != 0) engine_.progress();
                           await(1);
                       } else {
                           await(kWindow);
                           send_now(0);
                       }
                   }
               });
    }

  private:
    static velo_params_t params_of(const std::string& mode, uint32_t slots) {
        velo_params_t params;
        velo_params_default(&params);
        params.flow_control = mode.c_str();
        params.slots = static_cast<int>(slots);
        params.on_node_message_bytes_max = params.device_message_bytes_max = kBytesMax + kHeaderBytes;
        return params;
    }
    velo_host_t host() {
        velo_host_t host = {};
        host.context = this;
        host.receive = [](void* self, velo_path_t, void*, uint8_t, void* data, size_t bytes) {
            static_cast<Side*>(self)->receive(data, bytes);
        };
        host.sent = [](void* self, velo_send_t*, int) { --static_cast<Side*>(self)->queued_; };
        return host;
    }
    /// Measures a batch, which both begin together.
    template <class Batch>
    double median_seconds(Batch&& batch) {
        std::vector<double> batches;
        for (int i = 0; i < kBatches; ++i) {
            meet();
            const double start = measuring::seconds();
            batch();
            batches.push_back(measuring::seconds() - start);
        }
        return measuring::median(batches);
    }
    void receive(const void* data, size_t bytes) {
        std::memcpy(user_[received_ % kWindow].data(), data, bytes);
        ++received_;
    }
    void await(uint32_t messages) {
        awaited_ += messages;
        while (received_ < awaited_) engine_.progress();
    }
    bool try_send(uint32_t bytes) {
        return velo_try_send(engine_.get(), engine_.peer(), kTag, header_.data(), kHeaderBytes, data_.data(), bytes) ==
               VELO_OK;
    }
    void send_now(uint32_t bytes) {
        while (!try_send(bytes)) engine_.progress();
    }
    void send_or_queue(uint32_t bytes, uint32_t place) {
        if (try_send(bytes)) return;
        std::memcpy(fragments_[place].data(), header_.data(), kHeaderBytes);
        std::memcpy(fragments_[place].data() + kHeaderBytes, data_.data(), bytes);
        velo_send_t& send = sends_[place];
        send = {};
        send.data[0] = fragments_[place].data();
        send.bytes[0] = kHeaderBytes + bytes;
        if (!velo_send(engine_.get(), engine_.peer(), &send, kTag)) ++queued_;
    }

    using Message = std::array<std::byte, kHeaderBytes + kBytesMax>;
    Shared& shared_;
    uint32_t rank_;
    bench::Engine engine_;
    uint64_t received_ = 0;
    uint64_t awaited_ = 0;
    uint32_t queued_ = 0;
    std::array<std::byte, kHeaderBytes> header_ = {};
    Message data_ = {};
    std::vector<Message> user_ = std::vector<Message>(kWindow);
    std::vector<Message> fragments_ = std::vector<Message>(kWindow);
    std::vector<velo_send_t> sends_ = std::vector<velo_send_t>(kWindow);
};

struct Figures {
    double one_way_ns;
    double stream_mbps;
};

/// Of each length.
std::vector<Figures> measure(const Options& options, const std::string& mode, uint32_t slots,
                             const measuring::Cpus& cpus) {
    auto& shared = bench::shared_object<Shared>();
    shared.job = static_cast<uint32_t>(getpid());
    std::vector<Figures> figures;
    std::fflush(stdout);
    bench::run_both(cpus, [&](uint32_t rank, pid_t) {
        alarm(kSecondsMax);
        Side side(shared, rank, mode, slots);
        for (const uint32_t bytes : options.sizes) {
            Figures of_length = {.one_way_ns = side.one_way_ns(bytes), .stream_mbps = side.stream_mbps(bytes)};
            figures.push_back(of_length);
        }
        side.meet();
        alarm(0);
    });
    return figures;
}

}  // namespace

int bench::packets(int argc, char** argv) {
    Options options;
    take_options(argc, argv,
                 {{"--modes", &options.modes},
                  {"--slots", &options.slots, {.largest = 65535}},
                  {"--sizes", &options.sizes, {.largest = kBytesMax}},
                  {"--rounds", &options.rounds, kRounds},
                  {"--csv", &options.csv}});
    const measuring::Cpus cpus = two_cpus();
    struct Row {
        measuring::Cores cores;
        std::string mode;
        uint32_t slots;
        uint32_t bytes;
        auto operator<=>(const Row&) const = default;
    };
    struct Measured {
        std::vector<double> one_way_ns;
        std::vector<double> stream_mbps;
        std::vector<double> line_ns;
    };
    std::map<Row, Measured> rows;
    for (uint32_t round = 0; round < options.rounds; ++round) {
        for (const std::string& mode : options.modes) {
            for (const uint32_t slots : options.slots) {
                const double before = measuring::line_transfer_ns(cpus);
                const std::vector<Figures> figures = measure(options, mode, slots, cpus);
                const double after = measuring::line_transfer_ns(cpus);
                const measuring::Cores cores = measuring::cores_of(before, after);
                if (cores == measuring::Cores::kMixed) continue;
                for (size_t i = 0; i < options.sizes.size(); ++i) {
                    Measured& row = rows[{cores, mode, slots, options.sizes[i]}];
                    row.one_way_ns.push_back(figures[i].one_way_ns);
                    row.stream_mbps.push_back(figures[i].stream_mbps);
                    row.line_ns.push_back((before + after) / 2);
                }
            }
        }
    }
    if (!options.csv) {
        std::printf("%-5s %-9s %8s %8s %8s %12s %15s %8s\n", "cores", "mode", "slots", "bytes", "rounds", "one way, ns",
                    "streaming, MB/s", "line, ns");
    }
    for (const auto& [row, measured] : rows) {
        const char* const cores = to_string(row.cores);
        const double one_way = measuring::median(measured.one_way_ns);
        const double streaming = measuring::median(measured.stream_mbps);
        const double line = measuring::median(measured.line_ns);
        if (options.csv) {
            const std::string label = row.mode + "-" + std::to_string(row.slots);
            measuring::print(measuring::row(label, cores, "one_way", row.bytes, one_way) +
                             measuring::row(label, cores, "streaming", row.bytes, streaming) +
                             measuring::row(label, cores, "line", row.bytes, line));
            continue;
        }
        std::printf("%-5s %-9s %8u %8u %8zu %12.0f %15.0f %8.0f\n", cores, row.mode.c_str(), row.slots, row.bytes,
                    measured.line_ns.size(), one_way, streaming, line);
    }
    return 0;
}
