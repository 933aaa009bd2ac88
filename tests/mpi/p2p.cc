// Point-to-point: every send mode in every form, and the odd corners (zero bytes, self, MPI_PROC_NULL).
// Matching and the ways in which a request ends have programs of their own.
#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr int kTag = 7;

// Below, at and above one 56-byte packet, ob1's inline limit, the eager limit, and inside rendezvous.
std::vector<std::size_t> sizes_of(const Check& check) {
    if (check.quick) return {0, 1, 57, 256, 2048, 4097, 70000, 1 << 20};
    return {0,    1,    55,   56,   57,   200,   256,   257,    1990,
            2048, 2049, 4095, 4096, 4097, 32768, 70000, 262144, 1 << 20};
}

struct Mode {
    const char* name;
    int (*send)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
    int (*isend)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
    int (*init)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
};

constexpr Mode kModes[] = {
    {"standard", MPI_Send, MPI_Isend, MPI_Send_init},
    {"buffered", MPI_Bsend, MPI_Ibsend, MPI_Bsend_init},
    {"synchronous", MPI_Ssend, MPI_Issend, MPI_Ssend_init},
    {"ready", MPI_Rsend, MPI_Irsend, MPI_Rsend_init},
};

bool is_ready(const Mode& mode) {
    return mode.send == MPI_Rsend;
}

/// Attached for its scope; the detach at the end waits until all that was buffered has left.
class AttachedBuffer {
  public:
    explicit AttachedBuffer(std::size_t bytes) : storage_(bytes + MPI_BSEND_OVERHEAD) {
        MPI_Buffer_attach(storage_.data(), static_cast<int>(storage_.size()));
    }
    ~AttachedBuffer() {
        void* address;
        int bytes;
        MPI_Buffer_detach(&address, &bytes);
    }
    AttachedBuffer(const AttachedBuffer&) = delete;
    AttachedBuffer& operator=(const AttachedBuffer&) = delete;

  private:
    std::vector<std::byte> storage_;
};

constexpr std::size_t kAttachedBytes = 4 << 20;

// Below every BTL's eager limit, ob1's header included.
constexpr std::size_t kEagerEverywhereBytes = 1990;

void blocking(Check& check, const Mode& mode) {
    const AttachedBuffer attached(kAttachedBytes);
    std::uint64_t iteration = 0;
    for (const std::size_t bytes : sizes_of(check)) {
        const int count = static_cast<int>(bytes);
        const Message out{check.rank, check.next(), bytes, ++iteration};
        const Message in{check.previous(), check.rank, bytes, iteration};
        const auto data = filled(out);
        GuardedBuffer buffer(bytes);
        MPI_Status status;
        if (is_ready(mode)) {
            MPI_Request request;
            MPI_Irecv(buffer.data(), count, MPI_BYTE, in.source, kTag, check.comm, &request);
            MPI_Barrier(check.comm);
            mode.send(data.data(), count, MPI_BYTE, out.destination, kTag, check.comm);
            MPI_Wait(&request, &status);
        } else if (check.rank % 2 == 0) {
            mode.send(data.data(), count, MPI_BYTE, out.destination, kTag, check.comm);
            MPI_Recv(buffer.data(), count, MPI_BYTE, in.source, kTag, check.comm, &status);
        } else {
            MPI_Recv(buffer.data(), count, MPI_BYTE, in.source, kTag, check.comm, &status);
            mode.send(data.data(), count, MPI_BYTE, out.destination, kTag, check.comm);
        }
        check.status(status, in.source, kTag, bytes);
        check.received(buffer, in);
    }
}

void nonblocking(Check& check, const Mode& mode) {
    const AttachedBuffer attached(kAttachedBytes);
    std::uint64_t iteration = 0;
    for (const std::size_t bytes : sizes_of(check)) {
        for (const bool expected : {true, false}) {
            if (!expected && is_ready(mode)) continue;
            const int count = static_cast<int>(bytes);
            const Message out{check.rank, check.next(), bytes, ++iteration};
            const Message in{check.previous(), check.rank, bytes, iteration};
            const auto data = filled(out);
            GuardedBuffer buffer(bytes);
            MPI_Request requests[2];
            MPI_Status statuses[2];
            if (expected)
                MPI_Irecv(buffer.data(), count, MPI_BYTE, in.source, kTag, check.comm, &requests[0]);
            if (is_ready(mode)) MPI_Barrier(check.comm);
            mode.isend(data.data(), count, MPI_BYTE, out.destination, kTag, check.comm, &requests[1]);
            if (!expected) {
                MPI_Barrier(check.comm);
                MPI_Irecv(buffer.data(), count, MPI_BYTE, in.source, kTag, check.comm, &requests[0]);
            }
            MPI_Waitall(2, requests, statuses);
            check.status(statuses[0], in.source, kTag, bytes);
            check.received(buffer, in);
        }
    }
}

