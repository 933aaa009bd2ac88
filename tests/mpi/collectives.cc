// Collectives, blocking and non-blocking, on several kinds of communicator, from nothing to about 1 MiB. Each
// result is computed from the ranks alone and compared element by element.
#include <algorithm>
#include <numeric>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::mix;
using mpi_test::Suite;

using Value = std::int64_t;
constexpr Value kUntouched = -77777;

/// Element `index` of what `rank` contributes. Small enough that sums and products of few stay exact.
Value value_of(int rank, std::size_t index, int salt) {
    return static_cast<Value>(
        mix((static_cast<std::uint64_t>(salt) << 48) ^ (static_cast<std::uint64_t>(rank) << 32) ^ index) >>
        20);
}

/// Context of one run of a collective.
struct Context {
    Check& check;
    MPI_Comm comm;
    int rank;
    int size;
    int count;  // elements a rank, or a pair of ranks, contributes
    bool nonblocking;

    [[nodiscard]] std::size_t elements() const { return static_cast<std::size_t>(count); }
    [[nodiscard]] std::vector<Value> own(int blocks = 1) const {
        std::vector<Value> data(elements() * static_cast<std::size_t>(blocks));
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = value_of(rank, i, count);
        return data;
    }
    [[nodiscard]] std::vector<Value> empty(int blocks = 1) const {
        return std::vector<Value>(elements() * static_cast<std::size_t>(blocks), kUntouched);
    }
    void expect(const std::vector<Value>& got, const std::function<Value(std::size_t)>& expected,
                const char* what) const {
        for (std::size_t i = 0; i < got.size(); ++i) {
            const Value wanted = expected(i);
            if (got[i] == wanted) continue;
            check.fail("%s: rank %d of %d count %d element %zu: expected %lld, got %lld", what, rank, size,
                       count, i, static_cast<long long>(wanted), static_cast<long long>(got[i]));
            return;
        }
    }
    /// Calls the blocking or the non-blocking form, which take the same arguments but for the request.
    template <typename Blocking, typename Nonblocking, typename... Arguments>
    void call(Blocking blocking, Nonblocking nonblocking_form, Arguments... arguments) const {
        if (nonblocking) {
            MPI_Request request;
            nonblocking_form(arguments..., comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            blocking(arguments..., comm);
        }
    }
};

Value sum_over(int size, std::size_t index, int count) {
    Value sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += value_of(rank, index, count);
    return sum;
}

void barrier(const Context& c) {
    c.call(MPI_Barrier, MPI_Ibarrier);
}

void bcast(const Context& c) {
    for (const int root : {0, c.size - 1}) {
        auto data = c.rank == root ? c.own() : c.empty();
        c.call(MPI_Bcast, MPI_Ibcast, data.data(), c.count, MPI_INT64_T, root);
        c.expect(
            data, [&](std::size_t i) { return value_of(root, i, c.count); }, "bcast");
    }
}

void gather(const Context& c) {
    const int root = c.size / 2;
    const bool at_root = c.rank == root;
    const auto mine = c.own();
    auto all = at_root ? c.empty(c.size) : std::vector<Value>{};
    const auto expected = [&](std::size_t i) {
        return value_of(static_cast<int>(i / c.elements()), i % c.elements(), c.count);
    };
    c.call(MPI_Gather, MPI_Igather, mine.data(), c.count, MPI_INT64_T, all.data(), c.count, MPI_INT64_T,
           root);
    c.expect(all, expected, "gather");
    if (at_root) {
        all = c.empty(c.size);
        std::copy(mine.begin(), mine.end(), all.begin() + root * c.count);
    }
    const void* source = at_root ? MPI_IN_PLACE : static_cast<const void*>(mine.data());
    c.call(MPI_Gather, MPI_Igather, source, c.count, MPI_INT64_T, all.data(), c.count, MPI_INT64_T, root);
    c.expect(all, expected, "gather in place");
}

void scatter(const Context& c) {
    const int root = c.size - 1;
    const auto all = c.own(c.size);
    const auto expected = [&](std::size_t i) {
        return value_of(root, static_cast<std::size_t>(c.rank) * c.elements() + i, c.count);
    };
    auto mine = c.empty();
    c.call(MPI_Scatter, MPI_Iscatter, all.data(), c.count, MPI_INT64_T, mine.data(), c.count, MPI_INT64_T,
           root);
    c.expect(mine, expected, "scatter");
    mine = c.empty();
    void* target = c.rank == root ? MPI_IN_PLACE : static_cast<void*>(mine.data());
    c.call(MPI_Scatter, MPI_Iscatter, all.data(), c.count, MPI_INT64_T, target, c.count, MPI_INT64_T, root);
    if (c.rank != root) c.expect(mine, expected, "scatter in place");
}

void allgather(const Context& c) {
    const auto mine = c.own();
    auto all = c.empty(c.size);
    const auto expected = [&](std::size_t i) {
        return value_of(static_cast<int>(i / c.elements()), i % c.elements(), c.count);
    };
    c.call(MPI_Allgather, MPI_Iallgather, mine.data(), c.count, MPI_INT64_T, all.data(), c.count,
           MPI_INT64_T);
    c.expect(all, expected, "allgather");
    all = c.empty(c.size);
    std::copy(mine.begin(), mine.end(), all.begin() + c.rank * c.count);
    c.call(MPI_Allgather, MPI_Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), c.count,
           MPI_INT64_T);
    c.expect(all, expected, "allgather in place");
}

