// Cooperative copies alone, each end for itself: the other one is the test, which brings, claims and asks for whatever
// it likes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/rendezvous/coop_copy.h"

namespace velo::rma {
namespace {

struct FakeNode {
    struct Room {
        std::byte* first = nullptr;
        std::byte* rest = nullptr;
    };
    alignas(8) std::array<std::byte, base::AtuTable::bytes_for(4)> own_shared{};
    alignas(8) std::array<std::byte, base::AtuTable::bytes_for(4)> peer_shared{};
    base::AtuTable own{own_shared.data(), 4};
    base::AtuTable peers{peer_shared.data(), 4};
    std::array<base::ClaimWord, 4> claims{};
    std::array<base::ClaimWord, 4> peer_claims{};
    bool full = false;
    std::array<std::byte, shm::kInlineBytesMax> line{};
    std::array<std::byte, 65536> body{};
    std::vector<std::pair<CoopDataHeader, uint32_t>> pieces;  ///< that were sent by the ring, and their bytes

    [[nodiscard]] const base::AtuTable& atu() const { return own; }
    [[nodiscard]] const base::AtuView& atu_of(shm::PeerIndex /*peer*/) const { return peers.view(); }
    base::ClaimWord& coop_claims(uint32_t slot) { return claims[slot]; }
    base::ClaimWord& coop_claims_of(shm::PeerIndex /*peer*/, uint32_t slot) { return peer_claims[slot]; }
    [[nodiscard]] static int32_t pid(shm::PeerIndex /*peer*/) { return 7; }
    [[nodiscard]] static bool far(shm::PeerIndex /*peer*/) { return false; }
    static void measure_next(shm::PeerIndex /*peer*/) {}
    [[nodiscard]] static bool pays_for_pages(uint64_t /*bytes*/) { return false; }
    [[nodiscard]] static uint32_t message_bytes_max() { return 65536; }
    Room reserve(shm::PeerIndex /*to*/, uint32_t /*bytes*/, Status& /*status*/) {
        return full ? Room{} : Room{line.data(), body.data()};
    }
    void commit(shm::PeerIndex /*to*/, MessageClass /*of*/, uint8_t /*tag*/, uint32_t bytes) {
        auto& [header, length] = pieces.emplace_back();
        std::memcpy(&header, line.data(), sizeof header);
        length = bytes - static_cast<uint32_t>(sizeof header);
    }
};

struct FakeCore : test::PlainCore {
    static constexpr uint32_t kCoopBlocks = 4;
    static constexpr uint32_t kInlineBytesMax = shm::kInlineBytesMax;
    FakeNode on_node;
    struct {
        Status says = Status::kOk;
        Status copy_from(int32_t /*pid*/, std::byte* to, uint64_t from, size_t bytes) const {
            if (says == Status::kOk) std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
            return says;
        }
        Status copy_to(int32_t /*pid*/, const std::byte* from, uint64_t to, size_t bytes) const {
            if (says == Status::kOk) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
            return says;
        }
    } system;
};

}  // namespace
}  // namespace velo::rma

namespace velo {
template <>
class EngineMessages<rma::FakeCore> {
  public:
    void send_control(velo_peer& /*peer*/, const EngineHeader& header) { sent.push_back(header); }
    std::vector<EngineHeader> sent;
};
}  // namespace velo

