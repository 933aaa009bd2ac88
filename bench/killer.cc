/// MEM's killer benchmark (5.1, figure 11): each rank but the first posts its messages at once, with tags 1 to N, and
/// rank 0 receives them by the last tag first, of each rank in turn.
///
///   mpirun -np 4 … killer LABEL MESSAGES BYTES RUNS
///
/// Rank 0 prints, as rows of measuring.h: `us`, the least time of the runs for one message; `grown`, its bytes of
/// memory that were not resident before, for one message.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "arguments.h"
#include "ranks.h"

namespace {

void send_all(int messages, const std::vector<char>& data) {
    std::vector<MPI_Request> requests(static_cast<size_t>(messages));
    for (int tag = 1; tag <= messages; ++tag) {
        MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_BYTE, 0, tag, MPI_COMM_WORLD,
                  &requests[static_cast<size_t>(tag) - 1]);
    }
    MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
}

void receive_all(int messages, int ranks, std::vector<char>& data) {
    for (int tag = messages; tag >= 1; --tag) {
        for (int from = 1; from < ranks; ++from) {
            MPI_Recv(data.data(), static_cast<int>(data.size()), MPI_BYTE, from, tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    measuring::Places given("killer", "LABEL MESSAGES BYTES RUNS", argc, argv);
    const std::string label = given.text();
    const int messages = given.number<int>({.smallest = 1, .largest = 1u << 24});
    const int bytes = given.number<int>({.smallest = 0, .largest = 1u << 30});
    const int runs = given.number<int>({.smallest = 1, .largest = 1u << 20});
    given.require(session.ranks >= 2, "two ranks or more are needed");
    if (!given.error().empty()) return session.refuse(given.error());
    std::vector<char> data(static_cast<size_t>(bytes), 1);
    const double all = static_cast<double>(messages) * (session.ranks - 1);
    double least = 1e9;
    const double before = measuring::memory_kib("status", "VmRSS");
    for (int run = 0; run < runs; ++run) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = measuring::seconds();
        if (session.self == 0) {
            receive_all(messages, session.ranks, data);
        } else {
            send_all(messages, data);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        least = std::min(least, measuring::seconds() - start);
    }
    if (session.self == 0) {
        const auto row = [&](const char* measure, double value) {
            return measuring::row(label, std::to_string(messages), measure, data.size(), value);
        };
        const double grown = std::max(0.0, 1024 * (measuring::memory_kib("status", "VmRSS") - before));
        measuring::print(row("us", least / all * 1e6) + row("grown", grown / all));
    }
    return 0;
}