/// Blocks of unequal length, some empty, placed with a gap of one element that must stay untouched.
struct Uneven {
    Uneven(int size, int count) : lengths(static_cast<std::size_t>(size)), places(lengths.size()) {
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            lengths[i] = i % 3 == 2 ? 0 : count / (1 + static_cast<int>(i % 4));
            places[i] = total;
            total += lengths[i] + 1;
        }
    }
    [[nodiscard]] Value expected(std::size_t index, int salt) const {
        const auto after = std::upper_bound(places.begin(), places.end(), static_cast<int>(index));
        const auto block = static_cast<std::size_t>(after - places.begin() - 1);
        const int within = static_cast<int>(index) - places[block];
        return within < lengths[block]
                   ? value_of(static_cast<int>(block), static_cast<std::size_t>(within), salt)
                   : kUntouched;
    }
    std::vector<int> lengths;
    std::vector<int> places;
    int total = 0;
};

void gatherv_and_allgatherv(const Context& c) {
    const Uneven uneven(c.size, c.count);
    const auto mine = c.own();
    const int length = uneven.lengths[static_cast<std::size_t>(c.rank)];
    const auto expected = [&](std::size_t i) { return uneven.expected(i, c.count); };
    std::vector<Value> all(static_cast<std::size_t>(uneven.total), kUntouched);
    c.call(MPI_Gatherv, MPI_Igatherv, mine.data(), length, MPI_INT64_T, all.data(), uneven.lengths.data(),
           uneven.places.data(), MPI_INT64_T, 0);
    if (c.rank == 0) c.expect(all, expected, "gatherv");
    std::fill(all.begin(), all.end(), kUntouched);
    c.call(MPI_Allgatherv, MPI_Iallgatherv, mine.data(), length, MPI_INT64_T, all.data(),
           uneven.lengths.data(), uneven.places.data(), MPI_INT64_T);
    c.expect(all, expected, "allgatherv");
}

