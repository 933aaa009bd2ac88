/// Direct copies that the kernel refuses in mid-run.
#include <cerrno>
#include <functional>
#include <thread>

#include "tests/unit/job.h"
#include "tests/unit/own_copies.h"

namespace {

/// Called once in place of the next direct copy, which is then refused.
std::function<void()> meanwhile;
bool denied = false;  ///< all of them

}  // namespace

namespace velo::test {

ssize_t do_copy(const DirectCopy& copy) {
    if (!meanwhile && !denied) return copy.run();
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    errno = EPERM;
    return -1;
}

namespace {

/// More than the engine has slots for operations that wait.
constexpr size_t kAtomics = 5000;

/// Lines of all ranks on denied copies.
size_t lines_of_denial(Job& job) {
    size_t lines = 0;
    for (const auto& rank : job.ranks) {
        for (const std::string& line : rank->log) lines += line.find("direct copies") != std::string::npos;
    }
    return lines;
}

TEST(EngineDenial, is_told_of_by_one_rank_of_the_node_when_ranks_connect) {
    denied = true;
    Job job(5, default_params());
    denied = false;
    EXPECT_EQ(lines_of_denial(job), 1u);
    for (size_t rank = 0; rank < 5; ++rank) EXPECT_EQ(job[rank].counters().rma_fallbacks, 4u);
}

TEST(EngineDenial, names_the_call_that_was_refused_and_its_errno) {
    for (const velo_rma_kind_t kind : {VELO_RMA_GET, VELO_RMA_PUT}) {
        Job job(2, default_params());
        auto memory = pattern(8192, 4);
        velo_handle_t handle{};
        ASSERT_EQ(velo_register(job[1].engine, memory.data(), memory.size(), 7, &handle), VELO_OK);
        std::vector<std::byte> local(memory.size());
        velo_rma_t op{};
        op.kind = kind;
        op.local = local.data();
        op.remote = handle;
        op.remote_address = handle.base;
        op.bytes = memory.size();
        denied = true;
        velo_rma(job[0].engine, job[0].peers[1], &op);
        denied = false;
        job.drive([&] { return !job[0].done.empty(); });
        ASSERT_FALSE(job[0].log.empty());
        const std::string call = kind == VELO_RMA_GET ? "process_vm_readv" : "process_vm_writev";
        EXPECT_NE(job[0].log.back().find("(" + call + ": Operation not permitted)"), std::string::npos)
            << job[0].log.back();
    }
}

TEST(EngineDenial, in_mid_run_is_told_of_by_one_rank_of_the_node) {
    Job job(3, default_params());
    EXPECT_EQ(lines_of_denial(job), 0u);
    auto memory = pattern(8192, 4);
    for (size_t rank = 3; rank-- > 0;) {
        const size_t owner = (rank + 1) % 3;
        velo_handle_t handle{};
        ASSERT_EQ(velo_register(job[owner].engine, memory.data(), memory.size(), 7, &handle), VELO_OK);
        std::vector<std::byte> local(memory.size());
        velo_rma_t get{};
        get.kind = VELO_RMA_GET;
        get.local = local.data();
        get.remote = handle;
        get.remote_address = handle.base;
        get.bytes = memory.size();
        denied = true;
        velo_rma(job[rank].engine, job[rank].peers[owner], &get);
        denied = false;
        job.drive([&] { return !job[rank].done.empty(); });
        EXPECT_EQ(local, memory);
        EXPECT_EQ(job[rank].counters().rma_fallbacks, 1u);
    }
    EXPECT_EQ(lines_of_denial(job), 1u);
}

TEST(EngineDenial, of_atomics_by_the_device_makes_them_go_in_messages) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.faults = "rma_denied=1";
    Job job(2, params);
    alignas(8) uint64_t sum = 5;
    velo_handle_t handle{};
    ASSERT_EQ(velo_register(job[1].engine, &sum, sizeof sum, 7, &handle), VELO_OK);
    uint64_t before = 0;
    velo_rma_t add{};
    add.kind = VELO_RMA_ATOMIC;
    add.atomic = VELO_ATOMIC_ADD;
    add.width = 8;
    add.local = &before;
    add.remote = handle;
    add.remote_address = handle.base;
    add.operand = 4;
    velo_rma(job[0].engine, job[0].peers[1], &add);
    job.drive([&] { return !job[0].done.empty(); });
    EXPECT_EQ(job[0].done[0].second, VELO_OK);
    EXPECT_EQ(before, 5u);
    EXPECT_EQ(sum, 9u);
}

/// A device whose transfers all fail, or all from one on, or now and then.
class EngineFailingDevice : public testing::TestWithParam<const char*> {};

TEST_P(EngineFailingDevice, moves_everything_in_messages_and_says_so_once) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.chunk = 4096;
    params.faults = GetParam();
    Job job(2, params);
    for (const velo_rma_kind_t kind : {VELO_RMA_GET, VELO_RMA_PUT}) {
        auto theirs = pattern(300'000, 4);
        auto ours = pattern(theirs.size(), 5);
        const auto expected = kind == VELO_RMA_GET ? theirs : ours;
        velo_handle_t handle{};
        ASSERT_EQ(velo_register(job[1].engine, theirs.data(), theirs.size(), 7, &handle), VELO_OK);
        velo_rma_t op{};
        op.kind = kind;
        op.local = ours.data();
        op.remote = handle;
        op.remote_address = handle.base;
        op.bytes = ours.size();
        job[0].done.clear();
        velo_rma(job[0].engine, job[0].peers[1], &op);
        job.drive([&] { return !job[0].done.empty(); });
        EXPECT_EQ(job[0].done[0].second, VELO_OK);
        EXPECT_EQ(ours, expected);
        EXPECT_EQ(theirs, expected);
    }
    const velo_counters_t counters = job[0].counters();
    EXPECT_GT(counters.rma_repeated, 0u);
    EXPECT_EQ(counters.rma_failed, 0u);
    EXPECT_EQ(counters.rma_get_bytes + counters.rma_put_bytes + counters.rma_copied_bytes, 600'000u);
    EXPECT_EQ(job[0].log.size(), 1u);
    EXPECT_TRUE(job[0].failures.empty());
}

TEST(EngineFailedPort, is_not_asked_again_after_some_failures_in_a_row) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.chunk = 4096;
    params.faults = "port_down=0:3";
    Job job(2, params);
    auto theirs = pattern(1'000'000, 4);
    std::vector<std::byte> ours(theirs.size());
    velo_handle_t handle{};
    ASSERT_EQ(velo_register(job[1].engine, theirs.data(), theirs.size(), 7, &handle), VELO_OK);
    velo_rma_t get{};
    get.kind = VELO_RMA_GET;
    get.local = ours.data();
    get.remote = handle;
    get.remote_address = handle.base;
    get.bytes = ours.size();
    velo_rma(job[0].engine, job[0].peers[1], &get);
    job.drive([&] { return !job[0].done.empty(); });
    EXPECT_EQ(ours, theirs);
    EXPECT_EQ(job[0].counters().rma_get_bytes, 3u * 4096);
    EXPECT_LE(job[0].counters().rma_repeated, 16u + 8u) << "those under way, too";
}

INSTANTIATE_TEST_SUITE_P(Faults, EngineFailingDevice,
                         testing::Values("rma_fail=1", "port_down=0:0", "port_down=0:20",
                                         "seed=2,rma_fail=0.3"),
                         [](const auto& info) { return "f" + std::to_string(info.index); });

TEST(EngineFullDevice, makes_chunks_and_atomics_wait_and_copies_nothing) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.chunk = 4096;
    params.window_bytes = 256 * 4096;
    Job job(2, params);
    auto theirs = pattern(3'000'000, 4);
    std::vector<std::byte> ours(theirs.size());
    velo_handle_t handle{};
    ASSERT_EQ(velo_register(job[1].engine, theirs.data(), theirs.size(), 7, &handle), VELO_OK);
    alignas(8) uint64_t sum = 0;
    velo_handle_t counter{};
    ASSERT_EQ(velo_register(job[1].engine, &sum, sizeof sum, 7, &counter), VELO_OK);
    velo_rma_t get{};
    get.kind = VELO_RMA_GET;
    get.local = ours.data();
    get.remote = handle;
    get.remote_address = handle.base;
    get.bytes = ours.size();
    std::vector<velo_rma_t> adds(400);
    for (velo_rma_t& add : adds) {
        add.kind = VELO_RMA_ATOMIC;
        add.atomic = VELO_ATOMIC_ADD;
        add.width = 8;
        add.remote = counter;
        add.remote_address = counter.base;
        add.operand = 1;
        velo_rma(job[0].engine, job[0].peers[1], &add);
    }
    velo_rma(job[0].engine, job[0].peers[1], &get);
    job.drive([&] { return job[0].done.size() == adds.size() + 1; });
    for (const auto& [op, status] : job[0].done) ASSERT_EQ(status, VELO_OK);
    EXPECT_EQ(sum, adds.size());
    EXPECT_EQ(ours, theirs);
    EXPECT_GT(job[0].counters().rma_held, 0u);
    EXPECT_EQ(job[0].counters().rma_copied_bytes, 0u);
    EXPECT_EQ(job[1].counters().atomics_served, 0u) << "the device's own";
    EXPECT_FALSE(velo_busy(job[0].engine));
}

