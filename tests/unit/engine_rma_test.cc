/// Transfers and atomics between engines, over every way a chunk can go.
#include "tests/unit/job.h"
#include "velo/wire/handle.h"

namespace velo::test {
namespace {

struct Way {
    const char* name;
    int ranks_per_node;
    const char* single_copy;
    int chunk;
    int window_bytes;
};

class EngineRma : public testing::TestWithParam<Way> {
  protected:
    velo_params_t params() const {
        velo_params_t params = default_params();
        params.ranks_per_node = GetParam().ranks_per_node;
        params.single_copy = GetParam().single_copy;
        params.chunk = GetParam().chunk;
        params.window_bytes = GetParam().window_bytes;
        return params;
    }
    bool copied() const { return std::string(GetParam().single_copy) == "none"; }
};

/// A transfer with guard bytes around its local end.
struct Transfer {
    static constexpr size_t kGuard = 64;
    velo_rma_t op{};
    std::vector<std::byte> buffer;

    Transfer(velo_rma_kind_t kind, size_t bytes, const velo_handle_t& remote, uint64_t address)
        : buffer(bytes + 2 * kGuard, std::byte{0xee}) {
        op.kind = kind;
        op.local = local();
        op.remote = remote;
        op.remote_address = address;
        op.bytes = bytes;
    }
    std::byte* local() { return buffer.data() + kGuard; }
    bool guards_intact() const {
        for (size_t i = 0; i < kGuard; ++i) {
            if (buffer[i] != std::byte{0xee} || buffer[buffer.size() - 1 - i] != std::byte{0xee})
                return false;
        }
        return true;
    }
};

velo_handle_t registered(Rank& rank, std::vector<std::byte>& memory, uint32_t access) {
    velo_handle_t handle = {};
    EXPECT_EQ(velo_register(rank.engine, memory.data(), memory.size(), access, &handle), VELO_OK);
    return handle;
}

TEST_P(EngineRma, get_brings_every_size_and_alignment) {
    Job job(2, params());
    auto source = pattern(3u << 20, 4);
    const velo_handle_t handle = registered(job[1], source, 1);
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{7}, size_t{63}, size_t{4095}, size_t{65537},
                         size_t{1} << 20, (size_t{2} << 20) + 13}) {
        for (size_t offset : {size_t{0}, size_t{3}, size_t{4096}}) {
            Transfer get(VELO_RMA_GET, bytes, handle, handle.base + offset);
            job[0].done.clear();
            velo_rma(job[0].engine, job[0].peers[1], &get.op);
            job.drive([&] { return job[0].done.size() == 1; });
            ASSERT_EQ(job[0].done[0].second, VELO_OK) << bytes;
            ASSERT_EQ(std::memcmp(get.local(), source.data() + offset, bytes), 0)
                << bytes << " at " << offset;
            ASSERT_TRUE(get.guards_intact());
        }
    }
    EXPECT_EQ(job[0].counters().rma_copied_bytes != 0, copied());
    EXPECT_EQ(job[0].counters().rma_get_bytes == 0, copied());
}

TEST_P(EngineRma, put_is_visible_at_the_target_when_it_is_done) {
    Job job(2, params());
    std::vector<std::byte> target(2u << 20);
    const velo_handle_t handle = registered(job[1], target, 2);
    for (size_t bytes : {size_t{1}, size_t{100}, size_t{70000}, (size_t{1} << 20) + 5}) {
        Transfer put(VELO_RMA_PUT, bytes, handle, handle.base + 7);
        const auto data = pattern(bytes, static_cast<uint32_t>(bytes));
        std::memcpy(put.local(), data.data(), bytes);
        std::fill(target.begin(), target.end(), std::byte{0x11});
        job[0].done.clear();
        velo_rma(job[0].engine, job[0].peers[1], &put.op);
        job.drive([&] { return job[0].done.size() == 1; });
        ASSERT_EQ(job[0].done[0].second, VELO_OK);
        ASSERT_EQ(std::memcmp(target.data() + 7, data.data(), bytes), 0);
        ASSERT_EQ(target[6], std::byte{0x11});
        ASSERT_EQ(target[7 + bytes], std::byte{0x11});
    }
}

