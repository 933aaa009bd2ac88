/// Gets on the node that both ends move together.
#include "tests/unit/job.h"
#include "velo/core/peer.h"
#include "velo/shm/on_node.h"

namespace velo::test {
namespace {

constexpr size_t kBytes = (3u << 20) + 77;

EngineAddress address_of(const Rank& rank) {
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    EngineAddress address;
    EXPECT_TRUE(address.parse(bytes.data(), velo_address(rank.engine, bytes.data(), bytes.size())));
    return address;
}

/// Two processes, and a get of kBytes by rank 0 from rank 1.
struct Fetching {
    explicit Fetching(const velo_params_t& params) : job(2, params), source(pattern(kBytes, 3)), target(kBytes) {
        EXPECT_EQ(velo_register(job[1].engine, source.data(), kBytes, 1, &handle), VELO_OK);
        get.kind = VELO_RMA_GET;
        get.local = target.data();
        get.remote = handle;
        get.remote_address = handle.base;
        get.bytes = kBytes;
    }
    void start() { velo_rma(job[0].engine, job[0].peers[1], &get); }

    Job job;
    std::vector<std::byte> source;
    std::vector<std::byte> target;
    velo_handle_t handle{};
    velo_rma_t get{};
};

/// By direct copies ("cma"), through the ring after so much was fetched that it is worth its pages ("ring"), or without
/// direct copies ("none").
class CoopCopyBlocks : public testing::TestWithParam<const char*>, protected Fetching {
  protected:
    CoopCopyBlocks() : Fetching(params()) {
        if (!through_ring()) return;
        // Its first trial has begun, and goes on.
        for (int i = 0; i < 100 && job[0].counters().rma_ring_bytes == 0; ++i) {
            job[0].done.clear();
            start();
            job.drive([&] { return !job[0].done.empty(); });
        }
        job[0].done.clear();
        std::fill(target.begin(), target.end(), std::byte{0});
        before_ = job[0].counters();
    }
    static velo_params_t params() {
        velo_params_t params = default_params();
        params.single_copy = direct() ? "cma" : "none";
        return params;
    }
    [[nodiscard]] static bool direct() { return std::string(GetParam()) != "none"; }
    [[nodiscard]] static bool through_ring() { return std::string(GetParam()) == "ring"; }
    /// Drives rank 0 alone.
    void drive_reader(int polls) {
        for (int i = 0; i < polls && job[0].done.empty(); ++i) velo_progress(job[0].engine);
    }
    void expect_done() {
        ASSERT_EQ(job[0].done.size(), 1u);
        EXPECT_EQ(job[0].done[0].second, VELO_OK);
        EXPECT_EQ(target, source);
        const velo_counters_t counters = job[0].counters();
        const uint64_t ring_bytes = counters.rma_ring_bytes - before_.rma_ring_bytes;
        EXPECT_EQ(counters.rma_get_bytes - before_.rma_get_bytes + ring_bytes + counters.rma_copied_bytes, kBytes);
        EXPECT_EQ(counters.rma_copied_bytes, direct() ? 0 : kBytes);
        if (!through_ring()) {
            EXPECT_EQ(ring_bytes, 0u);
        }
    }