class EngineDenied : public testing::TestWithParam<velo_rma_kind_t> {};

TEST_P(EngineDenied, a_copy_that_is_refused_while_other_threads_take_all_slots_goes_in_messages) {
    velo_params_t params = default_params();
    params.threads = true;
    Job job(2, params);
    auto memory = pattern(8192, 4);
    velo_handle_t handle{};
    ASSERT_EQ(velo_register(job[1].engine, memory.data(), memory.size(), 7, &handle), VELO_OK);
    alignas(8) uint64_t sum = 0;
    velo_handle_t counter{};
    ASSERT_EQ(velo_register(job[1].engine, &sum, sizeof sum, 7, &counter), VELO_OK);

    auto local = pattern(memory.size(), 5);
    const auto expected = GetParam() == VELO_RMA_GET ? memory : local;
    velo_rma_t copied{};
    copied.kind = GetParam();
    copied.local = local.data();
    copied.remote = handle;
    copied.remote_address = handle.base;
    copied.bytes = memory.size();
    std::vector<velo_rma_t> atomics(kAtomics);
    meanwhile = [&] {
        std::thread([&] {
            for (velo_rma_t& op : atomics) {
                op.kind = VELO_RMA_ATOMIC;
                op.atomic = VELO_ATOMIC_ADD;
                op.width = 8;
                op.remote = counter;
                op.remote_address = counter.base;
                op.operand = 1;
                velo_rma(job[0].engine, job[0].peers[1], &op);
            }
        }).join();
    };
    velo_rma(job[0].engine, job[0].peers[1], &copied);
    EXPECT_FALSE(meanwhile);
    job.drive([&] { return job[0].done.size() == 1 + kAtomics; });
    for (const auto& [op, status] : job[0].done) ASSERT_EQ(status, VELO_OK);
    EXPECT_EQ(sum, kAtomics);
    EXPECT_EQ(memory, expected);
    EXPECT_EQ(local, expected);
    EXPECT_EQ(job[0].counters().rma_copied_bytes, memory.size());
    EXPECT_FALSE(velo_busy(job[0].engine));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EngineDenied, testing::Values(VELO_RMA_GET, VELO_RMA_PUT),
                         [](const auto& info) { return info.param == VELO_RMA_GET ? "get" : "put"; });

}  // namespace
}  // namespace velo::test
