// Shared by the tests of several jobs: traffic over an intercommunicator.
#pragma once

#include <vector>

#include "mpi_test.h"

namespace mpi_test {

/// Ranks of each job that a test spawns.
inline constexpr int kChildren = 2;

/// Sends to every remote rank of an intercommunicator and receives from each, all at once. Then a collective
/// over both groups. `side`, 0 or 1, tells the two directions apart, as both groups number their ranks from
/// 0.
inline void exchange_with_remote(Check& check, MPI_Comm inter, std::uint64_t side,
                                 const std::vector<std::size_t>& sizes) {
    constexpr int kTag = 5;
    int remote_size = 0;
    int rank = 0;
    MPI_Comm_remote_size(inter, &remote_size);
    MPI_Comm_rank(inter, &rank);
    for (const std::size_t bytes : sizes) {
        const int count = static_cast<int>(bytes);
        std::vector<GuardedBuffer> buffers;
        std::vector<std::vector<std::byte>> data;
        std::vector<MPI_Request> requests(static_cast<std::size_t>(2 * remote_size));
        for (int peer = 0; peer < remote_size; ++peer) {
            buffers.emplace_back(bytes);
            data.push_back(filled({rank, peer, bytes, side}));
            MPI_Irecv(buffers.back().data(), count, MPI_BYTE, peer, kTag, inter, &requests[2 * peer]);
            MPI_Isend(data.back().data(), count, MPI_BYTE, peer, kTag, inter, &requests[2 * peer + 1]);
        }
        MPI_Waitall(2 * remote_size, requests.data(), MPI_STATUSES_IGNORE);
        for (int peer = 0; peer < remote_size; ++peer) {
            check.received(buffers[peer], {peer, rank, bytes, 1 - side}, bytes, "other job");
        }
    }
    const int mine = side == 0 ? 1 : 1000;
    int remote_sum = 0;
    MPI_Allreduce(&mine, &remote_sum, 1, MPI_INT, MPI_SUM, inter);
    check.equal(remote_sum, (side == 0 ? 1000 : 1) * remote_size, "sum over the remote group");
}

}  // namespace mpi_test
