// Atomics alone: by the device or in messages, what waits for either, and what the owner says of them.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/rendezvous/atomics_impl.h"

namespace velo::rma {
namespace {

struct FakeCore : test::PlainCore {
    struct Device {
        DeviceTraits with{.atomics = true};
        [[nodiscard]] const DeviceTraits& traits() const { return with; }
    };
    std::optional<Device> device{Device{}};
};

using Op = PendingOp<velo_peer>;
using State = TransferState<velo_peer>;

}  // namespace
}  // namespace velo::rma

namespace velo {

template <>
class EngineMessages<rma::FakeCore> {
  public:
    void send_control(velo_peer& /*peer*/, const AtomicHeader& header) { sent.push_back(header); }
    std::vector<AtomicHeader> sent;
};

/// Posts, or says why not.
template <>
class rma::RailDispatch<rma::FakeCore> {
  public:
    Status post_atomic(State& state, Op& waiting, const RmaOperation& operation) {
        EXPECT_EQ(waiting.state, &state);
        EXPECT_EQ(waiting.kind, Op::Kind::kDeviceAtomic);
        if (says == Status::kOk) posted.push_back(operation);
        return says;
    }
    Status says = Status::kOk;
    std::vector<RmaOperation> posted;
};

}  // namespace velo

namespace velo::rma {
namespace {

struct FakeTransfers : TransferOps {
    bool finds = false;
    std::vector<std::pair<velo_rma_t*, Status>> ended;
    bool find_remote(State& /*state*/) override { return std::exchange(finds, false); }
    void finished(velo_rma_t& op, Status status) override { ended.emplace_back(&op, status); }
    void admit(State& /*state*/) override { FAIL(); }
    void open(State& /*state*/) override { FAIL(); }
    void chunk_done(State& /*state*/, uint32_t /*bytes*/, Status /*status*/) override { FAIL(); }
    void chunk_refused(State& /*state*/, uint64_t /*offset*/, uint32_t /*bytes*/) override { FAIL(); }
    void memory_refused(State& /*state*/, uint64_t /*offset*/, uint32_t /*bytes*/) override { FAIL(); }
};

class AtomicsAlone : public testing::Test {
  protected:
    AtomicsAlone() {
        atomics_.reports_to(transfers_);
        device_peer_.path = VELO_PATH_DEVICE;
        node_peer_.path = VELO_PATH_ON_NODE;
    }
    State& atomic(velo_peer& peer, velo_atomic_t kind = VELO_ATOMIC_ADD, uint32_t width = 8) {
        velo_rma_t& op = ops_.emplace_back();
        op.kind = VELO_RMA_ATOMIC;
        op.atomic = kind;
        op.width = width;
        op.operand = 40 + ops_.size();
        op.compare = 6;
        op.local = &local_;
        op.remote.base = 0x1000;
        op.remote.nla[0] = 0x100;
        op.remote.nla[1] = 0x200;
        op.remote.device_key = 3;
        op.remote.on_node_key = 5;
        op.remote_address = 0x1008;
        State& state = states_.emplace_back();
        state.op = &op;
        state.peer = &peer;
        return state;
    }

