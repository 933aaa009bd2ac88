/// Latency, bandwidth and message rate between chosen pairs of ranks, one pair at a time, as CSV.
///
///   mpirun -np 4 … pairs --label velo --pairs 0-1,0-2 --measures latency,bandwidth --sizes 8,2048,65536
///                        [--offsets 0,16,64]
///
/// Only the pair that is measured runs, pinned to two CPUs, or with `--pinned no` wherever the system puts it. All
/// other ranks sleep. So a job of many ranks measures on two CPUs what a job of two ranks would, and every MPI is
/// placed alike. Before each figure of a pair, and after the last, stands how long one cache line takes from the one
/// CPU to the other: every latency through shared memory is a multiple of it, and on virtual machines it changes from
/// second to second.
///
/// Measures, each a median over batches:
///   latency    half a ping-pong, us
///   bandwidth  windows of 64 messages in one direction, each answered by an empty message, MB/s
///   both       windows of 64 messages in both directions at once, MB/s of the two together
///   rate       as bandwidth, in messages a second
///   sends      as rate, where each message is sent by MPI_Send instead of MPI_Isend
/// The messages of a window lie in memory of their own. All contents are checked once for each size.
///
/// With --offsets each is measured, as NAME@OFFSET, with memory at that distance from a page's begin, at both ranks:
/// copies by `rep movsb` are many times slower for some differences between the two addresses.
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::Cpus;
using measuring::seconds;
using measuring::split;

constexpr int kTag = 1;
/// Many short batches: what else runs on the machine then spoils some of them, and the median is of the
/// others. Of what takes longer than a batch there are fewer.
constexpr int kBatchesMin = 7;
constexpr int kBatchesMax = 31;
constexpr double kBatchSeconds = 0.0007;
constexpr double kMeasureSeconds = 0.3;
/// Before it is found out how many make a batch: pages are mapped then, and caches filled. Over a network a receiver of
/// velo's maps 2 MB with its first messages.
constexpr double kWarmUpSeconds = 0.02;
constexpr int kWindow = 64;
/// Enough to tell a message from its neighbours; checking more would take longer than the measurement.
constexpr size_t kVerifiedBytesMax = size_t{32} << 20;
constexpr size_t kPageBytes = 4096;
constexpr std::align_val_t kPage{kPageBytes};

enum class Measure { kLatency, kBandwidth, kBoth, kRate, kSends };
struct NamedMeasure {
    std::string_view name;
    Measure measure;
    int window;
    bool both_directions;
};
constexpr NamedMeasure kMeasures[] = {
    {"latency", Measure::kLatency, 1, false},
    {"bandwidth", Measure::kBandwidth, kWindow, false},
    {"both", Measure::kBoth, kWindow, true},
    {"rate", Measure::kRate, kWindow, false},
    {"sends", Measure::kSends, kWindow, false},
};

struct Options {
    std::string label = "mpi";
    std::vector<std::pair<int, int>> pairs;
    std::vector<NamedMeasure> measures;
    std::vector<size_t> sizes;
    std::vector<size_t> offsets;  ///< none: 0, and rows do not say it
    bool pinned = true;
};

std::string parse_pairs(const std::vector<std::string>& list, int ranks, Options& options) {
    for (const std::string& text : list) {
        const std::vector<std::string> ends = split(text, '-');
        int a = 0, b = 0;
        const measuring::NumberRange range = {.largest = static_cast<uint64_t>(ranks) - 1};
        if (ends.size() != 2 || text.ends_with('-') || !measuring::parse_number("", ends[0], range, a).empty() ||
            !measuring::parse_number("", ends[1], range, b).empty() || a == b) {
            return "--pairs: '" + text + "' is not a pair of two of the job's " + std::to_string(ranks) +
                   " ranks; write pairs as 0-1,0-2";
        }
        options.pairs.emplace_back(a, b);
    }
    return {};
}

std::string parse_measures(const std::vector<std::string>& list, Options& options) {
    for (const std::string& text : list) {
        const auto* found = std::ranges::find(kMeasures, text, &NamedMeasure::name);
        if (found == std::end(kMeasures)) {
            return "'" + text + "' is not a measure; there are latency, bandwidth, both and rate";
        }
        options.measures.push_back(*found);
    }
    return {};
}

