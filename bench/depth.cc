/// The time of a message behind others that wait, between two ranks.
///
///   mpirun -np 2 … depth LABEL DEPTH
///
/// At each rank DEPTH others are in the queue, each with a tag of its own, while messages of 8 bytes go to and fro.
/// Rank 0 prints, as rows of measuring.h, with the depth as size, half a round trip in us, a median over batches:
///   posted          the others are receives from the peer
///   posted_any      receives from any source, as is the one that is measured
///   unexpected      messages of 8 bytes without a receive
///   unexpected_any  messages of 8 bytes, and the receive that is measured is from any source
/// and the time of a cache line before and after them.
#include <cstdio>
#include <vector>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::seconds;

constexpr int kTag = 1;
constexpr int kFirstTag = 2;  ///< of the others
constexpr int kBytes = 8;
constexpr int kBatches = 31;
constexpr double kBatchSeconds = 0.002;

struct Kind {
    const char* name;
    bool posted;
    bool any_source;
};
constexpr Kind kKinds[] = {
    {"posted", true, false},
    {"posted_any", true, true},
    {"unexpected", false, false},
    {"unexpected_any", false, true},
};

double round_trips(int count, int self, int source) {
    char data[kBytes] = {};
    const double start = seconds();
    for (int i = 0; i < count; ++i) {
        if (self == 0) MPI_Send(data, kBytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
        MPI_Recv(data, kBytes, MPI_BYTE, source, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (self == 1) MPI_Send(data, kBytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD);
    }
    return seconds() - start;
}

double one_way_us(int self, int source) {
    int count = 10;
    for (; count < 1 << 20; count *= 2) {
        double taken = round_trips(count, self, source);
        MPI_Bcast(&taken, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (taken >= kBatchSeconds) break;
    }
    std::vector<double> batches;
    for (int batch = 0; batch < kBatches; ++batch) batches.push_back(round_trips(count, self, source) / count / 2);
    return measuring::median(batches) * 1e6;
}

double behind(const Kind& kind, int depth, int self) {
    const int peer = 1 - self;
    const int source = kind.any_source ? MPI_ANY_SOURCE : peer;
    std::vector<char> data(static_cast<size_t>(kBytes) * static_cast<size_t>(depth));
    std::vector<MPI_Request> requests(static_cast<size_t>(depth));
    for (int i = 0; i < depth; ++i) {
        char* const place = data.data() + static_cast<size_t>(i) * kBytes;
        MPI_Request& request = requests[static_cast<size_t>(i)];
        if (kind.posted) {
            MPI_Irecv(place, kBytes, MPI_BYTE, source, kFirstTag + i, MPI_COMM_WORLD, &request);
        } else {
            MPI_Isend(place, kBytes, MPI_BYTE, peer, kFirstTag + i, MPI_COMM_WORLD, &request);
        }
    }
    if (!kind.posted) MPI_Waitall(depth, requests.data(), MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    const double us = one_way_us(self, source);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < depth; ++i) {
        if (kind.posted) {
            MPI_Cancel(&requests[static_cast<size_t>(i)]);
            MPI_Wait(&requests[static_cast<size_t>(i)], MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(data.data(), kBytes, MPI_BYTE, source, kFirstTag + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    return us;
}

}  // namespace

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    measuring::Places given("depth", "LABEL DEPTH", argc, argv);
    const std::string label = given.text();
    const int depth = given.number<int>({.smallest = 0, .largest = 1u << 20});
    given.require(session.ranks == 2, "two ranks are needed");
    if (!given.error().empty()) return session.refuse(given.error());
    session.pin_pair();
    std::string csv = measuring::line_row(session, label, session.name());
    for (const Kind& kind : kKinds) {
        csv += measuring::row(label, session.name(), kind.name, static_cast<size_t>(depth),
                              behind(kind, depth, session.self));
    }
    csv += measuring::line_row(session, label, session.name());
    if (session.self == 0) measuring::print(csv);
    return 0;
}
