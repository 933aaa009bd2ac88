// One-sided accumulates and atomics: every predefined operation and type, fetch-and-op, compare-and-swap, and
// counters that all ranks change at once, whose final value tells whether any change was lost or doubled.
// Every check is made for each kind of window: `--only fetch_and_op_create`.
#include <algorithm>

#include "onesided_window.h"

namespace {

using mpi_test::Check;
using mpi_test::count_exclusively;
using mpi_test::Kind;
using mpi_test::mix;
using mpi_test::Suite;
using mpi_test::Window;

template <typename T>
MPI_Datatype type_of();
template <>
MPI_Datatype type_of<std::int32_t>() {
    return MPI_INT32_T;
}
template <>
MPI_Datatype type_of<std::uint32_t>() {
    return MPI_UINT32_T;
}
template <>
MPI_Datatype type_of<std::int64_t>() {
    return MPI_INT64_T;
}
template <>
MPI_Datatype type_of<std::uint64_t>() {
    return MPI_UINT64_T;
}
template <>
MPI_Datatype type_of<float>() {
    return MPI_FLOAT;
}
template <>
MPI_Datatype type_of<double>() {
    return MPI_DOUBLE;
}

template <typename T>
struct Operation {
    const char* name;
    MPI_Op op;
    T (*apply)(T target, T origin);
};

enum class Set { kArithmetic, kLogical };

// The logical operations are apart because osc/rdma passes them to the BTL without asking whether it has
// them.
template <typename T>
std::vector<Operation<T>> operations(Set set) {
    if (set == Set::kLogical) {
        return {
            {"logical and", MPI_LAND, [](T a, T b) { return static_cast<T>(a && b); }},
            {"logical or", MPI_LOR, [](T a, T b) { return static_cast<T>(a || b); }},
            {"logical xor", MPI_LXOR, [](T a, T b) { return static_cast<T>(!a != !b); }},
        };
    }
    std::vector<Operation<T>> all = {
        {"sum", MPI_SUM, [](T a, T b) { return static_cast<T>(a + b); }},
        {"product", MPI_PROD, [](T a, T b) { return static_cast<T>(a * b); }},
        {"minimum", MPI_MIN, [](T a, T b) { return std::min(a, b); }},
        {"maximum", MPI_MAX, [](T a, T b) { return std::max(a, b); }},
    };
    if constexpr (std::is_integral_v<T>) {
        all.push_back({"bitwise and", MPI_BAND, [](T a, T b) { return static_cast<T>(a & b); }});
        all.push_back({"bitwise or", MPI_BOR, [](T a, T b) { return static_cast<T>(a | b); }});
        all.push_back({"bitwise xor", MPI_BXOR, [](T a, T b) { return static_cast<T>(a ^ b); }});
    }
    return all;
}

template <typename T>
std::vector<Operation<T>> fetching_operations(Set set) {
    auto all = operations<T>(set);
    all.push_back({"replace", MPI_REPLACE, [](T, T b) { return b; }});
    all.push_back({"fetch only", MPI_NO_OP, [](T a, T) { return a; }});
    return all;
}

/// Small values, so that products of a few stay exact in every type and no signed sum overflows.
template <typename T>
T value_of(int rank, std::size_t index) {
    return static_cast<T>(mix(static_cast<std::uint64_t>(rank) * 7919 + index) % 6);
}

template <typename T>
void store(Check& check, Window& window, const std::vector<T>& values) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check.rank, 0, window.get());
    std::memcpy(window.memory(), values.data(), values.size() * sizeof(T));
    MPI_Win_unlock(check.rank, window.get());
    MPI_Barrier(check.comm);
}

template <typename T>
std::vector<T> load(Check& check, Window& window, std::size_t count) {
    MPI_Barrier(check.comm);
    std::vector<T> values(count);
    MPI_Win_lock(MPI_LOCK_SHARED, check.rank, 0, window.get());
    std::memcpy(values.data(), window.memory(), count * sizeof(T));
    MPI_Win_unlock(check.rank, window.get());
    MPI_Barrier(check.comm);
    return values;
}