/// A sentence when the arguments are not usable in a job of `ranks`; empty when they are.
std::string parse(int argc, char** argv, int ranks, Options& options) {
    std::vector<std::string> pairs, measures;
    std::string pinned = "yes";
    std::string error = measuring::read_options(argc, argv,
                                                {{"--label", &options.label},
                                                 {"--pairs", &pairs},
                                                 {"--measures", &measures},
                                                 {"--sizes", &options.sizes, {.largest = INT32_MAX}},
                                                 {"--offsets", &options.offsets, {.largest = kPageBytes - 1}},
                                                 {"--pinned", &pinned}});
    options.pinned = pinned == "yes";
    if (error.empty() && !options.pinned && pinned != "no") error = "--pinned takes yes or no";
    if (error.empty()) error = parse_pairs(pairs, ranks, options);
    if (error.empty()) error = parse_measures(measures, options);
    if (!error.empty()) return error;
    if (options.pairs.empty() || options.measures.empty() || options.sizes.empty()) {
        return "--pairs, --measures and --sizes must be given";
    }
    return {};
}

/// Byte `i` of message `number` from `rank`, so that neither a message nor a part of one can stand for
/// another.
unsigned char expected(size_t i, size_t number, int rank) {
    return static_cast<unsigned char>((i * 2654435761u >> 16) + i + number * 97 +
                                      static_cast<size_t>(rank) * 59);
}

/// Page-aligned, zeroed memory, the same for every size of a job: what an MPI registers, it registers once.
class Memory {
  public:
    explicit Memory(size_t bytes)
        : start_(static_cast<unsigned char*>(::operator new(std::max<size_t>(bytes, 1), kPage))) {
        std::fill_n(start_.get(), bytes, 0);
    }
    [[nodiscard]] unsigned char* start() const { return start_.get(); }

  private:
    struct Free {
        void operator()(unsigned char* start) const { ::operator delete(start, kPage); }
    };
    std::unique_ptr<unsigned char, Free> start_;
};

/// One rank's side of a measurement with one size.
class Side {
  public:
    Side(int self, int peer, bool leads, size_t bytes, const NamedMeasure& measure, unsigned char* out,
         unsigned char* in)
        : self_(self),
          peer_(peer),
          leads_(leads),
          bytes_(bytes),
          window_(measure.window),
          both_(measure.both_directions),
          blocks_(measure.measure == Measure::kSends),
          out_(out),
          in_(in) {}

    /// Messages in each direction with known contents; ends the job when one byte is wrong.
    void verify() {
        const auto whole = window_;
        window_ = static_cast<int>(std::clamp<size_t>(kVerifiedBytesMax / std::max<size_t>(bytes_, 1), 1,
                                                      static_cast<size_t>(whole)));
        for (int number = 0; number < window_; ++number) {
            for (size_t i = 0; i < bytes_; ++i) {
                out_message(number)[i] = expected(i, static_cast<size_t>(number), self_);
            }
            std::fill_n(in_message(number), bytes_, 0);
        }
        if (both_) {
            exchange_windows();
        } else {
            move_window(leads_);
            move_window(!leads_);
        }
        for (int number = 0; number < window_; ++number) check(number);
        window_ = whole;
    }

    double measure(Measure measure) {
        const double bytes = static_cast<double>(window_) * static_cast<double>(bytes_);
        switch (measure) {
            case Measure::kLatency: return timed([this](int count) { ping_pong(count); }) / 2 * 1e6;
            case Measure::kBandwidth: return bytes / one_way_seconds() / 1e6;
            case Measure::kBoth:
                return 2 * bytes / timed([this](int count) {
                           for (int i = 0; i < count; ++i) exchange_windows();
                       }) /
                       1e6;
            case Measure::kRate:
            case Measure::kSends: return window_ / one_way_seconds();
        }
        return 0;
    }

