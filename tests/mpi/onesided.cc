// One-sided communication over windows that are created, allocated and dynamic: every synchronisation, data
// movement of all sizes, and request-based forms. Accumulates and atomics have a program of their own. Every
// check is made for each kind of window: `--only put_fence_create`.
#include <algorithm>

#include "onesided_window.h"

namespace {

using mpi_test::Check;
using mpi_test::fill;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::Kind;
using mpi_test::Message;
using mpi_test::Suite;
using mpi_test::Window;

std::vector<std::size_t> sizes_of(const Check& check) {
    if (check.quick) return {1, 8, 57, 2048, 4097, 70000};
    return {1, 3, 4, 8, 55, 56, 57, 64, 255, 1000, 2047, 2048, 2049, 4096, 4097, 10000, 70000, 300001};
}

constexpr std::size_t kLarge[] = {1 << 20, (1 << 20) + 13, 6 << 20};
// Every rank owns one part of each window, so that all may write to one target at once.
constexpr std::size_t kPartBytes = 1 << 19;

std::size_t part_of(int rank) {
    return static_cast<std::size_t>(rank) * kPartBytes;
}

void verify(Check& check, const std::byte* got, const Message& message, const char* what) {
    const std::size_t good = first_difference(got, message, message.bytes);
    if (good == message.bytes) return;
    check.fail("%s: peer %d size %zu offset %zu expected 0x%02x got 0x%02x", what, message.source,
               message.bytes, good, std::to_integer<unsigned>(mpi_test::pattern_byte(message.key(), good)),
               std::to_integer<unsigned>(got[good]));
}

/// Each rank puts a part to every rank; the target verifies all parts, and that nothing beside them changed.
struct PutAll {
    Check& check;
    Window& window;
    std::size_t bytes;
    std::uint64_t iteration;
    std::vector<std::vector<std::byte>> data{};

    void clear() {
        // In a separate epoch, as local stores may not overlap remote ones.
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check.rank, 0, window.get());
        std::memset(window.memory(), 0x5a, window.bytes());
        MPI_Win_unlock(check.rank, window.get());
        MPI_Barrier(check.comm);
    }
    void put(int target) {
        data.push_back(filled({check.rank, target, bytes, iteration}));
        MPI_Put(data.back().data(), static_cast<int>(bytes), MPI_BYTE, target,
                window.at(target, part_of(check.rank)), static_cast<int>(bytes), MPI_BYTE, window.get());
    }
    void verify_part(int source) const {
        const std::byte* part = window.memory() + part_of(source);
        verify(check, part, {source, check.rank, bytes, iteration}, "put");
        const std::size_t end = std::min(bytes + 512, kPartBytes);
        for (std::size_t i = bytes; i < end; ++i) {
            if (part[i] != std::byte{0x5a}) {
                check.fail("put: peer %d size %zu: byte %zu past the end written", source, bytes, i);
                return;
            }
        }
    }
    void verify_all() const {
        for (int source = 0; source < check.size; ++source) verify_part(source);
    }
};

using Epoch = void (*)(PutAll&);

void put_fence(PutAll& p) {
    MPI_Win_fence(MPI_MODE_NOPRECEDE, p.window.get());
    for (int target = 0; target < p.check.size; ++target) p.put(target);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, p.window.get());
    p.verify_all();
}

void put_pscw(PutAll& p) {
    MPI_Group group;
    MPI_Comm_group(p.check.comm, &group);
    MPI_Win_post(group, 0, p.window.get());
    MPI_Win_start(group, 0, p.window.get());
    for (int target = 0; target < p.check.size; ++target) p.put(target);
    MPI_Win_complete(p.window.get());
    MPI_Win_wait(p.window.get());
    MPI_Group_free(&group);
    p.verify_all();
}

/// Post and start with the neighbours only, the exposure ended by polling.
void put_pscw_test(PutAll& p) {
    MPI_Group world, from, to;
    const int previous = p.check.previous();
    const int next = p.check.next();
    MPI_Comm_group(p.check.comm, &world);
    MPI_Group_incl(world, 1, &previous, &from);
    MPI_Group_incl(world, 1, &next, &to);
    MPI_Win_post(from, 0, p.window.get());
    MPI_Win_start(to, 0, p.window.get());
    p.put(next);
    MPI_Win_complete(p.window.get());
    for (int done = 0; !done;) MPI_Win_test(p.window.get(), &done);
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    MPI_Group_free(&world);
    p.verify_part(previous);
}