    FakeCore core_;
    CookieTable<Op> pending_{4};
    EngineMessages<FakeCore> messages_;
    RailDispatch<FakeCore> rails_;
    FakeTransfers transfers_;
    Atomics<FakeCore> atomics_{core_, pending_, messages_, rails_};
    velo_peer device_peer_;
    velo_peer node_peer_;
    uint64_t local_ = UINT64_MAX;
    std::deque<velo_rma_t> ops_;
    std::deque<State> states_;
};

TEST_F(AtomicsAlone, device_gets_what_it_has_and_the_owners_engine_the_rest) {
    EXPECT_TRUE(atomics_.post(atomic(device_peer_)));
    EXPECT_TRUE(atomics_.post(atomic(device_peer_, VELO_ATOMIC_COMPARE_SWAP)));
    ASSERT_EQ(rails_.posted.size(), 2u);
    EXPECT_EQ(rails_.posted[0].kind, RmaKind::kFetchAdd);
    EXPECT_EQ(rails_.posted[0].nla, 0x208u);
    EXPECT_EQ(rails_.posted[0].key, 3u);
    EXPECT_EQ(rails_.posted[1].kind, RmaKind::kCompareSwap);
    EXPECT_TRUE(messages_.sent.empty());
    EXPECT_TRUE(atomics_.post(atomic(device_peer_, VELO_ATOMIC_XOR)));
    EXPECT_TRUE(atomics_.post(atomic(node_peer_, VELO_ATOMIC_ADD, 4)));
    EXPECT_EQ(rails_.posted.size(), 2u);
    ASSERT_EQ(messages_.sent.size(), 2u);
    EXPECT_EQ(messages_.sent[0].nla, 0x108u);
    EXPECT_EQ(messages_.sent[0].key, 5u);
    EXPECT_EQ(messages_.sent[0].operand, 43u);
    EXPECT_EQ(messages_.sent[0].compare, 6u);
    EXPECT_NE(messages_.sent[0].cookie, messages_.sent[1].cookie);
}

TEST_F(AtomicsAlone, what_the_device_cannot_do_takes_no_cookie_of_it) {
    State& narrow = atomic(device_peer_, VELO_ATOMIC_ADD, 4);
    State& unnamed = atomic(device_peer_);
    unnamed.op->remote.device_key = 0;
    State& plain = atomic(device_peer_);
    EXPECT_TRUE(atomics_.post(narrow));
    EXPECT_TRUE(atomics_.post(unnamed));
    core_.device->with.atomics = false;
    EXPECT_TRUE(atomics_.post(plain));
    EXPECT_TRUE(rails_.posted.empty());
    EXPECT_EQ(messages_.sent.size(), 3u);
    EXPECT_EQ(pending_.taken(), 3u) << "one each";
}

TEST_F(AtomicsAlone, full_queue_of_the_device_holds_all_in_their_order) {
    State& first = atomic(device_peer_);
    State& second = atomic(device_peer_);
    atomics_.enqueue(first);
    atomics_.enqueue(second);
    rails_.says = Status::kAgain;
    EXPECT_EQ(atomics_.drive(), 0u);
    EXPECT_EQ(core_.counters.rma_held, 1u);
    EXPECT_EQ(pending_.taken(), 0u) << "nothing is under way";
    std::vector<const State*> waiting;
    atomics_.for_each_waiting([&](const State& state) { waiting.push_back(&state); });
    EXPECT_EQ(waiting, (std::vector<const State*>{&first, &second}));
    rails_.says = Status::kOk;
    EXPECT_EQ(atomics_.drive(), 2u);
    ASSERT_EQ(rails_.posted.size(), 2u);
    EXPECT_LT(rails_.posted[0].operand, rails_.posted[1].operand);
    EXPECT_TRUE(atomics_.empty());
}

TEST_F(AtomicsAlone, atomic_that_the_device_did_not_begin_goes_before_those_that_came_after_it) {
    State& returned = atomic(device_peer_);
    State& later = atomic(device_peer_);
    atomics_.enqueue(later);
    atomics_.requeue(returned);
    EXPECT_EQ(atomics_.drive(), 2u);
    EXPECT_EQ(rails_.posted[0].operand, returned.op->operand);
}

TEST_F(AtomicsAlone, without_a_cookie_an_atomic_waits) {
    for (int i = 0; i < 6; ++i) atomics_.enqueue(atomic(node_peer_));
    EXPECT_EQ(atomics_.drive(), 4u);
    EXPECT_EQ(messages_.sent.size(), 4u);
    EXPECT_FALSE(atomics_.empty());
    pending_.release(*pending_.find(messages_.sent[1].cookie));
    EXPECT_EQ(atomics_.drive(), 1u);
    EXPECT_NE(messages_.sent[4].cookie, messages_.sent[1].cookie) << "a late answer finds nothing";
}

TEST_F(AtomicsAlone, old_value_is_written_as_wide_as_the_atomic_and_only_when_it_was_carried_out) {
    State& narrow = atomic(node_peer_, VELO_ATOMIC_ADD, 4);
    atomics_.done(narrow, Status::kOk, 5);
    EXPECT_EQ(local_, 0xffffffff00000005u);
    State& failed = atomic(node_peer_);
    atomics_.done(failed, Status::kProtocol, 1);
    EXPECT_EQ(local_, 0xffffffff00000005u);
    State& unwanted = atomic(node_peer_);
    unwanted.op->local = nullptr;
    atomics_.done(unwanted, Status::kOk, 1);
    EXPECT_EQ(transfers_.ended,
              (decltype(transfers_.ended){
                  {narrow.op, Status::kOk}, {failed.op, Status::kProtocol}, {unwanted.op, Status::kOk}}));
}

TEST_F(AtomicsAlone, atomic_that_its_owners_table_refused_is_sent_again_while_its_memory_is_found) {
    State& state = atomic(node_peer_);
    transfers_.finds = true;
    atomics_.done(state, Status::kAtuFault, 0);
    EXPECT_EQ(messages_.sent.size(), 1u);
    EXPECT_TRUE(transfers_.ended.empty());
    atomics_.done(state, Status::kAtuFault, 0);
    EXPECT_EQ(messages_.sent.size(), 1u);
    EXPECT_EQ(transfers_.ended, (decltype(transfers_.ended){{state.op, Status::kAtuFault}}));
    EXPECT_EQ(local_, UINT64_MAX);
}

}  // namespace
}  // namespace velo::rma
