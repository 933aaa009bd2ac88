// Collectives beyond one operation on one group: many outstanding at once, intercommunicators,
// neighbourhoods.
#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::first_difference;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr std::size_t kSizes[] = {0, 8, 57, 300, 2048, 5000, 100000};

/// Many collectives of several kinds and communicators are started before any is waited for, and the waits
/// come in another order than the starts.
void many_outstanding(Check& check) {
    constexpr int kComms = 3;
    const int rounds = check.quick ? 4 : 12;
    const auto size = static_cast<std::size_t>(check.size);
    std::array<MPI_Comm, kComms> comms;
    for (MPI_Comm& comm : comms) MPI_Comm_dup(check.comm, &comm);
    struct Operation {
        std::size_t bytes;
        std::vector<std::byte> mine;
        GuardedBuffer broadcast;
        GuardedBuffer gathered;
        std::vector<int> sums;
        std::vector<int> ones;
    };
    std::vector<Operation> operations;
    std::vector<MPI_Request> requests;
    // The operations hold the buffers in flight, so they may not move.
    operations.reserve(static_cast<std::size_t>(rounds) * kComms);
    for (int round = 0; round < rounds; ++round) {
        for (const MPI_Comm comm : comms) {
            const std::size_t bytes = kSizes[static_cast<std::size_t>(round) % std::size(kSizes)];
            const auto id = static_cast<std::uint64_t>(operations.size());
            const int root = static_cast<int>(id) % check.size;
            Operation& o = operations.emplace_back(Operation{
                bytes, mpi_test::filled({check.rank, 0, bytes, id}), GuardedBuffer(bytes),
                GuardedBuffer(bytes * size), std::vector<int>(bytes / 8), std::vector<int>(bytes / 8, 1)});
            if (check.rank == root) fill(o.broadcast.data(), Message{root, 1, bytes, id});
            const int count = static_cast<int>(bytes);
            requests.resize(requests.size() + 4);
            MPI_Request* next = &requests[requests.size() - 4];
            MPI_Ibcast(o.broadcast.data(), count, MPI_BYTE, root, comm, &next[0]);
            MPI_Iallreduce(o.ones.data(), o.sums.data(), static_cast<int>(o.ones.size()), MPI_INT, MPI_SUM,
                           comm, &next[1]);
            MPI_Ibarrier(comm, &next[2]);
            MPI_Iallgather(o.mine.data(), count, MPI_BYTE, o.gathered.data(), count, MPI_BYTE, comm,
                           &next[3]);
        }
    }
    // Each rank waits in its own order, which also means that it makes progress on the others meanwhile.
    std::vector<std::size_t> order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), check.random);
    for (const std::size_t i : order) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    for (std::size_t id = 0; id < operations.size(); ++id) {
        Operation& o = operations[id];
        check.received(o.broadcast, {static_cast<int>(id) % check.size, 1, o.bytes, id}, o.bytes, "ibcast");
        for (int rank = 0; rank < check.size; ++rank) {
            const std::byte* part = o.gathered.data() + static_cast<std::size_t>(rank) * o.bytes;
            const std::size_t good = first_difference(part, {rank, 0, o.bytes, id}, o.bytes);
            if (good != o.bytes)
                check.fail("iallgather: part of %d size %zu wrong at %zu", rank, o.bytes, good);
        }
        for (const int sum : o.sums) {
            if (!check.equal(sum, check.size, "iallreduce")) break;
        }
    }
    for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

/// A collective is started, point-to-point traffic goes on beside it, and only then is it completed.
void overlapped_with_messages(Check& check) {
    const int rounds = check.quick ? 10 : 40;
    for (int round = 0; round < rounds; ++round) {
        const std::size_t bytes = kSizes[static_cast<std::size_t>(round) % std::size(kSizes)];
        const auto iteration = static_cast<std::uint64_t>(round);
        const int mine = check.rank + round;
        int sum = 0;
        MPI_Request request;
        MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, check.comm, &request);
        const auto data = mpi_test::filled({check.rank, check.next(), bytes, iteration});
        GuardedBuffer buffer(bytes);
        MPI_Sendrecv(data.data(), static_cast<int>(bytes), MPI_BYTE, check.next(), 1, buffer.data(),
                     static_cast<int>(bytes), MPI_BYTE, check.previous(), 1, check.comm, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check.received(buffer, {check.previous(), check.rank, bytes, iteration});
        check.equal(sum, check.size * (check.size - 1) / 2 + check.size * round, "sum");
    }
}

/// Even ranks on one side, odd ranks on the other.
class Intercomm {
  public:
    explicit Intercomm(const Check& check) : side_(check.rank % 2) {
        MPI_Comm_split(check.comm, side_, check.rank, &local_);
        MPI_Intercomm_create(local_, 0, check.comm, 1 - side_, 99, &inter_);
        MPI_Comm_rank(inter_, &rank_);
        MPI_Comm_remote_size(inter_, &remote_size_);
    }
    ~Intercomm() {
        MPI_Comm_free(&inter_);
        MPI_Comm_free(&local_);
    }
    Intercomm(const Intercomm&) = delete;
    Intercomm& operator=(const Intercomm&) = delete;