void persistent(Check& check, const Mode& mode) {
    const AttachedBuffer attached(kAttachedBytes);
    for (const std::size_t bytes : sizes_of(check)) {
        // Past the eager limit ob1 of 4.1 and 5.0 packs the second start of a persistent buffered send from
        // the bounce buffer that the first one gave back (open-mpi/ompi#12797), so such a request is started
        // once.
        const bool restartable = mode.send != MPI_Bsend || bytes <= kEagerEverywhereBytes;
        const int rounds = !restartable ? 1 : check.quick ? 3 : 6;
        const int count = static_cast<int>(bytes);
        std::vector<std::byte> data(bytes);
        GuardedBuffer buffer(bytes);
        MPI_Request receive;
        MPI_Request send;
        MPI_Recv_init(buffer.data(), count, MPI_BYTE, check.previous(), kTag, check.comm, &receive);
        mode.init(data.data(), count, MPI_BYTE, check.next(), kTag, check.comm, &send);
        for (int round = 0; round < rounds; ++round) {
            const auto iteration = static_cast<std::uint64_t>(round);
            fill(data.data(), Message{check.rank, check.next(), bytes, iteration});
            buffer.poison();
            MPI_Start(&receive);
            if (is_ready(mode)) MPI_Barrier(check.comm);
            MPI_Start(&send);
            MPI_Status status;
            MPI_Wait(&receive, &status);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
            check.status(status, check.previous(), kTag, bytes);
            check.received(buffer, {check.previous(), check.rank, bytes, iteration});
        }
        MPI_Request_free(&receive);
        MPI_Request_free(&send);
    }
}

void persistent_startall(Check& check) {
    constexpr int kPairs = 16;
    constexpr std::size_t kBytes = 3000;
    std::vector<std::vector<std::byte>> data(kPairs, std::vector<std::byte>(kBytes));
    std::vector<GuardedBuffer> buffers(kPairs, GuardedBuffer(kBytes));
    std::vector<MPI_Request> requests(2 * kPairs);
    for (int i = 0; i < kPairs; ++i) {
        MPI_Recv_init(buffers[i].data(), kBytes, MPI_BYTE, check.previous(), i, check.comm, &requests[2 * i]);
        MPI_Send_init(data[i].data(), kBytes, MPI_BYTE, check.next(), i, check.comm, &requests[2 * i + 1]);
    }
    for (std::uint64_t round = 0; round < 4; ++round) {
        for (std::uint64_t i = 0; i < kPairs; ++i) {
            fill(data[i].data(), Message{check.rank, check.next(), kBytes, round * kPairs + i});
            buffers[i].poison();
        }
        MPI_Startall(2 * kPairs, requests.data());
        MPI_Waitall(2 * kPairs, requests.data(), MPI_STATUSES_IGNORE);
        for (std::uint64_t i = 0; i < kPairs; ++i) {
            check.received(buffers[i], {check.previous(), check.rank, kBytes, round * kPairs + i});
        }
    }
    for (MPI_Request& request : requests) MPI_Request_free(&request);
}

/// A synchronous send may not complete before its receive is posted. `stride`: of its bytes in memory.
void synchronous_waits_for_match(Check& check, int stride) {
    for (const std::size_t bytes : {0UL, 8UL, 1000UL, 4096UL, 1048576UL}) {
        const Message out{check.rank, check.next(), bytes, bytes};
        const auto data = filled(out);
        const auto step = static_cast<std::size_t>(stride);
        std::vector<std::byte> spread(bytes * step);
        for (std::size_t i = 0; i < bytes; ++i) spread[i * step] = data[i];
        MPI_Datatype type;
        MPI_Type_vector(static_cast<int>(bytes), 1, stride, MPI_BYTE, &type);
        MPI_Type_commit(&type);
        GuardedBuffer buffer(bytes);
        MPI_Request request;
        MPI_Issend(spread.data(), 1, type, check.next(), kTag, check.comm, &request);
        MPI_Type_free(&type);
        MPI_Barrier(check.comm);
        for (int i = 0; i < 50; ++i) {
            int flag = 0;
            MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
            if (flag) {
                check.fail("size %zu: complete before the receive was posted", bytes);
                break;
            }
        }
        MPI_Barrier(check.comm);
        MPI_Recv(buffer.data(), static_cast<int>(bytes), MPI_BYTE, check.previous(), kTag, check.comm,
                 MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check.received(buffer, {check.previous(), check.rank, bytes, bytes});
    }
}

void sendrecv(Check& check) {
    const auto sizes = sizes_of(check);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        // Messages out and messages in have different sizes, as the two halves are independent messages.
        const auto size_for = [&](int rank) {
            return sizes[(i + static_cast<std::size_t>(rank)) % sizes.size()];
        };
        const Message out{check.rank, check.next(), size_for(check.rank), i};
        const Message in{check.previous(), check.rank, size_for(check.previous()), i};
        const auto data = filled(out);
        GuardedBuffer buffer(in.bytes);
        MPI_Status status;
        MPI_Sendrecv(data.data(), static_cast<int>(out.bytes), MPI_BYTE, out.destination, check.rank,
                     buffer.data(), static_cast<int>(in.bytes), MPI_BYTE, in.source, in.source, check.comm,
                     &status);
        check.status(status, in.source, in.source, in.bytes);
        check.received(buffer, in);
    }
}