/// The window's owner looks at it only under its own lock, which orders its loads after the puts.
void finish_passive(PutAll& p) {
    MPI_Barrier(p.check.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, p.check.rank, 0, p.window.get());
    p.verify_all();
    MPI_Win_unlock(p.check.rank, p.window.get());
}

void put_locked(PutAll& p, int lock) {
    for (int step = 0; step < p.check.size; ++step) {
        const int target = (p.check.rank + step) % p.check.size;
        MPI_Win_lock(lock, target, 0, p.window.get());
        p.put(target);
        MPI_Win_unlock(target, p.window.get());
    }
    finish_passive(p);
}

void put_lock_exclusive(PutAll& p) {
    put_locked(p, MPI_LOCK_EXCLUSIVE);
}
void put_lock_shared(PutAll& p) {
    put_locked(p, MPI_LOCK_SHARED);
}

void put_lock_all_flush(PutAll& p) {
    MPI_Win_lock_all(0, p.window.get());
    for (int target = 0; target < p.check.size; ++target) {
        p.put(target);
        MPI_Win_flush(target, p.window.get());
    }
    MPI_Barrier(p.check.comm);
    MPI_Win_sync(p.window.get());
    p.verify_all();
    MPI_Win_unlock_all(p.window.get());
}

/// After a local flush the origin's buffer may be changed without changing what arrives.
void put_flush_local(PutAll& p) {
    MPI_Win_lock_all(0, p.window.get());
    for (int target = 0; target < p.check.size; ++target) {
        p.put(target);
        if (target % 2) MPI_Win_flush_local(target, p.window.get());
        if (target % 2 == 0) MPI_Win_flush_local_all(p.window.get());
        std::memset(p.data.back().data(), 0, p.bytes);
    }
    MPI_Win_flush_all(p.window.get());
    MPI_Barrier(p.check.comm);
    MPI_Win_sync(p.window.get());
    p.verify_all();
    MPI_Win_unlock_all(p.window.get());
}

void rput(PutAll& p) {
    std::vector<MPI_Request> requests;
    MPI_Win_lock_all(0, p.window.get());
    for (int target = 0; target < p.check.size; ++target) {
        p.data.push_back(filled({p.check.rank, target, p.bytes, p.iteration}));
        requests.emplace_back();
        MPI_Rput(p.data.back().data(), static_cast<int>(p.bytes), MPI_BYTE, target,
                 p.window.at(target, part_of(p.check.rank)), static_cast<int>(p.bytes), MPI_BYTE,
                 p.window.get(), &requests.back());
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    for (auto& data : p.data) std::memset(data.data(), 0, data.size());
    MPI_Win_unlock_all(p.window.get());
    finish_passive(p);
}

void put_check(Check& check, Kind kind, Epoch epoch) {
    Window window(check, kind, kPartBytes * static_cast<std::size_t>(check.size));
    std::uint64_t iteration = 0;
    for (const std::size_t bytes : sizes_of(check)) {
        PutAll put{check, window, bytes, ++iteration};
        put.clear();
        epoch(put);
        MPI_Barrier(check.comm);
    }
}

/// Fills the own window with what the others will get.
void expose(Check& check, Window& window, std::size_t bytes) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check.rank, 0, window.get());
    fill(window.memory(), Message{check.rank, 0, bytes, 3});
    MPI_Win_unlock(check.rank, window.get());
    MPI_Barrier(check.comm);
}

enum class GetEpoch { kFence, kLock, kLockAll, kRequest };

