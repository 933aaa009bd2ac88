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

using measuring::Cpus;
using measuring::print;
using measuring::seconds;

constexpr int kTag = 1;
constexpr int kMemoryBytes = 1024;
constexpr int kExchanges = 300;
constexpr int kBatches = 31;
constexpr double kBatchSeconds = 0.005;
/// Within this, all ranks of a job without a transport have come from MPI_Init, or have read their sizes.
constexpr useconds_t kSettleUs = 500000;

/// "Pss" or "Rss" of this process in KiB; -1 when the kernel does not say.
long memory_kib(const std::string& name) {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(name + ":")) return std::strtol(line.c_str() + name.size() + 1, nullptr, 10);
    }
    return -1;
}

/// The name of the job, and "npN" for its ranks.
struct Key {
    std::string label;
    std::string where;
};

std::string row(const Key& key, const char* measure, int size, double value) {
    return measuring::row(key.label, key.where, measure, static_cast<size_t>(size), value);
}

std::string memory_rows(const Key& key, int exchanges) {
    return row(key, "pss", exchanges, static_cast<double>(memory_kib("Pss"))) +
           row(key, "rss", exchanges, static_cast<double>(memory_kib("Rss")));
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

void measure_memory(const Key& key, int self, int ranks) {
    std::vector<char> memory(static_cast<size_t>(ranks) * kMemoryBytes, 1);
    std::string csv;
    int done = 0;
    for (const int goal : {1, kExchanges}) {
        for (; done < goal; ++done) exchange(self, ranks, memory);
        // A shared page counts by how many share it, so all must be there while each reads.
        MPI_Barrier(MPI_COMM_WORLD);
        csv += memory_rows(key, goal);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    print(csv);
}

void measure_baseline(const Key& key) {
    usleep(kSettleUs);
    const std::string csv = memory_rows(key, 0);
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

void measure_alltoall(const Key& key, int self, int ranks, int bytes) {
    const Cpus cpus = measuring::choose_cpus();
    std::string csv;
    const auto line = [&] {
        MPI_Request request;
        if (self == 0 && cpus.first >= 0) {
            const measuring::KeptAffinity kept;
            measuring::pin(cpus.first);
            csv += measuring::line_transfer_row(key.label, key.where, cpus);
        }
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        measuring::nap_until(request);
    };
    line();
    if (ranks == 2) measuring::pin(self == 0 ? cpus.first : cpus.second);
    std::vector<char> out(static_cast<size_t>(ranks) * static_cast<size_t>(bytes), static_cast<char>(self));
    std::vector<char> in(out.size(), -1);
    const double us = timed_alltoall(self, bytes, out, in);
    for (int rank = 0; rank < ranks; ++rank) {
        for (int i = 0; i < bytes; ++i) {
            if (in[static_cast<size_t>(rank) * static_cast<size_t>(bytes) + static_cast<size_t>(i)] ==
                static_cast<char>(rank)) {
                continue;
            }
            std::fprintf(stderr, "everyone: byte %d from rank %d is wrong at rank %d\n", i, rank, self);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    line();
    csv += row(key, "alltoall", bytes, us);
    if (self == 0) print(csv);
}

}  // namespace

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    const std::string_view what = argc > 1 ? argv[1] : "";
    const Key key = {argc > 2 ? argv[2] : "", "np" + std::to_string(session.ranks)};
    if (what == "memory" && argc == 3) {
        measure_memory(key, session.self, session.ranks);
    } else if (what == "baseline" && argc == 3) {
        measure_baseline(key);
    } else if (what == "alltoall" && argc == 4) {
        int bytes = 0;
        const std::string error = measuring::parse_number("BYTES", argv[3], {.smallest = 1}, bytes);
        if (!error.empty()) return session.refuse("everyone: " + error);
        measure_alltoall(key, session.self, session.ranks, bytes);
    } else {
        return session.refuse("everyone: usage: everyone memory|baseline LABEL, everyone alltoall LABEL BYTES");
    }
    return 0;
}
