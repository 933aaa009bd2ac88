// MPI_THREAD_MULTIPLE, one-sided: threads of every rank put, get, accumulate, fetch-and-op and
// compare-and-swap at once, on one window or on their own, while other threads send and receive.
#include <algorithm>
#include <memory>
#include <thread>

#include "onesided_window.h"

namespace {

using mpi_test::Check;
using mpi_test::count_exclusively;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Kind;
using mpi_test::Suite;
using mpi_test::Window;

/// Every thread owns a part of each window; the first words of a window are shared counters.
constexpr std::size_t kSharedBytes = 4096;
constexpr std::size_t kPartBytes = 1 << 17;

int rounds(const Check& check, int full) {
    return check.quick ? full / 5 : full;
}

struct Task {
    Check& check;
    Window& window;
    int thread;

    /// Byte of this thread's part that this rank uses at a target.
    [[nodiscard]] std::size_t part() const {
        return kSharedBytes + static_cast<std::size_t>(thread) * kPartBytes;
    }
};

using Work = void (*)(const Task&);

/// Puts to the next rank and gets back what was put; sizes on both sides of every threshold.
void put_and_get(const Task& task) {
    const std::size_t sizes[] = {8, 100, 2048, 5000, 60000, 131072};
    const MPI_Win window = task.window.get();
    const int target = task.check.next();
    for (int round = 0; round < rounds(task.check, 1000); ++round) {
        const std::size_t bytes = sizes[static_cast<std::size_t>(round) % std::size(sizes)];
        const auto data = filled({task.check.rank, target, bytes, static_cast<std::uint64_t>(round)});
        GuardedBuffer back(bytes);
        const MPI_Aint at = task.window.at(target, task.part());
        MPI_Put(data.data(), static_cast<int>(bytes), MPI_BYTE, target, at, static_cast<int>(bytes), MPI_BYTE,
                window);
        MPI_Win_flush(target, window);
        MPI_Get(back.data(), static_cast<int>(bytes), MPI_BYTE, target, at, static_cast<int>(bytes), MPI_BYTE,
                window);
        MPI_Win_flush(target, window);
        task.check.received(back, {task.check.rank, target, bytes, static_cast<std::uint64_t>(round)}, bytes,
                            "get");
    }
}

/// Accumulates into a part that this thread alone uses, so that every fetched value is known.
void accumulate(const Task& task) {
    constexpr int kCount = 500;
    const MPI_Win window = task.window.get();
    const int target = task.check.next();
    const MPI_Aint at = task.window.at(target, task.part());
    std::vector<std::int64_t> values(kCount, 0);
    MPI_Put(values.data(), kCount, MPI_INT64_T, target, at, kCount, MPI_INT64_T, window);
    MPI_Win_flush(target, window);
    std::int64_t sum = 0;
    for (int round = 0; round < rounds(task.check, 1000); ++round) {
        const int count = round % 3 == 0 ? 1 : kCount;
        std::fill(values.begin(), values.end(), round + 1);
        std::vector<std::int64_t> fetched(kCount, -1);
        if (round % 2 == 0) {
            MPI_Accumulate(values.data(), count, MPI_INT64_T, target, at, count, MPI_INT64_T, MPI_SUM,
                           window);
            MPI_Win_flush(target, window);
        } else {
            MPI_Get_accumulate(values.data(), count, MPI_INT64_T, fetched.data(), count, MPI_INT64_T, target,
                               at, count, MPI_INT64_T, MPI_SUM, window);
            MPI_Win_flush(target, window);
            if (!task.check.equal(fetched[0], sum, "fetched before an accumulate")) return;
        }
        sum += round + 1;
    }
    MPI_Get(values.data(), 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, window);
    MPI_Win_flush(target, window);
    task.check.equal(values[0], sum, "accumulated");
}

/// All threads of all ranks that do this count up the same words at rank 0.
void count_by_fetch_and_op(const Task& task) {
    const MPI_Win window = task.window.get();
    std::int64_t last = -1;
    for (int round = 0; round < rounds(task.check, 2000); ++round) {
        const std::int64_t one = 1;
        std::int64_t seen = -1;
        MPI_Fetch_and_op(&one, &seen, MPI_INT64_T, 0, task.window.at(0, 8), MPI_SUM, window);
        MPI_Win_flush(0, window);
        if (seen <= last)
            task.check.fail("the counter went from %lld to %lld", (long long)last, (long long)seen);
        last = seen;
    }
}

void count_by_compare_and_swap(const Task& task) {
    const MPI_Win window = task.window.get();
    std::int32_t seen = 0;
    for (int done = 0; done < rounds(task.check, 500);) {
        const std::int32_t wanted = seen + 1;
        std::int32_t result = -1;
        MPI_Compare_and_swap(&wanted, &seen, &result, MPI_INT32_T, 0, task.window.at(0, 64), window);
        MPI_Win_flush(0, window);
        if (result == seen) ++done;
        seen = result == seen ? wanted : result;
    }
}

/// Messages between the namesakes of neighbouring ranks.
void messages(const Task& task) {
    const std::size_t sizes[] = {0, 56, 57, 2000, 4000, 40000, 300000};
    Check& check = task.check;
    for (int round = 0; round < rounds(check, 1000); ++round) {
        const std::size_t bytes = sizes[static_cast<std::size_t>(round + task.thread) % std::size(sizes)];
        const auto iteration = static_cast<std::uint64_t>(task.thread * 1000000 + round);
        const auto data = filled({check.rank, check.next(), bytes, iteration});
        GuardedBuffer buffer(bytes);
        MPI_Request requests[2];
        MPI_Irecv(buffer.data(), static_cast<int>(bytes), MPI_BYTE, check.previous(), task.thread, check.comm,
                  &requests[0]);
        MPI_Isend(data.data(), static_cast<int>(bytes), MPI_BYTE, check.next(), task.thread, check.comm,
                  &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        check.received(buffer, {check.previous(), check.rank, bytes, iteration});
    }
}

/// A thread each for the works given, all in one epoch of one window.
void at_once(Check& check, Kind kind, const std::vector<Work>& works) {
    Window window(check, kind, kSharedBytes + works.size() * kPartBytes);
    MPI_Win_lock_all(0, window.get());
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < works.size(); ++i) {
            threads.emplace_back([&, i] { works[i](Task{check, window, static_cast<int>(i)}); });
        }
    }
    // Those that have finished still have to serve the others.
    MPI_Barrier(check.comm);
    std::int64_t by_fetch = 0;
    std::int32_t by_swap = 0;
    MPI_Fetch_and_op(&by_fetch, &by_fetch, MPI_INT64_T, 0, window.at(0, 8), MPI_NO_OP, window.get());
    MPI_Fetch_and_op(&by_swap, &by_swap, MPI_INT32_T, 0, window.at(0, 64), MPI_NO_OP, window.get());
    MPI_Win_flush(0, window.get());
    MPI_Win_unlock_all(window.get());
    const auto users = [&](Work work) { return std::count(works.begin(), works.end(), work) * check.size; };
    check.equal(by_fetch, users(count_by_fetch_and_op) * rounds(check, 2000), "counter of fetch-and-op");
    check.equal(by_swap, users(count_by_compare_and_swap) * rounds(check, 500),
                "counter of compare-and-swap");
    MPI_Barrier(check.comm);
}

