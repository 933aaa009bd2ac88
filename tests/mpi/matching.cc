// Matching: wildcards, the non-overtaking rule, tag selection, and the four probes with their receives.
#include <algorithm>
#include <numeric>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr int kTag = 11;

// Neighbouring messages take different paths (inline, eager, rendezvous), which is where overtaking would
// show.
std::size_t mixed_bytes(int index) {
    constexpr std::size_t kBytes[] = {0, 16, 100000, 57, 2048, 1, 9000, 300, 1 << 18, 1900};
    return kBytes[index % 10] + static_cast<std::size_t>(index / 10);
}

/// Sends of this rank to every other one: `count` messages each, of mixed sizes.
class Outgoing {
  public:
    Outgoing(Check& check, int count, const std::function<int(int)>& tag_of) {
        for (int i = 0; i < count; ++i) {
            for (int peer = 0; peer < check.size; ++peer) {
                if (peer == check.rank) continue;
                data_.push_back(filled({check.rank, peer, mixed_bytes(i), static_cast<std::uint64_t>(i)}));
                requests_.emplace_back();
                MPI_Isend(data_.back().data(), static_cast<int>(mixed_bytes(i)), MPI_BYTE, peer, tag_of(i),
                          check.comm, &requests_.back());
            }
        }
    }
    void wait() { MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE); }

  private:
    std::vector<std::vector<std::byte>> data_;
    std::vector<MPI_Request> requests_;
};

int messages_per_peer(const Check& check) {
    return check.quick ? 20 : 40;
}

constexpr std::size_t kLargest = (1 << 18) + 64;

/// Verifies that messages of each source come in the order sent, whatever receive they matched.
class OrderChecker {
  public:
    explicit OrderChecker(Check& check) : check_(check), next_(static_cast<std::size_t>(check.size), 0) {}

    void arrived(const GuardedBuffer& buffer, const MPI_Status& status, int expected_tag) {
        const int index = next_[static_cast<std::size_t>(status.MPI_SOURCE)]++;
        check_.status(status, status.MPI_SOURCE, expected_tag, mixed_bytes(index));
        check_.received(
            buffer, {status.MPI_SOURCE, check_.rank, mixed_bytes(index), static_cast<std::uint64_t>(index)},
            mixed_bytes(index), "order");
    }
    [[nodiscard]] int next_of(int source) const { return next_[static_cast<std::size_t>(source)]; }

  private:
    Check& check_;
    std::vector<int> next_;
};

void any_source_any_tag_order(Check& check) {
    const int count = messages_per_peer(check);
    Outgoing outgoing(check, count, [](int i) { return i; });
    OrderChecker order(check);
    GuardedBuffer buffer(kLargest);
    for (int i = 0; i < count * (check.size - 1); ++i) {
        buffer.poison();
        MPI_Status status;
        MPI_Recv(buffer.data(), kLargest, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, check.comm, &status);
        order.arrived(buffer, status, order.next_of(status.MPI_SOURCE));
    }
    outgoing.wait();
}

/// All receives are posted before the first message can come; they must match in the order posted.
void posted_wildcards_order(Check& check) {
    const int count = messages_per_peer(check) / 2;
    const int total = count * (check.size - 1);
    std::vector<GuardedBuffer> buffers(static_cast<std::size_t>(total), GuardedBuffer(kLargest));
    std::vector<MPI_Request> requests(static_cast<std::size_t>(total));
    for (int i = 0; i < total; ++i) {
        MPI_Irecv(buffers[i].data(), kLargest, MPI_BYTE, MPI_ANY_SOURCE, kTag, check.comm, &requests[i]);
    }
    MPI_Barrier(check.comm);
    Outgoing outgoing(check, count, [](int) { return kTag; });
    std::vector<MPI_Status> statuses(static_cast<std::size_t>(total));
    MPI_Waitall(total, requests.data(), statuses.data());
    OrderChecker order(check);
    for (int i = 0; i < total; ++i) order.arrived(buffers[i], statuses[i], kTag);
    outgoing.wait();
}

