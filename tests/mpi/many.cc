// Many messages outstanding: storms, incast, floods of unexpected messages, and both directions
// full at once. Sizes, tags and orders are drawn from the seed printed at the start, so that each rank can
// tell what any other one sends.
#include <algorithm>
#include <numeric>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::fill;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::mix;
using mpi_test::Suite;

std::size_t index_of(int value) {
    return static_cast<std::size_t>(value);
}

/// Size of message `index` from source to destination: log-uniform, so that small ones are many and none is
/// absent.
std::size_t random_bytes(std::uint64_t seed, int source, int destination, int index, unsigned bits_max) {
    const std::uint64_t draw =
        mix(Message{source, destination, 0, static_cast<std::uint64_t>(index)}.key() ^ seed);
    const std::uint64_t range = std::uint64_t{1} << (draw % (bits_max + 1));
    return (draw >> 16) % (range + 1);
}

Message message_of(const Check& check, int source, int destination, int index, unsigned bits_max) {
    return {source, destination, random_bytes(check.seed, source, destination, index, bits_max),
            static_cast<std::uint64_t>(index)};
}

/// Owns what is in flight until drained: send buffers, and receive buffers with what must be in them.
class InFlight {
  public:
    explicit InFlight(Check& check) : check_(check) {}

    void send(const Message& message, int tag) {
        data_.push_back(filled(message));
        requests_.emplace_back();
        MPI_Isend(data_.back().data(), static_cast<int>(message.bytes), MPI_BYTE, message.destination, tag,
                  check_.comm, &requests_.back());
    }
    void receive(const Message& message, int tag) {
        buffers_.emplace_back(message.bytes);
        expected_.push_back(message);
        requests_.emplace_back();
        MPI_Irecv(buffers_.back().data(), static_cast<int>(message.bytes), MPI_BYTE, message.source, tag,
                  check_.comm, &requests_.back());
    }
    void drain() {
        MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
        for (std::size_t i = 0; i < buffers_.size(); ++i) check_.received(buffers_[i], expected_[i]);
        requests_.clear();
        data_.clear();
        buffers_.clear();
        expected_.clear();
    }

  private:
    Check& check_;
    // A vector that grows moves its elements, not what they own, so pending buffers stay where they are.
    std::vector<std::vector<std::byte>> data_;
    std::vector<GuardedBuffer> buffers_;
    std::vector<Message> expected_;
    std::vector<MPI_Request> requests_;
};

std::vector<int> iota(int count) {
    std::vector<int> order(index_of(count));
    std::iota(order.begin(), order.end(), 0);
    return order;
}

struct Pair {
    int peer;
    int index;
};

std::vector<Pair> all_pairs(const Check& check, int count, bool with_self) {
    std::vector<Pair> pairs;
    for (int i = 0; i < count; ++i) {
        for (int peer = 0; peer < check.size; ++peer) {
            if (with_self || peer != check.rank) pairs.push_back({peer, i});
        }
    }
    return pairs;
}

enum class Order { kAsSent, kReverse, kRandom };

/// Every rank sends to every rank at once; receives are posted before, between or after, in the order given.
void storm(Check& check, Order order, bool receives_first, unsigned bits_max) {
    const int count = (check.quick ? 600 : 2000) / check.size;
    auto incoming = all_pairs(check, count, true);
    auto outgoing = incoming;
    if (order == Order::kReverse) std::reverse(incoming.begin(), incoming.end());
    if (order == Order::kRandom) {
        std::shuffle(incoming.begin(), incoming.end(), check.random);
        std::shuffle(outgoing.begin(), outgoing.end(), check.random);
    }
    InFlight flight(check);
    const auto send = [&] {
        for (const Pair& p : outgoing)
            flight.send(message_of(check, check.rank, p.peer, p.index, bits_max), p.index);
    };
    if (!receives_first) send();
    for (const Pair& p : incoming)
        flight.receive(message_of(check, p.peer, check.rank, p.index, bits_max), p.index);
    if (receives_first) send();
    flight.drain();
}

void one_to_all(Check& check) {
    const int count = (check.quick ? 2000 : 6000) / (check.size - 1);
    InFlight flight(check);
    if (check.rank == 0) {
        for (const Pair& p : all_pairs(check, count, false))
            flight.send(message_of(check, 0, p.peer, p.index, 11), 0);
    } else {
        for (int i = 0; i < count; ++i) flight.receive(message_of(check, 0, check.rank, i, 11), 0);
    }
    flight.drain();
}

