/// A flood of messages that come before their receives: memory of both ends, and time.
///
///   mpirun -np 8 … flood LABEL COUNT BYTES
///
/// All ranks but the first post their share of COUNT messages at once, and one more. Rank 0 waits for a second outside
/// MPI, receives the last message of each rank, and then all others in the order in which they were sent. So all
/// but one come before their receives, without a deep queue to be looked through. Rank 0 prints, as rows of
/// measuring.h: `receiver`, the most bytes by which its memory has grown; `sender`, those of the rank that grew
/// most, for one of its messages; `s`, the time from its first receive on.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::seconds;

constexpr int kTag = 1;
constexpr int kLastTag = 2;
constexpr int kMeetings = 2500;
constexpr size_t kLongBytes = 4096;  // above what goes in lines of a ring
constexpr useconds_t kComputingUs = 1000000;

/// Growth of this process's resident memory, by its peak.
class Growth {
  public:
    Growth() {
        std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew (proc(5))
        before_ = peak();
    }
    [[nodiscard]] double bytes() const { return std::max(0.0, peak() - before_); }

  private:
    static double peak() { return 1024 * measuring::memory_kib("status", "VmHWM"); }
    double before_;
};

/// A message begins with its number, as far as that fits.
void number(std::vector<char>& data, uint32_t of_it) {
    std::memcpy(data.data(), &of_it, std::min(data.size(), sizeof of_it));
}

double send_all(uint32_t count, size_t bytes) {
    // The program's own memory is touched before.
    std::vector<char> all(bytes * count, 1);
    std::vector<MPI_Request> requests(count, MPI_REQUEST_NULL);
    std::vector<char> data(bytes, 1);
    for (uint32_t i = 0; i < count; ++i) {
        number(data, i);
        std::ranges::copy(data, all.begin() + static_cast<std::ptrdiff_t>(bytes * i));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const Growth growth;
    for (uint32_t i = 0; i < count; ++i) {
        MPI_Isend(all.data() + bytes * i, static_cast<int>(bytes), MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Send(nullptr, 0, MPI_BYTE, 0, kLastTag, MPI_COMM_WORLD);
    MPI_Waitall(static_cast<int>(count), requests.data(), MPI_STATUSES_IGNORE);
    return growth.bytes() / count;
}

/// False: a message came out of order.
bool receive_all(uint32_t count, size_t bytes, int ranks) {
    std::vector<char> data(bytes), expected(bytes, 1);
    for (int from = 1; from < ranks; ++from) {
        MPI_Recv(nullptr, 0, MPI_BYTE, from, kLastTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (uint32_t i = 0; i < count; ++i) {
        number(expected, i);
        for (int from = 1; from < ranks; ++from) {
            MPI_Recv(data.data(), static_cast<int>(bytes), MPI_BYTE, from, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (data != expected) return false;
        }
    }
    return true;
}

/// All have met, and memory that messages pass through has been gone round, so that the flood adds none of it: a stream
/// from each rank of messages whose receives are posted, as long as those of the flood, and ones that go through the
/// body of a ring.
void meet(int self, int ranks, size_t bytes) {
    for (const size_t length : {bytes, kLongBytes}) {
        std::vector<char> data(length * kMeetings);
        std::vector<MPI_Request> requests(kMeetings, MPI_REQUEST_NULL);
        const auto each = [&](auto&& begin) {
            for (size_t i = 0; i < kMeetings; ++i) {
                begin(data.data() + length * i, static_cast<int>(length), requests[i]);
            }
        };
        for (int peer = self == 0 ? 1 : 0; peer < (self == 0 ? ranks : 1); ++peer) {
            if (self == 0) {
                each([&](char* to, int count, MPI_Request& request) {
                    MPI_Irecv(to, count, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &request);
                });
                MPI_Send(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD);
            } else {
                MPI_Recv(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                each([&](const char* from, int count, MPI_Request& request) {
                    MPI_Isend(from, count, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &request);
                });
            }
            MPI_Waitall(kMeetings, requests.data(), MPI_STATUSES_IGNORE);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    measuring::Places given("flood", "LABEL COUNT BYTES", argc, argv);
    const std::string label = given.text();
    const auto count = given.number<uint32_t>({.smallest = 1, .largest = 1u << 30});
    const auto bytes = given.number<uint32_t>({.smallest = 0, .largest = 1u << 20});
    given.require(session.ranks >= 2, "two ranks or more are needed");
    if (!given.error().empty()) return session.refuse(given.error());
    const uint32_t each = std::max(1u, count / static_cast<uint32_t>(session.ranks - 1));
    meet(session.self, session.ranks, bytes);
    double sender = 0;
    double most = 0;
    if (session.self != 0) {
        sender = send_all(each, bytes);
        MPI_Reduce(&sender, nullptr, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        return 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const Growth growth;
    usleep(kComputingUs);
    const double start = seconds();
    if (!receive_all(each, bytes, session.ranks)) {
        std::fprintf(stderr, "flood: a message is not the one that was sent\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    const double taken = seconds() - start;
    const double grown = growth.bytes();
    MPI_Reduce(&sender, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    const auto row = [&](const char* measure, double value) {
        return measuring::row(label, session.name(), measure, bytes, value);
    };
    measuring::print(row("receiver", grown) + row("sender", most) + row("s", taken));
    return 0;
}
