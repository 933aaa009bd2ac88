// Messages that wait for a receiver outside MPI: the sender's memory follows their size, and goes back
// afterwards.
#include <fstream>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::fill;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr int kTag = 1;
constexpr int kEndTag = 2;
constexpr useconds_t kLookUs = 2000;
constexpr std::size_t kContents = 16;  ///< buffers that are sent in turn

std::size_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t pages = 0;
    std::size_t resident = 0;
    file >> pages >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Time and memory of one run. The memory includes ob1's own requests.
struct Load {
    std::size_t bytes;
    int count;
    std::size_t held_bytes_max;  ///< of each message while it waits
    std::size_t kept_bytes_max;  ///< and once it has left
};
constexpr std::size_t kRequestBytes = 1000;
/// For pages that are touched for the first time and what is kept for the next burst.
constexpr std::size_t kSlackBytes = 4 << 20;

void send(Check& check, const Load& load, int to, const std::string& file) {
    std::vector<std::vector<std::byte>> contents(kContents, std::vector<std::byte>(load.bytes));
    for (std::size_t i = 0; i < kContents; ++i) fill(contents[i].data(), {check.rank, to, load.bytes, i});
    std::vector<MPI_Request> requests(static_cast<std::size_t>(load.count), MPI_REQUEST_NULL);
    const std::size_t before = resident_bytes();
    for (std::size_t i = 0; i < requests.size(); ++i) {
        MPI_Isend(contents[i % kContents].data(), static_cast<int>(load.bytes), MPI_BYTE, to, kTag,
                  check.comm, &requests[i]);
    }
    const std::size_t held = resident_bytes();
    std::ofstream(file) << "posted\n";
    MPI_Waitall(load.count, requests.data(), MPI_STATUSES_IGNORE);
    MPI_Recv(nullptr, 0, MPI_BYTE, to, kEndTag, check.comm, MPI_STATUS_IGNORE);
    const std::size_t kept = resident_bytes();
    const auto count = static_cast<std::size_t>(load.count);
    if (held > before + count * load.held_bytes_max + kSlackBytes) {
        check.fail("%zu bytes for each waiting message of %zu", (held - before) / count, load.bytes);
    }
    if (kept > before + count * load.kept_bytes_max + kSlackBytes) {
        check.fail("%zu bytes are kept for each message of %zu that has left", (kept - before) / count,
                   load.bytes);
    }
}

void receive(Check& check, const Load& load, int from, const std::string& file) {
    while (access(file.c_str(), F_OK) != 0) usleep(kLookUs);
    unlink(file.c_str());
    GuardedBuffer buffer(load.bytes);
    for (int i = 0; i < load.count && check.failure_count() == 0; ++i) {
        buffer.poison();
        MPI_Recv(buffer.data(), static_cast<int>(load.bytes), MPI_BYTE, from, kTag, check.comm,
                 MPI_STATUS_IGNORE);
        const Message expected = {from, check.rank, load.bytes, static_cast<std::uint64_t>(i) % kContents};
        check.received(buffer, expected);
    }
    MPI_Send(nullptr, 0, MPI_BYTE, from, kEndTag, check.comm);
}

void wait_for_a_sleeper(Check& check, const Load& load) {
    char file[128] = "";
    const int last = check.size - 1;
    if (check.rank == 0) {
        const char* directory = std::getenv("TMPDIR");
        std::snprintf(file, sizeof file, "%s/velo-backlog-%d", directory != nullptr ? directory : "/tmp",
                      getpid());
        unlink(file);
    }
    MPI_Bcast(file, sizeof file, MPI_CHAR, 0, check.comm);
    // The pair has met.
    char token = 0;
    if (check.rank == 0) MPI_Send(&token, 1, MPI_CHAR, last, kTag, check.comm);
    if (check.rank == last) MPI_Recv(&token, 1, MPI_CHAR, 0, kTag, check.comm, MPI_STATUS_IGNORE);
    MPI_Barrier(check.comm);
    if (check.rank == 0) send(check, load, last, file);
    if (check.rank == last) receive(check, load, 0, file);
    MPI_Barrier(check.comm);
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        // In this order: Open MPI keeps the requests of the longer ones.
        suite.check("messages_of_a_kilobyte_cost_their_size_and_give_it_back", [](Check& check) {
            wait_for_a_sleeper(check, {1000, 20000, 1500 + kRequestBytes, kRequestBytes});
        });
        suite.check("short_messages_cost_their_size_and_give_it_back", [](Check& check) {
            wait_for_a_sleeper(check, {64, 50000, 256, 0});
        });
    });
}
