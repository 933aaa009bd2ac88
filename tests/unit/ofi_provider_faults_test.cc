// A provider that refuses, fails, ends operations late, or ends one twice.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "tests/conformance/ofi_fabric.h"
#include "velo/ofi/frames.h"
#include "velo/ofi/rma_unit.h"

namespace velo::ofi {
namespace {

using conformance::address_of;

Choice on_lo() {
    return choose_provider({.provider_include = conformance::kTcpProvider, .interface_include = "lo"});
}

/// Stands in for the provider of an open endpoint: nothing leaves the process, and the test says what ends and how.
/// One at a time.
class StandIn {
  public:
    explicit StandIn(const Endpoint& endpoint)
        : ep_(endpoint.ep()), cq_(endpoint.cq()), messages_(*ep_->msg), rma_(*ep_->rma), queue_(*cq_->ops) {
        messages_.inject = [](fid_ep*, const void*, size_t, fi_addr_t) -> ssize_t { return 0; };
        messages_.send = [](fid_ep*, const void*, size_t, void*, fi_addr_t, void* context) -> ssize_t {
            return self_->take(context);
        };
        rma_.read = [](fid_ep*, void* to, size_t, void*, fi_addr_t, uint64_t, uint64_t, void* context) -> ssize_t {
            const ssize_t result = self_->take(context);
            if (result == 0) self_->targets.push_back(to);
            return result;
        };
        queue_.read = [](fid_cq*, void* entries, size_t) -> ssize_t { return self_->read(entries); };
        queue_.readfrom = [](fid_cq*, void* entries, size_t, fi_addr_t* from) -> ssize_t {
            *from = FI_ADDR_NOTAVAIL;
            return self_->read(entries);
        };
        queue_.readerr = [](fid_cq*, fi_cq_err_entry* entry, uint64_t) -> ssize_t {
            *entry = {};
            entry->op_context = self_->failing.front();
            entry->err = FI_EIO;
            self_->failing.pop_front();
            return 1;
        };
        self_ = this;
        std::swap(ep_->msg, own_messages_);
        std::swap(ep_->rma, own_rma_);
        std::swap(cq_->ops, own_queue_);
    }
    ~StandIn() {
        std::swap(ep_->msg, own_messages_);
        std::swap(ep_->rma, own_rma_);
        std::swap(cq_->ops, own_queue_);
    }
    StandIn(const StandIn&) = delete;
    StandIn& operator=(const StandIn&) = delete;

    uint32_t refusals = 0;         ///< of what is handed over next
    std::vector<void*> taken;      ///< contexts, in order
    std::vector<void*> targets;    ///< of reads, in order
    std::deque<void*> finishing;   ///< contexts whose completions are read next
    std::deque<void*> failing;     ///< contexts that end with an error, after those

  private:
    ssize_t take(void* context) {
        if (refusals != 0) return --refusals, -FI_EAGAIN;
        taken.push_back(context);
        return 0;
    }
    ssize_t read(void* entries) {
        if (!finishing.empty()) {
            auto& entry = *static_cast<fi_cq_data_entry*>(entries);
            entry = {};
            entry.op_context = finishing.front();
            finishing.pop_front();
            return 1;
        }
        return failing.empty() ? -FI_EAGAIN : -FI_EAVAIL;
    }

    static inline StandIn* self_ = nullptr;
    fid_ep* ep_;
    fid_cq* cq_;
    fi_ops_msg messages_;
    fi_ops_rma rma_;
    fi_ops_cq queue_;
    fi_ops_msg* own_messages_ = &messages_;
    fi_ops_rma* own_rma_ = &rma_;
    fi_ops_cq* own_queue_ = &queue_;
};

class ProviderOfOperations : public testing::Test {
  protected:
    Status get(uint16_t cookie, DeviceAddr peer, std::byte* local) {
        return rma_.post({.kind = RmaKind::kGet, .cookie = cookie, .peer = peer, .local = local, .bytes = 8}, 0, {},
                         Status::kOk);
    }
    std::vector<uint16_t> ended() {
        std::vector<uint16_t> cookies;
        for (Notification one; rma_.poll_notification(one);) cookies.push_back(one.cookie);
        return cookies;
    }