void get_check(Check& check, Kind kind, GetEpoch epoch) {
    Window window(check, kind, kPartBytes);
    for (const std::size_t bytes : sizes_of(check)) {
        const int count = static_cast<int>(bytes);
        expose(check, window, bytes);
        std::vector<GuardedBuffer> buffers(static_cast<std::size_t>(check.size), GuardedBuffer(bytes));
        std::vector<MPI_Request> requests;
        if (epoch == GetEpoch::kFence) MPI_Win_fence(0, window.get());
        if (epoch == GetEpoch::kLockAll || epoch == GetEpoch::kRequest) MPI_Win_lock_all(0, window.get());
        for (int target = 0; target < check.size; ++target) {
            std::byte* in = buffers[static_cast<std::size_t>(target)].data();
            const MPI_Aint from = window.at(target, 0);
            if (epoch == GetEpoch::kLock) MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window.get());
            if (epoch == GetEpoch::kRequest) {
                requests.emplace_back();
                MPI_Rget(in, count, MPI_BYTE, target, from, count, MPI_BYTE, window.get(), &requests.back());
            } else {
                MPI_Get(in, count, MPI_BYTE, target, from, count, MPI_BYTE, window.get());
            }
            if (epoch == GetEpoch::kLock) MPI_Win_unlock(target, window.get());
        }
        if (epoch == GetEpoch::kFence) MPI_Win_fence(0, window.get());
        if (epoch == GetEpoch::kLockAll) MPI_Win_flush_all(window.get());
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
        for (int target = 0; target < check.size; ++target) {
            check.received(buffers[static_cast<std::size_t>(target)], {target, 0, bytes, 3}, bytes, "get");
        }
        if (epoch == GetEpoch::kLockAll || epoch == GetEpoch::kRequest) MPI_Win_unlock_all(window.get());
        MPI_Barrier(check.comm);
    }
}

/// Large transfers to and from the next rank, all ranks at once.
void large_put_and_get(Check& check, Kind kind) {
    const std::size_t count = check.quick ? 2 : 3;
    Window window(check, kind, 6 << 20);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t bytes = kLarge[i];
        const int length = static_cast<int>(bytes);
        const auto data = filled({check.rank, check.next(), bytes, i});
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check.next(), 0, window.get());
        MPI_Put(data.data(), length, MPI_BYTE, check.next(), window.at(check.next(), 0), length, MPI_BYTE,
                window.get());
        MPI_Win_unlock(check.next(), window.get());
        MPI_Barrier(check.comm);
        MPI_Win_lock(MPI_LOCK_SHARED, check.rank, 0, window.get());
        verify(check, window.memory(), {check.previous(), check.rank, bytes, i}, "large put");
        MPI_Win_unlock(check.rank, window.get());
        GuardedBuffer back(bytes);
        MPI_Win_lock(MPI_LOCK_SHARED, check.next(), 0, window.get());
        MPI_Get(back.data(), length, MPI_BYTE, check.next(), window.at(check.next(), 0), length, MPI_BYTE,
                window.get());
        MPI_Win_unlock(check.next(), window.get());
        check.received(back, {check.rank, check.next(), bytes, i}, bytes, "large get");
        MPI_Barrier(check.comm);
    }
}

