// Transfers, with the parts that move their chunks by copies, by the device and in messages, over a node, a device and
// neighbours that do as the test says; and what a device and peers may report that was never begun.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/rendezvous/device_operations_impl.h"
#include "velo/rendezvous/transfers_impl.h"

namespace velo::rma {
namespace {

struct FakeCore : test::PlainCore {
    FakeCore() {
        options.window.chunks = 4;
        options.window.chunk_bytes = 1000;
    }
    struct Release {
        explicit Release(FakeCore& /*core*/) {}
    };
    struct {
        alignas(8) std::array<std::byte, base::AtuTable::bytes_for(8)> shared{};
        base::AtuTable peers{shared.data(), 8};
        [[nodiscard]] const base::AtuView& atu_of(shm::PeerIndex /*peer*/) const { return peers.view(); }
        [[nodiscard]] static int32_t pid(shm::PeerIndex /*peer*/) { return 7; }
        [[nodiscard]] static bool claim_denial_report(const shm::PeerIndex* /*owner*/) { return true; }
    } on_node;
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
        [[nodiscard]] static base::Failure refused_copy() { return {}; }
    } system;
    struct Device {
        std::deque<Notification> notifications;
        DeviceTraits says{};
        [[nodiscard]] const DeviceTraits& traits() const { return says; }
        bool poll_notification(Notification& out) {
            if (notifications.empty()) return false;
            out = notifications.front();
            notifications.pop_front();
            return true;
        }
    };
    std::optional<Device> device{Device{}};
    bool driving = false;
};

using Op = PendingOp<velo_peer>;
using State = TransferState<velo_peer>;

}  // namespace
}  // namespace velo::rma

namespace velo {

template <>
class EngineMessages<rma::FakeCore> {
  public:
    void reports_to(CookieOwner& /*owner*/) {}
    void send_control(velo_peer& /*peer*/, const PullHeader& header) { pulls.push_back(header); }
    void put(velo_peer& /*peer*/, const PutDataHeader& header, uint64_t /*address*/, uint64_t /*bytes*/) {
        puts.push_back(header);
    }
    std::vector<PullHeader> pulls;
    std::vector<PutDataHeader> puts;
};

namespace rma {

template <>
class RailDispatch<FakeCore> {
  public:
    PeerSources& sources_of(velo_peer& peer) {
        if (peer.sources == nullptr) peer.sources = std::make_unique<PeerSources>();
        return *peer.sources;
    }
    Status post_chunk(State& /*state*/, Op& waiting, const RmaOperation& operation, RailMask refused) {
        if (says != Status::kOk) return says;
        EXPECT_EQ(operation.cookie, waiting.index());
        posted.emplace_back(operation, refused);
        return Status::kOk;
    }
    static bool chunk_ended(const Op& /*waiting*/, RailDirection /*direction*/, Status status) {
        return status == Status::kFailed || status == Status::kNotBegun;
    }
    static bool atomic_ended(const Op& /*waiting*/, Status /*status*/) { return false; }
    Status says = Status::kOk;
    std::vector<std::pair<RmaOperation, RailMask>> posted;
};
template <>
class Reserving<FakeCore> {
  public:
    void reports_to(TransferOps& /*transfers*/) {}
    static bool takes(State& /*state*/) { return false; }
    void drive() {}
    void chunk_began(State& /*state*/, Op& /*chunk*/) {}
    void chunk_ended(State& /*state*/, Op& /*chunk*/) {}
    void transfer_ended(State& /*state*/) { ++ended; }
    void rail_failed(velo_peer& /*peer*/, uint32_t /*rail*/) { ++failed; }
    int ended = 0;
    int failed = 0;
};
template <>
class Atomics<FakeCore> {
  public:
    void reports_to(TransferOps& /*transfers*/) {}
    uint32_t drive() { return 0; }
    void enqueue(State& state) { queued.push_back(&state); }
    void requeue(State& state) { queued.push_back(&state); }
    bool post(State& state) {
        queued.push_back(&state);
        return true;
    }
    void done(State& /*state*/, Status status, uint64_t value) { ended.emplace_back(status, value); }
    std::vector<State*> queued;
    std::vector<std::pair<Status, uint64_t>> ended;
};
template <>
class CoopReader<FakeCore> {
  public:
    static constexpr uint32_t kBytesMin = 16u << 10;
    static constexpr uint32_t kBlockBytesMax = 64u << 20;
    void reports_to(TransferOps& /*transfers*/) {}
    static bool begin(State& /*state*/, const Chunk& /*chunk*/) { return false; }
    void owner_done(const Op& /*op*/, Status /*status*/, uint64_t /*missing*/) { ++ends; }
    int ends = 0;
};

}  // namespace rma
}  // namespace velo

