// Messages from other engines, alone: whatever a broken or wicked peer may send, and what each costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/engine/serve.h"

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
        EngineHeader header;
        uint64_t address;
        uint64_t bytes;
    };
    void send_control(velo_peer& /*peer*/, const EngineHeader& header) { sent.push_back(header); }
    bool answer_pull(velo_peer& /*peer*/, const EngineHeader& header, uint64_t address, uint64_t bytes) {
        if (takes) pulls.push_back({header, address, bytes});
        return takes;
    }
    bool takes = true;
    std::vector<EngineHeader> sent;
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
class rma::CoopCopy<FakeCore> {
  public:
    void on_call(velo_peer& /*peer*/, const EngineHeader& /*header*/) { ++calls; }
    void on_data(velo_peer& /*peer*/, const EngineHeader& /*header*/, const std::byte* /*data*/,
                 uint32_t bytes) {
        data_bytes = bytes;
    }
    int calls = 0;
    uint32_t data_bytes = 0;
};
template <>
class rma::Reserving<FakeCore> {
  public:
    void receive(velo_peer& /*peer*/, const EngineHeader& /*header*/) { ++messages; }
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
    void receive(const EngineHeader& header, std::span<const std::byte> data = {},
                 velo_peer* from = nullptr) {
        std::vector<std::byte> bytes(sizeof header + data.size());
        std::memcpy(bytes.data(), &header, sizeof header);
        if (!data.empty()) std::memcpy(bytes.data() + sizeof header, data.data(), data.size());
        serve_.receive(from == nullptr ? peer_ : *from, bytes.data(), static_cast<uint32_t>(bytes.size()));
    }
    /// A message that is addressed to registered memory.
    [[nodiscard]] static EngineHeader to(Opcode opcode, const Registration& at, uint64_t offset = 0) {
        return {.opcode = opcode,
                .cookie = Cookie{77},
                .nla = at.nla + offset,
                .key = static_cast<uint32_t>(at.key)};
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
        const EngineHeader answer = messages_.sent.back();
        messages_.sent.clear();
        EXPECT_EQ(answer.opcode, Opcode::kDone);
        EXPECT_EQ(answer.cookie, Cookie{77});
        value_ = answer.value;
        return static_cast<Status>(answer.status);
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
    rma::CoopCopy<FakeCore> coop_;
    rma::Reserving<FakeCore> reserving_;
    Serve<FakeCore> serve_{core_, pending_, messages_, transfers_, coop_, reserving_};
    velo_peer peer_;
    velo_peer other_;
    uint64_t value_ = 0;
    std::deque<velo_rma_t> ops_;
    std::deque<rma::TransferState<velo_peer>> states_;
};

TEST_F(ServeAlone, message_shorter_than_its_header_is_malformed) {
    const EngineHeader header = to(Opcode::kPull, all_);
    for (uint32_t bytes = 0; bytes < sizeof header; ++bytes)
        serve_.receive(peer_, reinterpret_cast<const std::byte*>(&header), bytes);
    EXPECT_EQ(malformed(), sizeof header);
    EXPECT_TRUE(messages_.sent.empty() && messages_.pulls.empty());
}

TEST_F(ServeAlone, opcodes_that_are_none_are_malformed_and_answered_by_nothing) {
    uint64_t none = 0;
    for (uint32_t opcode = 0; opcode < 256; ++opcode) {
        if (opcode >= static_cast<uint32_t>(Opcode::kPull) && opcode <= static_cast<uint32_t>(Opcode::kRail))
            continue;
        receive(to(static_cast<Opcode>(opcode), all_), data(64));
        ++none;
    }
    EXPECT_EQ(malformed(), none);
    EXPECT_TRUE(messages_.sent.empty());
    EXPECT_TRUE(memory_untouched());
}

TEST_F(ServeAlone, pull_of_what_may_not_be_read_is_refused_with_a_status) {
    const auto pull = [&](EngineHeader header, uint64_t bytes) {
        header.value = bytes;
        receive(header);
        EXPECT_EQ(answered(), Status::kAtuFault);
    };
    pull(to(Opcode::kPull, all_), 0);
    pull(to(Opcode::kPull, all_), sizeof memory_ + 1);
    pull(to(Opcode::kPull, all_, 8), sizeof memory_);
    pull(to(Opcode::kPull, all_), UINT64_MAX);
    EngineHeader wrong = to(Opcode::kPull, all_);
    wrong.key += 2;
    pull(wrong, 8);
    wrong = to(Opcode::kPull, all_);
    wrong.nla += uint64_t{1} << base::kNlaOffsetBits;  // the key of another registration
    pull(wrong, 8);
    wrong.nla = UINT64_MAX;
    pull(wrong, 8);
    wrong = {.opcode = Opcode::kPull, .cookie = Cookie{77}, .nla = reinterpret_cast<uint64_t>(&value_)};
    pull(wrong, 8);  // by an address that no registration has
    EXPECT_EQ(faults(), 8u);
    EXPECT_TRUE(messages_.pulls.empty());
}

TEST_F(ServeAlone, pull_by_address_is_answered_under_the_registration_that_holds_it) {
    receive({.opcode = Opcode::kPull,
             .cookie = Cookie{77},
             .nla = reinterpret_cast<uint64_t>(&memory_[2]),
             .key = kKeyOfAddress,
             .guarded = 1,
             .value = 16});
    ASSERT_EQ(messages_.pulls.size(), 1u);
    EXPECT_EQ(messages_.pulls[0].address, reinterpret_cast<uint64_t>(&memory_[2]));
    EXPECT_EQ(messages_.pulls[0].header.key, all_.key) << "so that it stops when that is revoked";
    EXPECT_EQ(messages_.pulls[0].header.nla, all_.nla + 16);
    EXPECT_EQ(messages_.pulls[0].header.guarded, 1);
    messages_.takes = false;
    EngineHeader many = to(Opcode::kPull, all_);
    many.value = 8;
    receive(many);
    EXPECT_EQ(answered(), Status::kProtocol);
    EXPECT_EQ(malformed(), 1u);
}

TEST_F(ServeAlone, data_of_a_pull_counts_in_order_from_the_peer_that_was_asked_alone) {
    Op& op = waiting(Op::Kind::kPullChunk, 64);
    op.offset = 8;
    const EngineHeader first = {.opcode = Opcode::kPullData, .cookie = op.cookie};
    EngineHeader wrong = first;
    wrong.cookie = Cookie{static_cast<uint32_t>(op.cookie) + (1u << 16)};
    receive(wrong, data(16));           // a made-up cookie
    receive(first, data(16), &other_);  // another peer
    receive(first, data(65));           // more than was asked for
    wrong = first;
    wrong.value = 16;
    receive(wrong, data(16));  // not the next bytes
    wrong.value = UINT64_MAX;
    receive(wrong, data(1));
    receive({.opcode = Opcode::kPullData, .cookie = waiting(Op::Kind::kPutChunk, 64).cookie}, data(16));
    EXPECT_EQ(malformed(), 6u);
    EXPECT_TRUE(memory_untouched());
    receive(first, data(16));
    EXPECT_EQ(memory_[1], UINT64_MAX) << "at its offset";
    EXPECT_EQ(memory_[2], UINT64_MAX);
    EXPECT_EQ(memory_[3], 0u);
    receive(first, data(16));
    EXPECT_EQ(malformed(), 1u) << "twice";
    EngineHeader rest = first;
    rest.value = 16;
    receive(rest, data(48));
    EXPECT_EQ(transfers_.chunks, (decltype(transfers_.chunks){{64, Status::kOk}}));
    receive(rest, data(48));
    EXPECT_EQ(malformed(), 1u) << "all has come";
    EXPECT_EQ(memory_[9], 0u);
}

TEST_F(ServeAlone, guarded_data_of_which_a_piece_found_no_memory_ends_as_that_when_all_has_come) {
    Op& op = waiting(Op::Kind::kPullChunk, 32);
    op.guarded = true;
    core_.copies = Status::kBadMemory;
    receive({.opcode = Opcode::kPullData, .cookie = op.cookie}, data(16));
    core_.copies = Status::kOk;
    receive({.opcode = Opcode::kPullData, .cookie = op.cookie, .value = 16}, data(16));
    EXPECT_EQ(transfers_.chunks, (decltype(transfers_.chunks){{32, Status::kBadLocalMemory}}));
    EXPECT_TRUE(memory_untouched());
}

TEST_F(ServeAlone, put_outside_of_registered_memory_writes_nothing) {
    for (EngineHeader header : {to(Opcode::kPutData, all_, 128 - 8), to(Opcode::kPutData, source_only_)}) {
        receive(header, data(16));
        EXPECT_EQ(answered(), Status::kAtuFault);
    }
    EngineHeader revoked = to(Opcode::kPutData, all_);
    ++revoked.key;
    receive(revoked, data(16));
    EXPECT_EQ(answered(), Status::kAtuFault);
    EXPECT_EQ(faults(), 3u);
    EXPECT_TRUE(memory_untouched());
    EXPECT_EQ(source_[0], 0u);
}

TEST_F(ServeAlone, put_is_answered_at_its_end_alone) {
    receive(to(Opcode::kPutData, all_, 8), data(8));
    EXPECT_TRUE(messages_.sent.empty());
    EXPECT_EQ(memory_[1], UINT64_MAX);
    EngineHeader end = to(Opcode::kPutData, all_, 16);
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
        EngineHeader header = to(Opcode::kAtomic, at, offset);
        header.atomic = kind;
        header.width = width;
        header.value = 5;
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

TEST_F(ServeAlone, end_that_nobody_waits_for_ends_nothing) {
    const auto done = [&](Cookie cookie, uint8_t status, velo_peer* from = nullptr) {
        receive({.opcode = Opcode::kDone, .status = status, .cookie = cookie}, {}, from);
    };
    const Cookie put = waiting(Op::Kind::kPutChunk).cookie;
    constexpr auto kFault = static_cast<uint8_t>(Status::kAtuFault);
    done(Cookie{static_cast<uint32_t>(put) + (1u << 16)}, 0);
    done(Cookie{15}, 0);
    done(put, 0, &other_);
    done(put, static_cast<uint8_t>(kLastStatus) + 1);
    done(put, 255);
    // Operations that the device or this process ends; and pulls that go well, which end with their data.
    for (const Op::Kind kind : {Op::Kind::kDirectChunk, Op::Kind::kDeviceChunk, Op::Kind::kDeviceAtomic})
        done(waiting(kind).cookie, kFault);
    const Cookie pull = waiting(Op::Kind::kPullChunk).cookie;
    const Cookie block = waiting(Op::Kind::kCoopBlock).cookie;
    done(pull, 0);
    done(block, 0);
    EXPECT_EQ(malformed(), 10u);
    EXPECT_TRUE(transfers_.ended.empty());
    done(put, 0);
    done(pull, kFault);
    done(block, kFault);
    EXPECT_EQ(transfers_.ended,
              (decltype(transfers_.ended){
                  {put, Status::kOk, 0}, {pull, Status::kAtuFault, 0}, {block, Status::kAtuFault, 0}}));
}

TEST_F(ServeAlone, other_messages_go_to_the_parts_that_they_are_for) {
    receive({.opcode = Opcode::kCoop});
    receive({.opcode = Opcode::kCoopData}, data(24));
    receive({.opcode = Opcode::kRail});
    EXPECT_EQ(coop_.calls, 1);
    EXPECT_EQ(coop_.data_bytes, sizeof(EngineHeader) + 24) << "with its header";
    EXPECT_EQ(reserving_.messages, 1);
}

}  // namespace
}  // namespace velo
