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
#include "velo/rendezvous/coop_owner_impl.h"
#include "velo/rendezvous/coop_reader_impl.h"

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
    void send_control(velo_peer& /*peer*/, const CoopCallHeader& header) { calls.push_back(header); }
    void send_control(velo_peer& /*peer*/, const CoopPartHeader& header) { parts.push_back(header); }
    void send_control(velo_peer& /*peer*/, const CoopWrittenHeader& header) { written.push_back(header); }
    void send_control(velo_peer& /*peer*/, const DoneHeader& header) { done.push_back(header); }
    std::vector<CoopCallHeader> calls;
    std::vector<CoopPartHeader> parts;
    std::vector<CoopWrittenHeader> written;
    std::vector<DoneHeader> done;
};
template <>
class rma::DeniedCopies<rma::FakeCore> {
  public:
    void give_up_direct(velo_peer& peer) {
        ++gave_up;
        peer.direct = false;
    }
    int gave_up = 0;
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
    void chunk_done(State& /*state*/, uint32_t bytes, Status status) override {
        done.emplace_back(bytes, status);
    }
    void chunk_refused(State& /*state*/, uint64_t offset, uint32_t /*bytes*/) override {
        refused.push_back(offset);
    }
    void memory_refused(State& /*state*/, uint64_t /*offset*/, uint32_t /*bytes*/) override { ++lost_memory; }
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
        reader_.reports_to(transfers_);
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
    CoopCallHeader begin() {
        velo_rma_t& op = ops_.emplace_back();
        op.kind = VELO_RMA_GET;
        op.local = local_.data();
        op.remote.base = op.remote_address = reinterpret_cast<uint64_t>(source_.data());
        op.remote.nla[0] = remote_.nla;
        op.remote.on_node_key = static_cast<uint32_t>(remote_.key);
        State& state = states_.emplace_back();
        state.op = &op;
        state.peer = &peer_;
        EXPECT_TRUE(reader_.begin(state, {.transfer = &state, .offset = 0, .bytes = kBytes}));
        return messages_.calls.back();
    }
    /// The owner claims its next chunk.
    base::BlockPart claim(const CoopCallHeader& call) {
        return base::SharedBlock(call.bytes, call.generation).claim_front(core_.on_node.claims[call.slot]);
    }
    void bring(const CoopCallHeader& call, uint64_t offset, uint32_t bytes, velo_peer* from = nullptr) {
        const std::vector<std::byte> data(bytes, std::byte{0x77});
        reader_.on_data(from == nullptr ? peer_ : *from, {.cookie = call.cookie, .offset = offset},
                        data.data(), bytes);
    }
    void says_written(const CoopCallHeader& call, uint64_t offset, uint32_t bytes) {
        reader_.on_written(peer_, {.cookie = call.cookie, .offset = offset, .bytes = bytes});
    }
    [[nodiscard]] bool untouched() const {
        return std::ranges::all_of(local_, [](std::byte one) { return one == std::byte{}; });
    }

    // The owner's side.

    [[nodiscard]] CoopCallHeader call(uint32_t bytes, uint16_t slot, uint16_t generation = 1) const {
        return {.method = CoopMethod::kRing,
                .slot = slot,
                .cookie = Cookie{9},
                .nla = own_.nla,
                .destination = reinterpret_cast<uint64_t>(local_.data()),
                .key = static_cast<uint32_t>(own_.key),
                .bytes = bytes,
                .generation = generation};
    }
    [[nodiscard]] CoopPartHeader part(uint32_t bytes) const {
        return {.method = CoopMethod::kRing,
                .cookie = Cookie{9},
                .nla = own_.nla,
                .key = static_cast<uint32_t>(own_.key),
                .bytes = bytes,
                .offset = 4096};
    }
    /// The peer's word, as it opens a block.
    void open_at_peer(uint16_t slot, uint32_t bytes) {
        base::ReaderBlock reader;
        reader.open(core_.on_node.peer_claims[slot], bytes);  // generation 1
    }
    Status answered() {
        EXPECT_EQ(messages_.done.size(), 1u);
        const DoneHeader answer = messages_.done.empty() ? DoneHeader{} : messages_.done.back();
        messages_.done.clear();
        missing_ = answer.value;
        return answer.status;
    }