TEST_P(EngineRma, many_transfers_at_once_all_end_and_share) {
    Job job(3, params());
    auto source = pattern(1u << 20, 8);
    const velo_handle_t one = registered(job[1], source, 1);
    const velo_handle_t two = registered(job[2], source, 1);
    std::vector<std::unique_ptr<Transfer>> gets;
    for (size_t i = 0; i < 60; ++i) {
        const velo_handle_t& from = i % 2 == 0 ? one : two;
        gets.push_back(std::make_unique<Transfer>(VELO_RMA_GET, 1000 * (i + 1), from, from.base + i));
        velo_rma(job[0].engine, job[0].peers[1 + i % 2], &gets.back()->op);
    }
    job.drive([&] { return job[0].done.size() == gets.size(); });
    for (size_t i = 0; i < gets.size(); ++i) {
        EXPECT_EQ(job[0].done[i].second, VELO_OK);
        EXPECT_EQ(std::memcmp(gets[i]->local(), source.data() + i, 1000 * (i + 1)), 0);
    }
}

TEST_P(EngineRma, access_outside_a_registration_moves_nothing_and_ends_in_an_error) {
    Job job(2, params());
    auto memory = pattern(8192, 2);
    auto written = pattern(8192, 3);
    const auto before = memory;
    const auto written_before = written;
    const velo_handle_t handle = registered(job[1], memory, 1);
    const velo_handle_t writable = registered(job[1], written, 2);
    struct Case {
        velo_rma_kind_t kind;
        velo_handle_t handle;
        uint64_t address;
        size_t bytes;
    };
    velo_handle_t forged_length = handle;
    forged_length.bytes = 1u << 30;
    forged_length.check = check_of(forged_length);
    velo_handle_t forged_base = handle;
    forged_base.base -= 4096;
    const Case cases[] = {{VELO_RMA_GET, handle, handle.base + 8000, 1000},
                          {VELO_RMA_GET, handle, handle.base - 1, 10},
                          {VELO_RMA_GET, handle, handle.base + 9000, 1},
                          {VELO_RMA_GET, forged_length, handle.base + 8000, 1000},
                          {VELO_RMA_GET, forged_base, handle.base - 100, 100},
                          {VELO_RMA_GET, writable, writable.base, 100},
                          {VELO_RMA_PUT, handle, handle.base, 100},
                          {VELO_RMA_PUT, writable, handle.base + 8190, 3}};
    for (const Case& bad : cases) {
        Transfer transfer(bad.kind, bad.bytes, bad.handle, bad.address);
        const auto local = transfer.buffer;
        job[0].done.clear();
        velo_rma(job[0].engine, job[0].peers[1], &transfer.op);
        job.drive([&] { return job[0].done.size() == 1; });
        EXPECT_EQ(job[0].done[0].second, VELO_ATU_FAULT);
        ASSERT_EQ(job[0].failures.size(), 1u) << "a host may not look at the status";
        const std::string kind = bad.kind == VELO_RMA_GET ? "rank 0: a get of " : "rank 0: a put of ";
        EXPECT_NE(job[0].failures[0].line.find(kind + std::to_string(bad.bytes) + " bytes"),
                  std::string::npos)
            << job[0].failures[0].line;
        EXPECT_NE(job[0].failures[0].line.find("rank 1, "), std::string::npos);
        EXPECT_NE(job[0].failures[0].line.find("outside registered memory"), std::string::npos);
        job[0].failures.clear();
        EXPECT_EQ(memory, before);
        EXPECT_EQ(written, written_before);
        EXPECT_EQ(transfer.buffer, local);
    }
}

TEST_P(EngineRma, a_revoked_registration_is_not_accessible) {
    Job job(2, params());
    auto memory = pattern(4096, 2);
    auto other = pattern(4096, 3);
    const velo_handle_t handle = registered(job[1], memory, 7);
    velo_deregister(job[1].engine, &handle);
    const velo_handle_t successor = registered(job[1], other, 7);
    EXPECT_EQ(successor.nla[0], handle.nla[0]);
    EXPECT_NE(successor.on_node_key, handle.on_node_key);
    Transfer get(VELO_RMA_GET, 16, handle, handle.base);
    velo_rma(job[0].engine, job[0].peers[1], &get.op);
    job.drive([&] { return job[0].done.size() == 1; });
    EXPECT_EQ(job[0].done[0].second, VELO_ATU_FAULT);
}