namespace velo::rma {
namespace {

struct FakeSink : OperationSink {
    std::vector<std::pair<velo_rma_t*, Status>> all_fetched;
    int gone = 0;
    void fetched(velo_rma_t& op, Status status) override { all_fetched.emplace_back(&op, status); }
    void peer_gone(velo_peer& /*peer*/, const velo_rma_t& /*op*/) override { ++gone; }
};

class TransfersAlone : public testing::Test {
  protected:
    TransfersAlone() {
        transfers_.reports_to(sink_);
        near_.path = VELO_PATH_ON_NODE;
        far_.path = VELO_PATH_DEVICE;
        near_.direct = far_.direct = true;
        EXPECT_EQ(core_.on_node.peers.add(remote_.data(), sizeof remote_, kAccessAny, there_), Status::kOk);
    }
    velo_rma_t& post(velo_peer& peer, velo_rma_kind_t kind, uint64_t bytes) {
        velo_rma_t& op = ops_.emplace_back();
        op.kind = kind;
        op.bytes = bytes;
        op.local = local_.data();
        op.remote.base = op.remote_address = reinterpret_cast<uint64_t>(remote_.data());
        op.remote.bytes = sizeof remote_;
        op.remote.nla[0] = there_.nla;
        op.remote.nla[1] = 0x9000;
        op.remote.on_node_key = static_cast<uint32_t>(there_.key);
        op.remote.device_key = 3;
        op.remote.check = check_of(op.remote);
        prepare_(op);
        transfers_.post(peer, op);
        return op;
    }
    void notify(uint16_t cookie, Status status, uint64_t value = 0, Notify kind = kNotifyRequester) {
        Notification& told = core_.device->notifications.emplace_back();
        told.kind = kind;
        told.status = status;
        told.cookie = cookie;
        told.value = value;
        on_device_.take_notifications();
    }
    [[nodiscard]] uint16_t posted_cookie(size_t i) const {
        return static_cast<uint16_t>(rails_.posted[i].first.cookie);
    }
    /// The only operation that has ended did so with this status.
    void ended(const velo_rma_t& op, Status status) {
        ASSERT_EQ(core_.events.operations.size(), 1u);
        EXPECT_EQ(core_.events.operations[0].first, &op);
        EXPECT_EQ(core_.events.operations[0].second, status);
        EXPECT_EQ(core_.jobs_ended.size(), status == Status::kOk ? 0u : 1u)
            << "ob1 does not look at the status";
        EXPECT_EQ(pending_.taken(), 0u);
        EXPECT_TRUE(transfers_.idle());
    }
    uint64_t malformed() { return std::exchange(core_.counters.engine_malformed, 0); }

