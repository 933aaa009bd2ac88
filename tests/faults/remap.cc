// Memory that is unmapped, moved and discarded between transfers and while others are under way: no process may
// get what was there before.
#include <sys/mman.h>

#include "tests/mpi/mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::first_difference;
using mpi_test::Message;
using mpi_test::Suite;

constexpr std::size_t kBytes = 3u << 20;
constexpr std::uint64_t kRounds = 6;

/// Pages of our own.
class Pages {
  public:
    explicit Pages(std::size_t bytes = kBytes) : bytes_(bytes) {
        void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) std::abort();
        data_ = static_cast<std::byte*>(at);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() {
        munmap(data_, bytes_);
        if (left_behind_ != nullptr) munmap(left_behind_, bytes_);
    }

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// New pages, all zero, where the old ones were.
    void replace() {
        munmap(data_, bytes_);
        void* at =
            mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (at != data_) std::abort();
    }
    /// The pages go elsewhere, with what is in them, and other ones take their place.
    void move() {
        void* place = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void* at = mremap(data_, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, place);
        if (place == MAP_FAILED || at != place) std::abort();
        if (left_behind_ != nullptr) munmap(left_behind_, bytes_);
        left_behind_ =
            mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        std::memset(left_behind_, 0x66, bytes_);
        data_ = static_cast<std::byte*>(at);
    }
    void discard() {
        if (madvise(data_, bytes_, MADV_DONTNEED) != 0) std::abort();
    }

  private:
    std::size_t bytes_;
    std::byte* data_;
    void* left_behind_ = nullptr;
};

struct Pair {
    Pages out, in;
};

void start(Check& check, const Pair& pair, MPI_Request* requests) {
    MPI_Irecv(pair.in.data(), kBytes, MPI_BYTE, check.previous(), 1, check.comm, &requests[0]);
    MPI_Isend(pair.out.data(), kBytes, MPI_BYTE, check.next(), 1, check.comm, &requests[1]);
}

void expect(Check& check, const std::byte* data, const Message& message, const char* what) {
    check.equal(static_cast<long long>(first_difference(data, message, message.bytes)),
                static_cast<long long>(message.bytes), what);
}

void expect_zeros(Check& check, const std::byte* data, std::size_t bytes, const char* what) {
    for (std::size_t i = 0; i < bytes; ++i) {
        if (data[i] != std::byte{0}) return check.fail("%s: byte %zu is not zero", what, i);
    }
}

/// One exchange after the other over the same addresses, with `change` of all memory in between; in every
/// round another exchange is under way while it happens.
template <class Change>
void rounds(Check& check, Change&& change) {
    Pair pair;
    Pair steady;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
        MPI_Request under_way[2];
        MPI_Request requests[2];
        mpi_test::fill(steady.out.data(), {check.rank, check.next(), kBytes, 100 + round});
        start(check, steady, under_way);
        change(pair);
        mpi_test::fill(pair.out.data(), {check.rank, check.next(), kBytes, round});
        start(check, pair, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect(check, pair.in.data(), {check.previous(), check.rank, kBytes, round}, "changed memory");
        change(pair);
        MPI_Waitall(2, under_way, MPI_STATUSES_IGNORE);
        expect(check, steady.in.data(), {check.previous(), check.rank, kBytes, 100 + round}, "steady memory");
    }
}

/// Pages that were replaced or discarded and not written again are sent as zeros.
template <class Change>
void zeros(Check& check, Change&& change) {
    Pair pair;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
        MPI_Request requests[2];
        mpi_test::fill(pair.out.data(), {check.rank, check.next(), kBytes, round});
        start(check, pair, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect(check, pair.in.data(), {check.previous(), check.rank, kBytes, round}, "before");
        change(pair.out);
        start(check, pair, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect_zeros(check, pair.in.data(), kBytes, "after");
    }
}

/// A receive is posted, its pages are discarded or replaced, and only then is the message sent.
template <class Change>
void while_posted(Check& check, Change&& change) {
    Pair pair;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
        MPI_Request requests[2];
        std::memset(pair.in.data(), 0x77, kBytes);
        MPI_Irecv(pair.in.data(), kBytes, MPI_BYTE, check.previous(), 1, check.comm, &requests[0]);
        change(pair.in);
        MPI_Barrier(check.comm);
        mpi_test::fill(pair.out.data(), {check.rank, check.next(), kBytes, round});
        MPI_Isend(pair.out.data(), kBytes, MPI_BYTE, check.next(), 1, check.comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect(check, pair.in.data(), {check.previous(), check.rank, kBytes, round}, "received");
    }
}

/// A window whose pages change between epochs.
template <class Change>
void window(Check& check, Change&& change) {
    Pages memory(2 * kBytes);
    Pages origin;
    MPI_Win win;
    MPI_Win_create(memory.data(), static_cast<MPI_Aint>(memory.bytes()), 1, MPI_INFO_NULL, check.comm, &win);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
        const Message put = {check.rank, check.next(), kBytes, round};
        mpi_test::fill(origin.data(), put);
        MPI_Win_fence(0, win);
        MPI_Put(origin.data(), kBytes, MPI_BYTE, check.next(), kBytes, kBytes, MPI_BYTE, win);
        MPI_Win_fence(0, win);
        expect(check, memory.data() + kBytes, {check.previous(), check.rank, kBytes, round}, "put");
        MPI_Barrier(check.comm);
        change(memory);
        change(origin);
        MPI_Win_fence(0, win);
        std::memset(origin.data(), 0x77, kBytes);
        MPI_Get(origin.data(), kBytes, MPI_BYTE, check.next(), kBytes, kBytes, MPI_BYTE, win);
        MPI_Win_fence(0, win);
        expect_zeros(check, origin.data(), kBytes, "get of changed pages");
    }
    MPI_Win_free(&win);
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        const auto replace = [](Pages& pages) { pages.replace(); };
        const auto discard = [](Pages& pages) { pages.discard(); };
        const auto both = [](auto&& change) {
            return [change](Pair& pair) { change(pair.out), change(pair.in); };
        };
        suite.check("unmapped_and_mapped_again", [&](Check& check) { rounds(check, both(replace)); });
        suite.check("moved", [&](Check& check) { rounds(check, both([](Pages& pages) { pages.move(); })); });
        suite.check("discarded", [&](Check& check) { rounds(check, both(discard)); });
        suite.check("zeros_after_unmapping", [&](Check& check) { zeros(check, replace); });
        suite.check("zeros_after_discarding", [&](Check& check) { zeros(check, discard); });
        suite.check("discarded_while_posted", [&](Check& check) { while_posted(check, discard); });
        suite.check("replaced_while_posted", [&](Check& check) { while_posted(check, replace); });
        suite.check("window_discarded", [&](Check& check) { window(check, discard); });
        suite.check("window_replaced", [&](Check& check) { window(check, replace); });
    });
}
