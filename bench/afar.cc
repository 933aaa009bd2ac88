/// Measures between hosts, beside bench/pairs.cc, as rows of measuring.h.
///
///   mpirun … afar floor LABEL INTERFACE 8,2048     a bare non-blocking TCP socket between ranks 0 and 1
///   mpirun … afar fetch LABEL                      MPI_Fetch_and_op by rank 0 at rank 1, which is inside MPI
///   mpirun … afar init LABEL                       MPI_Init and MPI_Finalize
///   mpirun … afar incast LABEL SECONDS             all ranks but 0, 1 and 2 send to rank 0, which computes
///   mpirun … afar peers LABEL                      memory of rank 0 as it speaks to one rank after the other
///
/// floor: half a ping-pong, us (latency); one direction, MB/s (bandwidth); 8-byte messages a second, 256 of them a
/// write (rate). No MPI comes nearer to the network than that.
/// fetch: us of one fetch-and-add of 8 bytes, with its flush. Open MPI 4.1 makes three atomics of it, one after the
/// other: its osc/rdma takes a lock at the target first, and gives it back.
/// init: ms from before MPI_Init to after MPI_Finalize, of rank 0.
/// incast: messages of 2 KiB. RSS of rank 0 in KiB before the others send, when all have sent, and at the end; us of a
/// ping-pong of 2 KiB between ranks 1 and 2 before the others send, and while they do.
/// peers: KiB that rank 0 has more, and a rank spoken to.
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::nap_at_barrier;
using measuring::nap_until;
using measuring::print;
using measuring::seconds;

constexpr int kTag = 1;
constexpr int kBatches = 31;
constexpr int kBatchesMin = 7;
constexpr double kBatchSeconds = 0.002;
constexpr double kMeasureSeconds = 0.3;

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "afar: %s: %s\n", what, std::strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
}

std::string row(const std::string& label, const char* measure, size_t size, double value) {
    return measuring::row(label, "0-1", measure, size, value);
}

/// Seconds for one of what run(count) does `count` of. `agree` tells the other side the leader's count; 0: enough.
double timed(const std::function<void(int*)>& agree, const std::function<void(int)>& run) {
    std::vector<double> batches;
    for (int count = 1;;) {
        agree(&count);
        // The other side's times are its own, and not looked at.
        if (count == 0) return batches.empty() ? 0 : measuring::median(batches);
        const double start = seconds();
        run(count);
        const double taken = seconds() - start;
        if (batches.empty() && taken < kBatchSeconds / 4) {
            count *= 4;
            continue;
        }
        batches.push_back(taken / count);
        const bool long_ones = taken * kBatches > kMeasureSeconds;
        if (batches.size() == kBatches || (batches.size() >= kBatchesMin && long_ones)) count = 0;
    }
}

// --- A bare socket.

in_addr address_of(const char* interface) {
    ifaddrs* all = nullptr;
    in_addr found = {};
    if (getifaddrs(&all) != 0) fail("getifaddrs");
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
        if (std::strcmp(at->ifa_name, interface) == 0) {
            found = reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr;
        }
    }
    freeifaddrs(all);
    if (found.s_addr == 0) {
        std::fprintf(stderr, "afar: interface %s has no IPv4 address\n", interface);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return found;
}

int connected_socket(bool listens, const char* interface) {
    sockaddr_in address = {};
    socklen_t bytes = sizeof address;
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
    if (listens) {
        address.sin_family = AF_INET;
        address.sin_addr = address_of(interface);
        if (bind(socket_fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0) fail("bind");
        if (listen(socket_fd, 1) != 0) fail("listen");
        getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &bytes);
        MPI_Send(&address, sizeof address, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
        const int accepted = accept(socket_fd, nullptr, nullptr);
        if (accepted < 0) fail("accept");
        close(socket_fd);
        socket_fd = accepted;
    } else {
        MPI_Recv(&address, sizeof address, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (connect(socket_fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0) fail("connect");
    }
    const int on = 1;
    setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(socket_fd, F_SETFL, O_NONBLOCK);
    return socket_fd;
}

void write_all(int to, const char* from, size_t bytes) {
    while (bytes != 0) {
        const ssize_t written = write(to, from, bytes);
        if (written < 0 && errno != EAGAIN) fail("write");
        if (written <= 0) continue;
        from += written;
        bytes -= static_cast<size_t>(written);
    }
}

void read_all(int from, char* to, size_t bytes) {
    while (bytes != 0) {
        const ssize_t got = read(from, to, bytes);
        if (got == 0 || (got < 0 && errno != EAGAIN)) fail("read");
        if (got <= 0) continue;
        to += got;
        bytes -= static_cast<size_t>(got);
    }
}

void measure_floor(const std::string& label, const char* interface, const std::vector<size_t>& sizes, bool leads) {
    const measuring::Cpus cpus = measuring::choose_cpus();
    measuring::pin(leads ? cpus.first : cpus.second);
    const int peer = connected_socket(leads, interface);
    const auto agree = [&](int* value) {
        if (leads) {
            write_all(peer, reinterpret_cast<const char*>(value), sizeof *value);
        } else {
            read_all(peer, reinterpret_cast<char*>(value), sizeof *value);
        }
    };
    std::string csv;
    constexpr int kWindow = 64;
    for (const size_t bytes : sizes) {
        std::vector<char> memory(std::max<size_t>(bytes, 1));
        const auto ping_pong = [&](int count) {
            for (int i = 0; i < count; ++i) {
                // An empty message of MPI is not an empty one on the wire.
                const size_t length = std::max<size_t>(bytes, 1);
                if (leads) write_all(peer, memory.data(), length);
                read_all(peer, memory.data(), length);
                if (!leads) write_all(peer, memory.data(), length);
            }
        };
        const auto stream = [&](size_t length) {
            return [&, length](int count) {
                char answer = 0;
                std::vector<char> chunk(length);
                for (int i = 0; i < count * kWindow; ++i) {
                    leads ? write_all(peer, chunk.data(), length) : read_all(peer, chunk.data(), length);
                    if (i % kWindow != kWindow - 1) continue;
                    leads ? read_all(peer, &answer, 1) : write_all(peer, &answer, 1);
                }
            };
        };
        csv += row(label, "latency", bytes, timed(agree, ping_pong) / 2 * 1e6);
        if (bytes >= 65536) {
            const double window = static_cast<double>(bytes) * kWindow;
            csv += row(label, "bandwidth", bytes, window / timed(agree, stream(bytes)) / 1e6);
        }
        if (bytes == 8) {
            constexpr size_t kTogether = 256;
            csv += row(label, "rate", bytes, kWindow * kTogether / timed(agree, stream(8 * kTogether)));
        }
    }
    close(peer);
    if (leads) print(csv);
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
    if (what == "floor" && argc == 5) {
        std::vector<size_t> sizes;
        const std::string error = measuring::parse_numbers("SIZES", argv[4], {.largest = 1u << 30}, sizes);
        if (!error.empty()) return session.refuse("afar: " + error);
        if (session.self < 2) measure_floor(label, argv[3], sizes, session.self == 0);
    } else if (what == "fetch") {
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