/// Many small puts in one epoch, then one flush: more outstanding than any queue holds.
void many_puts_one_flush(Check& check, Kind kind) {
    const int count = check.quick ? 500 : 4000;
    using Value = std::int64_t;
    Window window(check, kind,
                  static_cast<std::size_t>(count) * static_cast<std::size_t>(check.size) * sizeof(Value));
    std::vector<Value> values(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = check.rank * 1000000 + i;
    MPI_Win_lock_all(0, window.get());
    for (int i = 0; i < count; ++i) {
        const int target = (check.rank + i) % check.size;
        const auto slot = static_cast<std::size_t>(check.rank * count + i) * sizeof(Value);
        MPI_Put(&values[static_cast<std::size_t>(i)], 1, MPI_INT64_T, target, window.at(target, slot), 1,
                MPI_INT64_T, window.get());
    }
    MPI_Win_flush_all(window.get());
    MPI_Barrier(check.comm);
    MPI_Win_sync(window.get());
    for (int source = 0; source < check.size; ++source) {
        for (int i = 0; i < count; ++i) {
            if ((source + i) % check.size != check.rank) continue;
            Value got;
            std::memcpy(&got, window.memory() + static_cast<std::size_t>(source * count + i) * sizeof(Value),
                        sizeof got);
            if (!check.equal(got, source * 1000000 + i, "small put")) return;
        }
    }
    MPI_Win_unlock_all(window.get());
}

/// Types with gaps at the origin and other gaps at the target.
void noncontiguous(Check& check, Kind kind) {
    MPI_Datatype sparse, blocks;
    MPI_Type_vector(600, 1, 2, MPI_INT, &sparse);
    MPI_Type_vector(200, 3, 5, MPI_INT, &blocks);
    MPI_Type_commit(&sparse);
    MPI_Type_commit(&blocks);
    Window window(check, kind, 1000 * sizeof(int));
    std::vector<int> out(1200), back(1200, -1);
    for (int i = 0; i < 1200; ++i) out[static_cast<std::size_t>(i)] = check.rank * 10000 + i;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check.rank, 0, window.get());
    std::memset(window.memory(), 0xff, window.bytes());
    MPI_Win_unlock(check.rank, window.get());
    MPI_Barrier(check.comm);
    MPI_Win_lock_all(0, window.get());
    MPI_Put(out.data(), 1, sparse, check.next(), window.at(check.next(), 0), 1, blocks, window.get());
    MPI_Win_flush(check.next(), window.get());
    MPI_Get(back.data(), 1, sparse, check.next(), window.at(check.next(), 0), 1, blocks, window.get());
    MPI_Win_flush(check.next(), window.get());
    MPI_Barrier(check.comm);
    MPI_Win_sync(window.get());
    std::vector<int> got(1000);
    std::memcpy(got.data(), window.memory(), 1000 * sizeof(int));
    for (int i = 0; i < 1000; ++i) {
        const int element = i / 5 * 3 + i % 5;
        check.equal(got[static_cast<std::size_t>(i)], i % 5 < 3 ? check.previous() * 10000 + 2 * element : -1,
                    "put");
    }
    for (std::size_t i = 0; i < 1199; ++i) check.equal(back[i], i % 2 ? -1 : out[i], "get");
    MPI_Win_unlock_all(window.get());
    MPI_Type_free(&sparse);
    MPI_Type_free(&blocks);
}

/// Windows come and go, several alive at once.
void many_windows(Check& check, Kind kind) {
    const int rounds = check.quick ? 2 : 5;
    for (int round = 0; round < rounds; ++round) {
        Window first(check, kind, 64);
        Window second(check, kind, 64);
        const std::int64_t mine = check.rank * 100 + round;
        for (Window* window : {&first, &second}) {
            const std::int64_t value = window == &first ? mine : -mine - 1;
            MPI_Win_fence(0, window->get());
            MPI_Put(&value, 1, MPI_INT64_T, check.next(), window->at(check.next(), 8), 1, MPI_INT64_T,
                    window->get());
            MPI_Win_fence(0, window->get());
            std::int64_t got;
            std::memcpy(&got, window->memory() + 8, sizeof got);
            const std::int64_t theirs = check.previous() * 100 + round;
            check.equal(got, window == &first ? theirs : -theirs - 1, "value");
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        struct Put {
            const char* name;
            Epoch epoch;
        };
        constexpr Put kPuts[] = {
            {"put_fence", put_fence},
            {"put_pscw", put_pscw},
            {"put_pscw_test", put_pscw_test},
            {"put_lock_exclusive", put_lock_exclusive},
            {"put_lock_shared", put_lock_shared},
            {"put_lock_all_flush", put_lock_all_flush},
            {"put_flush_local", put_flush_local},
            {"rput", rput},
        };
        for (const auto& [kind, kind_name] : mpi_test::kKinds) {
            const std::string suffix = std::string("_") + kind_name;
            const auto check = [&](const char* name, const std::function<void(Check&)>& body) {
                suite.check(name + suffix, body);
            };
            const Kind k = kind;
            for (const Put& put : kPuts) check(put.name, [&](Check& c) { put_check(c, k, put.epoch); });
            check("get_fence", [&](Check& c) { get_check(c, k, GetEpoch::kFence); });
            check("get_lock_shared", [&](Check& c) { get_check(c, k, GetEpoch::kLock); });
            check("get_lock_all_flush", [&](Check& c) { get_check(c, k, GetEpoch::kLockAll); });
            check("rget", [&](Check& c) { get_check(c, k, GetEpoch::kRequest); });
            check("large_put_and_get", [&](Check& c) { large_put_and_get(c, k); });
            check("many_puts_one_flush", [&](Check& c) { many_puts_one_flush(c, k); });
            check("noncontiguous", [&](Check& c) { noncontiguous(c, k); });
            check("many_windows", [&](Check& c) { many_windows(c, k); });
        }
    });
}