    Endpoint endpoint_{on_lo(), 64, 0};
    StandIn provider_{endpoint_};
    RmaUnit rma_{endpoint_, 1};
    std::array<std::byte, 8> first_ = {};
    std::array<std::byte, 8> second_ = {};
    std::array<std::byte, 8> other_ = {};
};

TEST_F(ProviderOfOperations, one_that_refuses_an_operation_is_not_given_the_next_one_to_that_peer_before_it) {
    provider_.refusals = 2;
    ASSERT_EQ(get(1, 0, first_.data()), Status::kOk);
    ASSERT_EQ(get(2, 0, second_.data()), Status::kOk);
    ASSERT_EQ(get(3, 1, other_.data()), Status::kOk) << "another peer's";
    EXPECT_EQ(provider_.refusals, 0u);
    EXPECT_TRUE(provider_.targets.empty());

    provider_.refusals = 1;
    EXPECT_EQ(rma_.progress(1), 1u);
    EXPECT_EQ(provider_.targets, std::vector<void*>{other_.data()});
    EXPECT_EQ(rma_.progress(2), 2u);
    EXPECT_EQ(provider_.targets, (std::vector<void*>{other_.data(), first_.data(), second_.data()}));
    EXPECT_EQ(rma_.operations(0), 2u);
}

TEST_F(ProviderOfOperations, one_that_finishes_an_operation_twice_ends_it_once) {
    ASSERT_EQ(get(1, 0, first_.data()), Status::kOk);
    auto& context = *static_cast<Context*>(provider_.taken.front());
    rma_.completed(context, 0);
    rma_.completed(context, FI_EIO);
    EXPECT_EQ(ended(), std::vector<uint16_t>{1});
    EXPECT_FALSE(rma_.under_way());
    ASSERT_EQ(get(2, 0, first_.data()), Status::kOk);
    ASSERT_EQ(get(3, 0, second_.data()), Status::kOk);
    EXPECT_NE(provider_.taken[1], provider_.taken[2]) << "two operations with one context";
    EXPECT_EQ(rma_.operations(0), 2u);
}

/// A device whose hellos take a frame, and peers that are only addresses.
class ProviderOfMessages : public testing::Test {
  protected:
    static Choice short_injects() {
        Choice choice = on_lo();
        choice.info->tx_attr->inject_size = kPacketBytes;
        return choice;
    }
    DeviceAddr peer() {
        Address address = device_.own_address();
        address.head.node = ++nodes_;
        address.head.token += nodes_;
        std::array<std::byte, kAddressBytesMax> bytes;
        const size_t length = write_address(address, bytes);
        DeviceAddr name = kNoAddr;
        EXPECT_EQ(device_.connect(std::span(bytes).first(length), name, nullptr), Status::kOk);
        return name;
    }
    /// A message that takes a frame. Counts what was written.
    Status send(DeviceAddr to) {
        const auto fill = [this](uint32_t index, std::byte*) {
            ++packets_written_;
            return PacketStatus{.end_of_message = index == 1, .length = kPayloadBytes};
        };
        return device_.send(to, 2, Admission::kCredited, PacketFill(fill));
    }
    void finish_all() {
        provider_.finishing.assign(provider_.taken.begin(), provider_.taken.end());
        provider_.taken.clear();
        progress([this] { return provider_.finishing.empty(); });
    }
    template <class Done>
    void progress(Done&& done) {
        for (int step = 0; step < 10'000 && !done(); ++step) device_.progress(now_ns_ += 1000);
        EXPECT_TRUE(done());
    }

    OfiDevice device_{{.node = 1, .mailbox_slots = 64, .faults = {}}, short_injects()};
    StandIn provider_{device_.endpoint()};
    uint64_t now_ns_ = 0;
    uint32_t packets_written_ = 0;
    uint16_t nodes_ = 1;
};

TEST_F(ProviderOfMessages, one_that_is_slow_leaves_no_frame_behind_a_hello_and_nothing_is_written) {
    const DeviceAddr busy = peer();
    const DeviceAddr met = peer();
    // The first one's hello takes a frame as well, and one is left.
    for (uint32_t sent = 0; sent < Frames::kCount - 2; ++sent) ASSERT_EQ(send(busy), Status::kOk);
    ASSERT_EQ(provider_.taken.size(), Frames::kCount - 1);
    packets_written_ = 0;
    EXPECT_EQ(send(met), Status::kAgain);
    EXPECT_EQ(device_.ofi_counters().hellos_sent, 2u);
    EXPECT_EQ(packets_written_, 0u);
    finish_all();
    EXPECT_EQ(send(met), Status::kOk);
    EXPECT_EQ(device_.ofi_counters().hellos_sent, 2u);
    EXPECT_EQ(packets_written_, 2u);
    finish_all();
}

TEST_F(ProviderOfMessages, one_that_fails_all_messages_to_a_peer_breaks_its_stream_once) {
    const DeviceAddr to = peer();
    for (int message = 0; message < 3; ++message) ASSERT_EQ(send(to), Status::kOk);
    provider_.failing.assign(provider_.taken.begin(), provider_.taken.end());
    progress([this] { return provider_.failing.empty(); });
    EXPECT_FALSE(device_.alive(to));
    EXPECT_EQ(device_.peers_ended(), 1u);
    EXPECT_EQ(device_.ofi_counters().broken_streams, 1u);
    EXPECT_EQ(send(to), Status::kPeerDead);
}

}  // namespace
}  // namespace velo::ofi
