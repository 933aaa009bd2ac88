// Messages that come before their receives: order and contents whatever memory there is for them, and records
// and data never above their budgets. Under the MTL the counters are asserted; over ob1 there is no budget,
// and contents are.
#include <algorithm>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::fill;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr useconds_t kComputingUs = 200000;

/// A number that velo tells as MPI_T has it; -1: it tells none.
long long number_of(const std::string& name, bool parameter) {
    int index = 0;
    int count = 0;
    if (parameter) {
        // A number of bytes is a text, as the user wrote it; the runs of this program give plain numbers.
        MPI_T_cvar_handle handle;
        if (MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS) return -1;
        MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count);
        std::vector<char> text(static_cast<size_t>(count) + 1);
        MPI_T_cvar_read(handle, text.data());
        MPI_T_cvar_handle_free(&handle);
        return std::strtoll(text.data(), nullptr, 10);
    }
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    unsigned long long value = 0;
    if (MPI_T_pvar_get_index(name.c_str(), MPI_T_PVAR_CLASS_LEVEL, &index) != MPI_SUCCESS) return -1;
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_handle_alloc(session, index, nullptr, &handle, &count);
    MPI_T_pvar_read(session, handle, &value);
    MPI_T_pvar_handle_free(session, &handle);
    MPI_T_pvar_session_free(&session);
    return static_cast<long long>(value);
}

void within_budget(Check& check, const char* level, const char* budget) {
    const long long used = number_of(std::string("btl_velo_") + level, false);
    const long long limit = number_of(std::string("btl_velo_") + budget, true);
    if (used > limit) check.fail("%s is %lld, above %s, %lld", level, used, budget, limit);
}
void within_budgets(Check& check) {
    within_budget(check, "match_records_hwm", "unexpected_records");
    within_budget(check, "match_data_hwm", "unexpected_bytes");
}

/// All ranks but the first send their messages at once; the first one computes, and takes them by the last
/// tag first (MEM 5.1).
void reverse(Check& check, size_t bytes, int messages) {
    const auto count = static_cast<size_t>(messages);
    if (check.rank != 0) {
        std::vector<std::vector<std::byte>> data(count, std::vector<std::byte>(bytes));
        std::vector<MPI_Request> requests(count);
        for (size_t i = 0; i < count; ++i) {
            fill(data[i].data(), Message{check.rank, 0, bytes, i});
            MPI_Isend(data[i].data(), static_cast<int>(bytes), MPI_BYTE, 0, static_cast<int>(i), check.comm,
                      &requests[i]);
        }
        MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
        return;
    }
    usleep(kComputingUs);
    GuardedBuffer data(bytes);
    for (int tag = messages - 1; tag >= 0; --tag) {
        for (int from = 1; from < check.size; ++from) {
            data.poison();
            MPI_Status status;
            MPI_Recv(data.data(), static_cast<int>(bytes), MPI_BYTE, from, tag, check.comm, &status);
            check.status(status, from, tag, bytes);
            check.received(data, {from, 0, bytes, static_cast<std::uint64_t>(tag)});
        }
    }
    within_budgets(check);
}

/// Each rank sends to each rank before it receives, with one tag: the order is that of sending.
void all_to_all(Check& check, size_t bytes, int messages) {
    const auto count = static_cast<size_t>(messages);
    const auto ranks = static_cast<size_t>(check.size);
    std::vector<std::vector<std::byte>> data(count * ranks, std::vector<std::byte>(bytes));
    std::vector<MPI_Request> requests(count * ranks);
    for (size_t i = 0; i < data.size(); ++i) {
        const int to = static_cast<int>(i % ranks);
        fill(data[i].data(), Message{check.rank, to, bytes, i / ranks});
        MPI_Isend(data[i].data(), static_cast<int>(bytes), MPI_BYTE, to, 7, check.comm, &requests[i]);
    }
    GuardedBuffer received(bytes);
    std::vector<size_t> next(ranks);
    for (size_t i = 0; i < data.size(); ++i) {
        received.poison();
        MPI_Status status;
        MPI_Recv(received.data(), static_cast<int>(bytes), MPI_BYTE, MPI_ANY_SOURCE, 7, check.comm, &status);
        const auto from = static_cast<size_t>(status.MPI_SOURCE);
        check.received(received, {status.MPI_SOURCE, check.rank, bytes, next[from]});
        ++next[from];
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    within_budgets(check);
}

/// Each message has a tag of its own, and each tag is asked for in turn until its message is there.
void asked_for_in_turn(Check& check, size_t bytes, int messages) {
    const auto count = static_cast<size_t>(messages);
    std::vector<std::vector<std::byte>> data(count, std::vector<std::byte>(bytes));
    std::vector<MPI_Request> requests(count);
    for (size_t i = 0; i < count; ++i) {
        fill(data[i].data(), Message{check.rank, check.next(), bytes, i});
        MPI_Isend(data[i].data(), static_cast<int>(bytes), MPI_BYTE, check.next(), static_cast<int>(i),
                  check.comm, &requests[i]);
    }
    std::vector<bool> taken(count);
    GuardedBuffer received(bytes);
    for (size_t left = count; left != 0;) {
        for (size_t tag = count; tag-- > 0;) {
            int there = 0;
            MPI_Status status;
            if (taken[tag]) continue;
            MPI_Iprobe(check.previous(), static_cast<int>(tag), check.comm, &there, &status);
            if (!there) continue;
            received.poison();
            MPI_Recv(received.data(), static_cast<int>(bytes), MPI_BYTE, check.previous(),
                     static_cast<int>(tag), check.comm, &status);
            check.received(received, {check.previous(), check.rank, bytes, tag});
            taken[tag] = true;
            --left;
        }
    }
    MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
    within_budgets(check);
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        int provided = 0;
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        const int messages = suite.options().quick ? 200 : 2000;
        for (const size_t bytes : {size_t{0}, size_t{8}, size_t{1000}, size_t{20000}}) {
            const int some = bytes > 8 ? messages / 10 : messages;
            suite.check("reverse_" + std::to_string(bytes),
                        [&](Check& check) { reverse(check, bytes, some); });
            suite.check("all_to_all_" + std::to_string(bytes),
                        [&](Check& check) { all_to_all(check, bytes, some); });
        }
        for (const size_t bytes : {size_t{8}, size_t{20000}}) {
            suite.check("asked_for_in_turn_" + std::to_string(bytes),
                        [&](Check& check) { asked_for_in_turn(check, bytes, 100); });
        }
        suite.check("reverse_200000", [&](Check& check) { reverse(check, 200000, 20); });
        suite.check("all_to_all_200000", [&](Check& check) { all_to_all(check, 200000, 5); });
        MPI_T_finalize();
    });
}