void any_source_fixed_tag(Check& check) {
    constexpr int kTags = 3;
    const int count = messages_per_peer(check) / kTags * kTags;
    Outgoing outgoing(check, count, [](int i) { return i % kTags; });
    GuardedBuffer buffer(kLargest);
    for (int tag = kTags - 1; tag >= 0; --tag) {
        std::vector<int> next(static_cast<std::size_t>(check.size), tag);
        for (int i = 0; i < count / kTags * (check.size - 1); ++i) {
            buffer.poison();
            MPI_Status status;
            MPI_Recv(buffer.data(), kLargest, MPI_BYTE, MPI_ANY_SOURCE, tag, check.comm, &status);
            int& index = next[static_cast<std::size_t>(status.MPI_SOURCE)];
            check.status(status, status.MPI_SOURCE, tag, mixed_bytes(index));
            check.received(buffer, {status.MPI_SOURCE, check.rank, mixed_bytes(index),
                                    static_cast<std::uint64_t>(index)});
            index += kTags;
        }
    }
    outgoing.wait();
}

void any_tag_fixed_source(Check& check) {
    const int count = messages_per_peer(check);
    Outgoing outgoing(check, count, [](int i) { return 1000 - i; });
    OrderChecker order(check);
    GuardedBuffer buffer(kLargest);
    for (int step = check.size - 1; step > 0; --step) {
        const int source = (check.rank + step) % check.size;
        for (int i = 0; i < count; ++i) {
            buffer.poison();
            MPI_Status status;
            MPI_Recv(buffer.data(), kLargest, MPI_BYTE, source, MPI_ANY_TAG, check.comm, &status);
            order.arrived(buffer, status, 1000 - i);
        }
    }
    outgoing.wait();
}

void reverse_tags(Check& check) {
    const int count = messages_per_peer(check);
    Outgoing outgoing(check, count, [](int i) { return i; });
    GuardedBuffer buffer(kLargest);
    for (int source = 0; source < check.size; ++source) {
        if (source == check.rank) continue;
        for (int i = count - 1; i >= 0; --i) {
            buffer.poison();
            MPI_Status status;
            MPI_Recv(buffer.data(), kLargest, MPI_BYTE, source, i, check.comm, &status);
            check.status(status, source, i, mixed_bytes(i));
            check.received(buffer, {source, check.rank, mixed_bytes(i), static_cast<std::uint64_t>(i)});
        }
    }
    outgoing.wait();
}

