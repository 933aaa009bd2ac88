// MPI_THREAD_MULTIPLE: four threads a rank, all communicating at once. A lower level than asked for is a
// failure.
#include <array>
#include <atomic>
#include <thread>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr int kThreads = 4;

void in_threads(const std::function<void(int)>& body) {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(body, t);
}

/// One communicator a thread.
class ThreadComms {
  public:
    explicit ThreadComms(MPI_Comm parent) {
        for (MPI_Comm& comm : comms_) MPI_Comm_dup(parent, &comm);
    }
    ~ThreadComms() {
        for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
    }
    ThreadComms(const ThreadComms&) = delete;
    ThreadComms& operator=(const ThreadComms&) = delete;
    MPI_Comm operator[](int thread) const { return comms_[static_cast<std::size_t>(thread)]; }

  private:
    std::array<MPI_Comm, kThreads> comms_;
};

std::uint64_t iteration_of(int thread, int round) {
    return static_cast<std::uint64_t>(thread) << 32 | static_cast<std::uint64_t>(round);
}

/// Ring exchange of one thread with its namesakes of the neighbours.
void ring(Check& check, MPI_Comm comm, int thread, int tag, const std::vector<std::size_t>& sizes,
          int rounds) {
    for (int round = 0; round < rounds; ++round) {
        const std::size_t bytes = sizes[static_cast<std::size_t>(round + thread) % sizes.size()];
        const int count = static_cast<int>(bytes);
        const std::uint64_t iteration = iteration_of(thread, round);
        const auto data = filled({check.rank, check.next(), bytes, iteration});
        GuardedBuffer buffer(bytes);
        MPI_Request requests[2];
        MPI_Status statuses[2];
        MPI_Irecv(buffer.data(), count, MPI_BYTE, check.previous(), tag, comm, &requests[0]);
        MPI_Isend(data.data(), count, MPI_BYTE, check.next(), tag, comm, &requests[1]);
        if (round % 3 == 0) {
            for (int done = 0; !done;) MPI_Testall(2, requests, &done, statuses);
        } else {
            MPI_Waitall(2, requests, statuses);
        }
        check.status(statuses[0], check.previous(), tag, bytes);
        check.received(buffer, {check.previous(), check.rank, bytes, iteration});
    }
}

const std::vector<std::size_t> kSmall = {0, 8, 56, 57, 300, 2000, 2049, 4000};
const std::vector<std::size_t> kLarge = {70000, 8192, 1 << 20, 33333};

int rounds(const Check& check, int full) {
    return check.quick ? full / 5 : full;
}

void blocking_ping_pong(Check& check, const ThreadComms& comms) {
    const int partner = check.rank ^ 1;
    if (partner >= check.size) return;
    in_threads([&](int thread) {
        for (int round = 0; round < rounds(check, 150); ++round) {
            const std::size_t bytes =
                kSmall[static_cast<std::size_t>(round) % kSmall.size()] + (round % 40 ? 0 : 50000);
            const int count = static_cast<int>(bytes);
            const auto data = filled({check.rank, partner, bytes, iteration_of(thread, round)});
            GuardedBuffer buffer(bytes);
            if (check.rank < partner) MPI_Send(data.data(), count, MPI_BYTE, partner, 0, comms[thread]);
            MPI_Recv(buffer.data(), count, MPI_BYTE, partner, 0, comms[thread], MPI_STATUS_IGNORE);
            if (check.rank > partner) MPI_Send(data.data(), count, MPI_BYTE, partner, 0, comms[thread]);
            check.received(buffer, {partner, check.rank, bytes, iteration_of(thread, round)});
        }
    });
}

