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
    [[nodiscard]] PullHeader pull(uint64_t bytes) const {
        return {.nla = handle_.nla[0], .bytes = bytes, .key = handle_.on_node_key};
    }
    /// The engine takes each message before the next one is sent.
    void send_bytes(std::span<const std::byte> message) {
        Status status = Status::kOk;
        const auto bytes = static_cast<uint32_t>(message.size());
        std::byte* room = peer_.reserve_whole(to_, bytes, status);
        ASSERT_NE(room, nullptr) << to_string(status);
        std::copy(message.begin(), message.end(), room);
        peer_.commit(to_, MessageClass::kEngine, 0, bytes, true);
        velo_progress(job_[0].engine);
    }
    template <class Header>
    void send(const Header& header, std::span<const std::byte> body = {}) {
        std::vector<std::byte> message(sizeof header);
        write_header(message.data(), header);
        message.insert(message.end(), body.begin(), body.end());
        send_bytes(message);
    }
    /// Until no answer leaves any more.
    void fill_the_ring_to_the_peer() {
        for (int i = 0; i < 100'000 && job_[0].counters().pending_count == 0; ++i) {
            send(pull(kBytes));
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
    for (uint32_t i = 0; i < kSlots; ++i) send(pull(1));
    const uint64_t before = malformed();
    for (uint32_t i = 0; i < 1000; ++i) send(pull(1));
    EXPECT_EQ(malformed(), before + 1000);
}

TEST_F(EngineHostile, answers_that_no_peer_can_wait_for_are_dropped) {
    fill_the_ring_to_the_peer();
    for (uint32_t i = 0; i < 6 * kSlots; ++i) send(AtomicHeader{});
    EXPECT_LE(job_[0].counters().pending_hwm, 2 * kSlots + 100);
    EXPECT_GE(malformed(), 3 * kSlots);
}

TEST_F(EngineHostile, a_slot_is_taken_up_once_while_its_block_is_moved) {
    fill_the_ring_to_the_peer();
    for (uint16_t round = 0; round < 3; ++round) {
        for (uint16_t slot = 0; slot < shm::kCoopBlocks; ++slot) {
            if (round == 0) base::ReaderBlock().open(peer_.coop_claims(slot), kBytes);
            EXPECT_EQ(malformed(), round == 0 ? 0 : (round - 1u) * shm::kCoopBlocks + slot);
            send(CoopCallHeader{.slot = slot,
                                .nla = handle_.nla[0],
                                .key = handle_.on_node_key,
                                .bytes = kBytes,
                                .generation = 1});
        }
    }
}

TEST_F(EngineHostile, parts_by_name_are_bounded) {
    fill_the_ring_to_the_peer();
    const CoopPartHeader part = {.nla = handle_.nla[0], .key = handle_.on_node_key, .bytes = 1000};
    for (int i = 0; i < 1000; ++i) send(part);
    EXPECT_EQ(malformed(), 1000 - 4 * shm::kCoopBlocks);
}

/// Each kind of message with a length that it cannot have, or a field that says what cannot be.
TEST_F(EngineHostile, messages_that_cannot_be_are_counted_and_do_nothing) {
    uint64_t expected = 0;
    const auto refused = [&](const auto& header, size_t body = 0) {
        const std::vector<std::byte> data(body);
        send(header, data);
        EXPECT_EQ(malformed(), ++expected) << "opcode " << static_cast<int>(header.opcode) << ", body " << body;
    };
    const auto of_another_length = [&](const auto& header, bool has_data) {
        std::vector<std::byte> message(sizeof header);
        write_header(message.data(), header);
        send_bytes(std::span(message).first(message.size() - 1));
        EXPECT_EQ(malformed(), ++expected) << "opcode " << static_cast<int>(header.opcode);
        refused(header, has_data ? 0 : 1);
    };
    const uint64_t nla = handle_.nla[0];
    const uint32_t key = handle_.on_node_key;
    of_another_length(pull(8), false);
    of_another_length(PullDataHeader{}, true);
    of_another_length(PutDataHeader{.nla = nla, .key = key}, true);
    of_another_length(AtomicHeader{.width = 8, .nla = nla, .key = key}, false);
    of_another_length(DoneHeader{}, false);
    of_another_length(CoopCallHeader{.nla = nla, .key = key, .bytes = 64}, false);
    of_another_length(CoopPartHeader{.nla = nla, .key = key, .bytes = 64}, false);
    of_another_length(CoopDataHeader{}, true);
    of_another_length(CoopWrittenHeader{.bytes = 64}, false);
    of_another_length(RailHeader{.kind = rma::RailMessageKind::kRts}, false);
    PullHeader guarded = pull(8);
    guarded.guarded = 2;
    refused(guarded);
    refused(PutDataHeader{.guarded = 2, .nla = nla, .key = key}, 8);
    refused(PutDataHeader{.last = 2, .nla = nla, .key = key}, 8);
    refused(DoneHeader{.status = static_cast<Status>(200)});
    refused(CoopCallHeader{.method = CoopMethod{kCoopMethods}, .nla = nla, .key = key, .bytes = 64});
    refused(CoopPartHeader{.method = CoopMethod::kDirect, .nla = nla, .key = key, .bytes = 64});
    refused(CoopWrittenHeader{});
    refused(RailHeader{.kind = rma::RailMessageKind{6}});
    refused(RailHeader{.status = static_cast<Status>(200)});
    refused(RailHeader{.sends = 2});
    refused(OperationHead{});
    refused(OperationHead{.opcode = static_cast<Opcode>(11)});
    EXPECT_EQ(job_[0].counters().atu_faults, 0u) << "none of them was looked up";
    EXPECT_EQ(job_[0].counters().pending_count, 0u);
    EXPECT_EQ(memory_, pattern(kBytes, 7));
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
    send(PullDataHeader{.cookie = kFirstCookie}, forged);
    for (const Status status : {Status::kOk, Status::kFailed})
        send(DoneHeader{.status = status, .cookie = kFirstCookie});
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
    send(CoopDataHeader{}, forged);
    send(CoopWrittenHeader{.bytes = kBytes});
    EXPECT_EQ(malformed(), 2u);
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
