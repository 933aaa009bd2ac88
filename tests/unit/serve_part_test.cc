// Messages from other engines, alone: whatever a broken or wicked peer may send, and what each costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/engine/serve_impl.h"

namespace velo {
namespace {

struct FakeCore : test::PlainCore {
    struct {
        alignas(8) std::array<std::byte, base::AtuTable::bytes_for(4)> shared{};
        base::AtuTable table{shared.data(), 4};
        [[nodiscard]] const base::AtuTable& atu() const { return table; }
    } on_node;
    Status copies = Status::kOk;  ///< guarded ones
    Status copy_in(const std::byte* from, std::byte* to, size_t bytes) const {
        if (copies == Status::kOk) std::memcpy(to, from, bytes);
        return copies;
    }
};

}  // namespace

template <>
class EngineMessages<FakeCore> {
  public:
    struct Answered {
        PullHeader header;
        uint64_t nla;
        uint32_t key;
        uint64_t address;
    };
    void send_control(velo_peer& /*peer*/, const DoneHeader& header) { sent.push_back(header); }
    bool answer_pull(velo_peer& /*peer*/, const PullHeader& header, uint64_t nla, uint32_t key,
                     uint64_t address) {
        if (takes) pulls.push_back({header, nla, key, address});
        return takes;
    }
    bool takes = true;
    std::vector<DoneHeader> sent;
    std::vector<Answered> pulls;
};
template <>
class rma::Transfers<FakeCore> {
  public:
    struct Ended {
        Cookie cookie;
        Status status;
        uint64_t value;
        bool operator==(const Ended&) const = default;
    };
    void chunk_done(rma::TransferState<velo_peer>& /*state*/, uint32_t bytes, Status status) {
        chunks.emplace_back(bytes, status);
    }
    void end(Cookie cookie, Status status, uint64_t value) { ended.push_back({cookie, status, value}); }
    std::vector<std::pair<uint32_t, Status>> chunks;
    std::vector<Ended> ended;
};
template <>
class rma::CoopOwner<FakeCore> {
  public:
    void on_call(velo_peer& /*peer*/, const CoopCallHeader& /*header*/) { ++calls; }
    void on_part(velo_peer& /*peer*/, const CoopPartHeader& /*header*/) { ++parts; }
    int calls = 0;
    int parts = 0;
};
template <>
class rma::CoopReader<FakeCore> {
  public:
    void on_data(velo_peer& /*peer*/, const CoopDataHeader& /*header*/, const std::byte* /*data*/,
                 uint32_t bytes) {
        data_bytes = bytes;
    }
    void on_written(velo_peer& /*peer*/, const CoopWrittenHeader& /*header*/) { ++written; }
    uint32_t data_bytes = 0;
    int written = 0;
};
template <>
class rma::Reserving<FakeCore> {
  public:
    void receive(velo_peer& /*peer*/, const RailHeader& /*header*/) { ++messages; }
    int messages = 0;
};

namespace {

using Op = rma::PendingOp<velo_peer>;

class ServeAlone : public testing::Test {
  protected:
    ServeAlone() {
        EXPECT_EQ(core_.on_node.table.add(memory_.data(), sizeof memory_, kAccessAny, all_), Status::kOk);
        EXPECT_EQ(core_.on_node.table.add(source_.data(), sizeof source_, kAccessRead, source_only_),
                  Status::kOk);
    }
    /// A message of any bytes.
    void receive_bytes(std::span<const std::byte> bytes, velo_peer* from = nullptr) {
        serve_.receive(from == nullptr ? peer_ : *from, bytes.data(), static_cast<uint32_t>(bytes.size()));
    }
    template <class Header>
    void receive(const Header& header, std::span<const std::byte> data = {}, velo_peer* from = nullptr) {
        std::vector<std::byte> bytes(sizeof header + data.size());
        std::memcpy(bytes.data(), &header, sizeof header);
        if (!data.empty()) std::memcpy(bytes.data() + sizeof header, data.data(), data.size());
        receive_bytes(bytes, from);
    }
    /// A message that is addressed to registered memory.
    template <class Header>
    [[nodiscard]] static Header to(const Registration& at, uint64_t offset = 0) {
        Header header;
        header.cookie = Cookie{77};
        header.nla = at.nla + offset;
        header.key = static_cast<uint32_t>(at.key);
        return header;
    }
    /// An operation of this process on the peer that waits for messages.
    Op& waiting(Op::Kind kind, uint32_t bytes = 0) {
        Op& op = *pending_.take();
        velo_rma_t& rma = ops_.emplace_back();
        rma.local = memory_.data();
        auto& state = states_.emplace_back();
        state.op = &rma;
        state.peer = &peer_;
        op.kind = kind;
        op.state = &state;
        op.bytes = bytes;
        return op;
    }
    /// The last answer's status; there is one.
    Status answered() {
        EXPECT_EQ(messages_.sent.size(), 1u);
        if (messages_.sent.empty()) return Status::kOk;
        const DoneHeader answer = messages_.sent.back();
        messages_.sent.clear();
        EXPECT_EQ(answer.cookie, Cookie{77});
        value_ = answer.value;
        return answer.status;
    }
    [[nodiscard]] bool memory_untouched() const {
        return std::ranges::all_of(memory_, [](uint64_t word) { return word == 0; });
    }
    [[nodiscard]] std::span<const std::byte> data(size_t bytes) const {
        return std::as_bytes(std::span(ones_)).first(bytes);
    }
    uint64_t malformed() { return std::exchange(core_.counters.engine_malformed, 0); }
    uint64_t faults() { return std::exchange(core_.counters.atu_faults, 0); }