/// Probe, then receive, each thread on a tag of its own; what a probe announced is what the receive gets.
void probing(Check& check) {
    in_threads([&](int thread) {
        for (int round = 0; round < rounds(check, 150); ++round) {
            const std::size_t bytes =
                kSmall[static_cast<std::size_t>(round) % kSmall.size()] + (round % 30 ? 0 : 40000);
            const std::uint64_t iteration = iteration_of(thread, round);
            const auto data = filled({check.rank, check.next(), bytes, iteration});
            MPI_Request send;
            MPI_Isend(data.data(), static_cast<int>(bytes), MPI_BYTE, check.next(), thread, check.comm,
                      &send);
            MPI_Status status;
            if (round % 2) {
                MPI_Probe(MPI_ANY_SOURCE, thread, check.comm, &status);
            } else {
                for (int flag = 0; !flag;) MPI_Iprobe(check.previous(), thread, check.comm, &flag, &status);
            }
            check.status(status, check.previous(), thread, bytes);
            GuardedBuffer buffer(bytes);
            MPI_Recv(buffer.data(), static_cast<int>(bytes), MPI_BYTE, status.MPI_SOURCE, thread, check.comm,
                     &status);
            check.received(buffer, {check.previous(), check.rank, bytes, iteration});
            MPI_Wait(&send, MPI_STATUS_IGNORE);
        }
    });
}

/// All threads take whatever message comes next: each message is taken once, whole, by whichever thread
/// matched it.
void shared_matched_probe(Check& check) {
    const int per_thread = rounds(check, 200);
    const auto bytes_of = [](int index) {
        return static_cast<std::size_t>(index % 50 == 0 ? 30000 : index * 7 % 2500);
    };
    const int total = per_thread * kThreads;
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(total));
    in_threads([&](int thread) {
        std::vector<std::vector<std::byte>> data;
        std::vector<MPI_Request> sends;
        for (int i = thread * per_thread; i < (thread + 1) * per_thread; ++i) {
            data.push_back(filled({check.rank, check.next(), bytes_of(i), static_cast<std::uint64_t>(i)}));
            sends.emplace_back();
            MPI_Isend(data.back().data(), static_cast<int>(bytes_of(i)), MPI_BYTE, check.next(), i,
                      check.comm, &sends.back());
        }
        for (int i = 0; i < per_thread; ++i) {
            MPI_Message message;
            MPI_Status status;
            MPI_Mprobe(check.previous(), MPI_ANY_TAG, check.comm, &message, &status);
            const int index = status.MPI_TAG;
            GuardedBuffer buffer(bytes_of(index));
            MPI_Mrecv(buffer.data(), static_cast<int>(bytes_of(index)), MPI_BYTE, &message, &status);
            check.status(status, check.previous(), index, bytes_of(index));
            check.received(
                buffer, {check.previous(), check.rank, bytes_of(index), static_cast<std::uint64_t>(index)});
            ++seen[static_cast<std::size_t>(index)];
        }
        MPI_Waitall(per_thread, sends.data(), MPI_STATUSES_IGNORE);
    });
    for (int i = 0; i < total; ++i)
        check.equal(seen[static_cast<std::size_t>(i)], 1, "times a message was taken");
}

void collectives_beside_messages(Check& check, const ThreadComms& comms) {
    in_threads([&](int thread) {
        if (thread % 2) {
            ring(check, comms[thread], thread, thread, kSmall, rounds(check, 200));
            return;
        }
        for (int round = 0; round < rounds(check, 60); ++round) {
            std::vector<int> mine(static_cast<std::size_t>(1 + round * 37 % 3000), check.rank + round);
            std::vector<int> sum(mine.size());
            MPI_Allreduce(mine.data(), sum.data(), static_cast<int>(mine.size()), MPI_INT, MPI_SUM,
                          comms[thread]);
            const int expected = check.size * (check.size - 1) / 2 + check.size * round;
            for (const int value : sum) {
                if (!check.equal(value, expected, "sum beside messages")) break;
            }
        }
    });
}

