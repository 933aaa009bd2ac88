/// Many messages at a time to a receiver that sleeps: the sender's time to post them and its memory.
///
///   mpirun -np 2 … outstanding LABEL COUNT BYTES FILE
///
/// Rank 1 sleeps outside MPI until FILE exists, which rank 0 makes once everything is posted. Rank 0 prints,
/// as rows of measuring.h: `post` and `drain`, seconds; `held` and `kept`, bytes of resident memory for each
/// message, while they wait and after all have completed.
#include <cstdio>
#include <vector>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::print;
using measuring::resident_bytes;
using measuring::seconds;

constexpr int kTag = 1;
constexpr useconds_t kLookUs = 10000;

void send_all(const std::string& label, int count, int bytes, const std::string& file) {
    // The program's own memory is touched before.
    std::vector<MPI_Request> requests(static_cast<size_t>(count), MPI_REQUEST_NULL);
    std::vector<char> message(static_cast<size_t>(bytes), 1);
    const double before = resident_bytes();
    const double start = seconds();
    for (MPI_Request& request : requests) {
        MPI_Isend(message.data(), bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
    }
    const double posted = seconds();
    const double held = resident_bytes();
    std::ofstream(file) << "posted\n";
    MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE);
    MPI_Recv(message.data(), 1, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const double drained = seconds();
    const double kept = resident_bytes();
    const auto row = [&](const char* measure, double value) {
        return measuring::row(label, "0-1", measure, static_cast<size_t>(bytes), value);
    };
    print(row("post", posted - start) + row("drain", drained - posted) +
          row("held", (held - before) / count) + row("kept", (kept - before) / count));
}

void receive_all(int count, int bytes, const std::string& file) {
    while (access(file.c_str(), F_OK) != 0) usleep(kLookUs);
    std::vector<char> message(static_cast<size_t>(bytes));
    for (int i = 0; i < count; ++i) {
        MPI_Recv(message.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Send(message.data(), 1, MPI_BYTE, 0, kTag, MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    if (argc != 5) return session.refuse("outstanding: usage: mpirun -np 2 outstanding LABEL COUNT BYTES FILE");
    int count = 0, bytes = 0;
    std::string error = measuring::parse_number("COUNT", argv[2], {.smallest = 1}, count);
    if (error.empty()) error = measuring::parse_number("BYTES", argv[3], {.smallest = 1}, bytes);
    if (error.empty() && session.ranks != 2) error = "two ranks are needed";
    if (!error.empty()) return session.refuse("outstanding: " + error);
    const measuring::Cpus cpus = measuring::choose_cpus();
    if (session.self == 0) {
        const measuring::KeptAffinity kept;
        measuring::pin(cpus.first);
        print(measuring::line_transfer_row(argv[1], "0-1", cpus));
    }
    measuring::pin(session.self == 0 ? cpus.first : cpus.second);
    // The pair has met, and what a first message allocates is there.
    char token = 1;
    MPI_Sendrecv_replace(&token, 1, MPI_BYTE, 1 - session.self, kTag, 1 - session.self, kTag, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    if (session.self == 0) {
        send_all(argv[1], count, bytes, argv[4]);
    } else {
        receive_all(count, bytes, argv[4]);
    }
    return 0;
}