    std::array<uint64_t, 16> memory_{};
    std::array<uint64_t, 4> source_{};
    std::array<uint64_t, 32> ones_ = [] {
        std::array<uint64_t, 32> ones;
        ones.fill(UINT64_MAX);
        return ones;
    }();
    Registration all_, source_only_;
    FakeCore core_;
    rma::CookieTable<Op> pending_{16};
    EngineMessages<FakeCore> messages_;
    rma::Transfers<FakeCore> transfers_;
    rma::CoopOwner<FakeCore> coop_owner_;
    rma::CoopReader<FakeCore> coop_reader_;
    rma::Reserving<FakeCore> reserving_;
    Serve<FakeCore> serve_{core_, pending_, messages_, transfers_, coop_owner_, coop_reader_, reserving_};
    velo_peer peer_;
    velo_peer other_;
    uint64_t value_ = 0;
    std::deque<velo_rma_t> ops_;
    std::deque<rma::TransferState<velo_peer>> states_;
};

TEST_F(ServeAlone, message_shorter_than_its_header_is_malformed) {
    const auto cut = [&](const auto& header) {
        const auto whole = std::as_bytes(std::span(&header, 1));
        for (size_t bytes = 0; bytes < whole.size(); ++bytes) receive_bytes(whole.first(bytes));
        EXPECT_EQ(malformed(), whole.size());
    };
    cut(to<PullHeader>(all_));
    cut(PullDataHeader{});
    cut(to<PutDataHeader>(all_));
    cut(to<AtomicHeader>(all_));
    cut(DoneHeader{});
    cut(to<CoopCallHeader>(all_));
    cut(to<CoopPartHeader>(all_));
    cut(CoopDataHeader{});
    cut(CoopWrittenHeader{.bytes = 1});
    cut(RailHeader{});
    EXPECT_TRUE(messages_.sent.empty() && messages_.pulls.empty());
}

TEST_F(ServeAlone, opcodes_that_are_none_are_malformed_and_answered_by_nothing) {
    uint64_t none = 0;
    for (uint32_t opcode = 0; opcode < 256; ++opcode) {
        if (opcode >= static_cast<uint32_t>(Opcode::kPull) && opcode <= static_cast<uint32_t>(Opcode::kRail))
            continue;
        auto header = to<PutDataHeader>(all_);
        header.opcode = static_cast<Opcode>(opcode);
        receive(header, data(64));
        ++none;
    }
    EXPECT_EQ(malformed(), none);
    EXPECT_TRUE(messages_.sent.empty());
    EXPECT_TRUE(memory_untouched());
}

TEST_F(ServeAlone, fields_that_say_what_cannot_be_are_malformed) {
    auto pull = to<PullHeader>(all_);
    pull.bytes = 8;
    receive(pull, data(1));  // it has no data
    pull.guarded = 2;
    receive(pull);
    receive(to<PutDataHeader>(all_));  // nothing to write
    auto put = to<PutDataHeader>(all_);
    put.last = 2;
    receive(put, data(8));
    receive(PullDataHeader{});
    auto call = to<CoopCallHeader>(all_);
    call.method = static_cast<CoopMethod>(kCoopMethods);
    receive(call);
    auto part = to<CoopPartHeader>(all_);
    part.method = CoopMethod::kDirect;  // parts go through the ring
    receive(part);
    receive(CoopDataHeader{});
    receive(CoopWrittenHeader{});
    receive(RailHeader{
        .kind = static_cast<rma::RailMessageKind>(static_cast<uint32_t>(rma::RailMessageKind::kDone) + 1)});
    receive(RailHeader{.sends = 2});
    receive(RailHeader{.status = static_cast<Status>(255)});
    EXPECT_EQ(malformed(), 12u);
    EXPECT_EQ(coop_owner_.calls + coop_owner_.parts + coop_reader_.written + reserving_.messages, 0);
    EXPECT_TRUE(messages_.sent.empty() && messages_.pulls.empty());
    EXPECT_TRUE(memory_untouched());
}

TEST_F(ServeAlone, pull_of_what_may_not_be_read_is_refused_with_a_status) {
    const auto pull = [&](PullHeader header, uint64_t bytes) {
        header.bytes = bytes;
        receive(header);
        EXPECT_EQ(answered(), Status::kAtuFault);
    };
    pull(to<PullHeader>(all_), 0);
    pull(to<PullHeader>(all_), sizeof memory_ + 1);
    pull(to<PullHeader>(all_, 8), sizeof memory_);
    pull(to<PullHeader>(all_), UINT64_MAX);
    auto wrong = to<PullHeader>(all_);
    wrong.key += 2;
    pull(wrong, 8);
    wrong = to<PullHeader>(all_);
    wrong.nla += uint64_t{1} << base::kNlaOffsetBits;  // the key of another registration
    pull(wrong, 8);
    wrong.nla = UINT64_MAX;
    pull(wrong, 8);
    wrong.nla = reinterpret_cast<uint64_t>(&value_);  // an address that no registration has
    wrong.key = kKeyOfAddress;
    pull(wrong, 8);
    EXPECT_EQ(faults(), 8u);
    EXPECT_TRUE(messages_.pulls.empty());
}

TEST_F(ServeAlone, pull_by_address_is_answered_under_the_registration_that_holds_it) {
    auto pull = to<PullHeader>(all_);
    pull.nla = reinterpret_cast<uint64_t>(&memory_[2]);
    pull.key = kKeyOfAddress;
    pull.guarded = 1;
    pull.bytes = 16;
    receive(pull);
    ASSERT_EQ(messages_.pulls.size(), 1u);
    EXPECT_EQ(messages_.pulls[0].address, reinterpret_cast<uint64_t>(&memory_[2]));
    EXPECT_EQ(messages_.pulls[0].key, all_.key) << "so that it stops when that is revoked";
    EXPECT_EQ(messages_.pulls[0].nla, all_.nla + 16);
    EXPECT_EQ(messages_.pulls[0].header.guarded, 1);
    messages_.takes = false;
    receive(pull);
    EXPECT_EQ(answered(), Status::kProtocol);
    EXPECT_EQ(malformed(), 1u);
}

TEST_F(ServeAlone, data_of_a_pull_counts_in_order_from_the_peer_that_was_asked_alone) {
    Op& op = waiting(Op::Kind::kPullChunk, 64);
    op.offset = 8;
    const PullDataHeader first = {.cookie = op.cookie};
    PullDataHeader wrong = first;
    wrong.cookie = Cookie{static_cast<uint32_t>(op.cookie) + (1u << 16)};
    receive(wrong, data(16));           // a made-up cookie
    receive(first, data(16), &other_);  // another peer
    receive(first, data(65));           // more than was asked for
    wrong = first;
    wrong.offset = 16;
    receive(wrong, data(16));  // not the next bytes
    wrong.offset = UINT64_MAX;
    receive(wrong, data(1));
    receive(PullDataHeader{.cookie = waiting(Op::Kind::kPutChunk, 64).cookie}, data(16));
    EXPECT_EQ(malformed(), 6u);
    EXPECT_TRUE(memory_untouched());
    receive(first, data(16));
    EXPECT_EQ(memory_[1], UINT64_MAX) << "at its offset";
    EXPECT_EQ(memory_[2], UINT64_MAX);
    EXPECT_EQ(memory_[3], 0u);
    receive(first, data(16));
    EXPECT_EQ(malformed(), 1u) << "twice";
    PullDataHeader rest = first;
    rest.offset = 16;
    receive(rest, data(48));
    EXPECT_EQ(transfers_.chunks, (decltype(transfers_.chunks){{64, Status::kOk}}));
    receive(rest, data(48));
    EXPECT_EQ(malformed(), 1u) << "all has come";
    EXPECT_EQ(memory_[9], 0u);
}

TEST_F(ServeAlone, answers_of_a_peer_that_has_ended_are_late_and_not_malformed) {
    const Op& op = waiting(Op::Kind::kPullChunk, 64);
    PullDataHeader late = {.cookie = Cookie{static_cast<uint32_t>(op.cookie) + (1u << 16)}};
    const DoneHeader done = {.status = Status::kAtuFault, .cookie = late.cookie};
    receive(late, data(16));
    receive(done);
    EXPECT_EQ(malformed(), 2u);
    peer_.state = PeerState::kFailed;
    receive(late, data(16));
    receive(done);
    EXPECT_EQ(malformed(), 0u);
    EXPECT_TRUE(memory_untouched());
    EXPECT_TRUE(transfers_.chunks.empty());
}

TEST_F(ServeAlone, guarded_data_of_which_a_piece_found_no_memory_ends_as_that_when_all_has_come) {
    Op& op = waiting(Op::Kind::kPullChunk, 32);
    op.guarded = true;
    core_.copies = Status::kBadMemory;
    receive(PullDataHeader{.cookie = op.cookie}, data(16));
    core_.copies = Status::kOk;
    receive(PullDataHeader{.cookie = op.cookie, .offset = 16}, data(16));
    EXPECT_EQ(transfers_.chunks, (decltype(transfers_.chunks){{32, Status::kBadLocalMemory}}));
    EXPECT_TRUE(memory_untouched());
}

TEST_F(ServeAlone, put_outside_of_registered_memory_writes_nothing) {
    for (const PutDataHeader& header : {to<PutDataHeader>(all_, 128 - 8), to<PutDataHeader>(source_only_)}) {
        receive(header, data(16));
        EXPECT_EQ(answered(), Status::kAtuFault);
    }
    auto revoked = to<PutDataHeader>(all_);
    ++revoked.key;
    receive(revoked, data(16));
    EXPECT_EQ(answered(), Status::kAtuFault);
    EXPECT_EQ(faults(), 3u);
    EXPECT_TRUE(memory_untouched());
    EXPECT_EQ(source_[0], 0u);
}

TEST_F(ServeAlone, put_is_answered_at_its_end_alone) {
    receive(to<PutDataHeader>(all_, 8), data(8));
    EXPECT_TRUE(messages_.sent.empty());
    EXPECT_EQ(memory_[1], UINT64_MAX);
    auto end = to<PutDataHeader>(all_, 16);
    end.last = 1;
    receive(end, data(8));
    EXPECT_EQ(answered(), Status::kOk);
    EXPECT_EQ(memory_[2], UINT64_MAX);
    end.guarded = 1;
    core_.copies = Status::kBadMemory;
    receive(end, data(8));
    EXPECT_EQ(answered(), Status::kBadMemory);
}

TEST_F(ServeAlone, atomics_that_cannot_be_change_nothing) {
    const auto atomic = [&](const Registration& at, uint64_t offset, uint8_t kind, uint8_t width) {
        auto header = to<AtomicHeader>(at, offset);
        header.operation = kind;
        header.width = width;
        header.operand = 5;
        receive(header);
        return answered();
    };
    for (const uint8_t width : {0, 1, 3, 16, 255})
        EXPECT_EQ(atomic(all_, 0, VELO_ATOMIC_ADD, width), Status::kProtocol);
    EXPECT_EQ(atomic(all_, 0, VELO_ATOMIC_COUNT, 8), Status::kProtocol);
    EXPECT_EQ(atomic(all_, 0, 255, 8), Status::kProtocol);
    EXPECT_EQ(atomic(all_, 4, VELO_ATOMIC_ADD, 8), Status::kBadParam) << "it would tear";
    EXPECT_EQ(atomic(all_, 124, VELO_ATOMIC_ADD, 8), Status::kAtuFault);
    EXPECT_EQ(atomic(source_only_, 0, VELO_ATOMIC_ADD, 8), Status::kAtuFault);
    EXPECT_EQ(faults(), 10u);
    EXPECT_TRUE(memory_untouched());
    EXPECT_EQ(source_[0], 0u);
    memory_[1] = 40;
    EXPECT_EQ(atomic(all_, 8, VELO_ATOMIC_ADD, 8), Status::kOk);
    EXPECT_EQ(value_, 40u);
    EXPECT_EQ(memory_[1], 45u);
    EXPECT_EQ(core_.counters.atomics_served, 1u);
}

TEST_F(ServeAlone, end_of_what_does_not_wait_for_it_ends_nothing) {
    const auto done = [&](Cookie cookie, Status status, velo_peer* from = nullptr) {
        receive(DoneHeader{.status = status, .cookie = cookie}, {}, from);
    };
    const Cookie put = waiting(Op::Kind::kPutChunk).cookie;
    done(Cookie{static_cast<uint32_t>(put) + (1u << 16)}, Status::kOk);
    done(Cookie{15}, Status::kOk);
    done(put, Status::kOk, &other_);
    done(put, static_cast<Status>(static_cast<uint32_t>(kLastStatus) + 1));
    done(put, static_cast<Status>(255));
    // Operations that the device or this process ends; and pulls that go well, which end with their data.
    for (const Op::Kind kind : {Op::Kind::kDirectChunk, Op::Kind::kDeviceChunk, Op::Kind::kDeviceAtomic})
        done(waiting(kind).cookie, Status::kAtuFault);
    const Cookie pull = waiting(Op::Kind::kPullChunk).cookie;
    const Cookie block = waiting(Op::Kind::kCoopBlock).cookie;
    done(pull, Status::kOk);
    done(block, Status::kOk);
    EXPECT_EQ(malformed(), 10u);
    EXPECT_TRUE(transfers_.ended.empty());
    done(put, Status::kOk);
    done(pull, Status::kAtuFault);
    done(block, Status::kAtuFault);
    EXPECT_EQ(transfers_.ended,
              (decltype(transfers_.ended){
                  {put, Status::kOk, 0}, {pull, Status::kAtuFault, 0}, {block, Status::kAtuFault, 0}}));
}

TEST_F(ServeAlone, other_messages_go_to_the_parts_that_they_are_for) {
    receive(CoopCallHeader{});
    receive(CoopPartHeader{.method = CoopMethod::kRing});
    receive(CoopDataHeader{}, data(24));
    receive(CoopWrittenHeader{.bytes = 8});
    receive(RailHeader{});
    EXPECT_EQ(coop_owner_.calls, 1);
    EXPECT_EQ(coop_owner_.parts, 1);
    EXPECT_EQ(coop_reader_.data_bytes, 24u);
    EXPECT_EQ(coop_reader_.written, 1);
    EXPECT_EQ(reserving_.messages, 1);
    EXPECT_EQ(malformed(), 0u);
}

}  // namespace
}  // namespace velo