    std::vector<std::byte> source_ = std::vector<std::byte>(kBytes);
    std::vector<std::byte> local_ = std::vector<std::byte>(kBytes + 64);
    Registration remote_, own_;
    FakeCore core_;
    CookieTable<Op> pending_{16};
    EngineMessages<FakeCore> messages_;
    FakeTransfers transfers_;
    DeniedCopies<FakeCore> denied_;
    CoopOwner<FakeCore> owner_{core_, messages_, denied_};
    CoopReader<FakeCore> reader_{core_, pending_, messages_, denied_, owner_};
    velo_peer peer_, other_;
    uint64_t missing_ = 0;
    std::deque<velo_rma_t> ops_;
    std::deque<State> states_;
};

TEST_F(CoopAlone, data_that_cannot_be_the_blocks_is_malformed_and_written_nowhere) {
    const CoopCallHeader call = begin();
    claim(call);
    CoopCallHeader wrong = call;
    wrong.cookie = Cookie{static_cast<uint32_t>(call.cookie) + (1u << 16)};
    bring(wrong, 0, 64);
    bring(call, 0, 64, &other_);      // not the owner
    bring(call, 0, 0);                // nothing
    bring(call, kBytes, 1);           // behind the block
    bring(call, kBytes - 8, 16);      // over its end
    bring(call, UINT64_MAX - 4, 16);  // around
    bring(call, 0, kBytes + 1);
    says_written(call, 0, kBytes + 1);
    says_written(call, 8, UINT32_MAX);
    Op& pull = *pending_.take();
    pull.kind = Op::Kind::kPullChunk;
    wrong.cookie = pull.cookie;
    bring(wrong, 0, 64);
    EXPECT_EQ(malformed(), 10u);
    EXPECT_TRUE(untouched());
    EXPECT_TRUE(transfers_.done.empty());
}

TEST_F(CoopAlone, block_ends_once_when_both_ends_have_moved_it) {
    const CoopCallHeader call = begin();
    const base::BlockPart front = claim(call);
    ASSERT_EQ(front.bytes, kChunk);
    EXPECT_EQ(reader_.drive(), 1u) << "the reader takes the back";
    EXPECT_TRUE(transfers_.done.empty()) << "the front is under way";
    bring(call, front.offset, front.bytes);
    EXPECT_EQ(transfers_.done, (decltype(transfers_.done){{kBytes, Status::kOk}}));
    EXPECT_EQ(local_[0], std::byte{0x77});
    EXPECT_EQ(local_[kChunk], std::byte{0x5a});
    EXPECT_EQ(local_[kBytes], std::byte{});
    bring(call, front.offset, front.bytes);
    EXPECT_EQ(malformed(), 1u) << "its cookie names nothing any more";
    EXPECT_EQ(pending_.taken(), 0u);
    EXPECT_EQ(peer_.coop.blocks, 0u);
}

TEST_F(CoopAlone, owner_that_brings_what_it_has_not_claimed_breaks_the_protocol) {
    const CoopCallHeader call = begin();
    bring(call, 0, kBytes);
    ASSERT_EQ(transfers_.done.size(), 1u);
    EXPECT_EQ(transfers_.done[0].second, Status::kProtocol);
    EXPECT_EQ(malformed(), 1u);
}

TEST_F(CoopAlone, word_that_is_overwritten_ends_the_block_with_an_error) {
    const CoopCallHeader call = begin();
    core_.on_node.claims[call.slot].word = 0x123456789abcdef0;
    EXPECT_EQ(reader_.drive(), 0u);
    EXPECT_EQ(transfers_.done, (decltype(transfers_.done){{kBytes, Status::kProtocol}}));
    EXPECT_EQ(malformed(), 1u);
    EXPECT_FALSE(reader_.fetching());
}

TEST_F(CoopAlone, owner_that_gives_up_takes_what_it_claimed_with_it_and_no_more) {
    const CoopCallHeader call = begin();
    claim(call);
    reader_.owner_done(*pending_.find(call.cookie), Status::kAtuFault, UINT64_MAX);
    EXPECT_EQ(transfers_.refused, std::vector<uint64_t>{0}) << "its memory is looked for again";
    EXPECT_TRUE(transfers_.done.empty());
    EXPECT_FALSE(reader_.fetching());
}