void scatterv(const Context& c) {
    const Uneven uneven(c.size, c.count);
    const int root = 0;
    std::vector<Value> all(static_cast<std::size_t>(uneven.total));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = uneven.expected(i, c.count);
    std::vector<Value> mine(static_cast<std::size_t>(uneven.lengths[static_cast<std::size_t>(c.rank)]),
                            kUntouched);
    c.call(MPI_Scatterv, MPI_Iscatterv, all.data(), uneven.lengths.data(), uneven.places.data(), MPI_INT64_T,
           mine.data(), static_cast<int>(mine.size()), MPI_INT64_T, root);
    c.expect(
        mine, [&](std::size_t i) { return value_of(c.rank, i, c.count); }, "scatterv");
}

void alltoall(const Context& c) {
    const auto out = c.own(c.size);
    const auto expected = [&](std::size_t i) {
        return value_of(static_cast<int>(i / c.elements()),
                        static_cast<std::size_t>(c.rank) * c.elements() + i % c.elements(), c.count);
    };
    auto in = c.empty(c.size);
    c.call(MPI_Alltoall, MPI_Ialltoall, out.data(), c.count, MPI_INT64_T, in.data(), c.count, MPI_INT64_T);
    c.expect(in, expected, "alltoall");
    in = out;
    c.call(MPI_Alltoall, MPI_Ialltoall, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in.data(), c.count, MPI_INT64_T);
    c.expect(in, expected, "alltoall in place");
}

/// From rank s to rank d go count * ((s + d) % 3) / 2 elements: pairs with nothing, less and more than the
/// count.
int pair_length(const Context& c, int a, int b) {
    return c.count * ((a + b) % 3) / 2;
}

void alltoallv_and_w(const Context& c) {
    const auto size = static_cast<std::size_t>(c.size);
    std::vector<int> lengths(size), places(size), byte_places(size);
    int total = 0;
    for (int peer = 0; peer < c.size; ++peer) {
        const auto p = static_cast<std::size_t>(peer);
        lengths[p] = pair_length(c, c.rank, peer);
        places[p] = total;
        byte_places[p] = total * static_cast<int>(sizeof(Value));
        total += lengths[p];
    }
    std::vector<Value> out(static_cast<std::size_t>(total));
    std::vector<Value> wanted(out.size());
    for (int peer = 0; peer < c.size; ++peer) {
        for (int i = 0; i < lengths[static_cast<std::size_t>(peer)]; ++i) {
            const auto at = static_cast<std::size_t>(places[static_cast<std::size_t>(peer)] + i);
            out[at] = value_of(c.rank, static_cast<std::size_t>(i), peer);
            wanted[at] = value_of(peer, static_cast<std::size_t>(i), c.rank);
        }
    }
    std::vector<Value> in(out.size(), kUntouched);
    const auto expected = [&](std::size_t i) { return wanted[i]; };
    c.call(MPI_Alltoallv, MPI_Ialltoallv, out.data(), lengths.data(), places.data(), MPI_INT64_T, in.data(),
           lengths.data(), places.data(), MPI_INT64_T);
    c.expect(in, expected, "alltoallv");
    std::fill(in.begin(), in.end(), kUntouched);
    const std::vector<MPI_Datatype> types(size, MPI_INT64_T);
    c.call(MPI_Alltoallw, MPI_Ialltoallw, out.data(), lengths.data(), byte_places.data(), types.data(),
           in.data(), lengths.data(), byte_places.data(), types.data());
    c.expect(in, expected, "alltoallw");
}

void reduce(const Context& c) {
    const int root = c.size - 1;
    const auto mine = c.own();
    auto result = c.empty();
    const auto sum = [&](std::size_t i) { return sum_over(c.size, i, c.count); };
    c.call(MPI_Reduce, MPI_Ireduce, mine.data(), result.data(), c.count, MPI_INT64_T, MPI_SUM, root);
    if (c.rank == root) c.expect(result, sum, "reduce");
    result = mine;
    const void* source = c.rank == root ? MPI_IN_PLACE : static_cast<const void*>(mine.data());
    c.call(MPI_Reduce, MPI_Ireduce, source, result.data(), c.count, MPI_INT64_T, MPI_SUM, root);
    if (c.rank == root) c.expect(result, sum, "reduce in place");
}