template <typename T>
bool same(Check& check, const T& got, const T& expected, const char* operation, std::size_t index) {
    if (got != expected) {
        check.fail("%s of %zu-byte values: element %zu: expected %.9g, got %.9g", operation, sizeof(T), index,
                   static_cast<double>(expected), static_cast<double>(got));
    }
    return got == expected;
}

enum class Form { kFence, kLockAll, kRequest };

/// All ranks accumulate into every rank, in any order, which none of these operations' results depend on.
template <typename T>
void accumulate_type(Check& check, Window& window, Set set, Form form, std::size_t count) {
    const int length = static_cast<int>(count);
    for (const Operation<T>& one : operations<T>(set)) {
        std::vector<T> initial(count);
        std::vector<T> mine(count);
        for (std::size_t i = 0; i < count; ++i) {
            initial[i] = value_of<T>(1000 + check.rank, i);
            mine[i] = value_of<T>(check.rank, i);
        }
        store(check, window, initial);
        std::vector<MPI_Request> requests;
        if (form == Form::kFence) {
            MPI_Win_fence(0, window.get());
        } else {
            MPI_Win_lock_all(0, window.get());
        }
        for (int target = 0; target < check.size; ++target) {
            const MPI_Aint at = window.at(target, 0);
            if (form == Form::kRequest) {
                requests.emplace_back();
                MPI_Raccumulate(mine.data(), length, type_of<T>(), target, at, length, type_of<T>(), one.op,
                                window.get(), &requests.back());
            } else {
                MPI_Accumulate(mine.data(), length, type_of<T>(), target, at, length, type_of<T>(), one.op,
                               window.get());
            }
        }
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
        if (form == Form::kFence) {
            MPI_Win_fence(0, window.get());
        } else {
            MPI_Win_unlock_all(window.get());
        }
        const auto got = load<T>(check, window, count);
        for (std::size_t i = 0; i < count; ++i) {
            T expected = initial[i];
            for (int rank = 0; rank < check.size; ++rank)
                expected = one.apply(expected, value_of<T>(rank, i));
            if (!same(check, got[i], expected, one.name, i)) break;
        }
    }
}

/// Calls `f` with a value of each type that the operations have, for its type alone.
template <typename Function>
void for_each_type(Set set, Function f) {
    f(std::int32_t{});
    f(std::uint32_t{});
    f(std::int64_t{});
    f(std::uint64_t{});
    if (set == Set::kLogical) return;
    f(float{});
    f(double{});
}

constexpr std::size_t kElements = 5000;

void accumulate(Check& check, Kind kind, Set set, Form form) {
    Window window(check, kind, kElements * sizeof(double));
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{9}, check.quick ? std::size_t{600} : kElements}) {
        for_each_type(
            set, [&](auto sample) { accumulate_type<decltype(sample)>(check, window, set, form, count); });
    }
}

/// The order of accumulates from one origin to one place is kept: the last replacement wins.
void replace_keeps_order(Check& check, Kind kind) {
    const int count = check.quick ? 50 : 300;
    Window window(check, kind, 64 * sizeof(std::int64_t));
    const auto place = static_cast<std::size_t>(check.rank) * sizeof(std::int64_t);
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    MPI_Win_lock_all(0, window.get());
    for (int i = 0; i < count; ++i) {
        values[static_cast<std::size_t>(i)] = check.rank * 100000 + i;
        MPI_Accumulate(&values[static_cast<std::size_t>(i)], 1, MPI_INT64_T, check.next(),
                       window.at(check.next(), place), 1, MPI_INT64_T, MPI_REPLACE, window.get());
    }
    MPI_Win_unlock_all(window.get());
    const auto got = load<std::int64_t>(check, window, 64);
    check.equal(got[static_cast<std::size_t>(check.previous())], check.previous() * 100000 + count - 1,
                "last value");
}

