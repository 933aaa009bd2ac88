/// Measures of all ranks of a job at once: the time of an alltoall, and the memory that a rank has.
///
///   mpirun -np 4  … everyone alltoall LABEL 2048
///   mpirun -np 32 … everyone memory LABEL
///   mpirun -np 32 --mca btl self … everyone baseline LABEL
///
/// alltoall: microseconds of one MPI_Alltoall with that number of bytes for each process, a median over batches. Two
/// ranks are pinned to two CPUs; more share what there is.
///
/// memory: each rank prints its proportional set size (a page that n processes share counts 1/n in each, so
/// the sum over the ranks is what the job takes) and its resident set size, in KiB: after one exchange of 1
/// KiB with every other rank, and after 300, when rings and mailboxes have been gone round. baseline: the
/// same right after MPI_Init, without a message; over `btl self` that is a rank without any transport.
#include <cstdio>
#include <cstdlib>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::print;
using measuring::seconds;
using measuring::Session;

constexpr int kTag = 1;
constexpr int kMemoryBytes = 1024;
constexpr int kExchanges = 300;
constexpr int kBatches = 31;
constexpr double kBatchSeconds = 0.005;
/// Within this, all ranks of a job without a transport have come from MPI_Init, or have read their sizes.
constexpr useconds_t kSettleUs = 500000;

std::string memory_rows(const Session& session, const std::string& label, int exchanges) {
    const auto row = [&](const char* measure, const char* name) {
        return measuring::row(label, session.name(), measure, static_cast<size_t>(exchanges),
                              measuring::memory_kib("smaps_rollup", name));
    };
    return row("pss", "Pss") + row("rss", "Rss");
}

/// With every other rank; MPI_Alltoall would pick algorithms in which some never meet.
void exchange(int self, int ranks, std::vector<char>& memory) {
    std::vector<MPI_Request> requests(2 * static_cast<size_t>(ranks), MPI_REQUEST_NULL);
    const auto ranks_size = static_cast<size_t>(ranks);
    for (size_t i = 1; i < ranks_size; ++i) {
        const int from = static_cast<int>((static_cast<size_t>(self) + ranks_size - i) % ranks_size);
        MPI_Irecv(memory.data() + i * kMemoryBytes, kMemoryBytes, MPI_BYTE, from, kTag, MPI_COMM_WORLD,
                  &requests[i]);
    }
    for (size_t i = 1; i < ranks_size; ++i) {
        const int to = static_cast<int>((static_cast<size_t>(self) + i) % ranks_size);
        MPI_Isend(memory.data(), kMemoryBytes, MPI_BYTE, to, kTag, MPI_COMM_WORLD, &requests[ranks_size + i]);
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

void measure_memory(const Session& session, const std::string& label) {
    std::vector<char> memory(static_cast<size_t>(session.ranks) * kMemoryBytes, 1);
    std::string csv;
    int done = 0;
    for (const int goal : {1, kExchanges}) {
        for (; done < goal; ++done) exchange(session.self, session.ranks, memory);
        // A shared page counts by how many share it, so all must be there while each reads.
        MPI_Barrier(MPI_COMM_WORLD);
        csv += memory_rows(session, label, goal);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    print(csv);
}

void measure_baseline(const Session& session, const std::string& label) {
    usleep(kSettleUs);
    const std::string csv = memory_rows(session, label, 0);
    usleep(kSettleUs);
    print(csv);
}

double timed_alltoall(int self, int bytes, std::vector<char>& out, std::vector<char>& in) {
    const auto run = [&](int count) {
        const double start = seconds();
        for (int i = 0; i < count; ++i) {
            MPI_Alltoall(out.data(), bytes, MPI_BYTE, in.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
        }
        return seconds() - start;
    };
    int count = 20;
    if (const double taken = run(count); self == 0) {
        count = std::max(1, static_cast<int>(count * kBatchSeconds / taken));
    }
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::vector<double> batches;
    for (int batch = 0; batch < kBatches; ++batch) {
        MPI_Barrier(MPI_COMM_WORLD);
        batches.push_back(run(count) / count);
    }
    return measuring::median(batches) * 1e6;
}

void measure_alltoall(const Session& session, const std::string& label, int bytes) {
    std::string csv = measuring::line_row(session, label, session.name());
    if (session.ranks == 2) session.pin_pair();
    const auto block = static_cast<size_t>(bytes);
    std::vector<char> out(static_cast<size_t>(session.ranks) * block, static_cast<char>(session.self));
    std::vector<char> in(out.size(), -1);
    const double us = timed_alltoall(session.self, bytes, out, in);
    for (size_t i = 0; i < in.size(); ++i) {
        if (in[i] == static_cast<char>(i / block)) continue;
        std::fprintf(stderr, "everyone: byte %zu from rank %zu is wrong at rank %d\n", i % block, i / block,
                     session.self);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    csv += measuring::line_row(session, label, session.name()) +
           measuring::row(label, session.name(), "alltoall", block, us);
    if (session.self == 0) print(csv);
}

}  // namespace

int main(int argc, char** argv) {
    const Session session(argc, argv);
    const std::string_view what = argc > 1 ? argv[1] : "";
    const bool alltoall = what == "alltoall";
    const char* const words = alltoall ? "alltoall LABEL BYTES" : "memory|baseline|alltoall LABEL";
    measuring::Places given("everyone", words, argc, argv);
    (void)given.text();
    const std::string label = given.text();
    const int bytes = alltoall ? given.number<int>() : 0;
    given.require(alltoall || what == "memory" || what == "baseline", "it measures memory, baseline or alltoall");
    if (!given.error().empty()) return session.refuse(given.error());
    if (alltoall) measure_alltoall(session, label, bytes);
    if (what == "memory") measure_memory(session, label);
    if (what == "baseline") measure_baseline(session, label);
    return 0;
}