void incast_posted(Check& check, unsigned bits_max, int total) {
    const int count = total / (check.size - 1);
    InFlight flight(check);
    if (check.rank == 0) {
        auto pairs = all_pairs(check, count, false);
        std::shuffle(pairs.begin(), pairs.end(), check.random);
        for (const Pair& p : pairs) flight.receive(message_of(check, p.peer, 0, p.index, bits_max), p.index);
    }
    MPI_Barrier(check.comm);
    if (check.rank != 0) {
        for (int i = 0; i < count; ++i) flight.send(message_of(check, check.rank, 0, i, bits_max), i);
    }
    flight.drain();
}

/// Receives one message that any rank sent with `tag`, and checks that it is the next of that rank.
void receive_next(Check& check, std::vector<int>& next, GuardedBuffer& buffer, unsigned bits_max, int tag) {
    MPI_Status status;
    buffer.poison();
    MPI_Recv(buffer.data(), static_cast<int>(buffer.bytes()), MPI_BYTE, MPI_ANY_SOURCE, tag, check.comm,
             &status);
    const Message message =
        message_of(check, status.MPI_SOURCE, check.rank, next[index_of(status.MPI_SOURCE)]++, bits_max);
    check.status(status, message.source, tag, message.bytes);
    check.received(buffer, message);
}

/// All ranks flood rank 0, which asks for nothing until all has been sent and, as it matches in order, has
/// arrived.
void unexpected_flood(Check& check, int total, unsigned bits_max) {
    constexpr int kFloodTag = 3;
    constexpr int kEndTag = 4;
    const int count = total / (check.size - 1);
    if (check.rank == 0) {
        for (int peer = 1; peer < check.size; ++peer) {
            MPI_Recv(nullptr, 0, MPI_BYTE, peer, kEndTag, check.comm, MPI_STATUS_IGNORE);
        }
        std::vector<int> next(index_of(check.size), 0);
        GuardedBuffer buffer(std::size_t{1} << bits_max);
        for (int i = 0; i < count * (check.size - 1); ++i)
            receive_next(check, next, buffer, bits_max, kFloodTag);
    } else {
        InFlight flight(check);
        for (int i = 0; i < count; ++i) flight.send(message_of(check, check.rank, 0, i, bits_max), kFloodTag);
        flight.send({check.rank, 0, 0, 0}, kEndTag);
        flight.drain();
    }
}

/// Both sides of every pair fill the other's queues before either receives: credits run out in both
/// directions, and what returns them has to find its way past the data (open-mpi/ompi#3216, ofiwg/libfabric
/// PR 6537).
void both_directions_full(Check& check) {
    const int count = check.quick ? 400 : 1500;
    InFlight flight(check);
    const int peer = check.rank ^ 1;
    if (peer >= check.size) return;
    for (int i = 0; i < count; ++i) flight.send(message_of(check, check.rank, peer, i, 11), i % 7);
    for (int i = 0; i < count; ++i) flight.receive(message_of(check, peer, check.rank, i, 11), i % 7);
    flight.drain();
}

/// More than 4 MB of eager messages stay unmatched while a later one is waited for (open-mpi/ompi#4155).
void megabytes_unmatched(Check& check) {
    constexpr std::size_t kBytes = 1900;
    constexpr int kLaterTag = 9;
    const int count = check.quick ? 2600 : 5000;
    InFlight flight(check);
    for (int i = 0; i < count; ++i) {
        flight.send({check.rank, check.next(), kBytes, static_cast<std::uint64_t>(i)}, 0);
    }
    flight.send({check.rank, check.next(), 100, 1}, kLaterTag);
    GuardedBuffer later(100);
    MPI_Recv(later.data(), 100, MPI_BYTE, check.previous(), kLaterTag, check.comm, MPI_STATUS_IGNORE);
    check.received(later, {check.previous(), check.rank, 100, 1});
    for (int i = 0; i < count; ++i) {
        flight.receive({check.previous(), check.rank, kBytes, static_cast<std::uint64_t>(i)}, 0);
    }
    flight.drain();
}

void alternate_small_and_large(Check& check) {
    const int count = check.quick ? 60 : 200;
    InFlight flight(check);
    const auto bytes = [](int index) { return index % 2 ? std::size_t{200000} : index_of(index % 300); };
    for (int i = 0; i < count; ++i) {
        flight.receive({check.previous(), check.rank, bytes(i), static_cast<std::uint64_t>(i)}, 0);
        flight.send({check.rank, check.next(), bytes(i), static_cast<std::uint64_t>(i)}, 0);
    }
    flight.drain();
}