/// A window for each thread, with epochs of its own.
void own_windows(Check& check, Kind kind) {
    constexpr int kThreads = 4;
    std::vector<std::unique_ptr<Window>> windows;
    for (int i = 0; i < kThreads; ++i) windows.push_back(std::make_unique<Window>(check, kind, 64));
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < kThreads; ++thread) {
            threads.emplace_back([&, thread] {
                Window& window = *windows[static_cast<std::size_t>(thread)];
                count_exclusively(window, 16, rounds(check, 200));
            });
        }
    }
    MPI_Barrier(check.comm);
    for (const auto& window : windows) {
        std::int64_t value = -1;
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window->get());
        MPI_Get(&value, 1, MPI_INT64_T, 0, window->at(0, 16), 1, MPI_INT64_T, window->get());
        MPI_Win_unlock(0, window->get());
        check.equal(value, rounds(check, 200) * check.size, "counter under an exclusive lock");
    }
    MPI_Barrier(check.comm);
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
        for (const auto& [kind, kind_name] : mpi_test::kKinds) {
            if (provided != MPI_THREAD_MULTIPLE) break;
            const std::string suffix = std::string("_") + kind_name;
            const auto check = [&, k = kind](const char* name, const std::vector<Work>& works) {
                suite.check(name + suffix, [&](Check& c) { at_once(c, k, works); });
            };
            check("puts_and_gets", {4, put_and_get});
            check("fetch_and_ops", {4, count_by_fetch_and_op});
            check("compare_and_swaps", {4, count_by_compare_and_swap});
            check("accumulates", {4, accumulate});
            check("everything", {put_and_get, accumulate, count_by_fetch_and_op, count_by_compare_and_swap,
                                 messages, messages, put_and_get, count_by_fetch_and_op});
            suite.check("own_windows" + suffix, [&, k = kind](Check& c) { own_windows(c, k); });
        }
        result = suite.finish();
    }
    MPI_Finalize();
    return result;
}