    [[nodiscard]] MPI_Comm get() const { return inter_; }
    [[nodiscard]] int side() const { return side_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int remote_size() const { return remote_size_; }
    /// The world rank of a remote one, which is what the content of messages depends on.
    [[nodiscard]] int world_rank_of(int remote) const { return 2 * remote + 1 - side_; }

  private:
    int side_;
    MPI_Comm local_ = MPI_COMM_NULL;
    MPI_Comm inter_ = MPI_COMM_NULL;
    int rank_ = 0;
    int remote_size_ = 0;
};

void intercomm_bcast(Check& check) {
    const Intercomm inter(check);
    for (const std::size_t bytes : kSizes) {
        for (const int sending_side : {0, 1}) {
            GuardedBuffer buffer(bytes);
            const Message message{sending_side, 0, bytes, 6};
            int root = 0;
            if (inter.side() == sending_side) {
                fill(buffer.data(), message);
                root = inter.rank() == 0 ? MPI_ROOT : MPI_PROC_NULL;
            }
            MPI_Bcast(buffer.data(), static_cast<int>(bytes), MPI_BYTE, root, inter.get());
            check.received(buffer, message, bytes, "intercomm bcast");
        }
    }
}

void intercomm_allgather(Check& check) {
    const Intercomm inter(check);
    for (const std::size_t bytes : kSizes) {
        const int count = static_cast<int>(bytes);
        const auto mine = mpi_test::filled({check.rank, 0, bytes, 7});
        GuardedBuffer all(bytes * static_cast<std::size_t>(inter.remote_size()));
        MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, inter.get());
        for (int peer = 0; peer < inter.remote_size(); ++peer) {
            const std::byte* part = all.data() + static_cast<std::size_t>(peer) * bytes;
            const std::size_t good = first_difference(part, {inter.world_rank_of(peer), 0, bytes, 7}, bytes);
            if (good != bytes)
                check.fail("intercomm allgather: part of %d size %zu wrong at %zu", peer, bytes, good);
        }
    }
}