namespace velo::rma {
namespace {

using Op = PendingOp<velo_peer>;
using State = TransferState<velo_peer>;

struct FakeTransfers : TransferOps {
    std::vector<std::pair<uint32_t, Status>> done;
    std::vector<uint64_t> refused;  ///< offsets
    int lost_memory = 0;
    int gave_up = 0;
    void chunk_done(State& /*state*/, uint32_t bytes, Status status) override {
        done.emplace_back(bytes, status);
    }
    void chunk_refused(State& /*state*/, uint64_t offset, uint32_t /*bytes*/) override {
        refused.push_back(offset);
    }
    void memory_refused(State& /*state*/, uint64_t /*offset*/, uint32_t /*bytes*/) override { ++lost_memory; }
    void give_up_direct(velo_peer& peer) override {
        ++gave_up;
        peer.direct = false;
    }
    bool find_remote(State& /*state*/) override { return false; }
    void admit(State& /*state*/) override { ADD_FAILURE(); }
    void open(State& /*state*/) override { ADD_FAILURE(); }
    void finished(velo_rma_t& /*op*/, Status /*status*/) override { ADD_FAILURE(); }
};

constexpr uint32_t kBytes = 64u << 10;
constexpr uint32_t kChunk = 32u << 10;  ///< as shared_block.h cuts it

class CoopAlone : public testing::Test {
  protected:
    CoopAlone() {
        coop_.reports_to(transfers_);
        for (velo_peer* peer : {&peer_, &other_}) {
            peer->path = VELO_PATH_ON_NODE;
            peer->direct = true;
        }
        std::ranges::fill(source_, std::byte{0x5a});
        EXPECT_EQ(core_.on_node.peers.add(source_.data(), kBytes, kAccessRead, remote_), Status::kOk);
        EXPECT_EQ(core_.on_node.own.add(source_.data(), kBytes, kAccessRead, own_), Status::kOk);
    }
    uint64_t malformed() { return std::exchange(core_.counters.engine_malformed, 0); }

    // The reader's side.

    /// A block of all the bytes. Gives what its owner is sent.
    EngineHeader begin() {
        velo_rma_t& op = ops_.emplace_back();
        op.kind = VELO_RMA_GET;
        op.local = local_.data();
        op.remote.base = op.remote_address = reinterpret_cast<uint64_t>(source_.data());
        op.remote.nla[0] = remote_.nla;
        op.remote.on_node_key = static_cast<uint32_t>(remote_.key);
        State& state = states_.emplace_back();
        state.op = &op;
        state.peer = &peer_;
        EXPECT_TRUE(coop_.begin(state, {.transfer = &state, .offset = 0, .bytes = kBytes}));
        return messages_.sent.back();
    }
    /// The owner claims its next chunk.
    base::BlockPart claim(const EngineHeader& call) {
        const CoopCall to = CoopCall::unpack(call.value);
        return base::SharedBlock(to.bytes, to.generation).claim_front(core_.on_node.claims[to.slot]);
    }
    void bring(const EngineHeader& call, uint64_t offset, uint32_t bytes, velo_peer* from = nullptr) {
        std::vector<std::byte> message(sizeof(CoopDataHeader) + bytes, std::byte{0x77});
        const EngineHeader header = {.opcode = Opcode::kCoopData, .cookie = call.cookie, .value = offset};
        coop_.on_data(from == nullptr ? peer_ : *from, header, message.data(),
                      static_cast<uint32_t>(message.size()));
    }
    void says_written(const EngineHeader& call, uint64_t offset, uint64_t bytes) {
        const EngineHeader header = {
            .opcode = Opcode::kCoopData, .cookie = call.cookie, .value = offset, .compare = bytes};
        coop_.on_data(peer_, header, reinterpret_cast<const std::byte*>(&header), sizeof header);
    }
    [[nodiscard]] bool untouched() const {
        return std::ranges::all_of(local_, [](std::byte one) { return one == std::byte{}; });
    }

    // The owner's side.

