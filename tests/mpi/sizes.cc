// Message sizes from 0 to 64 MiB around every threshold a transport may have, expected and unexpected, in one
// direction and in both at once.
#include <algorithm>
#include <set>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::fill;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr int kDataTag = 1;
constexpr int kTokenTag = 2;
constexpr std::size_t kMiB = 1 << 20;

/// Every size up to 128 KiB at which a header, a packet, a fragment or a protocol could end.
std::vector<std::size_t> threshold_sizes(bool quick) {
    std::set<std::size_t> sizes;
    const auto around = [&](std::size_t centre, std::size_t reach, std::size_t step) {
        for (std::size_t size = centre - std::min(reach, centre); size <= centre + reach; size += step) {
            sizes.insert(size);
        }
    };
    around(32, 32, quick ? 3 : 1);
    around(254, 6, quick ? 2 : 1);
    // 56 payload bytes a packet: around the multiples, and those nearest the eager limit.
    for (const std::size_t packets : {1, 2, 3, 4, 5, 6, 7, 8, 16, 18, 35, 36, 37, 73, 74})
        around(56 * packets, 1, 1);
    for (std::size_t power = 64; power <= 128 << 10; power *= 2) around(power, 1, 1);
    around(2048, 64, quick ? 16 : 4);
    around(4096, 80, quick ? 40 : 8);
    for (const std::size_t limit : {8192, 16384, 32768, 65536}) around(limit, 80, quick ? 80 : 20);
    return {sizes.begin(), sizes.end()};
}

/// Pairs that talk. Neighbours may share a node and mirrored ranks are on different ones, in any usual
/// layout.
enum class Pairing { kNeighbour, kMirror };

int partner_of(const Check& check, Pairing pairing) {
    const int partner = pairing == Pairing::kNeighbour ? check.rank ^ 1 : check.size - 1 - check.rank;
    return partner >= check.size || partner == check.rank ? MPI_PROC_NULL : partner;
}

/// Moves a group of messages of the sizes given. A message is unexpected for certain when a token sent after
/// it has been received, as ob1 matches in order.
class GroupExchange {
  public:
    GroupExchange(Check& check, int partner, std::vector<std::size_t> sizes, std::uint64_t iteration)
        : check_(check), partner_(partner), sizes_(std::move(sizes)), iteration_(iteration) {}

    void run(bool sending, bool receiving, bool expected) {
        if (receiving && expected) post();
        if (receiving && expected) send_token();
        if (sending) {
            if (expected) receive_token();
            send();
            if (!expected) send_token();
        }
        if (receiving && !expected) {
            receive_token();
            post();
        }
        if (receiving) verify();
        MPI_Waitall(static_cast<int>(sends_.size()), sends_.data(), MPI_STATUSES_IGNORE);
        MPI_Waitall(static_cast<int>(tokens_.size()), tokens_.data(), MPI_STATUSES_IGNORE);
    }

  private:
    [[nodiscard]] int count(std::size_t index) const { return static_cast<int>(sizes_[index]); }

    void send() {
        sends_.resize(sizes_.size());
        for (std::size_t i = 0; i < sizes_.size(); ++i) {
            data_.push_back(filled({check_.rank, partner_, sizes_[i], iteration_}));
            MPI_Isend(data_.back().data(), count(i), MPI_BYTE, partner_, kDataTag, check_.comm, &sends_[i]);
        }
    }
    void post() {
        receives_.resize(sizes_.size());
        for (std::size_t i = 0; i < sizes_.size(); ++i) {
            buffers_.emplace_back(sizes_[i]);
            MPI_Irecv(buffers_.back().data(), count(i), MPI_BYTE, partner_, kDataTag, check_.comm,
                      &receives_[i]);
        }
    }
    void verify() {
        for (std::size_t i = 0; i < sizes_.size(); ++i) {
            MPI_Status status;
            MPI_Wait(&receives_[i], &status);
            check_.status(status, partner_, kDataTag, sizes_[i]);
            check_.received(buffers_[i], {partner_, check_.rank, sizes_[i], iteration_});
        }
    }
    // Not blocking, as both sides may send theirs before either receives.
    void send_token() {
        tokens_.emplace_back();
        MPI_Isend(nullptr, 0, MPI_BYTE, partner_, kTokenTag, check_.comm, &tokens_.back());
    }
    void receive_token() {
        MPI_Recv(nullptr, 0, MPI_BYTE, partner_, kTokenTag, check_.comm, MPI_STATUS_IGNORE);
    }

    Check& check_;
    int partner_;
    std::vector<std::size_t> sizes_;
    std::uint64_t iteration_;
    std::vector<std::vector<std::byte>> data_;
    std::vector<GuardedBuffer> buffers_;
    std::vector<MPI_Request> sends_;
    std::vector<MPI_Request> receives_;
    std::vector<MPI_Request> tokens_;
};

void exchange(Check& check, int partner, const std::vector<std::size_t>& sizes, bool both, bool expected,
              std::uint64_t iteration) {
    if (partner == MPI_PROC_NULL) return;
    if (both) {
        GroupExchange(check, partner, sizes, iteration).run(true, true, expected);
    } else {
        const bool first = check.rank < partner;
        GroupExchange(check, partner, sizes, iteration).run(first, !first, expected);
        GroupExchange(check, partner, sizes, iteration + 1).run(!first, first, expected);
    }
}