/// Handles for `wanted` that a host may hand over while their owner changes the table they lie in.
std::vector<velo_handle_t> useless_handles(Rank& owner, std::vector<std::byte>& wanted,
                                           std::vector<std::byte>& other) {
    const velo_handle_t revoked = registered(owner, wanted, 7);
    const velo_handle_t whole = registered(owner, wanted, 7);
    const velo_handle_t others = registered(owner, other, 7);
    velo_deregister(owner.engine, &revoked);
    velo_handle_t base_of_one = others;  // of equal lengths: it would name a place in `other`
    base_of_one.base = whole.base;
    velo_handle_t key_of_one = others;
    key_of_one.base = whole.base;
    key_of_one.on_node_key = whole.on_node_key;
    key_of_one.device_key = whole.device_key;
    velo_handle_t unchecked = whole;
    unchecked.check = 0;
    return {revoked, others, base_of_one, key_of_one, unchecked, velo_handle_t{}};
}

TEST_P(EngineRma, a_handle_of_no_use_gives_the_memory_that_holds_the_address) {
    Job job(2, params());
    for (const size_t bytes : {size_t{8}, size_t{3000}, size_t{200'000}}) {
        auto wanted = pattern(1u << 20, 4);
        auto other = pattern(1u << 20, 5);
        const auto other_before = other;
        const auto address = reinterpret_cast<uint64_t>(wanted.data()) + 64;
        for (const velo_handle_t& handle : useless_handles(job[1], wanted, other)) {
            const auto run = [&](velo_rma_t& op) {
                job[0].done.clear();
                velo_rma(job[0].engine, job[0].peers[1], &op);
                job.drive([&] { return job[0].done.size() == 1; });
                ASSERT_EQ(job[0].done[0].second, VELO_OK);
            };
            Transfer get(VELO_RMA_GET, bytes, handle, address);
            run(get.op);
            EXPECT_EQ(std::memcmp(get.local(), wanted.data() + 64, bytes), 0);
            EXPECT_TRUE(get.guards_intact());
            Transfer put(VELO_RMA_PUT, bytes, handle, address);
            run(put.op);
            EXPECT_EQ(std::memcmp(put.local(), wanted.data() + 64, bytes), 0);
            uint64_t before = 0;
            std::memcpy(&before, wanted.data() + 64, sizeof before);
            velo_rma_t add = {};
            uint64_t fetched = 0;
            add.kind = VELO_RMA_ATOMIC;
            add.atomic = VELO_ATOMIC_ADD;
            add.width = 8;
            add.local = &fetched;
            add.remote = handle;
            add.remote_address = address;
            add.operand = 7;
            run(add);
            EXPECT_EQ(fetched, before);
            std::memcpy(&fetched, wanted.data() + 64, sizeof fetched);
            EXPECT_EQ(fetched, before + 7);
        }
        EXPECT_EQ(other, other_before);
    }
    EXPECT_GT(job[0].counters().rma_finds, 0u);
    EXPECT_EQ(job[0].counters().rma_failed, 0u);
    EXPECT_FALSE(velo_busy(job[0].engine));
}

TEST_P(EngineRma, a_registration_that_is_revoked_under_way_is_replaced_by_another_of_the_same_memory) {
    Job job(2, params());
    auto source = pattern(3u << 20, 4);
    const velo_handle_t first = registered(job[1], source, 1);
    registered(job[1], source, 1);
    Transfer get(VELO_RMA_GET, source.size(), first, first.base);
    velo_rma(job[0].engine, job[0].peers[1], &get.op);
    for (int i = 0; i < 3; ++i) {
        for (auto& rank : job.ranks) velo_progress(rank->engine);
    }
    velo_deregister(job[1].engine, &first);
    job.drive([&] { return job[0].done.size() == 1; });
    EXPECT_EQ(job[0].done[0].second, VELO_OK);
    EXPECT_EQ(std::memcmp(get.local(), source.data(), source.size()), 0);
}

TEST_P(EngineRma, atomics_of_every_kind_and_width_return_the_old_value) {
    Job job(2, params());
    alignas(8) std::vector<std::byte> memory(64);
    const velo_handle_t handle = registered(job[1], memory, 7);
    struct Case {
        velo_atomic_t atomic;
        int64_t before, operand, compare, after;
    };
    const Case cases[] = {{VELO_ATOMIC_ADD, 5, 7, 0, 12},         {VELO_ATOMIC_ADD, 5, -6, 0, -1},
                          {VELO_ATOMIC_AND, 12, 10, 0, 8},        {VELO_ATOMIC_OR, 12, 3, 0, 15},
                          {VELO_ATOMIC_XOR, 12, 10, 0, 6},        {VELO_ATOMIC_SWAP, 1, 99, 0, 99},
                          {VELO_ATOMIC_MIN, -3, 2, 0, -3},        {VELO_ATOMIC_MIN, 4, -9, 0, -9},
                          {VELO_ATOMIC_MAX, -3, 2, 0, 2},         {VELO_ATOMIC_MAX, 4, -9, 0, 4},
                          {VELO_ATOMIC_COMPARE_SWAP, 4, 6, 4, 6}, {VELO_ATOMIC_COMPARE_SWAP, 4, 6, 5, 4},
                          {VELO_ATOMIC_LOGICAL_AND, 4, 3, 0, 1},  {VELO_ATOMIC_LOGICAL_AND, 4, 0, 0, 0},
                          {VELO_ATOMIC_LOGICAL_OR, 0, 3, 0, 1},   {VELO_ATOMIC_LOGICAL_XOR, 4, 3, 0, 0},
                          {VELO_ATOMIC_LOGICAL_XOR, 0, 3, 0, 1}};
    for (uint32_t width : {4u, 8u}) {
        for (const Case& test : cases) {
            int64_t result = 0x0101010101010101;
            std::memset(memory.data(), 0x55, memory.size());
            std::memcpy(memory.data() + 16, &test.before, width);
            velo_rma_t op = {};
            op.kind = VELO_RMA_ATOMIC;
            op.atomic = test.atomic;
            op.width = width;
            op.local = &result;
            op.remote = handle;
            op.remote_address = handle.base + 16;
            op.operand = static_cast<uint64_t>(test.operand);
            op.compare = static_cast<uint64_t>(test.compare);
            job[0].done.clear();
            velo_rma(job[0].engine, job[0].peers[1], &op);
            job.drive([&] { return job[0].done.size() == 1; });
            ASSERT_EQ(job[0].done[0].second, VELO_OK);
            EXPECT_EQ(std::memcmp(&result, &test.before, width), 0) << test.atomic << " width " << width;
            EXPECT_EQ(std::memcmp(memory.data() + 16, &test.after, width), 0)
                << test.atomic << " width " << width;
            EXPECT_EQ(memory[16 + width], std::byte{0x55});
        }
    }
}

TEST_P(EngineRma, misaligned_and_unauthorised_atomics_end_in_an_error) {
    Job job(2, params());
    std::vector<std::byte> memory(64);
    std::vector<std::byte> other(64);
    const velo_handle_t handle = registered(job[1], memory, 7);
    const velo_handle_t readable = registered(job[1], other, 3);
    for (const auto& [target, offset] : {std::pair{handle, 3u}, std::pair{readable, 8u}}) {
        velo_rma_t op = {};
        op.kind = VELO_RMA_ATOMIC;
        op.atomic = VELO_ATOMIC_ADD;
        op.width = 8;
        op.remote = target;
        op.remote_address = target.base + offset;
        op.operand = 1;
        job[0].done.clear();
        velo_rma(job[0].engine, job[0].peers[1], &op);
        job.drive([&] { return job[0].done.size() == 1; });
        EXPECT_NE(job[0].done[0].second, VELO_OK);
        EXPECT_EQ(memory, std::vector<std::byte>(64));
        EXPECT_EQ(other, std::vector<std::byte>(64));
    }
}

TEST_P(EngineRma, concurrent_additions_from_many_ranks_all_count) {
    Job job(4, params());
    alignas(8) std::vector<std::byte> memory(8);
    const velo_handle_t handle = registered(job[0], memory, 7);
    std::vector<velo_rma_t> ops(300);
    for (size_t i = 0; i < ops.size(); ++i) {
        ops[i].kind = VELO_RMA_ATOMIC;
        ops[i].atomic = VELO_ATOMIC_ADD;
        ops[i].width = 8;
        ops[i].remote = handle;
        ops[i].remote_address = handle.base;
        ops[i].operand = i;
        const size_t rank = 1 + i % 3;
        velo_rma(job[rank].engine, job[rank].peers[0], &ops[i]);
    }
    job.drive([&] { return job[1].done.size() + job[2].done.size() + job[3].done.size() == ops.size(); });
    uint64_t sum = 0;
    std::memcpy(&sum, memory.data(), sizeof sum);
    EXPECT_EQ(sum, ops.size() * (ops.size() - 1) / 2);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineRma,
                         testing::Values(Way{"on_node_direct", 0, "cma", 262144, 0},
                                         Way{"on_node_copied", 0, "none", 262144, 0},
                                         Way{"on_node_copied_small_chunks", 0, "none", 4096, 4096},
                                         Way{"device_direct", 1, "cma", 262144, 0},
                                         Way{"device_direct_one_small_chunk", 1, "cma", 4096, 4096},
                                         Way{"device_direct_many_chunks", 1, "cma", 16384, 64 * 16384},
                                         Way{"device_copied", 1, "none", 65536, 4 * 65536}),
                         [](const auto& info) { return info.param.name; });

TEST(EngineWindow, what_is_under_way_stays_within_it_and_is_seen) {
    constexpr int kChunk = 16384;
    for (const uint32_t chunks : {3u, 20u}) {
        velo_params_t params = default_params();
        params.ranks_per_node = 1;
        params.chunk = kChunk;
        params.window_bytes = static_cast<int>(chunks) * kChunk;
        Job job(2, params);
        auto source = pattern(40 * kChunk, 4);
        const velo_handle_t handle = registered(job[1], source, 1);
        Transfer get(VELO_RMA_GET, source.size(), handle, handle.base);
        velo_rma(job[0].engine, job[0].peers[1], &get.op);
        job.drive([&] { return job[0].done.size() == 1; });
        ASSERT_EQ(std::memcmp(get.local(), source.data(), source.size()), 0);
        const velo_counters_t counters = job[0].counters();
        EXPECT_EQ(counters.rma_chunks_hwm, chunks);
        EXPECT_EQ(counters.rma_bytes_hwm, chunks * kChunk);
        EXPECT_EQ(counters.rma_window_bytes, chunks * kChunk);
        EXPECT_EQ(counters.rma_chunks, 40u);
    }
}

TEST(EngineWindow, no_more_is_under_way_than_an_emulated_network_holds) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.emulate = "link=1000,buffer=64k";
    Job job(2, params);
    auto source = pattern(1 << 20, 4);
    const velo_handle_t handle = registered(job[1], source, 1);
    Transfer get(VELO_RMA_GET, source.size(), handle, handle.base);
    velo_rma(job[0].engine, job[0].peers[1], &get.op);
    job.drive([&] { return job[0].done.size() == 1; });
    ASSERT_EQ(std::memcmp(get.local(), source.data(), source.size()), 0);
    const velo_counters_t counters = job[0].counters();
    EXPECT_EQ(counters.rma_window_bytes, 65536u);
    EXPECT_EQ(counters.rma_bytes_hwm, 65536u);
    EXPECT_EQ(counters.rma_chunks, 128u);
}

TEST(EngineRegistrations, a_full_table_refuses_and_recovers) {
    velo_params_t params = default_params();
    params.registrations = 16;
    Job job(2, params);
    std::vector<std::byte> memory(64);
    std::vector<velo_handle_t> handles(17);
    for (int i = 0; i < 16; ++i) {
        ASSERT_EQ(velo_register(job[0].engine, memory.data(), 64, 1, &handles[i]), VELO_OK);
    }
    EXPECT_EQ(velo_register(job[0].engine, memory.data(), 64, 1, &handles[16]), VELO_NO_RESOURCE);
    EXPECT_EQ(job[0].counters().registrations_refused, 1u);
    velo_deregister(job[0].engine, &handles[3]);
    EXPECT_EQ(velo_register(job[0].engine, memory.data(), 64, 1, &handles[16]), VELO_OK);
}

}  // namespace
}  // namespace velo::test