    [[nodiscard]] EngineHeader call(uint32_t bytes, uint16_t slot, bool named = false,
                                    uint16_t generation = 1) const {
        return {.opcode = Opcode::kCoop,
                .status = static_cast<uint8_t>(CoopMethod::kRing),
                .cookie = Cookie{9},
                .nla = own_.nla,
                .key = static_cast<uint32_t>(own_.key),
                .last = named,
                .value = CoopCall{bytes, generation, slot}.pack()};
    }
    /// The peer's word, as it opens a block.
    void open_at_peer(uint16_t slot, uint32_t bytes) {
        base::ReaderBlock reader;
        reader.open(core_.on_node.peer_claims[slot], bytes);  // generation 1
    }
    Status answered() {
        EXPECT_EQ(messages_.sent.size(), 1u);
        const EngineHeader answer = messages_.sent.empty() ? EngineHeader{} : messages_.sent.back();
        messages_.sent.clear();
        EXPECT_EQ(answer.opcode, Opcode::kDone);
        missing_ = answer.value;
        return static_cast<Status>(answer.status);
    }

    std::vector<std::byte> source_ = std::vector<std::byte>(kBytes);
    std::vector<std::byte> local_ = std::vector<std::byte>(kBytes + 64);
    Registration remote_, own_;
    FakeCore core_;
    CookieTable<Op> pending_{16};
    EngineMessages<FakeCore> messages_;
    FakeTransfers transfers_;
    CoopCopy<FakeCore> coop_{core_, pending_, messages_};
    velo_peer peer_, other_;
    uint64_t missing_ = 0;
    std::deque<velo_rma_t> ops_;
    std::deque<State> states_;
};

TEST_F(CoopAlone, data_that_cannot_be_the_blocks_is_malformed_and_written_nowhere) {
    const EngineHeader call = begin();
    claim(call);
    EngineHeader wrong = call;
    wrong.cookie = Cookie{static_cast<uint32_t>(call.cookie) + (1u << 16)};
    bring(wrong, 0, 64);
    bring(call, 0, 64, &other_);      // not the owner
    bring(call, 0, 0);                // nothing
    bring(call, kBytes, 1);           // behind the block
    bring(call, kBytes - 8, 16);      // over its end
    bring(call, UINT64_MAX - 4, 16);  // around
    bring(call, 0, kBytes + 1);
    says_written(call, 0, uint64_t{kBytes} + 1);
    says_written(call, 8, UINT64_MAX);
    Op& pull = *pending_.take();
    pull.kind = Op::Kind::kPullChunk;
    wrong.cookie = pull.cookie;
    bring(wrong, 0, 64);
    EXPECT_EQ(malformed(), 10u);
    EXPECT_TRUE(untouched());
    EXPECT_TRUE(transfers_.done.empty());
}

TEST_F(CoopAlone, message_shorter_than_the_header_of_data_brings_nothing) {
    const EngineHeader call = begin();
    const EngineHeader header = {.opcode = Opcode::kCoopData, .cookie = call.cookie};
    for (uint32_t bytes = sizeof header; bytes <= sizeof(CoopDataHeader); ++bytes)
        coop_.on_data(peer_, header, reinterpret_cast<const std::byte*>(&header), bytes);
    EXPECT_EQ(malformed(), sizeof(CoopDataHeader) - sizeof header + 1);
    EXPECT_TRUE(untouched());
}

TEST_F(CoopAlone, block_ends_once_when_both_ends_have_moved_it) {
    const EngineHeader call = begin();
    const base::BlockPart front = claim(call);
    ASSERT_EQ(front.bytes, kChunk);
    EXPECT_EQ(coop_.drive_blocks(), 1u) << "the reader takes the back";
    EXPECT_TRUE(transfers_.done.empty()) << "the front is under way";
    bring(call, front.offset, front.bytes);
    EXPECT_EQ(transfers_.done, (decltype(transfers_.done){{kBytes, Status::kOk}}));
    EXPECT_EQ(local_[0], std::byte{0x77});
    EXPECT_EQ(local_[kChunk], std::byte{0x5a});
    EXPECT_EQ(local_[kBytes], std::byte{});
    bring(call, front.offset, front.bytes);
    EXPECT_EQ(malformed(), 1u) << "its cookie names nothing any more";
    EXPECT_EQ(pending_.taken(), 0u);
    EXPECT_EQ(peer_.coop_blocks, 0u);
}

TEST_F(CoopAlone, owner_that_brings_what_it_has_not_claimed_breaks_the_protocol) {
    const EngineHeader call = begin();
    bring(call, 0, kBytes);
    ASSERT_EQ(transfers_.done.size(), 1u);
    EXPECT_EQ(transfers_.done[0].second, Status::kProtocol);
    EXPECT_EQ(malformed(), 1u);
}

TEST_F(CoopAlone, word_that_is_overwritten_ends_the_block_with_an_error) {
    const EngineHeader call = begin();
    core_.on_node.claims[CoopCall::unpack(call.value).slot].word = 0x123456789abcdef0;
    EXPECT_EQ(coop_.drive_blocks(), 0u);
    EXPECT_EQ(transfers_.done, (decltype(transfers_.done){{kBytes, Status::kProtocol}}));
    EXPECT_EQ(malformed(), 1u);
    EXPECT_FALSE(coop_.fetching());
}

TEST_F(CoopAlone, owner_that_gives_up_takes_what_it_claimed_with_it_and_no_more) {
    const EngineHeader call = begin();
    claim(call);
    coop_.owner_done(*pending_.find(call.cookie), Status::kAtuFault, UINT64_MAX);
    EXPECT_EQ(transfers_.refused, std::vector<uint64_t>{0}) << "its memory is looked for again";
    EXPECT_TRUE(transfers_.done.empty());
    EXPECT_FALSE(coop_.fetching());
}

TEST_F(CoopAlone, block_of_a_peer_that_failed_ends_with_it) {
    claim(begin());
    coop_.peer_failed(other_);
    EXPECT_TRUE(transfers_.done.empty());
    peer_.state = PeerState::kFailed;
    coop_.peer_failed(peer_);
    EXPECT_EQ(transfers_.done, (decltype(transfers_.done){{kBytes, Status::kPeerDead}}));
}

TEST_F(CoopAlone, memory_that_is_revoked_under_way_does_not_count) {
    begin();
    ASSERT_EQ(core_.on_node.peers.remove(remote_), Status::kOk);
    coop_.drive_blocks();
    EXPECT_EQ(transfers_.refused.size(), 1u);
    EXPECT_TRUE(transfers_.done.empty());
}

TEST_F(CoopAlone, copy_that_the_kernel_forbids_is_asked_of_the_owner_by_name) {
    const EngineHeader call = begin();
    core_.system.says = Status::kUnsupported;
    EXPECT_EQ(coop_.drive_blocks(), 1u);
    EXPECT_EQ(transfers_.gave_up, 1);
    const EngineHeader named = messages_.sent.back();
    EXPECT_EQ(named.opcode, Opcode::kCoop);
    EXPECT_EQ(named.last, 1);
    EXPECT_EQ(named.compare, kChunk) << "the part that this process had claimed";
    EXPECT_EQ(CoopCall::unpack(named.value).bytes, kChunk);
    EXPECT_EQ(named.cookie, call.cookie);
}

TEST_F(CoopAlone, when_all_blocks_are_in_use_a_chunk_goes_another_way) {
    for (uint32_t i = 0; i < FakeCore::kCoopBlocks; ++i) begin();
    State& state = states_.back();
    EXPECT_FALSE(coop_.begin(state, {.transfer = &state, .offset = 0, .bytes = kBytes}));
}

TEST_F(CoopAlone, calls_that_cannot_be_are_answered_by_a_fault_and_begin_nothing) {
    const auto fault = [&](const EngineHeader& header, velo_peer& from) {
        coop_.on_call(from, header);
        EXPECT_EQ(answered(), Status::kAtuFault);
    };
    velo_peer far;
    far.path = VELO_PATH_DEVICE;
    fault(call(kBytes, 0), far);
    fault(call(kBytes, FakeCore::kCoopBlocks), peer_);
    fault(call(kBytes, UINT16_MAX), peer_);
    fault(call(0, 0), peer_);
    fault(call(kBytes + 1, 0), peer_);
    fault(call(CoopCopy<FakeCore>::kBlockBytesMax + 1, 0), peer_);
    EngineHeader wrong = call(kBytes, 0);
    ++wrong.key;
    fault(wrong, peer_);
    wrong = call(kBytes, 0);
    wrong.nla += 1;
    fault(wrong, peer_);
    EXPECT_EQ(core_.counters.atu_faults, 8u);
    EXPECT_FALSE(coop_.assisting());
}

TEST_F(CoopAlone, owner_sends_what_it_claims_and_says_where_it_belongs) {
    open_at_peer(2, kBytes);
    EngineHeader header = call(kBytes, 2);
    header.status = 255;  // a way that is none
    coop_.on_call(peer_, header);
    EXPECT_TRUE(coop_.assisting());
    EXPECT_NE(coop_.drive_assists(), 0u);
    uint64_t next = 0;
    for (const auto& [piece, bytes] : core_.on_node.pieces) {
        EXPECT_EQ(piece.header.cookie, Cookie{9});
        EXPECT_EQ(piece.header.value, next);
        next += bytes;
    }
    EXPECT_EQ(next, kBytes);
    EXPECT_FALSE(coop_.assisting());
    EXPECT_TRUE(messages_.sent.empty());
}

TEST_F(CoopAlone, owner_that_comes_late_touches_nothing) {
    open_at_peer(2, kBytes);
    coop_.on_call(peer_, call(kBytes, 2, false, 8));  // another block's generation
    EXPECT_EQ(coop_.drive_assists(), 0u);
    EXPECT_TRUE(core_.on_node.pieces.empty());
    EXPECT_FALSE(coop_.assisting());
}

TEST_F(CoopAlone, part_whose_memory_is_revoked_is_given_back_and_not_read) {
    open_at_peer(2, kBytes);
    coop_.on_call(peer_, call(kBytes, 2));
    core_.on_node.full = true;
    coop_.drive_assists();  // claims a chunk
    ASSERT_EQ(core_.on_node.own.remove(own_), Status::kOk);
    core_.on_node.full = false;
    coop_.drive_assists();
    EXPECT_TRUE(core_.on_node.pieces.empty());
    EXPECT_EQ(answered(), Status::kAtuFault);
    EXPECT_EQ(missing_, kChunk) << "the reader does not wait for it";
    EXPECT_FALSE(coop_.assisting());
}

TEST_F(CoopAlone, second_call_for_a_slot_whose_part_is_under_way_is_refused) {
    open_at_peer(2, kBytes);
    coop_.on_call(peer_, call(kBytes, 2));
    core_.on_node.full = true;
    coop_.drive_assists();
    coop_.on_call(peer_, call(kBytes, 2));
    EXPECT_EQ(answered(), Status::kProtocol);
    EXPECT_EQ(malformed(), 1u);
    coop_.on_call(other_, call(kBytes, 2));
    EXPECT_TRUE(messages_.sent.empty()) << "that is another peer's slot";
}

TEST_F(CoopAlone, peer_cannot_ask_for_more_parts_by_name_than_it_can_have) {
    core_.on_node.full = true;
    constexpr uint32_t kMost = 4 * FakeCore::kCoopBlocks;
    for (uint32_t i = 0; i < kMost; ++i) coop_.on_call(peer_, call(64, 0, true));
    EXPECT_TRUE(messages_.sent.empty());
    coop_.on_call(peer_, call(64, 0, true));
    EXPECT_EQ(answered(), Status::kProtocol);
    EXPECT_EQ(malformed(), 1u);
    peer_.state = PeerState::kFailed;
    coop_.peer_failed(peer_);
    coop_.drive_assists();
    EXPECT_FALSE(coop_.assisting()) << "nothing is sent to the dead";
}

}  // namespace
}  // namespace velo::rma