void thresholds(Check& check, Pairing pairing, bool both, bool expected) {
    constexpr std::size_t kGroup = 16;
    const auto sizes = threshold_sizes(check.quick);
    const int partner = partner_of(check, pairing);
    for (std::size_t i = 0; i < sizes.size(); i += kGroup) {
        const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(i);
        const auto end = sizes.begin() + static_cast<std::ptrdiff_t>(std::min(i + kGroup, sizes.size()));
        exchange(check, partner, {begin, end}, both, expected, 2 * i);
    }
}

/// One message at a time, each answered: the order in which a ping-pong's two directions use the same
/// resources.
void ping_pong(Check& check, Pairing pairing) {
    const int partner = partner_of(check, pairing);
    if (partner == MPI_PROC_NULL) return;
    const bool first = check.rank < partner;
    for (const std::size_t bytes : threshold_sizes(check.quick)) {
        const int count = static_cast<int>(bytes);
        const auto data = filled({check.rank, partner, bytes, 77});
        GuardedBuffer buffer(bytes);
        MPI_Status status;
        if (first) MPI_Send(data.data(), count, MPI_BYTE, partner, kDataTag, check.comm);
        MPI_Recv(buffer.data(), count, MPI_BYTE, partner, kDataTag, check.comm, &status);
        if (!first) MPI_Send(data.data(), count, MPI_BYTE, partner, kDataTag, check.comm);
        check.status(status, partner, kDataTag, bytes);
        check.received(buffer, {partner, check.rank, bytes, 77});
    }
}

/// Buffers that begin at every offset within a cache line, as the transport may copy or map by line and page.
void alignments(Check& check) {
    constexpr std::size_t kOffsets = 64;
    const int partner = partner_of(check, Pairing::kMirror);
    if (partner == MPI_PROC_NULL) return;
    for (const std::size_t bytes : {1UL, 57UL, 300UL, 2000UL, 20000UL}) {
        const Message out{check.rank, partner, bytes, 5};
        for (std::size_t offset = 0; offset < kOffsets; offset += check.quick ? 9 : 3) {
            std::vector<std::byte> data(bytes + kOffsets);
            GuardedBuffer buffer(bytes + kOffsets);
            fill(data.data() + offset, out);
            const std::size_t at = kOffsets - offset;
            MPI_Sendrecv(data.data() + offset, static_cast<int>(bytes), MPI_BYTE, partner, kDataTag,
                         buffer.data() + at, static_cast<int>(bytes), MPI_BYTE, partner, kDataTag, check.comm,
                         MPI_STATUS_IGNORE);
            const Message in{partner, check.rank, bytes, 5};
            const std::size_t good = first_difference(buffer.data() + at, in, bytes);
            if (good != bytes) check.fail("size %zu at offset %zu: wrong at %zu", bytes, at, good);
            for (std::size_t i = 0; i < buffer.bytes(); ++i) {
                const bool inside = i >= at && i < at + bytes;
                if (!inside && buffer.data()[i] != GuardedBuffer::kPoison) {
                    check.fail("size %zu at offset %zu: byte %zu overwritten", bytes, at, i);
                    break;
                }
            }
        }
    }
}

/// Large messages between two ranks only, to bound memory; the others wait in the barrier at the end of the
/// check.
void large(Check& check, int peer_of_zero, const std::vector<std::size_t>& sizes, bool both) {
    if (check.rank != 0 && check.rank != peer_of_zero) return;
    const int partner = check.rank == 0 ? peer_of_zero : 0;
    std::uint64_t iteration = 100;
    for (const std::size_t bytes : sizes) {
        for (const bool expected : {true, false})
            exchange(check, partner, {bytes}, both, expected, iteration += 2);
    }
}

void large_checks(Suite& suite) {
    const bool quick = suite.options().quick;
    const std::vector<std::size_t> medium = {3 * kMiB / 4, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB + 17};
    const std::vector<std::size_t> big = quick
                                             ? std::vector<std::size_t>{8 * kMiB + 1}
                                             : std::vector<std::size_t>{8 * kMiB - 1, 8 * kMiB, 8 * kMiB + 1};
    for (const bool both : {false, true}) {
        const std::string direction = both ? "_bidirectional" : "_one_way";
        suite.check("megabyte" + direction + "_neighbour",
                    [&](Check& check) { large(check, 1, medium, both); });
        suite.check("megabyte" + direction + "_mirror",
                    [&](Check& c) { large(c, c.size - 1, medium, both); });
        suite.check("eight_megabytes" + direction, [&](Check& c) { large(c, c.size - 1, big, both); });
    }
    suite.check("sixty_four_megabytes", [](Check& check) {
        const int peer = check.size - 1;
        if (check.rank != 0 && check.rank != peer) return;
        const int partner = check.rank == 0 ? peer : 0;
        exchange(check, partner, {64 * kMiB}, false, false, 900);
        if (!check.quick) exchange(check, partner, {64 * kMiB}, true, true, 902);
    });
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        for (const Pairing pairing : {Pairing::kNeighbour, Pairing::kMirror}) {
            const std::string pairs = pairing == Pairing::kNeighbour ? "_neighbour" : "_mirror";
            suite.check("ping_pong" + pairs, [&](Check& check) { ping_pong(check, pairing); });
            for (const bool both : {false, true}) {
                for (const bool expected : {true, false}) {
                    const std::string name = (both ? "bidirectional_" : "one_way_") +
                                             std::string(expected ? "expected" : "unexpected");
                    suite.check(name + pairs,
                                [&](Check& check) { thresholds(check, pairing, both, expected); });
                }
            }
        }
        suite.check("alignments", alignments);
        large_checks(suite);
    });
}
