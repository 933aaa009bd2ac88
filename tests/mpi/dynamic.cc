// Dynamic windows whose owner attaches and detaches other pages while a page that stays attached is used.
// osc/rdma of Open MPI 4.1 hands the BTL a pointer into the owner's table of regions, which moves meanwhile.
#include <sys/mman.h>

#include <random>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kStaying = 8;  ///< pages that stay attached
constexpr std::size_t kComing = 6;   ///< pages below them, and as many above, that come and go
constexpr std::size_t kStayingBytes = kStaying * kPageBytes;
constexpr std::size_t kComingBytes = kComing * kPageBytes;

/// Rank 0's memory; the window is every rank's.
class Pages {
  public:
    explicit Pages(const Check& check) : check_(check) {
        void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) std::abort();
        memory_ = static_cast<std::byte*>(at);
        std::memset(memory_, kUntouched, kBytes);
        mpi_test::fill(staying(), initial());
        MPI_Win_create_dynamic(MPI_INFO_NULL, check.comm, &window);
        if (check.rank == 0) MPI_Win_attach(window, staying(), kStayingBytes);
        MPI_Get_address(staying(), &base);
        MPI_Bcast(&base, 1, MPI_AINT, 0, check.comm);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() {
        MPI_Barrier(check_.comm);
        if (check_.rank == 0) MPI_Win_detach(window, staying());
        MPI_Win_free(&window);
        munmap(memory_, kBytes);
    }

    static Message initial() { return {0, 0, kStayingBytes, 0}; }
    [[nodiscard]] std::byte* staying() const { return memory_ + kComingBytes; }
    [[nodiscard]] std::byte* coming(std::size_t index) const {
        return memory_ + (index < kComing ? index : index + kStaying) * kPageBytes;
    }
    /// Pages that come and go are only ever touched by what was meant for others.
    [[nodiscard]] bool untouched() const {
        for (std::size_t page = 0; page < 2 * kComing; ++page) {
            for (std::size_t i = 0; i < kPageBytes; ++i) {
                if (coming(page)[i] != std::byte{kUntouched}) return false;
            }
        }
        return true;
    }

    MPI_Win window = MPI_WIN_NULL;
    MPI_Aint base = 0;  ///< of the pages that stay, at rank 0

  private:
    static constexpr std::size_t kBytes = kStayingBytes + 2 * kComingBytes;
    static constexpr unsigned char kUntouched = 0x3c;
    const Check& check_;
    std::byte* memory_;
};

/// Attaches and detaches until every rank has entered the barrier.
void attach_and_detach(Check& check, Pages& pages) {
    std::vector<bool> attached(2 * kComing);
    const auto toggle = [&](std::size_t page) {
        if (attached[page]) {
            MPI_Win_detach(pages.window, pages.coming(page));
        } else {
            MPI_Win_attach(pages.window, pages.coming(page), kPageBytes);
        }
        attached[page] = !attached[page];
    };
    MPI_Request others;
    MPI_Ibarrier(check.comm, &others);
    for (int done = 0; done == 0;) {
        for (int i = 0; i < 16; ++i) toggle(check.random() % attached.size());
        MPI_Test(&others, &done, MPI_STATUS_IGNORE);
    }
    for (std::size_t page = 0; page < attached.size(); ++page) {
        if (attached[page]) toggle(page);
    }
}

using Use = void (*)(Check&, Pages&, int);

void get(Check& check, Pages& pages, int round) {
    constexpr int kSizes[] = {8, 8, 1000, 20000};
    const int bytes = kSizes[round % 4];
    GuardedBuffer buffer(kStayingBytes);
    MPI_Get(buffer.data(), bytes, MPI_BYTE, 0, pages.base, bytes, MPI_BYTE, pages.window);
    MPI_Win_flush(0, pages.window);
    check.received(buffer, Pages::initial(), static_cast<std::size_t>(bytes), "get");
}

void fetch(Check& check, Pages& pages, int) {
    GuardedBuffer buffer(800);
    MPI_Get_accumulate(nullptr, 0, MPI_INT64_T, buffer.data(), 100, MPI_INT64_T, 0, pages.base, 100,
                       MPI_INT64_T, MPI_NO_OP, pages.window);
    MPI_Win_flush(0, pages.window);
    check.received(buffer, Pages::initial(), 800, "get_accumulate");
}

/// Each rank has a part of its own.
void put(Check& check, Pages& pages, int round) {
    const std::size_t part = kStayingBytes / static_cast<std::size_t>(check.size);
    const std::size_t bytes = round % 2 == 0 ? 8 : part;
    const MPI_Aint at = MPI_Aint_add(pages.base, static_cast<MPI_Aint>(part) * check.rank);
    const Message message = {check.rank, 0, bytes, static_cast<std::uint64_t>(round)};
    const auto data = filled(message);
    GuardedBuffer back(bytes);
    MPI_Put(data.data(), static_cast<int>(bytes), MPI_BYTE, 0, at, static_cast<int>(bytes), MPI_BYTE,
            pages.window);
    MPI_Win_flush(0, pages.window);
    MPI_Get(back.data(), static_cast<int>(bytes), MPI_BYTE, 0, at, static_cast<int>(bytes), MPI_BYTE,
            pages.window);
    MPI_Win_flush(0, pages.window);
    check.received(back, message, bytes, "put and got back");
}

void add(Check& check, Pages& pages, int round) {
    const MPI_Aint at = MPI_Aint_add(pages.base, 8 * check.rank);
    const std::int64_t number = round;
    std::int64_t before = -1;
    if (round == 0) {
        MPI_Fetch_and_op(&number, &before, MPI_INT64_T, 0, at, MPI_REPLACE, pages.window);
        MPI_Win_flush(0, pages.window);
        return;
    }
    MPI_Fetch_and_op(&number, &before, MPI_INT64_T, 0, at, MPI_SUM, pages.window);
    MPI_Win_flush(0, pages.window);
    check.equal(before, std::int64_t{round} * (round - 1) / 2, "fetched before an addition");
}

void beside_others(Check& check, Use use) {
    Pages pages(check);
    MPI_Barrier(check.comm);
    if (check.rank == 0) {
        attach_and_detach(check, pages);
    } else {
        MPI_Win_lock_all(0, pages.window);
        for (int round = 0; round < (check.quick ? 3000 : 20000); ++round) use(check, pages, round);
        MPI_Win_unlock_all(pages.window);
        MPI_Request others;
        MPI_Ibarrier(check.comm, &others);
        MPI_Wait(&others, MPI_STATUS_IGNORE);
    }
    if (!pages.untouched()) check.fail("a page was written that no rank wrote to");
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        suite.check("get_beside_attaches", [](Check& check) { beside_others(check, get); });
        suite.check("get_accumulate_beside_attaches", [](Check& check) { beside_others(check, fetch); });
        suite.check("put_beside_attaches", [](Check& check) { beside_others(check, put); });
        suite.check("fetch_and_op_beside_attaches", [](Check& check) { beside_others(check, add); });
    });
}
