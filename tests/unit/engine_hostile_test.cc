/// Memory that a peer which asks without end, and reads no answer, makes an engine keep.
#include <span>

#include "tests/unit/job.h"
#include "velo/core/peer.h"
#include "velo/shm/on_node.h"
#include "velo/wire/engine_wire.h"

namespace velo::test {
namespace {

constexpr uint32_t kSlots = 4096;  ///< of an engine, for operations that wait
constexpr uint32_t kBytes = 256u << 10;

/// An engine with registered memory, and a peer that speaks to it below its own engine.
class EngineHostile : public testing::Test {
  protected:
    explicit EngineHostile(uint32_t ranks = 1, const velo_params_t& params = default_params())
        : job_(ranks, params), memory_(pattern(kBytes, 7)) {
        EXPECT_EQ(velo_register(job_[0].engine, memory_.data(), kBytes, 1, &handle_), VELO_OK);
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
        EngineAddress address;
        EXPECT_TRUE(address.parse(bytes.data(), velo_address(job_[0].engine, bytes.data(), bytes.size())));
        EXPECT_EQ(peer_.connect(address.on_node, to_), Status::kOk);
    }
    [[nodiscard]] EngineHeader header(Opcode opcode, uint64_t value) const {
        return {.opcode = opcode, .nla = handle_.nla[0], .key = handle_.on_node_key, .value = value};
    }
    /// The engine takes each message before the next one is sent.
    void send(const EngineHeader& header, std::span<const std::byte> body = {}) {
        Status status = Status::kOk;
        const auto bytes = static_cast<uint32_t>(sizeof header + body.size());
        std::byte* room = peer_.reserve_whole(to_, bytes, status);
        ASSERT_NE(room, nullptr) << to_string(status);
        std::memcpy(room, &header, sizeof header);
        if (!body.empty()) std::memcpy(room + sizeof header, body.data(), body.size());
        peer_.commit(to_, MessageClass::kEngine, 0, bytes, true);
        velo_progress(job_[0].engine);
    }
    /// Until no answer leaves any more.
    void fill_the_ring_to_the_peer() {
        for (int i = 0; i < 100'000 && job_[0].counters().pending_count == 0; ++i) {
            send(header(Opcode::kPull, kBytes));
        }
        ASSERT_NE(job_[0].counters().pending_count, 0u);
    }
    [[nodiscard]] uint64_t malformed() { return job_[0].counters().engine_malformed; }

