// The choice of a rail for each operation, and the account of what rails do, alone: over a device of two rails that
// does what the test says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/rendezvous/rail_dispatch_impl.h"

namespace velo::rma {
namespace {

struct FakeDevice {
    std::array<Status, 2> says{};  ///< by rail
    std::vector<uint8_t> posted;   ///< rails

    Status post(const RmaOperation& operation) {
        if (says[operation.port] == Status::kOk) posted.push_back(operation.port);
        return says[operation.port];
    }
};

struct FakeCore : test::PlainCore {
    explicit FakeCore(uint32_t rails) {
        options.rails.rails = rails;
        options.rails.retry_ns = 1'000'000'000;
        options.identity.job = 5;
    }
    std::optional<FakeDevice> device{FakeDevice{}};
};

using Op = PendingOp<velo_peer>;
using State = TransferState<velo_peer>;

/// A number of rails, and operations on one peer.
struct World {
    explicit World(uint32_t rails) : core(rails) {
        peer.path = VELO_PATH_DEVICE;
        peer.rank = 9;
        peer.job = 5;
        op.bytes = 1 << 20;
        state.op = &op;
        state.peer = &peer;
        state.stage = State::Stage::kNone;
    }
    Status post(RailMask refused = 0) {
        RmaOperation operation = {.kind = RmaKind::kGet, .bytes = 1000};
        Op& chunk = chunks.emplace_back();
        chunk.kind = Op::Kind::kDeviceChunk;
        chunk.state = &state;
        chunk.bytes = 1000;
        state.rails = 0;  // each operation chooses
        const Status status = rails.post_chunk(state, chunk, operation, refused);
        if (status != Status::kOk) chunks.pop_back();
        return status;
    }
    Status post_atomic() {
        RmaOperation operation = {.kind = RmaKind::kFetchAdd, .bytes = 8};
        Op& atomic = chunks.emplace_back();
        atomic.state = &state;
        const Status status = rails.post_atomic(state, atomic, operation);
        if (status != Status::kOk) chunks.pop_back();
        return status;
    }
    /// The oldest operation ends.
    bool end(Status status, bool atomic = false) {
        const Op chunk = chunks.front();
        chunks.pop_front();
        return atomic ? rails.atomic_ended(chunk, status)
                      : rails.chunk_ended(chunk, RailDirection::kReceiving, status);
    }
    /// The rail fails as often as takes it out of use to the peer.
    void take_out(uint8_t rail) {
        core.device->says = {Status::kOk, Status::kOk};
        for (uint32_t failed = 0; failed < Rails::kPathFailuresMax;) {
            ASSERT_EQ(post(rail_bit(1 - rail)), Status::kOk);
            ASSERT_EQ(core.device->posted.back(), rail);
            EXPECT_TRUE(end(Status::kFailed));
            ++failed;
        }
    }

