// The counters of velo as MPI_T performance variables: they are there, and the ones that this program moves
// move. usage: counters PATH, where PATH is on_node or device: the path between ranks 0 and 1.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

/// The handle of a counter counts from its allocation; that of a level says what is so.
class Counter {
  public:
    Counter(MPI_T_pvar_session session, const std::string& name, int kind = MPI_T_PVAR_CLASS_COUNTER)
        : name(name), session_(session) {
        int index = 0;
        int count = 0;
        if (MPI_T_pvar_get_index(("btl_velo_" + name).c_str(), kind, &index) != MPI_SUCCESS) {
            std::printf("FAIL no performance variable btl_velo_%s\n", name.c_str());
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        MPI_T_pvar_handle_alloc(session, index, nullptr, &handle_, &count);
    }
    unsigned long long read() const {
        unsigned long long value = 0;
        MPI_T_pvar_read(session_, handle_, &value);
        return value;
    }

    std::string name;

  private:
    MPI_T_pvar_session session_;
    MPI_T_pvar_handle handle_{};
};

}  // namespace

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session session;
    MPI_T_pvar_session_create(&session);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const bool device = argc > 1 && std::strcmp(argv[1], "device") == 0;

    std::vector<std::string> names;
    if (rank == 0) {
        names = device ? std::vector<std::string>{"velo_tx_messages", "velo_tx_packets", "registrations",
                                                  "credits_rx"}
                       : std::vector<std::string>{"on_node_tx_messages", "registrations"};
    } else {
        names = {"rma_chunks", device ? "velo_rx_messages" : "on_node_rx_messages"};
    }
    std::vector<Counter> moving;
    std::vector<Counter> bugs;
    std::vector<Counter> ways;
    for (const char* name : {"rma_get_bytes", "rma_ring_bytes"}) ways.emplace_back(session, name);
    for (const std::string& name : names) moving.emplace_back(session, name);
    for (const char* name :
         {"velo_overflows", "velo_backpressure", "velo_rx_malformed", "engine_malformed"}) {
        bugs.emplace_back(session, name);
    }

    const Counter held(session, "credits_held", MPI_T_PVAR_CLASS_LEVEL);
    const Counter granted(session, "credits_granted", MPI_T_PVAR_CLASS_LEVEL);
    const Counter available(session, "credits_available", MPI_T_PVAR_CLASS_LEVEL);

    std::vector<char> small(100);
    std::vector<char> large(1 << 20);
    for (int i = 0; i < 50; ++i) {
        if (rank == 0) {
            MPI_Send(small.data(), 100, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Send(large.data(), 1 << 20, MPI_CHAR, 1, 2, MPI_COMM_WORLD);
        } else if (rank == 1) {
            MPI_Recv(small.data(), 100, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(large.data(), 1 << 20, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }

    int failures = 0;
    const auto expect = [&failures, rank](bool right, const Counter& counter) {
        if (right) return;
        std::printf("FAIL btl_velo_%s is %llu at rank %d\n", counter.name.c_str(), counter.read(), rank);
        ++failures;
    };
    for (const Counter& counter : moving) expect(counter.read() != 0, counter);
    // On the node a get is shared out between a ring and direct copies; nothing of it is counted twice.
    unsigned long long fetched = 0;
    for (const Counter& counter : ways) fetched += counter.read();
    const unsigned long long due = rank == 0 ? 0 : 50ull << 20;
    for (const Counter& counter : ways) expect(fetched == due, counter);
    expect((held.read() != 0) == device, held);
    expect((granted.read() + available.read() != 0) == device, granted);
    for (const Counter& counter : bugs) expect(counter.read() == 0, counter);
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0) std::printf("PASS counters\n");
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