void allreduce(const Context& c) {
    const auto mine = c.own();
    auto result = c.empty();
    c.call(MPI_Allreduce, MPI_Iallreduce, mine.data(), result.data(), c.count, MPI_INT64_T, MPI_SUM);
    c.expect(
        result, [&](std::size_t i) { return sum_over(c.size, i, c.count); }, "allreduce");
    result = mine;
    c.call(MPI_Allreduce, MPI_Iallreduce, MPI_IN_PLACE, result.data(), c.count, MPI_INT64_T, MPI_MAX);
    const auto maximum = [&](std::size_t i) {
        Value most = value_of(0, i, c.count);
        for (int rank = 1; rank < c.size; ++rank) most = std::max(most, value_of(rank, i, c.count));
        return most;
    };
    c.expect(result, maximum, "allreduce in place");
}

void reduce_scatters(const Context& c) {
    const auto all = c.own(c.size);
    auto block = c.empty();
    const auto first = static_cast<std::size_t>(c.rank) * c.elements();
    c.call(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, all.data(), block.data(), c.count,
           MPI_INT64_T, MPI_SUM);
    c.expect(
        block, [&](std::size_t i) { return sum_over(c.size, first + i, c.count); }, "reduce_scatter_block");
    std::vector<int> lengths(static_cast<std::size_t>(c.size), c.count);
    const int moved = c.count / 2;
    lengths.front() -= moved;
    lengths.back() += moved;
    std::vector<Value> part(static_cast<std::size_t>(lengths[static_cast<std::size_t>(c.rank)]), kUntouched);
    const auto start =
        static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.begin() + c.rank, 0));
    c.call(MPI_Reduce_scatter, MPI_Ireduce_scatter, all.data(), part.data(), lengths.data(), MPI_INT64_T,
           MPI_SUM);
    c.expect(
        part, [&](std::size_t i) { return sum_over(c.size, start + i, c.count); }, "reduce_scatter");
}

void scans(const Context& c) {
    const auto mine = c.own();
    auto result = c.empty();
    const auto inclusive = [&](std::size_t i) { return sum_over(c.rank + 1, i, c.count); };
    c.call(MPI_Scan, MPI_Iscan, mine.data(), result.data(), c.count, MPI_INT64_T, MPI_SUM);
    c.expect(result, inclusive, "scan");
    result = mine;
    c.call(MPI_Scan, MPI_Iscan, MPI_IN_PLACE, result.data(), c.count, MPI_INT64_T, MPI_SUM);
    c.expect(result, inclusive, "scan in place");
    result = c.empty();
    c.call(MPI_Exscan, MPI_Iexscan, mine.data(), result.data(), c.count, MPI_INT64_T, MPI_SUM);
    if (c.rank > 0)
        c.expect(
            result, [&](std::size_t i) { return sum_over(c.rank, i, c.count); }, "exscan");
}

/// x -> a x + b modulo 2^64: composition is associative and does not commute, so the ranks' order shows.
struct Affine {
    std::uint64_t a;
    std::uint64_t b;
    bool operator==(const Affine&) const = default;
};

Affine compose(const Affine& f, const Affine& g) {
    return {f.a * g.a, g.a * f.b + g.b};
}

void compose_all(void* in, void* inout, int* count, MPI_Datatype*) {
    const auto* first = static_cast<const Affine*>(in);
    auto* second = static_cast<Affine*>(inout);
    for (int i = 0; i < *count; ++i) second[i] = compose(first[i], second[i]);
}

Affine affine_of(int rank, std::size_t index) {
    return {mix(static_cast<std::uint64_t>(rank) * 1000003 + index) | 1,
            mix(index + static_cast<std::uint64_t>(rank))};
}

