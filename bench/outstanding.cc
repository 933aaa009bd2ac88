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
using measuring::seconds;

constexpr int kTag = 1;
constexpr useconds_t kLookUs = 10000;

double resident_bytes() { return 1024 * measuring::memory_kib("status", "VmRSS"); }

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
    measuring::Places given("outstanding", "LABEL COUNT BYTES FILE", argc, argv);
    const std::string label = given.text();
    const int count = given.number<int>();
    const int bytes = given.number<int>();
    const std::string file = given.text();
    given.require(session.ranks == 2, "two ranks are needed");
    if (!given.error().empty()) return session.refuse(given.error());
    print(measuring::line_row(session, label, "0-1"));
    session.pin_pair();
    // The pair has met, and what a first message allocates is there.
    char token = 1;
    MPI_Sendrecv_replace(&token, 1, MPI_BYTE, 1 - session.self, kTag, 1 - session.self, kTag, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    if (session.self == 0) {
        send_all(label, count, bytes, file);
    } else {
        receive_all(count, bytes, file);
    }
    return 0;
}