/// The seven ways to receive two messages with tags t1 and t2 (RDRP 3.1, table 1). The send that each receive must
/// match is MPI's rule; the paper's last row prints s1-r1, s2-r2, but r1 asks for t2 and only s2 has it.
void seven_receive_orders(Check& check) {
    constexpr int kFirst = 1;
    constexpr int kSecond = 2;
    constexpr int kNone = -1;
    struct Row {
        int tags[2];
        int matches[2];  // index of the send that each receive gets
    };
    constexpr Row kRows[] = {
        {{kFirst, kSecond}, {0, 1}},          {{kSecond, kFirst}, {1, 0}},
        {{MPI_ANY_TAG, MPI_ANY_TAG}, {0, 1}}, {{MPI_ANY_TAG, kSecond}, {0, 1}},
        {{MPI_ANY_TAG, kFirst}, {0, kNone}},  {{kFirst, MPI_ANY_TAG}, {0, 1}},
        {{kSecond, MPI_ANY_TAG}, {1, 0}},
    };
    std::uint64_t iteration = 0;
    for (const std::size_t bytes : {0UL, 40UL, 1900UL, 5000UL, 300000UL}) {
        for (const bool expected : {true, false}) {
            for (const Row& row : kRows) {
                iteration += 2;
                const int count = static_cast<int>(bytes);
                GuardedBuffer buffers[2] = {GuardedBuffer(bytes), GuardedBuffer(bytes)};
                const std::vector<std::byte> data[2] = {
                    filled({check.rank, check.next(), bytes, iteration}),
                    filled({check.rank, check.next(), bytes, iteration + 1})};
                MPI_Request receives[2];
                MPI_Request sends[2];
                const auto post = [&] {
                    for (int i = 0; i < 2; ++i) {
                        MPI_Irecv(buffers[i].data(), count, MPI_BYTE, check.previous(), row.tags[i],
                                  check.comm, &receives[i]);
                    }
                };
                if (expected) post();
                if (expected) MPI_Barrier(check.comm);
                MPI_Isend(data[0].data(), count, MPI_BYTE, check.next(), kFirst, check.comm, &sends[0]);
                MPI_Isend(data[1].data(), count, MPI_BYTE, check.next(), kSecond, check.comm, &sends[1]);
                if (!expected) MPI_Barrier(check.comm);
                if (!expected) post();
                for (int i = 0; i < 2; ++i) {
                    MPI_Status status;
                    if (row.matches[i] == kNone) {
                        MPI_Cancel(&receives[i]);
                        MPI_Wait(&receives[i], &status);
                        int flag = 0;
                        MPI_Test_cancelled(&status, &flag);
                        check.equal(flag, 1, "receive that no send may match");
                        MPI_Recv(buffers[i].data(), count, MPI_BYTE, check.previous(), kSecond, check.comm,
                                 &status);
                    } else {
                        MPI_Wait(&receives[i], &status);
                    }
                    const int send = row.matches[i] == kNone ? 1 : row.matches[i];
                    check.status(status, check.previous(), send == 0 ? kFirst : kSecond, bytes);
                    check.received(buffers[i], {check.previous(), check.rank, bytes,
                                                iteration + static_cast<std::uint64_t>(send)});
                }
                MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
                // Else the next row's first message could match the receive about to be cancelled.
                MPI_Barrier(check.comm);
            }
        }
    }
}

/// Messages of two communicators with the same source and tag do not see each other.
void communicators_are_apart(Check& check) {
    MPI_Comm other;
    MPI_Comm_dup(check.comm, &other);
    for (const std::size_t bytes : {8UL, 2048UL, 50000UL}) {
        const int count = static_cast<int>(bytes);
        const auto first = filled({check.rank, check.next(), bytes, 1});
        const auto second = filled({check.rank, check.next(), bytes, 2});
        GuardedBuffer buffers[2] = {GuardedBuffer(bytes), GuardedBuffer(bytes)};
        MPI_Request requests[2];
        MPI_Isend(first.data(), count, MPI_BYTE, check.next(), kTag, check.comm, &requests[0]);
        MPI_Isend(second.data(), count, MPI_BYTE, check.next(), kTag, other, &requests[1]);
        MPI_Recv(buffers[1].data(), count, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, other, MPI_STATUS_IGNORE);
        MPI_Recv(buffers[0].data(), count, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, check.comm,
                 MPI_STATUS_IGNORE);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        check.received(buffers[0], {check.previous(), check.rank, bytes, 1});
        check.received(buffers[1], {check.previous(), check.rank, bytes, 2});
    }
    MPI_Comm_free(&other);
}

/// Receives all that Outgoing sends, each announced by `next_message`, which fills the status and then
/// receives.
using Receiver = std::function<void(GuardedBuffer&, MPI_Status& announced, MPI_Status& got)>;