/// Many rendezvous wait at once for receives that come late and in another order.
void rendezvous_flood(Check& check) {
    constexpr std::size_t kBytes = 40000;
    const int count = (check.quick ? 200 : 600) / (check.size - 1);
    InFlight flight(check);
    for (const Pair& p : all_pairs(check, count, false)) {
        flight.send({check.rank, p.peer, kBytes, static_cast<std::uint64_t>(p.index)}, p.index);
    }
    MPI_Barrier(check.comm);
    auto incoming = all_pairs(check, count, false);
    std::shuffle(incoming.begin(), incoming.end(), check.random);
    for (const Pair& p : incoming) {
        flight.receive({p.peer, check.rank, kBytes, static_cast<std::uint64_t>(p.index)}, p.index);
    }
    flight.drain();
}

/// Collectives go on while point-to-point traffic of the same ranks is unmatched.
void collectives_over_a_flood(Check& check) {
    const int count = (check.quick ? 500 : 2000) / (check.size - 1);
    InFlight flight(check);
    for (const Pair& p : all_pairs(check, count, false)) {
        flight.send(message_of(check, check.rank, p.peer, p.index, 12), p.index);
    }
    for (int round = 0; round < 20; ++round) {
        const int mine = check.rank * (round + 1);
        int sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, check.comm);
        check.equal(sum, check.size * (check.size - 1) / 2 * (round + 1), "sum over a flood");
    }
    for (const Pair& p : all_pairs(check, count, false)) {
        flight.receive(message_of(check, p.peer, check.rank, p.index, 12), p.index);
    }
    flight.drain();
}

/// Bursts with a pause: whatever was granted to an active sender has to move to the next one.
void active_sender_moves(Check& check) {
    const int burst = check.quick ? 60 : 200;
    for (int round = 0; round < 2 * check.size; ++round) {
        const int sender = round % check.size;
        InFlight flight(check);
        if (check.rank == sender) {
            for (const Pair& p : all_pairs(check, burst, false)) {
                flight.send(message_of(check, sender, p.peer, p.index, 11), round);
            }
        } else {
            for (int i = 0; i < burst; ++i)
                flight.receive(message_of(check, sender, check.rank, i, 11), round);
        }
        flight.drain();
    }
}

/// Receives are posted in a random order while messages trickle in, each completed before the next few are
/// posted.
void windowed_random_receives(Check& check) {
    constexpr int kWindow = 32;
    const int count = check.quick ? 320 : 1280;
    auto order = iota(count);
    for (int base = 0; base < count; base += kWindow) {
        std::shuffle(order.begin() + base, order.begin() + base + kWindow, check.random);
    }
    InFlight sends(check);
    for (int i = 0; i < count; ++i) sends.send(message_of(check, check.rank, check.next(), i, 14), i);
    InFlight receives(check);
    for (int base = 0; base < count; base += kWindow) {
        for (int i = base; i < base + kWindow; ++i) {
            receives.receive(message_of(check, check.previous(), check.rank, order[index_of(i)], 14),
                             order[index_of(i)]);
        }
        receives.drain();
    }
    sends.drain();
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        constexpr unsigned kSmall = 8;
        constexpr unsigned kMixed = 16;
        suite.check("storm_posted_in_order",
                    [](Check& check) { storm(check, Order::kAsSent, true, kSmall); });
        suite.check("storm_posted_in_reverse",
                    [](Check& check) { storm(check, Order::kReverse, true, kMixed); });
        suite.check("storm_posted_at_random",
                    [](Check& check) { storm(check, Order::kRandom, true, kMixed); });
        suite.check("storm_unexpected_in_reverse",
                    [](Check& c) { storm(c, Order::kReverse, false, kSmall); });
        suite.check("storm_unexpected_at_random", [](Check& c) { storm(c, Order::kRandom, false, kMixed); });
        suite.check("one_to_all", one_to_all);
        suite.check("incast_small",
                    [](Check& check) { incast_posted(check, kSmall, check.quick ? 1500 : 4000); });
        suite.check("incast_mixed",
                    [](Check& check) { incast_posted(check, kMixed, check.quick ? 500 : 2000); });
        suite.check("unexpected_flood_small", [](Check& check) { unexpected_flood(check, 20000, 6); });
        suite.check("unexpected_flood_mixed",
                    [](Check& check) { unexpected_flood(check, check.quick ? 1000 : 4000, kMixed); });
        suite.check("both_directions_full", both_directions_full);
        suite.check("megabytes_unmatched", megabytes_unmatched);
        suite.check("alternate_small_and_large", alternate_small_and_large);
        suite.check("rendezvous_flood", rendezvous_flood);
        suite.check("collectives_over_a_flood", collectives_over_a_flood);
        suite.check("active_sender_moves", active_sender_moves);
        suite.check("windowed_random_receives", windowed_random_receives);
    });
}