/// One thread only sends and another only receives, so that neither sees the other's completions.
void sender_and_receiver_threads(Check& check) {
    const int count = rounds(check, 400);
    const auto bytes_of = [](int index) {
        return static_cast<std::size_t>(index % 100 == 99 ? 100000 : index % 2100);
    };
    in_threads([&](int thread) {
        const int tag = thread / 2;
        for (int i = 0; i < count; ++i) {
            const std::size_t bytes = bytes_of(i);
            if (thread % 2 == 0) {
                const auto data = filled({check.rank, check.next(), bytes, iteration_of(tag, i)});
                MPI_Send(data.data(), static_cast<int>(bytes), MPI_BYTE, check.next(), tag, check.comm);
            } else {
                GuardedBuffer buffer(bytes);
                MPI_Status status;
                MPI_Recv(buffer.data(), static_cast<int>(bytes), MPI_BYTE, check.previous(), tag, check.comm,
                         &status);
                check.status(status, check.previous(), tag, bytes);
                check.received(buffer, {check.previous(), check.rank, bytes, iteration_of(tag, i)});
            }
        }
    });
}

/// A request started by one thread is completed by another.
void requests_change_threads(Check& check) {
    constexpr int kMessages = 64;
    constexpr std::size_t kBytes = 3000;
    for (int round = 0; round < rounds(check, 15); ++round) {
        std::vector<MPI_Request> receives(kMessages);
        std::vector<MPI_Request> sends(kMessages);
        std::vector<GuardedBuffer> buffers(kMessages, GuardedBuffer(kBytes));
        std::vector<std::vector<std::byte>> data(kMessages);
        constexpr int kShare = kMessages / kThreads;
        in_threads([&](int thread) {
            for (int i = thread * kShare; i < (thread + 1) * kShare; ++i) {
                data[i] = filled({check.rank, check.next(), kBytes, iteration_of(i, round)});
                MPI_Irecv(buffers[i].data(), kBytes, MPI_BYTE, check.previous(), i, check.comm, &receives[i]);
                MPI_Isend(data[i].data(), kBytes, MPI_BYTE, check.next(), i, check.comm, &sends[i]);
            }
        });
        in_threads([&](int thread) {
            const int first = (thread + 1) % kThreads * kShare;
            MPI_Waitall(kShare, &receives[first], MPI_STATUSES_IGNORE);
            MPI_Waitall(kShare, &sends[first], MPI_STATUSES_IGNORE);
            for (int i = first; i < first + kShare; ++i) {
                check.received(buffers[i], {check.previous(), check.rank, kBytes, iteration_of(i, round)});
            }
        });
    }
}

}  // namespace

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int result = 0;
    {
        Suite suite(argc, argv);
        suite.check("level_multiple_provided",
                    [&](Check& check) { check.equal(provided, MPI_THREAD_MULTIPLE, "level"); });
        // With less than MULTIPLE the calls below are not allowed at all, and the failure above stands.
        if (provided == MPI_THREAD_MULTIPLE) {
            suite.check("small_own_communicator", [](Check& check) {
                const ThreadComms comms(check.comm);
                in_threads(
                    [&](int thread) { ring(check, comms[thread], thread, 0, kSmall, rounds(check, 400)); });
            });
            suite.check("small_own_tag", [](Check& check) {
                in_threads(
                    [&](int thread) { ring(check, check.comm, thread, thread, kSmall, rounds(check, 400)); });
            });
            suite.check("large_own_communicator", [](Check& check) {
                const ThreadComms comms(check.comm);
                in_threads(
                    [&](int thread) { ring(check, comms[thread], thread, 0, kLarge, rounds(check, 40)); });
            });
            suite.check("small_beside_large", [](Check& check) {
                in_threads([&](int thread) {
                    const bool small = thread % 2 == 0;
                    ring(check, check.comm, thread, thread, small ? kSmall : kLarge,
                         rounds(check, small ? 300 : 40));
                });
            });
            suite.check("blocking_ping_pong", [](Check& c) { blocking_ping_pong(c, ThreadComms(c.comm)); });
            suite.check("probing", probing);
            suite.check("shared_matched_probe", shared_matched_probe);
            suite.check("collectives_beside_messages",
                        [](Check& c) { collectives_beside_messages(c, ThreadComms(c.comm)); });
            suite.check("sender_and_receiver_threads", sender_and_receiver_threads);
            suite.check("requests_change_threads", requests_change_threads);
        }
        result = suite.finish();
    }
    MPI_Finalize();
    return result;
}