void sendrecv_replace(Check& check) {
    for (const std::size_t bytes : sizes_of(check)) {
        GuardedBuffer buffer(bytes);
        fill(buffer.data(), Message{check.rank, check.next(), bytes, 1});
        MPI_Status status;
        MPI_Sendrecv_replace(buffer.data(), static_cast<int>(bytes), MPI_BYTE, check.next(), kTag,
                             check.previous(), kTag, check.comm, &status);
        check.status(status, check.previous(), kTag, bytes);
        check.received(buffer, {check.previous(), check.rank, bytes, 1});
    }
}

void zero_bytes(Check& check) {
    constexpr int kMessages = 64;
    std::vector<MPI_Request> requests(kMessages);
    for (int i = 0; i < kMessages; ++i) {
        MPI_Isend(nullptr, 0, MPI_BYTE, check.next(), i, check.comm, &requests[i]);
    }
    for (int i = 0; i < kMessages; ++i) {
        MPI_Status status;
        GuardedBuffer buffer(16);
        MPI_Recv(buffer.data(), i % 2 ? 16 : 0, MPI_BYTE, check.previous(), MPI_ANY_TAG, check.comm, &status);
        check.status(status, check.previous(), i, 0);
        check.received(buffer, {check.previous(), check.rank, 0, 0});
    }
    MPI_Waitall(kMessages, requests.data(), MPI_STATUSES_IGNORE);
}

void self_sends(Check& check) {
    for (const std::size_t bytes : sizes_of(check)) {
        const int count = static_cast<int>(bytes);
        for (const Mode& mode : kModes) {
            const AttachedBuffer attached(kAttachedBytes);
            const Message message{check.rank, check.rank, bytes, 3};
            const auto data = filled(message);
            GuardedBuffer buffer(bytes);
            MPI_Request requests[2];
            MPI_Irecv(buffer.data(), count, MPI_BYTE, check.rank, kTag, check.comm, &requests[0]);
            mode.isend(data.data(), count, MPI_BYTE, check.rank, kTag, check.comm, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            check.received(buffer, message, bytes, mode.name);
        }
    }
}

void proc_null(Check& check) {
    MPI_Status status;
    std::byte byte{};
    MPI_Send(&byte, 1, MPI_BYTE, MPI_PROC_NULL, kTag, check.comm);
    MPI_Recv(&byte, 1, MPI_BYTE, MPI_PROC_NULL, kTag, check.comm, &status);
    check.status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    MPI_Probe(MPI_PROC_NULL, kTag, check.comm, &status);
    check.status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

/// The sender may change its buffer as soon as the send completed, whatever the receiver is doing.
void buffer_reuse(Check& check) {
    constexpr int kRounds = 200;
    constexpr std::size_t kBytes = 1500;
    std::vector<std::byte> data(kBytes);
    GuardedBuffer buffer(kBytes);
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        MPI_Request request;
        fill(data.data(), Message{check.rank, check.next(), kBytes, i});
        MPI_Isend(data.data(), kBytes, MPI_BYTE, check.next(), kTag, check.comm, &request);
        if (i % 2) MPI_Barrier(check.comm);
        buffer.poison();
        int flag = 0;
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        if (flag) std::memset(data.data(), 0, kBytes);
        MPI_Recv(buffer.data(), kBytes, MPI_BYTE, check.previous(), kTag, check.comm, MPI_STATUS_IGNORE);
        check.received(buffer, {check.previous(), check.rank, kBytes, i});
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        for (const Mode& mode : kModes) {
            const std::string name = mode.name;
            suite.check(name + "_blocking", [&](Check& check) { blocking(check, mode); });
            suite.check(name + "_nonblocking", [&](Check& check) { nonblocking(check, mode); });
            suite.check(name + "_persistent", [&](Check& check) { persistent(check, mode); });
        }
        suite.check("persistent_startall", persistent_startall);
        suite.check("synchronous_waits_for_match", [](Check& check) { synchronous_waits_for_match(check, 1); });
        suite.check("synchronous_scattered_waits_for_match",
                    [](Check& check) { synchronous_waits_for_match(check, 2); });
        suite.check("sendrecv", sendrecv);
        suite.check("sendrecv_replace", sendrecv_replace);
        suite.check("zero_bytes", zero_bytes);
        suite.check("self_sends", self_sends);
        suite.check("proc_null", proc_null);
        suite.check("buffer_reuse", buffer_reuse);
    });
}