    std::array<std::byte, 4000> remote_{};
    std::array<std::byte, 4000> local_{};
    Registration there_;
    FakeCore core_;
    Peers peers_;
    CookieTable<Op> pending_{16};
    EngineMessages<FakeCore> messages_;
    RailDispatch<FakeCore> rails_;
    Reserving<FakeCore> reserving_;
    Atomics<FakeCore> atomics_;
    DeniedCopies<FakeCore> denied_{core_, peers_};
    CoopReader<FakeCore> coop_;
    CopiedChunks<FakeCore> copied_{core_, messages_};
    DeviceOperations<FakeCore> on_device_{core_, pending_, rails_, reserving_, atomics_, denied_, copied_};
    FakeSink sink_;
    Transfers<FakeCore> transfers_{core_,    pending_, messages_, rails_,  reserving_,
                                   atomics_, denied_,  coop_,     copied_, on_device_};
    velo_peer near_, far_;
    void (*prepare_)(velo_rma_t&) = [](velo_rma_t&) {};
    std::deque<velo_rma_t> ops_;
};

TEST_F(TransfersAlone, transfer_of_nothing_ends_at_once) {
    ended(post(near_, VELO_RMA_PUT, 0), Status::kOk);
}

TEST_F(TransfersAlone, on_the_node_memory_is_copied_where_the_peers_table_allows_it) {
    local_[5] = std::byte{7};
    const velo_rma_t& op = post(near_, VELO_RMA_PUT, 100);
    ended(op, Status::kOk);
    EXPECT_EQ(remote_[5], std::byte{7});
    EXPECT_EQ(core_.counters.rma_put_bytes, 100u);
    EXPECT_EQ(reserving_.ended, 1);
}

TEST_F(TransfersAlone, handle_that_is_torn_is_not_believed_and_the_memory_is_looked_for) {
    prepare_ = [](velo_rma_t& op) { op.remote.nla[0] += 64; };  // half of another handle
    local_[0] = std::byte{7};
    ended(post(near_, VELO_RMA_PUT, 8), Status::kOk);
    EXPECT_EQ(remote_[0], std::byte{7}) << "and not 64 bytes further on";
    EXPECT_EQ(core_.counters.rma_finds, 1u);
}

/// A device may have no table to look into before it writes.
TEST_F(TransfersAlone, handle_that_is_torn_is_not_given_to_the_device) {
    prepare_ = [](velo_rma_t& op) { op.remote.nla[1] += 64; };
    post(far_, VELO_RMA_GET, 8);
    EXPECT_TRUE(rails_.posted.empty());
    ASSERT_EQ(messages_.pulls.size(), 1u);
    EXPECT_EQ(messages_.pulls[0].key, kKeyOfAddress);
    EXPECT_EQ(messages_.pulls[0].nla, reinterpret_cast<uint64_t>(remote_.data()));
}

/// It says one address, and its owner's table another.
TEST_F(TransfersAlone, handle_that_its_owners_table_contradicts_is_not_believed) {
    prepare_ = [](velo_rma_t& op) {
        op.remote.nla[0] += 64;
        op.remote.check = check_of(op.remote);
    };
    local_[0] = std::byte{7};
    ended(post(near_, VELO_RMA_PUT, 8), Status::kOk);
    EXPECT_EQ(remote_[0], std::byte{7}) << "and not 64 bytes further on";
}

TEST_F(TransfersAlone, memory_that_is_nowhere_registered_ends_the_job_and_touches_nothing) {
    prepare_ = [](velo_rma_t& op) { op.remote_address += 3990; };  // over the end of its registration
    local_[0] = std::byte{7};
    ended(post(near_, VELO_RMA_PUT, 100), Status::kAtuFault);
    EXPECT_EQ(remote_[3990], std::byte{});
    EXPECT_EQ(core_.counters.rma_failed, 1u);
}

TEST_F(TransfersAlone, registration_that_was_revoked_does_not_count_although_bytes_were_moved) {
    ASSERT_EQ(core_.on_node.peers.remove(there_), Status::kOk);
    ended(post(near_, VELO_RMA_GET, 100), Status::kAtuFault);
    EXPECT_EQ(core_.counters.rma_get_bytes, 0u);
}

TEST_F(TransfersAlone, chunks_go_to_the_device_as_far_as_the_window_goes) {
    const velo_rma_t& op = post(far_, VELO_RMA_GET, 4000);
    ASSERT_EQ(rails_.posted.size(), 4u);
    uint64_t next = 0;
    for (const auto& [operation, refused] : rails_.posted) {
        EXPECT_EQ(operation.nla, 0x9000 + next);
        next += operation.bytes;
    }
    EXPECT_EQ(next, 4000u);
    for (size_t i = 0; i < 4; ++i) notify(posted_cookie(i), Status::kOk);
    ended(op, Status::kOk);
    EXPECT_EQ(core_.counters.rma_get_bytes, 4000u);
}

TEST_F(TransfersAlone, memory_that_a_stream_would_copy_slowly_is_fetched_from_its_second_line_on) {
    core_.device->says = {.get_header_bytes = 16, .put_header_bytes = 40};
    core_.options.window.chunk_bytes = 1u << 20;
    static std::array<std::byte, (64u << 10) + 8192> far_memory;
    static uint64_t address;
    for (const bool get : {true, false}) {
        for (const uint64_t offset : {0u, 16u, 64u}) {
            for (const uint64_t bytes : {64u << 10, 4096u}) {
                const auto begin = reinterpret_cast<uintptr_t>(far_memory.data());
                address = (begin + 4095) / 4096 * 4096 + offset;
                prepare_ = [](velo_rma_t& op) {
                    op.local = reinterpret_cast<void*>(address);
                    op.remote.base = op.remote_address = address;
                    op.remote.bytes = op.bytes;
                    op.remote.check = check_of(op.remote);
                };
                rails_.posted.clear();
                core_.events.operations.clear();
                const velo_rma_t& op = post(far_, get ? VELO_RMA_GET : VELO_RMA_PUT, bytes);
                const bool led = bytes != 4096 && offset == (get ? 0 : 16);
                ASSERT_EQ(rails_.posted.size(), led ? 2u : 1u) << get << " " << offset << " " << bytes;
                if (led) {
                    EXPECT_EQ(rails_.posted[0].first.bytes, 64 - offset);
                    EXPECT_EQ(rails_.posted[1].first.nla, 0x9000 + 64 - offset);
                }
                for (size_t i = 0; i < rails_.posted.size(); ++i) notify(posted_cookie(i), Status::kOk);
                ended(op, Status::kOk);
            }
        }
    }
}

TEST_F(TransfersAlone, notifications_of_what_was_not_asked_of_the_device_end_nothing) {
    const velo_rma_t& op = post(far_, VELO_RMA_GET, 1000);
    ASSERT_EQ(rails_.posted.size(), 1u);
    Op& pull = *pending_.take();
    pull.kind = Op::Kind::kPullChunk;
    notify(15, Status::kOk);
    notify(UINT16_MAX, Status::kOk);
    notify(pull.index(), Status::kOk);
    notify(posted_cookie(0), Status::kOk, 0, kNotifyCompleter);
    EXPECT_EQ(malformed(), 4u);
    EXPECT_TRUE(core_.events.operations.empty());
    pending_.release(pull);
    notify(posted_cookie(0), Status::kOk);
    notify(posted_cookie(0), Status::kOk);
    EXPECT_EQ(malformed(), 1u) << "twice";
    ended(op, Status::kOk);
}

TEST_F(TransfersAlone, chunk_that_the_device_has_no_room_for_is_kept_and_taken_later) {
    rails_.says = Status::kAgain;
    const velo_rma_t& op = post(far_, VELO_RMA_PUT, 1000);
    EXPECT_EQ(core_.counters.rma_held, 1u);
    EXPECT_EQ(pending_.taken(), 0u);
    rails_.says = Status::kOk;
    EXPECT_EQ(transfers_.drive(), 1u);
    notify(posted_cookie(0), Status::kOk);
    ended(op, Status::kOk);
}

TEST_F(TransfersAlone, chunk_that_the_device_does_not_take_goes_in_messages) {
    rails_.says = Status::kUnsupported;
    const velo_rma_t& op = post(far_, VELO_RMA_GET, 1000);
    ASSERT_EQ(messages_.pulls.size(), 1u);
    EXPECT_EQ(messages_.pulls[0].bytes, 1000u);
    EXPECT_EQ(messages_.pulls[0].nla, there_.nla);
    transfers_.end(messages_.pulls[0].cookie, Status::kOk, 0);
    ended(op, Status::kOk);
    transfers_.end(messages_.pulls[0].cookie, Status::kOk, 0);
    EXPECT_EQ(core_.events.operations.size(), 1u) << "a late answer finds nothing";
}

TEST_F(TransfersAlone, chunk_that_a_rail_failed_is_repeated_and_at_last_goes_in_guarded_messages) {
    const velo_rma_t& op = post(far_, VELO_RMA_GET, 1000);
    for (size_t i = 0; messages_.pulls.empty(); ++i) {
        ASSERT_LT(i, 20u);
        notify(posted_cookie(i), Status::kFailed);
    }
    EXPECT_EQ(rails_.posted.size(), 16u);
    EXPECT_EQ(rails_.posted[1].second, 1u) << "not by the rail that has just failed it";
    EXPECT_EQ(core_.counters.rma_repeated, 16u);
    EXPECT_EQ(messages_.pulls[0].guarded, 1) << "the memory may be gone";
    transfers_.end(messages_.pulls[0].cookie, Status::kOk, 0);
    ended(op, Status::kOk);
}

TEST_F(TransfersAlone, repeat_that_finds_no_room_is_tried_again) {
    post(far_, VELO_RMA_GET, 1000);
    rails_.says = Status::kAgain;
    notify(posted_cookie(0), Status::kFailed);
    EXPECT_EQ(pending_.taken(), 1u);
    rails_.says = Status::kOk;
    transfers_.drive();
    EXPECT_EQ(rails_.posted.size(), 2u);
}

TEST_F(TransfersAlone, first_failure_stays_and_nothing_more_is_issued) {
    core_.options.window.chunk_bytes = 400;  // of which the window takes four
    const velo_rma_t& op = post(far_, VELO_RMA_GET, 4000);
    ASSERT_EQ(rails_.posted.size(), 4u);
    notify(posted_cookie(1), Status::kTimedOut);
    notify(posted_cookie(0), Status::kOk);
    notify(posted_cookie(2), Status::kBadParam);
    EXPECT_TRUE(core_.events.operations.empty());
    notify(posted_cookie(3), Status::kOk);
    EXPECT_EQ(rails_.posted.size(), 4u);
    ended(op, Status::kTimedOut);
}

TEST_F(TransfersAlone, put_that_is_refused_ends_when_its_memory_is_no_longer_read) {
    far_.direct = false;
    const velo_rma_t& op = post(far_, VELO_RMA_PUT, 1000);
    ASSERT_EQ(messages_.puts.size(), 1u);
    const Cookie cookie = messages_.puts[0].cookie;
    transfers_.end(cookie, Status::kBadMemory, 0);
    EXPECT_TRUE(core_.events.operations.empty());
    ASSERT_NE(pending_.find(cookie), nullptr);
    pending_.find(cookie)->pushing = false;  // all of it has left
    transfers_.end(cookie, Status::kBadMemory, 0);
    ended(op, Status::kBadMemory);
}

TEST_F(TransfersAlone, owner_that_refuses_for_ever_is_asked_a_limited_number_of_times) {
    far_.direct = false;
    const velo_rma_t& op = post(far_, VELO_RMA_GET, 1000);
    for (size_t i = 0; core_.events.operations.empty(); ++i) {
        ASSERT_LT(i, 100u);
        transfers_.end(messages_.pulls[i].cookie, Status::kAtuFault, 0);
    }
    EXPECT_EQ(messages_.pulls.size(), 65u);
    EXPECT_EQ(messages_.pulls[1].key, kKeyOfAddress) << "the owner looks for the memory";
    ended(op, Status::kAtuFault);
}

TEST_F(TransfersAlone, direct_copy_that_finds_no_memory_is_repeated_in_guarded_messages) {
    core_.system.says = Status::kBadMemory;
    post(near_, VELO_RMA_GET, 100);
    ASSERT_EQ(messages_.pulls.size(), 1u);
    EXPECT_EQ(messages_.pulls[0].guarded, 1);
    EXPECT_EQ(core_.counters.rma_guarded, 1u);
    EXPECT_TRUE(near_.direct);
}

TEST_F(TransfersAlone, kernel_that_permits_no_copies_is_reported_once_and_asked_no_more) {
    core_.system.says = Status::kUnsupported;
    post(near_, VELO_RMA_PUT, 100);
    post(near_, VELO_RMA_PUT, 100);
    EXPECT_FALSE(near_.direct);
    EXPECT_EQ(messages_.puts.size(), 2u);
    EXPECT_EQ(core_.counters.rma_fallbacks, 1u);
    velo_peer another;
    another.path = VELO_PATH_ON_NODE;
    another.direct = true;
    post(another, VELO_RMA_PUT, 100);
    EXPECT_EQ(core_.counters.rma_fallbacks, 2u);
    ASSERT_EQ(core_.lines.size(), 1u);
    EXPECT_NE(core_.lines[0].find("does not permit direct copies"), std::string::npos);
}

TEST_F(TransfersAlone, operation_of_another_part_is_told_to_that_and_one_lost_with_its_peer_is_no_mistake) {
    prepare_ = [](velo_rma_t& op) { op.owner = 1; };
    far_.direct = false;
    velo_rma_t& op = post(far_, VELO_RMA_GET, 1000);
    transfers_.end(messages_.pulls[0].cookie, Status::kPeerDead, 0);
    EXPECT_EQ(sink_.all_fetched, (decltype(sink_.all_fetched){{&op, Status::kPeerDead}}));
    EXPECT_EQ(sink_.gone, 1);
    EXPECT_TRUE(core_.jobs_ended.empty());
    EXPECT_TRUE(core_.events.operations.empty());
}

TEST_F(TransfersAlone, answers_go_to_the_part_whose_operation_it_was) {
    velo_rma_t op{};
    State state;
    state.op = &op;
    state.peer = &far_;
    Op& atomic = *pending_.take();
    atomic.kind = Op::Kind::kAtomic;
    atomic.state = &state;
    transfers_.end(atomic.cookie, Status::kOk, 41);
    EXPECT_EQ(atomics_.ended, (decltype(atomics_.ended){{Status::kOk, 41}}));
    Op& block = *pending_.take();
    block.kind = Op::Kind::kCoopBlock;
    block.state = &state;
    transfers_.end(block.cookie, Status::kAtuFault, 8);
    EXPECT_EQ(coop_.ends, 1);
    Op& device = *pending_.take();
    device.kind = Op::Kind::kDeviceAtomic;
    device.state = &state;
    notify(device.index(), Status::kNotBegun);
    EXPECT_EQ(atomics_.queued, std::vector<State*>{&state}) << "again";
    EXPECT_EQ(atomics_.ended.size(), 1u);
}

}  // namespace
}  // namespace velo::rma
