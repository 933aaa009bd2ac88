/// The cost of flow control between real ranks, as rows of measuring.h.
///
///   mpirun -np 2 … flow --label static --tasks latency,blocking,nonblocking --sizes 4 --windows 1,10,100
///   mpirun -np 16 … flow --label dynamic --tasks alltoall,pingpong --sizes 2048 --active 16,8,4,2
///
/// Tasks; each value is a median over batches, after a time of warming up in which shares adapt:
///   latency      half a ping-pong of ranks 0 and 1, us (IBFC 6.2.1)
///   blocking     a window of MPI_Send and MPI_Recv from rank 0 to 1, then an answer, MB/s (IBFC 6.2.2)
///   nonblocking  the same with MPI_Isend and MPI_Irecv
///   alltoall     one MPI_Alltoall among the first ACTIVE ranks, us
///   pingpong     half a ping-pong of each of the pairs 0-1, 2-3, … of the first ACTIVE ranks at once, us
///
/// blocking and nonblocking have their window behind a dash. Ranks that take no part look at messages every
/// few milliseconds. Two active ranks are pinned to two CPUs; more share what there is. "line" is measured
/// before and after.
#include <memory>
#include <numeric>
#include <utility>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::seconds;

constexpr int kTag = 1;

struct Options {
    std::string label = "mpi";
    std::vector<std::string> tasks;
    std::vector<int> sizes;
    std::vector<int> windows = {64};
    std::vector<int> active;  ///< empty: all ranks
    int batches = 15;
    int batch_us = 2000;
    int warm_us = 20000;
};

bool is_windowed(std::string_view task) { return task == "blocking" || task == "nonblocking"; }

bool is_pair_task(std::string_view task) { return task == "latency" || is_windowed(task); }

