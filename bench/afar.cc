/// Measures between hosts, beside bench/pairs.cc, as rows of measuring.h.
///
///   mpirun … afar fetch LABEL                      MPI_Fetch_and_op by rank 0 at rank 1, which is inside MPI
///   mpirun … afar init LABEL                       MPI_Init and MPI_Finalize
///   mpirun … afar incast LABEL SECONDS             all ranks but 0, 1 and 2 send to rank 0, which computes
///   mpirun … afar peers LABEL                      memory of rank 0 as it speaks to one rank after the other
///
/// fetch: us of one fetch-and-add of 8 bytes, with its flush. Open MPI 4.1 makes three atomics of it, one after the
/// other: its osc/rdma takes a lock at the target first, and gives it back.
/// init: ms from before MPI_Init to after MPI_Finalize, of rank 0.
/// incast: messages of 2 KiB. RSS of rank 0 in KiB before the others send, when all have sent, and at the end; us of a
/// ping-pong of 2 KiB between ranks 1 and 2 before the others send, and while they do.
/// peers: KiB that rank 0 has more, and a rank spoken to.

#include <cstdio>
#include <cstdlib>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::nap_at_barrier;
using measuring::nap_until;
using measuring::print;
using measuring::seconds;

constexpr int kTag = 1;
constexpr int kBatches = 31;

std::string row(const std::string& label, const char* measure, size_t size, double value) {
    return measuring::row(label, "0-1", measure, size, value);
}

// --- One-sided.

void measure_fetch(const std::string& label, int self) {
    const measuring::Cpus cpus = measuring::choose_cpus();
    measuring::pin(self == 0 ? cpus.first : cpus.second);
    uint64_t* memory = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    *memory = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    constexpr int kCount = 200;
    if (self == 0) {
        const uint64_t one = 1;
        uint64_t before = 0;
        std::vector<double> batches;
        MPI_Win_lock(MPI_LOCK_SHARED, 1, MPI_MODE_NOCHECK, window);
        for (int batch = 0; batch < kBatches; ++batch) {
            const double start = seconds();
            for (int i = 0; i < kCount; ++i) {
                MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 1, 0, MPI_SUM, window);
                MPI_Win_flush(1, window);
            }
            batches.push_back((seconds() - start) / kCount);
        }
        MPI_Win_unlock(1, window);
        if (before != uint64_t{kCount} * kBatches - 1) {
            std::fprintf(stderr, "afar: the last fetch-and-add gave %llu\n", static_cast<unsigned long long>(before));
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        print(row(label, "fetch", 8, measuring::median(batches) * 1e6));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
}

// --- Many ranks.

double resident_kib() { return measuring::memory_kib("status", "VmRSS"); }

/// Returns after a number of seconds, without a call into MPI.
void compute(double length) {
    const double end = seconds() + length;
    volatile double value = 1;
    while (seconds() < end) {
        for (int i = 0; i < 1000; ++i) value = value * 1.0000001;
    }
}

constexpr int kIncastBytes = 2048;

/// us of half a ping-pong, of one batch after the other, for a number of seconds.
double ping_pong_for(double length, bool leads, int peer) {
    char memory[kIncastBytes] = {};
    std::vector<double> batches;
    const double end = seconds() + length;
    for (int go_on = 1; go_on != 0;) {
        constexpr int kCount = 50;
        const double start = seconds();
        for (int i = 0; i < kCount; ++i) {
            if (leads) MPI_Send(memory, kIncastBytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD);
            MPI_Recv(memory, kIncastBytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (!leads) MPI_Send(memory, kIncastBytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD);
        }
        batches.push_back((seconds() - start) / (2.0 * kCount) * 1e6);
        go_on = static_cast<int>(seconds() < end);
        if (leads) {
            MPI_Send(&go_on, 1, MPI_INT, peer, kTag, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&go_on, 1, MPI_INT, peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    return measuring::median(batches);
}

void measure_incast(const std::string& label, double length, int self, int ranks) {
    constexpr int kMessages = 500;
    std::vector<char> memory(kIncastBytes);
    std::string csv;
    // All have met, so that connections are not measured.
    for (int peer = 0; peer < ranks; ++peer) {
        if (self == 0 && peer != 0) {
            MPI_Recv(memory.data(), kIncastBytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (self == peer && peer != 0) {
            MPI_Send(memory.data(), kIncastBytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD);
        }
    }
    nap_at_barrier();
    for (const bool incast : {false, true}) {
        if (self == 0) {
            csv += row(label, "rss", incast ? 1 : 0, resident_kib());
            compute(length);
            if (incast) csv += row(label, "rss", 2, resident_kib());
        } else if (self <= 2) {
            const double us = ping_pong_for(length * 0.8, self == 1, 3 - self);
            if (self == 1) print(row(label, "others", incast ? 1 : 0, us));
        }
        if (incast && self == 0) {
            for (int i = 0; i < kMessages * (ranks - 3); ++i) {
                MPI_Recv(memory.data(), kIncastBytes, MPI_BYTE, MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            }
            csv += row(label, "rss", 3, resident_kib());
        } else if (incast && self > 2) {
            std::vector<MPI_Request> requests(kMessages);
            for (MPI_Request& request : requests) {
                MPI_Isend(memory.data(), kIncastBytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
            }
            for (const MPI_Request& request : requests) nap_until(request);
        }
        nap_at_barrier();
    }
    if (self == 0) print(csv);
}

void measure_peers(const std::string& label, int self, int ranks) {
    nap_at_barrier();
    double before = 0;
    char byte = 0;
    for (int peer = 1; peer < ranks; ++peer) {
        if (self == peer) MPI_Recv(&byte, 1, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (self == peer) MPI_Send(&byte, 1, MPI_BYTE, 0, kTag, MPI_COMM_WORLD);
        if (self != 0) continue;
        if (peer == 2) before = resident_kib();  // the first one brings what all share
        MPI_Send(&byte, 1, MPI_BYTE, peer, kTag, MPI_COMM_WORLD);
        MPI_Recv(&byte, 1, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (self == 0) {
        print(row(label, "peer", static_cast<size_t>(ranks), (resident_kib() - before) / (ranks - 2)));
    }
    nap_at_barrier();
}

int measure(const measuring::Session& session, int argc, char** argv) {
    const std::string what = argc > 2 ? argv[1] : "";
    const std::string label = argc > 2 ? argv[2] : "";
    if (what == "fetch") {
        measure_fetch(label, session.self);
    } else if (what == "incast" && argc == 4) {
        uint32_t length = 0;
        const std::string error = measuring::parse_number("SECONDS", argv[3], {.smallest = 1, .largest = 3600}, length);
        if (!error.empty()) return session.refuse("afar: " + error);
        if (session.ranks < 4) return session.refuse("afar: incast needs four ranks");
        measure_incast(label, length, session.self, session.ranks);
    } else if (what == "peers" && session.ranks > 2) {
        measure_peers(label, session.self, session.ranks);
    } else if (what != "init") {
        return session.refuse("afar: wrong arguments; the head of bench/afar.cc shows them");
    }
    nap_at_barrier();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const double started = seconds();
    bool prints = false;
    int status = 0;
    {
        const measuring::Session session(argc, argv);
        prints = session.self == 0 && argc == 3 && std::string_view(argv[1]) == "init";
        status = measure(session, argc, argv);
    }
    if (prints) print(row(argv[2], "init", 0, (seconds() - started) * 1e3));
    return status;
}