/// The next rank's values are fetched and changed by this rank alone, so each fetch is known in advance.
template <typename T>
void get_accumulate_type(Check& check, Window& window, Set set, std::size_t count, bool by_request) {
    const int length = static_cast<int>(count);
    const MPI_Aint at = window.at(check.next(), 0);
    std::vector<T> expected(count);
    std::vector<T> initial(count);
    for (std::size_t i = 0; i < count; ++i) {
        initial[i] = value_of<T>(500 + check.rank, i);
        expected[i] = value_of<T>(500 + check.next(), i);
    }
    store(check, window, initial);
    MPI_Win_lock_all(0, window.get());
    for (const Operation<T>& one : fetching_operations<T>(set)) {
        std::vector<T> mine(count);
        std::vector<T> fetched(count);
        for (std::size_t i = 0; i < count; ++i) mine[i] = value_of<T>(check.rank, i + 3);
        if (by_request) {
            MPI_Request request;
            MPI_Rget_accumulate(mine.data(), length, type_of<T>(), fetched.data(), length, type_of<T>(),
                                check.next(), at, length, type_of<T>(), one.op, window.get(), &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Get_accumulate(mine.data(), length, type_of<T>(), fetched.data(), length, type_of<T>(),
                               check.next(), at, length, type_of<T>(), one.op, window.get());
        }
        MPI_Win_flush(check.next(), window.get());
        for (std::size_t i = 0; i < count; ++i) {
            if (!same(check, fetched[i], expected[i], one.name, i)) break;
        }
        for (std::size_t i = 0; i < count; ++i) expected[i] = one.apply(expected[i], mine[i]);
    }
    MPI_Win_unlock_all(window.get());
    MPI_Barrier(check.comm);
}

void get_accumulate(Check& check, Kind kind, Set set, bool by_request) {
    Window window(check, kind, kElements * sizeof(double));
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{9}, check.quick ? std::size_t{600} : kElements}) {
        for_each_type(set, [&](auto sample) {
            get_accumulate_type<decltype(sample)>(check, window, set, count, by_request);
        });
    }
}

template <typename T>
void fetch_and_op_type(Check& check, Window& window, Set set) {
    const T initial = static_cast<T>(check.rank + 3);
    store(check, window, std::vector<T>{initial, initial});
    T expected = static_cast<T>(check.next() + 3);
    const MPI_Aint at = window.at(check.next(), sizeof(T));
    MPI_Win_lock(MPI_LOCK_SHARED, check.next(), 0, window.get());
    std::size_t index = 0;
    for (const Operation<T>& one : fetching_operations<T>(set)) {
        const T mine = static_cast<T>(index % 4 + 2);
        T fetched{};
        MPI_Fetch_and_op(&mine, &fetched, type_of<T>(), check.next(), at, one.op, window.get());
        MPI_Win_flush(check.next(), window.get());
        same(check, fetched, expected, one.name, index++);
        expected = one.apply(expected, mine);
    }
    MPI_Win_unlock(check.next(), window.get());
    MPI_Barrier(check.comm);
    const auto got = load<T>(check, window, 2);
    same(check, got[0], initial, "the element before", 0);
}

/// A swap happens when, and only when, the comparison holds; the old value comes back in both cases. The
/// values differ in their high halves too, which a comparison of the wrong width would miss.
template <typename T>
void compare_and_swap_type(Check& check, Window& window, int target) {
    const auto unlike = [](int rank, unsigned shift) {
        return static_cast<T>((static_cast<std::uint64_t>(rank + 1) << (8 * sizeof(T) - 8)) + shift);
    };
    store(check, window, std::vector<T>{unlike(check.rank, 0), unlike(check.rank, 1)});
    const MPI_Aint at = window.at(target, sizeof(T));
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window.get());
    T result{};
    const T wrong = unlike(target + 1, 1);
    const T right = unlike(target, 1);
    const T wanted = unlike(target, 77);
    const T unwanted = unlike(target, 99);
    MPI_Compare_and_swap(&unwanted, &wrong, &result, type_of<T>(), target, at, window.get());
    MPI_Win_flush(target, window.get());
    same(check, result, right, "refused compare-and-swap", 0);
    MPI_Compare_and_swap(&wanted, &right, &result, type_of<T>(), target, at, window.get());
    MPI_Win_flush(target, window.get());
    same(check, result, right, "compare-and-swap", 0);
    MPI_Compare_and_swap(&unwanted, &right, &result, type_of<T>(), target, at, window.get());
    MPI_Win_unlock(target, window.get());
    same(check, result, wanted, "compare-and-swap after a swap", 0);
    const auto got = load<T>(check, window, 2);
    same(check, got[0], unlike(check.rank, 0), "the element before", 0);
    same(check, got[1], unlike(check.rank, 77), "swapped value", 1);
}