/// A sentence when the arguments are not usable in a job of `ranks`; empty when they are.
std::string parse(int argc, char** argv, int ranks, Options& options) {
    const std::string error = measuring::read_options(
        argc, argv,
        {{"--label", &options.label},
         {"--tasks", &options.tasks},
         {"--sizes", &options.sizes, {.smallest = 1, .largest = 1 << 24}},
         {"--windows", &options.windows, {.smallest = 1, .largest = 1000}},
         {"--active", &options.active, {.smallest = 2, .largest = static_cast<uint64_t>(ranks)}},
         {"--batches", &options.batches, {.smallest = 1, .largest = 10'000}},
         {"--batch-us", &options.batch_us, {.smallest = 1, .largest = 1'000'000}},
         {"--warm-us", &options.warm_us, {.smallest = 1, .largest = 10'000'000}}});
    if (!error.empty()) return error;
    if (ranks < 2) return "two ranks are needed";
    if (options.tasks.empty() || options.sizes.empty()) return "--tasks and --sizes must be given";
    for (const std::string& task : options.tasks) {
        if (!is_pair_task(task) && task != "alltoall" && task != "pingpong") {
            return "'" + task +
                   "' is not a task; there are latency, blocking, nonblocking, alltoall and pingpong";
        }
    }
    if (options.active.empty()) options.active.push_back(ranks);
    return {};
}

/// The active ranks of one measurement, and what they send.
class Group {
  public:
    Group(MPI_Comm comm, int bytes, int window) : comm_(comm), bytes_(bytes), window_(window) {
        MPI_Comm_rank(comm, &self_);
        MPI_Comm_size(comm, &ranks_);
        const size_t count = static_cast<size_t>(std::max(ranks_, window)) * static_cast<size_t>(bytes);
        out_.resize(count);
        in_.resize(count);
        for (size_t i = 0; i < count; ++i) out_[i] = expected(self_, i % static_cast<size_t>(bytes));
        std::ranges::fill(in_, 0xff);
    }

    void run(std::string_view task, int count) {
        for (int i = 0; i < count; ++i) {
            if (task == "alltoall") {
                MPI_Alltoall(out_.data(), bytes_, MPI_BYTE, in_.data(), bytes_, MPI_BYTE, comm_);
            } else if (task == "blocking") {
                blocking();
            } else if (task == "nonblocking") {
                nonblocking();
            } else {
                ping_pong();
            }
        }
    }

    /// False, and said on stderr, when a byte of what came is wrong.
    [[nodiscard]] bool verify(std::string_view task) const {
        if (task == "alltoall") {
            for (int from = 0; from < ranks_; ++from) {
                if (!verify_message(task, from, from)) return false;
            }
            return true;
        }
        if (task == "latency" || task == "pingpong")
            return self_ == unpaired() || verify_message(task, self_ ^ 1, 0);
        for (int number = 0; self_ == 1 && number < window_; ++number) {
            if (!verify_message(task, 0, number)) return false;
        }
        return true;
    }

    [[nodiscard]] bool leads() const { return self_ == 0; }

  private:
    static unsigned char expected(int rank, size_t i) {
        return static_cast<unsigned char>((i * 2654435761u >> 16) + i + static_cast<size_t>(rank) * 59) &
               0x7f;
    }
    /// The last rank of an odd number.
    [[nodiscard]] int unpaired() const { return ranks_ % 2 != 0 ? ranks_ - 1 : -1; }
    unsigned char* message(std::vector<unsigned char>& memory, int number) const {
        return memory.data() + static_cast<size_t>(number) * static_cast<size_t>(bytes_);
    }

    [[nodiscard]] bool verify_message(std::string_view task, int from, int number) const {
        const size_t start = static_cast<size_t>(number) * static_cast<size_t>(bytes_);
        for (size_t i = 0; i < static_cast<size_t>(bytes_); ++i) {
            if (in_[start + i] == expected(from, i)) continue;
            std::fprintf(stderr, "flow: %s: byte %zu of message %d from rank %d is wrong at rank %d\n",
                         task.data(), i, number, from, self_);
            return false;
        }
        return true;
    }

    void ping_pong() {
        if (self_ == unpaired()) return;
        const int peer = self_ ^ 1;
        const bool first = self_ % 2 == 0;
        if (first) MPI_Send(out_.data(), bytes_, MPI_BYTE, peer, kTag, comm_);
        MPI_Recv(in_.data(), bytes_, MPI_BYTE, peer, kTag, comm_, MPI_STATUS_IGNORE);
        if (!first) MPI_Send(out_.data(), bytes_, MPI_BYTE, peer, kTag, comm_);
    }

    void answer() {
        if (leads()) {
            MPI_Recv(nullptr, 0, MPI_BYTE, 1, kTag, comm_, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(nullptr, 0, MPI_BYTE, 0, kTag, comm_);
        }
    }

    void blocking() {
        for (int number = 0; number < window_; ++number) {
            if (leads()) {
                MPI_Send(message(out_, number), bytes_, MPI_BYTE, 1, kTag, comm_);
            } else {
                MPI_Recv(message(in_, number), bytes_, MPI_BYTE, 0, kTag, comm_, MPI_STATUS_IGNORE);
            }
        }
        answer();
    }

    void nonblocking() {
        requests_.resize(static_cast<size_t>(window_));
        for (int number = 0; number < window_; ++number) {
            MPI_Request& request = requests_[static_cast<size_t>(number)];
            if (leads()) {
                MPI_Isend(message(out_, number), bytes_, MPI_BYTE, 1, kTag, comm_, &request);
            } else {
                MPI_Irecv(message(in_, number), bytes_, MPI_BYTE, 0, kTag, comm_, &request);
            }
        }
        MPI_Waitall(window_, requests_.data(), MPI_STATUSES_IGNORE);
        answer();
    }

    MPI_Comm comm_;
    int bytes_;
    int window_;
    int self_ = 0;
    int ranks_ = 0;
    std::vector<unsigned char> out_;
    std::vector<unsigned char> in_;
    std::vector<MPI_Request> requests_;
};

/// Seconds for one of what run(count) does `count` of, until the last rank of `comm` has done it. The first
/// rank finds out during warm-up how many make a batch.
template <class Run>
double timed(MPI_Comm comm, bool leads, const Options& options, Run&& run) {
    struct {
        int count = 1;
        int warm = 0;
    } plan;
    const double begin = seconds();
    const auto batch = [&] {
        MPI_Barrier(comm);
        const double start = seconds();
        run(plan.count);
        MPI_Barrier(comm);
        return seconds() - start;
    };
    while (plan.warm == 0) {
        const double taken = batch();
        if (leads) {
            plan.warm = static_cast<int>((seconds() - begin) * 1e6 > options.warm_us);
            plan.count = static_cast<int>(
                std::clamp(plan.count * options.batch_us * 1e-6 / taken, 1.0, plan.count * 4.0));
        }
        MPI_Bcast(&plan, 2, MPI_INT, 0, comm);
    }
    std::vector<double> batches;
    for (int i = 0; i < options.batches; ++i) batches.push_back(batch() / plan.count);
    return measuring::median(batches);
}

double value_of(std::string_view task, double taken_s, int bytes, int window) {
    if (task == "alltoall") return taken_s * 1e6;
    if (task == "latency" || task == "pingpong") return taken_s / 2 * 1e6;
    return static_cast<double>(bytes) * window / taken_s / 1e6;
}

/// All ranks of the job call this; those without a part sleep until it is over.
std::string measure(const measuring::Session& session, const Options& options, std::string_view task, int active,
                    int bytes, int window) {
    const int self = session.self;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, self < active ? 0 : MPI_UNDEFINED, self, &comm);
    std::string row;
    if (comm != MPI_COMM_NULL) {
        const measuring::KeptAffinity kept;
        if (active == 2) session.pin_pair();
        Group group(comm, bytes, window);
        const double taken_s =
            timed(comm, group.leads(), options, [&](int count) { group.run(task, count); });
        if (!group.verify(task)) MPI_Abort(MPI_COMM_WORLD, 1);
        row = measuring::row(options.label, session.name() + "/" + std::to_string(active),
                             is_windowed(task) ? std::string(task) + "-" + std::to_string(window) : std::string(task),
                             static_cast<size_t>(bytes), value_of(task, taken_s, bytes, window));
    }
    measuring::nap_at_barrier();
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    return row;
}

std::string measure_all(const measuring::Session& session, const Options& options) {
    std::string csv = measuring::line_row(session, options.label, session.name());
    for (const std::string& task : options.tasks) {
        for (const int bytes : options.sizes) {
            for (const int active : is_pair_task(task) ? std::vector<int>{2} : options.active) {
                for (const int window : is_windowed(task) ? options.windows : std::vector<int>{1}) {
                    csv += measure(session, options, task, active, bytes, window);
                }
            }
        }
    }
    return csv + measuring::line_row(session, options.label, session.name());
}

}  // namespace

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    Options options;
    const std::string error = parse(argc, argv, session.ranks, options);
    if (!error.empty()) return session.refuse("flow: " + error);
    const std::string csv = measure_all(session, options);
    if (session.self == 0) measuring::print(csv);
    return 0;
}