  private:
    unsigned char* out_message(int number) { return out_ + static_cast<size_t>(number) * bytes_; }
    unsigned char* in_message(int number) { return in_ + static_cast<size_t>(number) * bytes_; }
    [[nodiscard]] int count() const { return static_cast<int>(bytes_); }
    void send() { MPI_Send(out_, count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD); }
    void receive() { MPI_Recv(in_, count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

    void ping_pong(int count) {
        for (int i = 0; i < count; ++i) {
            if (leads_) send();
            receive();
            if (!leads_) send();
        }
    }

    double one_way_seconds() {
        return timed([this](int count) {
            for (int i = 0; i < count; ++i) move_window(leads_);
        });
    }

    void post_send(int number, MPI_Request& request) {
        if (blocks_) {
            MPI_Send(out_message(number), count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD);
            request = MPI_REQUEST_NULL;
            return;
        }
        MPI_Isend(out_message(number), count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD, &request);
    }
    void post_receive(int number, MPI_Request& request) {
        MPI_Irecv(in_message(number), count(), MPI_BYTE, peer_, kTag, MPI_COMM_WORLD, &request);
    }

    void move_window(bool sends) {
        MPI_Request requests[kWindow];
        for (int number = 0; number < window_; ++number) {
            if (sends) {
                post_send(number, requests[number]);
            } else {
                post_receive(number, requests[number]);
            }
        }
        MPI_Waitall(window_, requests, MPI_STATUSES_IGNORE);
        if (sends) {
            MPI_Recv(nullptr, 0, MPI_BYTE, peer_, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(nullptr, 0, MPI_BYTE, peer_, kTag, MPI_COMM_WORLD);
        }
    }

    void exchange_windows() {
        MPI_Request requests[2 * kWindow];
        for (int number = 0; number < window_; ++number) post_receive(number, requests[number]);
        for (int number = 0; number < window_; ++number) post_send(number, requests[window_ + number]);
        MPI_Waitall(2 * window_, requests, MPI_STATUSES_IGNORE);
    }

    void check(int number) {
        for (size_t i = 0; i < bytes_; ++i) {
            const unsigned char right = expected(i, static_cast<size_t>(number), peer_);
            const unsigned char got = in_message(number)[i];
            if (got == right) continue;
            std::fprintf(stderr, "pairs: byte %zu of message %d of %zu bytes from rank %d is %u, not %u\n", i,
                         number, bytes_, peer_, unsigned{got}, unsigned{right});
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }

    /// Seconds for one of what run(count) does `count` of. The leader finds out how many make a batch.
    double timed(const std::function<void(int)>& run) {
        struct {
            int count = 1;
            int batches = 0;  ///< 0: not known yet
        } plan;
        double warm_up = kWarmUpSeconds;
        for (;;) {
            if (leads_) {
                MPI_Send(&plan, 2, MPI_INT, peer_, kTag, MPI_COMM_WORLD);
            } else {
                MPI_Recv(&plan, 2, MPI_INT, peer_, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            if (plan.batches != 0) break;
            const double start = seconds();
            run(plan.count);
            const double taken = seconds() - start;
            warm_up -= taken;
            if (warm_up > 0) continue;
            if (taken < kBatchSeconds / 4) {
                plan.count *= 4;
                continue;
            }
            plan.count = static_cast<int>(std::max(plan.count * kBatchSeconds / taken, 1.0));
            plan.batches = static_cast<int>(
                std::clamp(kMeasureSeconds / taken, double{kBatchesMin}, double{kBatchesMax}));
        }
        std::vector<double> batches;
        for (int batch = 0; batch < plan.batches; ++batch) {
            const double batch_start = seconds();
            run(plan.count);
            batches.push_back((seconds() - batch_start) / plan.count);
        }
        return measuring::median(batches);
    }

    int self_;
    int peer_;
    bool leads_;
    size_t bytes_;
    int window_;
    bool both_;
    bool blocks_;
    unsigned char* out_;
    unsigned char* in_;
};

/// Both ranks of a pair call this; the first one prints.
void measure(const Options& options, const std::pair<int, int>& ranks, int self, const Cpus& cpus) {
    const bool leads = self == ranks.first;
    const int peer = leads ? ranks.second : ranks.first;
    const std::string pair = std::to_string(ranks.first) + "-" + std::to_string(ranks.second);
    const measuring::KeptAffinity kept;
    if (options.pinned) measuring::pin(leads ? cpus.first : cpus.second);

    const size_t bytes_max = *std::ranges::max_element(options.sizes);
    const int window_max = std::ranges::max(options.measures, {}, &NamedMeasure::window).window;
    const std::vector<size_t> offsets = options.offsets.empty() ? std::vector<size_t>{0} : options.offsets;
    const size_t memory_bytes = bytes_max * static_cast<size_t>(window_max) + *std::ranges::max_element(offsets);
    const Memory out(memory_bytes);
    const Memory in(memory_bytes);

    std::string csv;
    for (const size_t bytes : options.sizes) {
        for (const NamedMeasure& named : options.measures) {
            for (const size_t offset : offsets) {
                Side side(self, peer, leads, bytes, named, out.start() + offset, in.start() + offset);
                side.verify();
                csv += measuring::line_between(options.label, pair, cpus, peer, leads);
                csv += measuring::row(options.label, pair,
                                      measuring::at_offset(named.name, offset, !options.offsets.empty()), bytes,
                                      side.measure(named.measure));
            }
        }
    }
    csv += measuring::line_between(options.label, pair, cpus, peer, leads);
    if (leads) measuring::print(csv);
}

}  // namespace

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    Options options;
    const std::string error = parse(argc, argv, session.ranks, options);
    if (!error.empty()) return session.refuse("pairs: " + error);
    const int self = session.self;
    if (self == 0 && session.cpus.first < 0) {
        std::fprintf(stderr, "pairs: fewer than two CPUs: nothing is pinned, and the figures mean little\n");
    }
    for (const auto& pair : options.pairs) {
        if (self == pair.first || self == pair.second) measure(options, pair, self, session.cpus);
        measuring::nap_at_barrier();
    }
    return 0;
}