    Job job_;
    std::vector<std::byte> memory_;
    velo_handle_t handle_{};
    shm::OnNode peer_{{.name = (uint64_t{77} << 32) + 9}};
    shm::PeerIndex to_ = 0;
};

TEST_F(EngineHostile, pulls_that_no_peer_can_have_are_refused) {
    fill_the_ring_to_the_peer();
    for (uint32_t i = 0; i < kSlots; ++i) send(header(Opcode::kPull, 1));
    const uint64_t before = malformed();
    for (uint32_t i = 0; i < 1000; ++i) send(header(Opcode::kPull, 1));
    EXPECT_EQ(malformed(), before + 1000);
}

TEST_F(EngineHostile, answers_that_no_peer_can_wait_for_are_dropped) {
    fill_the_ring_to_the_peer();
    for (uint32_t i = 0; i < 6 * kSlots; ++i) send(header(Opcode::kAtomic, 1));
    EXPECT_LE(job_[0].counters().pending_hwm, 2 * kSlots + 100);
    EXPECT_GE(malformed(), 3 * kSlots);
}

TEST_F(EngineHostile, a_slot_is_taken_up_once_while_its_block_is_moved) {
    fill_the_ring_to_the_peer();
    for (uint16_t round = 0; round < 3; ++round) {
        for (uint16_t slot = 0; slot < shm::kCoopBlocks; ++slot) {
            if (round == 0) base::ReaderBlock().open(peer_.coop_claims(slot), kBytes);
            EXPECT_EQ(malformed(), round == 0 ? 0 : (round - 1u) * shm::kCoopBlocks + slot);
            send(header(Opcode::kCoop, CoopCall{.bytes = kBytes, .generation = 1, .slot = slot}.pack()));
        }
    }
}

TEST_F(EngineHostile, parts_by_name_are_bounded) {
    fill_the_ring_to_the_peer();
    EngineHeader part = header(Opcode::kCoop, CoopCall{.bytes = 1000}.pack());
    part.last = 1;
    for (int i = 0; i < 1000; ++i) send(part);
    EXPECT_EQ(malformed(), 1000 - 4 * shm::kCoopBlocks);
}

/// Rank 0 waits for answers of rank 1, and the hostile peer knows how it names them.
class EngineForged : public EngineHostile, public testing::WithParamInterface<velo_rma_kind_t> {
  protected:
    EngineForged() : EngineHostile(2, params()) {}
    static velo_params_t params() {
        velo_params_t params = default_params();
        params.single_copy = "none";
        return params;
    }
};

class EngineForgedBlock : public EngineHostile {
  protected:
    EngineForgedBlock() : EngineHostile(2, params()) {}
    static velo_params_t params() {
        velo_params_t params = default_params();
        params.single_copy = "none";
        return params;
    }
};

TEST_P(EngineForged, an_answer_of_another_process_than_the_one_asked_ends_nothing) {
    alignas(8) std::array<std::byte, 64> theirs;
    alignas(8) std::array<std::byte, 64> local;
    theirs.fill(std::byte{3});
    local.fill(std::byte{5});
    velo_handle_t handle{};
    ASSERT_EQ(velo_register(job_[1].engine, theirs.data(), theirs.size(), 7, &handle), VELO_OK);
    velo_rma_t op{};
    op.kind = GetParam();
    op.atomic = VELO_ATOMIC_SWAP;
    op.width = 8;
    op.local = local.data();
    op.remote = handle;
    op.remote_address = handle.base;
    op.bytes = local.size();
    op.operand = 0x0505050505050505;
    velo_rma(job_[0].engine, job_[0].peers[1], &op);
    const uint64_t before = malformed();
    constexpr Cookie kFirstCookie{0};
    const std::array<std::byte, 64> forged{};
    send({.opcode = Opcode::kPullData, .cookie = kFirstCookie}, forged);
    for (const Status status : {Status::kOk, Status::kFailed}) {
        send({.opcode = Opcode::kDone, .status = static_cast<uint8_t>(status), .cookie = kFirstCookie});
    }
    EXPECT_EQ(malformed(), before + 3);
    EXPECT_TRUE(job_[0].done.empty());
    job_.drive([&] { return !job_[0].done.empty(); });
    EXPECT_EQ(job_[0].done[0].second, VELO_OK);
    const size_t bytes = GetParam() == VELO_RMA_ATOMIC ? 8 : 64;
    const bool fetched = GetParam() != VELO_RMA_PUT;
    for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(local[i], fetched ? std::byte{3} : std::byte{5});
        ASSERT_EQ(theirs[i], GetParam() == VELO_RMA_GET ? std::byte{3} : std::byte{5});
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EngineForged, testing::Values(VELO_RMA_GET, VELO_RMA_PUT, VELO_RMA_ATOMIC));

/// None of this is what an honest peer does, however late its calls are read.
TEST_F(EngineForgedBlock, data_of_another_process_than_the_owner_are_not_taken) {
    const auto theirs = pattern(kBytes, 4);
    std::vector<std::byte> local(kBytes);
    velo_handle_t handle{};
    ASSERT_EQ(velo_register(job_[1].engine, const_cast<std::byte*>(theirs.data()), kBytes, 1, &handle), VELO_OK);
    velo_rma_t get{};
    get.kind = VELO_RMA_GET;
    get.local = local.data();
    get.remote = handle;
    get.remote_address = handle.base;
    get.bytes = kBytes;
    velo_rma(job_[0].engine, job_[0].peers[1], &get);
    // The first operation of an engine has the cookie 0.
    const std::vector<std::byte> forged(1016, std::byte{0x5a});
    send({.opcode = Opcode::kCoopData, .value = 0}, forged);
    EXPECT_EQ(malformed(), 1u);
    EXPECT_EQ(local, std::vector<std::byte>(kBytes));
    job_.drive([&] { return !job_[0].done.empty(); });
    EXPECT_EQ(job_[0].done[0].second, VELO_OK);
    EXPECT_EQ(local, theirs);
}

TEST(EngineLate, an_owner_that_missed_many_blocks_refuses_none) {
    constexpr size_t kGets = 3000;
    Job job(2, default_params());
    auto memory = pattern(kBytes, 7);
    velo_handle_t handle{};
    ASSERT_EQ(velo_register(job[1].engine, memory.data(), kBytes, 1, &handle), VELO_OK);
    std::vector<std::byte> target(kBytes);
    std::vector<velo_rma_t> gets(kGets);
    for (velo_rma_t& get : gets) {
        get.kind = VELO_RMA_GET;
        get.local = target.data();
        get.remote = handle;
        get.remote_address = handle.base;
        get.bytes = 20'000;
        velo_rma(job[0].engine, job[0].peers[1], &get);
    }
    for (int i = 0; i < 1'000'000 && job[0].done.size() < kGets; ++i) velo_progress(job[0].engine);
    ASSERT_EQ(job[0].done.size(), kGets);
    job.drive([&] { return !velo_busy(job[0].engine); });
    for (int i = 0; i < 10'000; ++i) velo_progress(job[1].engine);
    for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(job[rank].counters().engine_malformed, 0u);
    EXPECT_FALSE(velo_busy(job[1].engine));
}

}  // namespace
}  // namespace velo::test