void non_commutative(const Context& c) {
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_contiguous(2, MPI_UINT64_T, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose_all, 0, &op);
    std::vector<Affine> mine(c.elements());
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = affine_of(c.rank, i);
    const auto verify = [&](const std::vector<Affine>& got, int ranks, const char* what) {
        for (std::size_t i = 0; i < got.size(); ++i) {
            Affine expected = affine_of(0, i);
            for (int rank = 1; rank < ranks; ++rank) expected = compose(expected, affine_of(rank, i));
            if (got[i] == expected) continue;
            c.check.fail("%s: rank %d of %d count %d element %zu wrong", what, c.rank, c.size, c.count, i);
            return;
        }
    };
    std::vector<Affine> result(c.elements());
    c.call(MPI_Reduce, MPI_Ireduce, mine.data(), result.data(), c.count, type, op, 0);
    if (c.rank == 0) verify(result, c.size, "non-commutative reduce");
    c.call(MPI_Allreduce, MPI_Iallreduce, mine.data(), result.data(), c.count, type, op);
    verify(result, c.size, "non-commutative allreduce");
    c.call(MPI_Scan, MPI_Iscan, mine.data(), result.data(), c.count, type, op);
    verify(result, c.rank + 1, "non-commutative scan");
    c.call(MPI_Exscan, MPI_Iexscan, mine.data(), result.data(), c.count, type, op);
    if (c.rank > 0) verify(result, c.rank, "non-commutative exscan");
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

using Body = void (*)(const Context&);

/// Runs on the duplicate, on halves, on the ranks in reverse, and on each rank alone. `bytes_max` bounds a
/// rank's part.
void on_communicators(Check& check, Body body, bool nonblocking, int bytes_max) {
    MPI_Comm halves, reversed;
    MPI_Comm_split(check.comm, check.rank % 2, check.rank, &halves);
    MPI_Comm_split(check.comm, 0, -check.rank, &reversed);
    for (const MPI_Comm comm : {check.comm, halves, reversed, MPI_COMM_SELF}) {
        Context context{check, comm, 0, 0, 0, nonblocking};
        MPI_Comm_rank(comm, &context.rank);
        MPI_Comm_size(comm, &context.size);
        std::vector<int> counts = {0, 1, 7, 100, 257, 2000};
        if (!check.quick) counts.insert(counts.end(), {2, 31, 33, 513, 10000});
        if (comm == check.comm) counts.insert(counts.end(), {16384, 131072});
        for (const int count : counts) {
            if (count * static_cast<int>(sizeof(Value)) > bytes_max) continue;
            context.count = count;
            body(context);
        }
    }
    MPI_Comm_free(&halves);
    MPI_Comm_free(&reversed);
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        constexpr int kMiB = 1 << 20;
        struct Case {
            const char* name;
            Body body;
            int bytes_max;
        };
        const Case cases[] = {
            {"barrier", barrier, kMiB},
            {"bcast", bcast, kMiB},
            {"gather", gather, kMiB / 8},
            {"scatter", scatter, kMiB / 8},
            {"allgather", allgather, kMiB / 8},
            {"gatherv_and_allgatherv", gatherv_and_allgatherv, kMiB / 8},
            {"scatterv", scatterv, kMiB},
            {"alltoall", alltoall, kMiB / 8},
            {"alltoallv_and_w", alltoallv_and_w, kMiB / 8},
            {"reduce", reduce, kMiB},
            {"allreduce", allreduce, kMiB},
            {"reduce_scatters", reduce_scatters, kMiB / 8},
            {"scans", scans, kMiB},
            {"non_commutative", non_commutative, kMiB / 8},
        };
        for (const Case& one : cases) {
            const std::string name = one.name;
            suite.check(name, [&](Check& check) { on_communicators(check, one.body, false, one.bytes_max); });
            suite.check(name + "_nonblocking",
                        [&](Check& check) { on_communicators(check, one.body, true, one.bytes_max); });
        }
    });
}