TEST_F(CoopAlone, block_of_a_peer_that_failed_ends_with_it) {
    claim(begin());
    reader_.peer_failed(other_);
    EXPECT_TRUE(transfers_.done.empty());
    peer_.state = PeerState::kFailed;
    reader_.peer_failed(peer_);
    EXPECT_EQ(transfers_.done, (decltype(transfers_.done){{kBytes, Status::kPeerDead}}));
}

TEST_F(CoopAlone, memory_that_is_revoked_under_way_does_not_count) {
    begin();
    ASSERT_EQ(core_.on_node.peers.remove(remote_), Status::kOk);
    reader_.drive();
    EXPECT_EQ(transfers_.refused.size(), 1u);
    EXPECT_TRUE(transfers_.done.empty());
}

TEST_F(CoopAlone, copy_that_the_kernel_forbids_is_asked_of_the_owner_by_name) {
    const CoopCallHeader call = begin();
    core_.system.says = Status::kUnsupported;
    EXPECT_EQ(reader_.drive(), 1u);
    EXPECT_EQ(denied_.gave_up, 1);
    ASSERT_EQ(messages_.parts.size(), 1u);
    EXPECT_EQ(messages_.parts[0].offset, kChunk) << "the part that this process had claimed";
    EXPECT_EQ(messages_.parts[0].bytes, kChunk);
    EXPECT_EQ(messages_.parts[0].nla, remote_.nla + kChunk);
    EXPECT_EQ(messages_.parts[0].cookie, call.cookie);
    EXPECT_EQ(reader_.drive(), 0u) << "no other copy is tried";
}

TEST_F(CoopAlone, when_all_blocks_are_in_use_a_chunk_goes_another_way) {
    for (uint32_t i = 0; i < FakeCore::kCoopBlocks; ++i) begin();
    State& state = states_.back();
    EXPECT_FALSE(reader_.begin(state, {.transfer = &state, .offset = 0, .bytes = kBytes}));
}

TEST_F(CoopAlone, calls_that_cannot_be_are_answered_by_a_fault_and_begin_nothing) {
    const auto fault = [&](const CoopCallHeader& header, velo_peer& from) {
        owner_.on_call(from, header);
        EXPECT_EQ(answered(), Status::kAtuFault);
    };
    velo_peer far;
    far.path = VELO_PATH_DEVICE;
    fault(call(kBytes, 0), far);
    fault(call(kBytes, FakeCore::kCoopBlocks), peer_);
    fault(call(kBytes, UINT16_MAX), peer_);
    fault(call(0, 0), peer_);
    fault(call(kBytes + 1, 0), peer_);
    fault(call(CoopOwner<FakeCore>::kBlockBytesMax + 1, 0), peer_);
    CoopCallHeader wrong = call(kBytes, 0);
    ++wrong.key;
    fault(wrong, peer_);
    wrong = call(kBytes, 0);
    wrong.nla += 1;
    fault(wrong, peer_);
    EXPECT_EQ(core_.counters.atu_faults, 8u);
    EXPECT_FALSE(owner_.assisting());
}

TEST_F(CoopAlone, owner_sends_what_it_claims_and_says_where_it_belongs) {
    open_at_peer(2, kBytes);
    owner_.on_call(peer_, call(kBytes, 2));
    EXPECT_TRUE(owner_.assisting());
    EXPECT_NE(owner_.drive(), 0u);
    uint64_t next = 0;
    for (const auto& [piece, bytes] : core_.on_node.pieces) {
        EXPECT_EQ(piece.cookie, Cookie{9});
        EXPECT_EQ(piece.offset, next);
        next += bytes;
    }
    EXPECT_EQ(next, kBytes);
    EXPECT_FALSE(owner_.assisting());
    EXPECT_TRUE(messages_.done.empty());
}