/// Every value that a shared counter hands out is handed out once: the fetched values of all ranks are a
/// permutation.
template <typename T>
void counter_fetch_and_op(Check& check, Kind kind) {
    const int count = check.quick ? 100 : 500;
    Window window(check, kind, 64);
    const T one = 1;
    std::vector<T> fetched(static_cast<std::size_t>(count));
    MPI_Win_lock_all(0, window.get());
    for (T& value : fetched) {
        MPI_Fetch_and_op(&one, &value, type_of<T>(), 0, window.at(0, 0), MPI_SUM, window.get());
        MPI_Win_flush(0, window.get());
    }
    MPI_Win_unlock_all(window.get());
    check.equal(std::is_sorted(fetched.begin(), fetched.end()), 1, "a rank sees its counter grow");
    std::vector<T> all(fetched.size() * static_cast<std::size_t>(check.size));
    MPI_Gather(fetched.data(), count, type_of<T>(), all.data(), count, type_of<T>(), 0, check.comm);
    if (check.rank == 0) {
        std::sort(all.begin(), all.end());
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!check.equal(static_cast<long long>(all[i]), static_cast<long long>(i), "handed out")) break;
        }
    }
    const auto got = load<T>(check, window, 2);
    check.equal(static_cast<long long>(got[0]), check.rank == 0 ? count * check.size : 0, "final count");
    check.equal(static_cast<long long>(got[1]), 0, "the element after");
}

/// The counter's owner takes part or only holds it: its own accesses go another way than those of the others.
template <typename T>
void counter_compare_and_swap(Check& check, Kind kind, bool with_owner) {
    const int owner = check.size - 1;
    const int count = check.quick ? 20 : 100;
    Window window(check, kind, 64);
    MPI_Win_lock_all(0, window.get());
    T seen = 0;
    for (int done = 0; done < count && (with_owner || check.rank != owner);) {
        const T wanted = static_cast<T>(seen + 1);
        T result{};
        MPI_Compare_and_swap(&wanted, &seen, &result, type_of<T>(), owner, window.at(owner, 8), window.get());
        MPI_Win_flush(owner, window.get());
        if (result == seen) ++done;
        seen = result == seen ? wanted : result;
    }
    MPI_Win_unlock_all(window.get());
    const auto got = load<T>(check, window, 16 / sizeof(T));
    const int participants = with_owner ? check.size : check.size - 1;
    check.equal(static_cast<long long>(got[8 / sizeof(T)]), check.rank == owner ? count * participants : 0,
                "count");
}

/// Accumulates into every rank's counters, without a flush between them.
void counter_accumulate(Check& check, Kind kind) {
    const int count = check.quick ? 200 : 1000;
    Window window(check, kind, 64);
    const std::int64_t mine = check.rank + 1;
    MPI_Win_lock_all(0, window.get());
    for (int i = 0; i < count; ++i) {
        const int target = (check.rank + i) % check.size;
        MPI_Accumulate(&mine, 1, MPI_INT64_T, target, window.at(target, 16), 1, MPI_INT64_T, MPI_SUM,
                       window.get());
    }
    MPI_Win_unlock_all(window.get());
    std::int64_t expected = 0;
    for (int rank = 0; rank < check.size; ++rank) {
        for (int i = 0; i < count; ++i) expected += (rank + i) % check.size == check.rank ? rank + 1 : 0;
    }
    check.equal(load<std::int64_t>(check, window, 3)[2], expected, "sum");
}