    velo_counters_t before_{};
};

TEST_P(CoopCopyBlocks, both_ends_together_bring_every_byte_once) {
    start();
    job.drive([&] { return !job[0].done.empty(); });
    expect_done();
    if (through_ring()) {
        EXPECT_GT(job[0].counters().rma_ring_bytes, before_.rma_ring_bytes) << "the ring is tried first";
    }
}

TEST_P(CoopCopyBlocks, an_owner_that_computes_is_not_waited_for_where_direct_copies_work) {
    start();
    drive_reader(10000);
    EXPECT_EQ(job[0].done.size(), direct() ? 1u : 0u);
    job.drive([&] { return !job[0].done.empty(); });
    expect_done();
}

TEST_P(CoopCopyBlocks, an_owner_that_comes_late_touches_nothing) {
    start();
    drive_reader(10000);
    if (!direct()) job.drive([&] { return !job[0].done.empty(); });
    expect_done();
    std::fill(target.begin(), target.end(), std::byte{0});
    for (int i = 0; i < 1000; ++i) {
        velo_progress(job[1].engine);
        velo_progress(job[0].engine);
    }
    EXPECT_EQ(target, std::vector<std::byte>(kBytes));
    EXPECT_FALSE(velo_busy(job[1].engine));
    EXPECT_EQ(job[0].counters().engine_malformed, 0u);
}

TEST_P(CoopCopyBlocks, an_owner_that_comes_and_goes_is_no_trouble) {
    start();
    for (int round = 0; round < 100000 && job[0].done.empty(); ++round) {
        velo_progress(job[0].engine);
        if (round % 97 == 0) velo_progress(job[1].engine);
    }
    expect_done();
}

TEST_P(CoopCopyBlocks, many_blocks_at_once_share_the_slots) {
    constexpr size_t kGets = 100;
    constexpr size_t kPart = 30000;
    std::vector<velo_rma_t> gets(kGets, get);
    for (size_t i = 0; i < kGets; ++i) {
        gets[i].local = target.data() + i * kPart;
        gets[i].remote_address = handle.base + i * kPart;
        gets[i].bytes = kPart;
        velo_rma(job[0].engine, job[0].peers[1], &gets[i]);
    }
    job.drive([&] { return job[0].done.size() == kGets; });
    EXPECT_TRUE(std::equal(target.begin(), target.begin() + kGets * kPart, source.begin()));
}

TEST_P(CoopCopyBlocks, a_source_that_is_deregistered_under_way_ends_the_get_with_an_error) {
    start();
    velo_deregister(job[1].engine, &handle);
    job.drive([&] { return !job[0].done.empty(); });
    EXPECT_EQ(job[0].done[0].second, VELO_ATU_FAULT);
    EXPECT_FALSE(velo_busy(job[0].engine));
}

TEST_P(CoopCopyBlocks, a_slot_that_is_overwritten_ends_the_get_with_an_error) {
    const shm::OnNodeAddress address = address_of(job[0]).on_node;
    shm::OnNode other({.name = (uint64_t{77} << 32) + 7});
    shm::PeerIndex to = 0;
    ASSERT_EQ(other.connect(address, to), Status::kOk);
    const uint64_t words[] = {0, UINT64_MAX, 0x123456789abcdef0, uint64_t{0xffff} << 24};
    for (const uint64_t word : words) {
        job[0].done.clear();
        job[0].failures.clear();
        start();
        for (uint32_t slot = 0; slot < shm::kCoopBlocks; ++slot) other.coop_claims_of(to, slot).word = word;
        job.drive([&] { return !job[0].done.empty(); });
        EXPECT_EQ(job[0].done[0].second, VELO_PROTOCOL) << word;
        EXPECT_EQ(job[0].failures.size(), 1u);
        EXPECT_FALSE(velo_busy(job[0].engine));
    }
}

INSTANTIATE_TEST_SUITE_P(SingleCopy, CoopCopyBlocks, testing::Values("cma", "ring", "none"),
                         [](const auto& info) { return std::string(info.param); });

velo_params_t with_way(const char* way) {
    velo_params_t params = default_params();
    params.block_way = way;
    return params;
}

TEST(CoopCopy, a_way_that_the_user_fixed_is_the_only_one) {
    for (const char* way : {"ring", "nontemporal", "direct"}) {
        Fetching fetching(with_way(way));
        for (int i = 0; i < 100; ++i) {
            fetching.start();
            fetching.job.drive([&] { return !fetching.job[0].done.empty(); });
            ASSERT_EQ(fetching.job[0].done[0].second, VELO_OK);
            fetching.job[0].done.clear();
        }
        EXPECT_EQ(fetching.target, fetching.source) << way;
        const bool direct = std::string_view(way) == "direct";
        EXPECT_EQ(fetching.job[0].counters().rma_ring_bytes == 0, direct) << way;
        EXPECT_EQ(fetching.job[0].counters().copy_switches, 0u) << way;
    }
}

TEST(CoopCopy, an_owner_reads_nothing_that_was_deregistered_after_it_had_begun) {
    velo_params_t params = default_params();
    params.single_copy = "none";
    Fetching fetching(params);
    fetching.start();
    for (int i = 0; i < 100; ++i) velo_progress(fetching.job[1].engine);  // as much as the ring takes
    velo_deregister(fetching.job[1].engine, &fetching.handle);
    fetching.job.drive([&] { return !fetching.job[0].done.empty(); });
    EXPECT_EQ(fetching.job[0].done[0].second, VELO_ATU_FAULT);
    EXPECT_FALSE(velo_busy(fetching.job[1].engine));
}

TEST(CoopCopy, the_owner_says_how_long_its_direct_copies_took) {
    Fetching fetching(with_way("direct"));
    fetching.start();
    // The reader takes nothing meanwhile, so that all times are the owner's.
    for (int i = 0; i < 1000; ++i) velo_progress(fetching.job[1].engine);
    fetching.job.drive([&] { return !fetching.job[0].done.empty(); });
    EXPECT_EQ(fetching.target, fetching.source);
    int kinds = 0;
    ASSERT_NE(fetching.job[0].peers[1]->coop.choices, nullptr);
    fetching.job[0].peers[1]->coop.choices->for_each_measured([&](uint32_t, bool, bool, const rma::CopyChoice& choice) {
        ++kinds;
        EXPECT_GT(choice.ps_a_byte(rma::CoopMethod::kDirect), 0);
    });
    EXPECT_EQ(kinds, 1);
}

}  // namespace
}  // namespace velo::test