TEST_F(CoopAlone, owner_copies_into_the_reader_and_says_so_once_it_is_there) {
    open_at_peer(2, kBytes);
    CoopCallHeader direct = call(kBytes, 2);
    direct.method = CoopMethod::kDirect;
    owner_.on_call(peer_, direct);
    velo_send_t message{};
    peer_.sending.pending.push_back(&message);
    owner_.drive();
    EXPECT_TRUE(messages_.written.empty()) << "a message that waits goes first";
    peer_.sending.pending.pop_front();
    owner_.drive();
    ASSERT_EQ(messages_.written.size(), 1u);
    EXPECT_EQ(messages_.written[0].offset, 0u);
    EXPECT_EQ(messages_.written[0].bytes, kChunk);
    EXPECT_EQ(local_[kChunk - 1], std::byte{0x5a});
    EXPECT_EQ(local_[kChunk], std::byte{});
    core_.system.says = Status::kUnsupported;
    owner_.drive();
    EXPECT_EQ(denied_.gave_up, 1);
    owner_.drive();
    EXPECT_EQ(core_.on_node.pieces.size(), 1u) << "what was claimed goes through the ring instead";
}

TEST_F(CoopAlone, named_part_is_counted_from_its_blocks_beginning) {
    owner_.on_part(peer_, part(100));
    owner_.drive();
    ASSERT_EQ(core_.on_node.pieces.size(), 1u);
    EXPECT_EQ(core_.on_node.pieces[0].first.offset, 4096u);
    EXPECT_EQ(core_.on_node.pieces[0].second, 100u);
    owner_.on_part(peer_, part(0));
    EXPECT_EQ(answered(), Status::kAtuFault);
    owner_.on_part(peer_, part(kBytes + 1));
    EXPECT_EQ(answered(), Status::kAtuFault);
}

TEST_F(CoopAlone, owner_that_comes_late_touches_nothing) {
    open_at_peer(2, kBytes);
    owner_.on_call(peer_, call(kBytes, 2, 8));  // another block's generation
    EXPECT_EQ(owner_.drive(), 0u);
    EXPECT_TRUE(core_.on_node.pieces.empty());
    EXPECT_FALSE(owner_.assisting());
}

TEST_F(CoopAlone, part_whose_memory_is_revoked_is_given_back_and_not_read) {
    open_at_peer(2, kBytes);
    owner_.on_call(peer_, call(kBytes, 2));
    core_.on_node.full = true;
    owner_.drive();  // claims a chunk
    ASSERT_EQ(core_.on_node.own.remove(own_), Status::kOk);
    core_.on_node.full = false;
    owner_.drive();
    EXPECT_TRUE(core_.on_node.pieces.empty());
    EXPECT_EQ(answered(), Status::kAtuFault);
    EXPECT_EQ(missing_, kChunk) << "the reader does not wait for it";
    EXPECT_FALSE(owner_.assisting());
}

TEST_F(CoopAlone, second_call_for_a_slot_whose_part_is_under_way_is_refused) {
    open_at_peer(2, kBytes);
    owner_.on_call(peer_, call(kBytes, 2));
    core_.on_node.full = true;
    owner_.drive();
    owner_.on_call(peer_, call(kBytes, 2));
    EXPECT_EQ(answered(), Status::kProtocol);
    EXPECT_EQ(malformed(), 1u);
    owner_.on_call(other_, call(kBytes, 2));
    EXPECT_TRUE(messages_.done.empty()) << "that is another peer's slot";
}

TEST_F(CoopAlone, peer_cannot_ask_for_more_parts_by_name_than_it_can_have) {
    core_.on_node.full = true;
    constexpr uint32_t kMost = 4 * FakeCore::kCoopBlocks;
    for (uint32_t i = 0; i < kMost; ++i) owner_.on_part(peer_, part(64));
    EXPECT_TRUE(messages_.done.empty());
    owner_.on_part(peer_, part(64));
    EXPECT_EQ(answered(), Status::kProtocol);
    EXPECT_EQ(malformed(), 1u);
}

TEST_F(CoopAlone, nothing_is_sent_to_the_dead) {
    open_at_peer(2, kBytes);
    owner_.on_call(peer_, call(kBytes, 2));
    peer_.state = PeerState::kFailed;
    EXPECT_EQ(owner_.drive(), 0u);
    EXPECT_FALSE(owner_.assisting());
    EXPECT_TRUE(core_.on_node.pieces.empty());
}

}  // namespace
}  // namespace velo::rma