/// An exclusive lock makes get, add, put one step; a lost update is a lock that two held.
void counter_under_exclusive_lock(Check& check, Kind kind) {
    const int count = check.quick ? 20 : 100;
    Window window(check, kind, 64);
    count_exclusively(window, 0, count);
    check.equal(load<std::int64_t>(check, window, 1)[0], check.rank == 0 ? count * check.size : 0,
                "final count");
}

void accumulates(Suite& suite, Kind k, const std::string& kind) {
    for (const Set set : {Set::kArithmetic, Set::kLogical}) {
        const auto check = [&](const std::string& name, const std::function<void(Check&)>& body) {
            suite.check((set == Set::kLogical ? "logical_" : "") + name + kind, body);
        };
        check("accumulate_fence", [&](Check& c) { accumulate(c, k, set, Form::kFence); });
        check("accumulate_lock_all", [&](Check& c) { accumulate(c, k, set, Form::kLockAll); });
        check("raccumulate", [&](Check& c) { accumulate(c, k, set, Form::kRequest); });
        check("get_accumulate", [&](Check& c) { get_accumulate(c, k, set, false); });
        check("rget_accumulate", [&](Check& c) { get_accumulate(c, k, set, true); });
        check("fetch_and_op", [&](Check& c) {
            Window window(c, k, 64);
            for_each_type(set, [&](auto sample) { fetch_and_op_type<decltype(sample)>(c, window, set); });
        });
    }
    suite.check("replace_keeps_order" + kind, [&](Check& c) { replace_keeps_order(c, k); });
}

// osc/rdma before 4.1.5 hands a 64-bit compare-and-swap to the BTL also where the target is the rank itself
// or memory shared within the host (open-mpi/ompi#10513), which is why those are apart.
void compare_and_swaps(Suite& suite, Kind k, const std::string& kind) {
    for (const bool self : {false, true}) {
        const std::string target = self ? "_self" : "";
        suite.check("compare_and_swap_32" + target + kind, [&](Check& c) {
            Window window(c, k, 64);
            compare_and_swap_type<std::int32_t>(c, window, self ? c.rank : c.next());
            compare_and_swap_type<std::uint32_t>(c, window, self ? c.rank : c.next());
        });
        suite.check("compare_and_swap_64" + target + kind, [&](Check& c) {
            Window window(c, k, 64);
            compare_and_swap_type<std::int64_t>(c, window, self ? c.rank : c.next());
            compare_and_swap_type<std::uint64_t>(c, window, self ? c.rank : c.next());
        });
        const std::string owner = self ? "_with_owner" : "";
        suite.check("counter_compare_and_swap_32" + owner + kind,
                    [&](Check& c) { counter_compare_and_swap<std::int32_t>(c, k, self); });
        suite.check("counter_compare_and_swap_64" + owner + kind,
                    [&](Check& c) { counter_compare_and_swap<std::int64_t>(c, k, self); });
    }
}

void counters(Suite& suite, Kind k, const std::string& kind) {
    suite.check("counter_fetch_and_op_32" + kind,
                [&](Check& c) { counter_fetch_and_op<std::int32_t>(c, k); });
    suite.check("counter_fetch_and_op_64" + kind,
                [&](Check& c) { counter_fetch_and_op<std::int64_t>(c, k); });
    suite.check("counter_accumulate" + kind, [&](Check& c) { counter_accumulate(c, k); });
    suite.check("counter_under_exclusive_lock" + kind, [&](Check& c) { counter_under_exclusive_lock(c, k); });
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        for (const auto& [kind, name] : mpi_test::kKinds) {
            const std::string suffix = std::string("_") + name;
            accumulates(suite, kind, suffix);
            compare_and_swaps(suite, kind, suffix);
            counters(suite, kind, suffix);
        }
    });
}