void probe_each(Check& check, const Receiver& receive) {
    const int count = messages_per_peer(check);
    Outgoing outgoing(check, count, [](int i) { return i; });
    OrderChecker order(check);
    for (int i = 0; i < count * (check.size - 1); ++i) {
        GuardedBuffer buffer(kLargest);
        MPI_Status announced;
        MPI_Status got;
        receive(buffer, announced, got);
        int bytes = 0;
        MPI_Get_count(&announced, MPI_BYTE, &bytes);
        check.status(got, announced.MPI_SOURCE, announced.MPI_TAG, static_cast<std::size_t>(bytes));
        order.arrived(buffer, got, order.next_of(got.MPI_SOURCE));
    }
    outgoing.wait();
}

int count_of(const MPI_Status& status) {
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    return bytes;
}

void probes(Suite& suite) {
    suite.check("probe", [](Check& check) {
        probe_each(check, [&](GuardedBuffer& buffer, MPI_Status& announced, MPI_Status& got) {
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, check.comm, &announced);
            MPI_Recv(buffer.data(), count_of(announced), MPI_BYTE, announced.MPI_SOURCE, announced.MPI_TAG,
                     check.comm, &got);
        });
    });
    suite.check("iprobe", [](Check& check) {
        probe_each(check, [&](GuardedBuffer& buffer, MPI_Status& announced, MPI_Status& got) {
            for (int flag = 0; !flag;) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, check.comm, &flag, &announced);
            MPI_Recv(buffer.data(), count_of(announced), MPI_BYTE, announced.MPI_SOURCE, announced.MPI_TAG,
                     check.comm, &got);
        });
    });
    suite.check("probed_again", [](Check& check) {
        probe_each(check, [&](GuardedBuffer& buffer, MPI_Status& announced, MPI_Status& got) {
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, check.comm, &announced);
            // It can be received until it is.
            int flag = 0;
            MPI_Iprobe(announced.MPI_SOURCE, announced.MPI_TAG, check.comm, &flag, MPI_STATUS_IGNORE);
            check.equal(flag, 1, "a message that a probe has found");
            MPI_Message message = MPI_MESSAGE_NULL;
            MPI_Improbe(announced.MPI_SOURCE, announced.MPI_TAG, check.comm, &flag, &message, MPI_STATUS_IGNORE);
            if (check.equal(flag, 1, "and a second one")) {
                MPI_Mrecv(buffer.data(), count_of(announced), MPI_BYTE, &message, &got);
            } else {
                MPI_Recv(buffer.data(), count_of(announced), MPI_BYTE, announced.MPI_SOURCE, announced.MPI_TAG,
                         check.comm, &got);
            }
        });
    });
    suite.check("mprobe_mrecv", [](Check& check) {
        probe_each(check, [&](GuardedBuffer& buffer, MPI_Status& announced, MPI_Status& got) {
            MPI_Message message;
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, check.comm, &message, &announced);
            MPI_Mrecv(buffer.data(), count_of(announced), MPI_BYTE, &message, &got);
            check.equal(message == MPI_MESSAGE_NULL, 1, "message handle reset");
        });
    });
    suite.check("improbe_imrecv", [](Check& check) {
        probe_each(check, [&](GuardedBuffer& buffer, MPI_Status& announced, MPI_Status& got) {
            MPI_Message message;
            MPI_Request request;
            for (int flag = 0; !flag;) {
                MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, check.comm, &flag, &message, &announced);
            }
            MPI_Imrecv(buffer.data(), count_of(announced), MPI_BYTE, &message, &request);
            MPI_Wait(&request, &got);
        });
    });
}