    FakeCore core;
    RailDispatch<FakeCore> rails{core};
    velo_peer peer;
    velo_rma_t op{};
    State state;
    std::deque<Op> chunks;
};

TEST(RailDispatchAlone, sole_rail_is_asked_without_a_choice) {
    World world(1);
    EXPECT_EQ(world.post(), Status::kOk);
    world.core.device->says[0] = Status::kAgain;
    EXPECT_EQ(world.post(), Status::kAgain);
    world.core.device->says[0] = Status::kUnsupported;
    EXPECT_EQ(world.post(), Status::kUnsupported);
    EXPECT_EQ(world.rails.rails().counters(0).chunks, 1u);
    EXPECT_FALSE(world.end(Status::kOk));
    EXPECT_EQ(world.rails.rails().counters(0).bytes, 1000u);
    EXPECT_TRUE(world.core.lines.empty());
}

TEST(RailDispatchAlone, full_rail_is_passed_over_and_only_two_full_ones_have_it_wait) {
    World world(2);
    world.core.device->says = {Status::kAgain, Status::kOk};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(world.post(), Status::kOk);
    EXPECT_EQ(world.core.device->posted, (std::vector<uint8_t>{1, 1, 1, 1}));
    for (const Op& chunk : world.chunks) EXPECT_EQ(chunk.rail, 1) << "the operation knows its rail";
    world.core.device->says[1] = Status::kAgain;
    EXPECT_EQ(world.post(), Status::kAgain);
    EXPECT_TRUE(world.core.lines.empty()) << "nothing has failed";
}

TEST(RailDispatchAlone, operations_go_where_the_fewest_bytes_are_under_way) {
    World world(2);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(world.post(), Status::kOk);
    EXPECT_EQ(std::ranges::count(world.core.device->posted, 0), 2);
    EXPECT_EQ(world.rails.rails().bytes_under_way(0), 2000u);
    for (int i = 0; i < 4; ++i) world.end(Status::kOk);
    EXPECT_EQ(world.rails.rails().bytes_under_way(0), 0u);
    EXPECT_EQ(world.rails.rails().bytes_under_way(1), 0u);
}

TEST(RailDispatchAlone, operation_that_every_rail_failed_goes_another_way_and_one_line_says_so) {
    World world(2);
    EXPECT_EQ(world.post(0b11), Status::kUnsupported);
    EXPECT_EQ(world.post(0b11), Status::kUnsupported);
    ASSERT_EQ(world.core.lines.size(), 1u);
    EXPECT_NE(world.core.lines[0].find("failed a transfer with rank 9, by all of its rails"),
              std::string::npos);
    EXPECT_TRUE(world.core.device->posted.empty());
}

TEST(RailDispatchAlone, rail_that_fails_is_out_until_a_trial_works) {
    World world(2);
    world.take_out(0);
    EXPECT_EQ(world.core.counters.rail_outages, 1u);
    ASSERT_EQ(world.core.lines.size(), 1u);
    EXPECT_EQ(world.core.lines[0].find("rail 0 to rank 9 fails"), 0u);
    world.core.device->posted.clear();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(world.post(), Status::kOk);
    EXPECT_EQ(world.core.device->posted, (std::vector<uint8_t>{1, 1, 1}));
    world.core.clock.ns += 2'000'000'000;
    EXPECT_EQ(world.post(), Status::kOk);
    EXPECT_EQ(world.core.device->posted.back(), 0) << "the trial";
    EXPECT_EQ(world.post(), Status::kOk);
    EXPECT_EQ(world.core.device->posted.back(), 1) << "one operation tries";
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(world.end(Status::kOk));
    EXPECT_EQ(world.core.counters.rail_returns, 1u);
    EXPECT_NE(world.core.lines.back().find("rail 0 to rank 9 works again"), std::string::npos);
}

/// A revoked key or unmapped memory says nothing of the rail.
TEST(RailDispatchAlone, outcomes_that_are_not_the_rails_are_no_failures_of_it) {
    World world(2);
    for (const Status status :
         {Status::kAtuFault, Status::kBadMemory, Status::kUnsupported, Status::kPeerDead}) {
        for (int i = 0; i < 5; ++i) {
            ASSERT_EQ(world.post(0b10), Status::kOk);
            EXPECT_FALSE(world.end(status));
        }
    }
    EXPECT_EQ(world.core.counters.rail_outages, 0u);
    EXPECT_EQ(world.rails.rails().counters(0).failed, 0u);
    EXPECT_EQ(world.rails.rails().counters(0).bytes, 0u) << "what failed moved nothing";
    ASSERT_EQ(world.post(0b10), Status::kOk);
    EXPECT_TRUE(world.end(Status::kNotBegun));
    EXPECT_EQ(world.rails.rails().counters(0).failed, 1u);
}

TEST(RailDispatchAlone, atomics_to_one_peer_stay_on_one_rail_while_any_is_under_way) {
    World world(2);
    EXPECT_EQ(world.post_atomic(), Status::kOk);
    const uint8_t rail = world.core.device->posted[0];
    for (int i = 0; i < 3; ++i) EXPECT_EQ(world.post(rail_bit(1 - rail)), Status::kOk);
    EXPECT_EQ(world.post_atomic(), Status::kOk);
    EXPECT_EQ(world.core.device->posted.back(), rail) << "although the other one is idle";
    EXPECT_EQ(world.peer.sources->rails.atomics, 2u);
    EXPECT_FALSE(world.end(Status::kOk, true));
    EXPECT_EQ(world.peer.sources->rails.atomics, 1u);
    // The rail goes out; the atomic under way keeps others from overtaking it.
    for (int i = 0; i < 3; ++i) world.end(Status::kFailed);
    EXPECT_EQ(world.post_atomic(), Status::kAgain);
    world.end(Status::kOk, true);
    EXPECT_EQ(world.peer.sources->rails.atomics, 0u);
}

TEST(RailDispatchAlone, lines_about_rails_end) {
    World world(2);
    for (int i = 0; i < 20; ++i) {
        world.take_out(0);
        world.core.clock.ns += uint64_t{1} << 40;
        ASSERT_EQ(world.post(0b10), Status::kOk);
        world.end(Status::kOk);
    }
    EXPECT_EQ(world.core.counters.rail_outages, 20u);
    ASSERT_EQ(world.core.lines.size(), 8u);
    EXPECT_NE(world.core.lines.back().find("no more lines about rails"), std::string::npos);
}

TEST(RailDispatchAlone, on_the_node_nothing_but_time_is_taken) {
    World world(2);
    world.peer.path = VELO_PATH_ON_NODE;
    EXPECT_EQ(world.rails.sources_of(world.peer).direct.bytes_mask, 0u);
    EXPECT_EQ(world.rails.sources_of(world.peer).copied.bytes_mask, 0u);
    velo_peer other;
    other.path = VELO_PATH_DEVICE;
    EXPECT_EQ(world.rails.sources_of(other).direct.bytes_mask, UINT32_MAX);
    EXPECT_EQ(&world.rails.sources_of(other), other.sources.get()) << "made once";
}

}  // namespace
}  // namespace velo::rma