void intercomm_others(Check& check) {
    const Intercomm inter(check);
    MPI_Barrier(inter.get());
    const int mine = 10 * (inter.side() + 1);
    int sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter.get());
    check.equal(sum, 10 * (2 - inter.side()) * inter.remote_size(), "intercomm allreduce");
    std::vector<int> out(static_cast<std::size_t>(inter.remote_size()));
    std::vector<int> in(out.size(), -1);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = check.rank * 1000 + static_cast<int>(i);
    MPI_Alltoall(out.data(), 1, MPI_INT, in.data(), 1, MPI_INT, inter.get());
    for (int peer = 0; peer < inter.remote_size(); ++peer) {
        check.equal(in[static_cast<std::size_t>(peer)], inter.world_rank_of(peer) * 1000 + inter.rank(),
                    "intercomm alltoall");
    }
    int gathered = inter.rank();
    MPI_Request request;
    MPI_Ibarrier(inter.get(), &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Ibcast(&gathered, 1, MPI_INT,
               inter.side() == 1   ? 0
               : inter.rank() == 0 ? MPI_ROOT
                                   : MPI_PROC_NULL,
               inter.get(), &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (inter.side() == 1) check.equal(gathered, 0, "intercomm ibcast");
}

/// Neighbours in MPI's order: for each dimension the lower, then the upper. A dimension wraps only where it
/// has at least three ranks: with fewer, both neighbours are one rank and MPI 3 does not say whose block is
/// whose.
class Grid {
  public:
    explicit Grid(const Check& check) {
        std::array<int, 2> dims = {0, 0};
        std::array<int, 2> periods = {0, 0};
        MPI_Dims_create(check.size, 2, dims.data());
        for (std::size_t d = 0; d < 2; ++d) periods[d] = dims[d] >= 3;
        MPI_Cart_create(check.comm, 2, dims.data(), periods.data(), 0, &comm_);
        for (int d = 0; d < 2; ++d) {
            int lower, upper;
            MPI_Cart_shift(comm_, d, 1, &lower, &upper);
            neighbours_.insert(neighbours_.end(), {lower, upper});
        }
    }
    ~Grid() { MPI_Comm_free(&comm_); }
    Grid(const Grid&) = delete;
    Grid& operator=(const Grid&) = delete;
    [[nodiscard]] MPI_Comm comm() const { return comm_; }
    [[nodiscard]] const std::vector<int>& neighbours() const { return neighbours_; }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    std::vector<int> neighbours_;
};

constexpr std::size_t kNeighbours = 4;

/// Blocks from neighbours are theirs, and the block of one that does not exist stays untouched.
void verify_blocks(Check& check, const Grid& grid, const GuardedBuffer& in, std::size_t bytes, bool per_pair,
                   const char* what) {
    for (std::size_t i = 0; i < kNeighbours; ++i) {
        const int source = grid.neighbours()[i];
        const std::byte* block = in.data() + i * bytes;
        if (source == MPI_PROC_NULL) {
            const bool clean =
                std::all_of(block, block + bytes, [](std::byte b) { return b == GuardedBuffer::kPoison; });
            if (!clean) check.fail("%s: size %zu: block %zu of no neighbour written", what, bytes, i);
            continue;
        }
        const Message message{source, per_pair ? check.rank : -1, bytes, 12};
        const std::size_t good = first_difference(block, message, bytes);
        if (good != bytes) check.fail("%s: size %zu: block of %d wrong at %zu", what, bytes, source, good);
    }
}

void neighbourhood(Check& check, bool nonblocking) {
    const Grid grid(check);
    const auto call = [&](auto blocking, auto nonblocking_form, auto... arguments) {
        if (nonblocking) {
            MPI_Request request;
            nonblocking_form(arguments..., grid.comm(), &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            blocking(arguments..., grid.comm());
        }
    };
    for (const std::size_t bytes : kSizes) {
        const int count = static_cast<int>(bytes);
        const auto one = mpi_test::filled({check.rank, -1, bytes, 12});
        std::vector<std::byte> each(bytes * kNeighbours);
        std::array<int, kNeighbours> counts, places;
        std::array<MPI_Aint, kNeighbours> byte_places;
        std::array<MPI_Datatype, kNeighbours> types;
        for (std::size_t i = 0; i < kNeighbours; ++i) {
            fill(each.data() + i * bytes, Message{check.rank, grid.neighbours()[i], bytes, 12});
            counts[i] = count;
            places[i] = static_cast<int>(i) * count;
            byte_places[i] = places[i];
            types[i] = MPI_BYTE;
        }
        GuardedBuffer in(bytes * kNeighbours);
        call(MPI_Neighbor_allgather, MPI_Ineighbor_allgather, one.data(), count, MPI_BYTE, in.data(), count,
             MPI_BYTE);
        verify_blocks(check, grid, in, bytes, false, "neighbor_allgather");
        in.poison();
        call(MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, one.data(), count, MPI_BYTE, in.data(),
             counts.data(), places.data(), MPI_BYTE);
        verify_blocks(check, grid, in, bytes, false, "neighbor_allgatherv");
        in.poison();
        call(MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, each.data(), count, MPI_BYTE, in.data(), count,
             MPI_BYTE);
        verify_blocks(check, grid, in, bytes, true, "neighbor_alltoall");
        in.poison();
        call(MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, each.data(), counts.data(), places.data(),
             MPI_BYTE, in.data(), counts.data(), places.data(), MPI_BYTE);
        verify_blocks(check, grid, in, bytes, true, "neighbor_alltoallv");
        in.poison();
        call(MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, each.data(), counts.data(), byte_places.data(),
             types.data(), in.data(), counts.data(), byte_places.data(), types.data());
        verify_blocks(check, grid, in, bytes, true, "neighbor_alltoallw");
    }
}

std::int64_t monotonic_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// No rank leaves a barrier before the last has entered. Times are compared among ranks of one host, which
/// share a clock.
void barrier_holds_everybody(Check& check) {
    MPI_Comm host;
    MPI_Comm_split_type(check.comm, MPI_COMM_TYPE_SHARED, check.rank, MPI_INFO_NULL, &host);
    int host_name = check.rank;
    MPI_Bcast(&host_name, 1, MPI_INT, 0, host);
    MPI_Comm_free(&host);
    const int rounds = check.quick ? 8 : 24;
    for (int round = 0; round < rounds; ++round) {
        const int late = round % check.size;
        std::array<std::int64_t, 2> entered = {0, host_name};
        if (check.rank == late) {
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
            entered[0] = monotonic_ns();
        }
        MPI_Barrier(check.comm);
        const std::int64_t left_ns = monotonic_ns();
        MPI_Bcast(entered.data(), 2, MPI_INT64_T, late, check.comm);
        if (entered[1] == host_name && left_ns < entered[0]) check.fail("left before rank %d entered", late);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        suite.check("many_outstanding", many_outstanding);
        suite.check("overlapped_with_messages", overlapped_with_messages);
        suite.check("intercomm_bcast", intercomm_bcast);
        suite.check("intercomm_allgather", intercomm_allgather);
        suite.check("intercomm_others", intercomm_others);
        suite.check("neighbourhood", [](Check& check) { neighbourhood(check, false); });
        suite.check("neighbourhood_nonblocking", [](Check& check) { neighbourhood(check, true); });
        suite.check("barrier_holds_everybody", barrier_holds_everybody);
    });
}