/// Once matched by a probe, a message is out of reach of every other receive, and may be received later.
void mprobe_takes_the_message(Check& check) {
    constexpr int kMessages = 6;
    std::vector<std::vector<std::byte>> data;
    std::vector<MPI_Request> sends(kMessages);
    for (int i = 0; i < kMessages; ++i) {
        data.push_back(filled({check.rank, check.next(), mixed_bytes(i), static_cast<std::uint64_t>(i)}));
        MPI_Isend(data.back().data(), static_cast<int>(mixed_bytes(i)), MPI_BYTE, check.next(), kTag,
                  check.comm, &sends[i]);
    }
    std::vector<MPI_Message> matched(kMessages / 2);
    for (MPI_Message& message : matched) {
        MPI_Mprobe(check.previous(), kTag, check.comm, &message, MPI_STATUS_IGNORE);
    }
    const auto verify = [&](int index, const std::function<void(GuardedBuffer&, MPI_Status&)>& receive) {
        GuardedBuffer buffer(mixed_bytes(index));
        MPI_Status status;
        receive(buffer, status);
        check.status(status, check.previous(), kTag, mixed_bytes(index));
        check.received(buffer,
                       {check.previous(), check.rank, mixed_bytes(index), static_cast<std::uint64_t>(index)});
    };
    for (int i = kMessages / 2; i < kMessages; ++i) {
        verify(i, [&](GuardedBuffer& buffer, MPI_Status& status) {
            MPI_Recv(buffer.data(), static_cast<int>(mixed_bytes(i)), MPI_BYTE, check.previous(), kTag,
                     check.comm, &status);
        });
    }
    for (int i = kMessages / 2 - 1; i >= 0; --i) {
        verify(i, [&](GuardedBuffer& buffer, MPI_Status& status) {
            MPI_Mrecv(buffer.data(), static_cast<int>(mixed_bytes(i)), MPI_BYTE, &matched[i], &status);
        });
    }
    MPI_Waitall(kMessages, sends.data(), MPI_STATUSES_IGNORE);
}

void probe_of_nothing(Check& check) {
    int flag = 1;
    for (int i = 0; i < 20; ++i) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, check.comm, &flag, MPI_STATUS_IGNORE);
        check.equal(flag, 0, "iprobe with nothing sent");
    }
    MPI_Message message;
    MPI_Status status;
    MPI_Mprobe(MPI_PROC_NULL, kTag, check.comm, &message, &status);
    check.equal(message == MPI_MESSAGE_NO_PROC, 1, "message of MPI_PROC_NULL");
    MPI_Mrecv(nullptr, 0, MPI_BYTE, &message, &status);
    check.status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

/// The largest and the smallest legal tag are not confused with each other or with internal ones.
void tag_limits(Check& check) {
    void* value = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
    check.equal(found, 1, "MPI_TAG_UB");
    const int tags[] = {0, 32767, found ? *static_cast<int*>(value) : 32767};
    std::vector<MPI_Request> requests;
    std::vector<std::vector<std::byte>> data;
    for (const int tag : tags) {
        data.push_back(filled({check.rank, check.next(), 100, static_cast<std::uint64_t>(tag)}));
        requests.emplace_back();
        MPI_Isend(data.back().data(), 100, MPI_BYTE, check.next(), tag, check.comm, &requests.back());
    }
    for (int i = 2; i >= 0; --i) {
        GuardedBuffer buffer(100);
        MPI_Status status;
        MPI_Recv(buffer.data(), 100, MPI_BYTE, MPI_ANY_SOURCE, tags[i], check.comm, &status);
        check.status(status, check.previous(), tags[i], 100);
        check.received(buffer, {check.previous(), check.rank, 100, static_cast<std::uint64_t>(tags[i])});
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        suite.check("any_source_any_tag_order", any_source_any_tag_order);
        suite.check("posted_wildcards_order", posted_wildcards_order);
        suite.check("any_source_fixed_tag", any_source_fixed_tag);
        suite.check("any_tag_fixed_source", any_tag_fixed_source);
        suite.check("reverse_tags", reverse_tags);
        suite.check("seven_receive_orders", seven_receive_orders);
        suite.check("communicators_are_apart", communicators_are_apart);
        probes(suite);
        suite.check("mprobe_takes_the_message", mprobe_takes_the_message);
        suite.check("probe_of_nothing", probe_of_nothing);
        suite.check("tag_limits", tag_limits);
    });
}
