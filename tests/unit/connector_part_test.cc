// Connecting alone: whatever a peer may have published, over a node and a device that connect as the test says.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/engine/connector_impl.h"

namespace velo {
namespace {

struct FakeCore : test::PlainCore {
    FakeCore() {
        options.identity.name = 1;
        options.identity.job = 5;
        options.identity.rank = 3;
        options.identity.job_size = 8;
        options.node = 2;
        options.plan.peers = 4;
        options.plan.mailbox_slots = 100;
        options.plan.quota = 20;
        options.params.device_message_bytes_max = 4096;
    }
    struct {
        int32_t probed = 0;   ///< processes that were read from
        uint64_t memory = 0;  ///< the peer's eight bytes
        Status says = Status::kOk;
        [[nodiscard]] static uint64_t random_token() { return 0x1234; }
        [[nodiscard]] static uint64_t host_identity() { return 0xabc; }
        Status copy_from(int32_t /*pid*/, std::byte* to, uint64_t /*from*/, size_t bytes) {
            ++probed;
            if (says == Status::kOk) std::memcpy(to, &memory, bytes);
            return says;
        }
    } system;
    struct {
        std::vector<uint64_t> connected;  ///< names
        Status says = Status::kOk;
        [[nodiscard]] static shm::OnNodeAddress address() {
            shm::OnNodeAddress own;
            own.segment.namespaces = 9;
            return own;
        }
        Status connect(const shm::OnNodeAddress& address, shm::PeerIndex& index, base::Failure* failure) {
            *failure = {.call = "open", .error = EACCES};
            if (says != Status::kOk) return says;
            connected.push_back(address.name);
            index = shm::PeerIndex{6};
            return says;
        }
    } on_node;
    struct Device {
        DeviceTraits with{};
        std::vector<size_t> connected;  ///< bytes of addresses
        [[nodiscard]] const DeviceTraits& traits() const { return with; }
        [[nodiscard]] static size_t address(std::span<std::byte> /*out*/) { return 16; }
        [[nodiscard]] static const char* name() { return "a device"; }
        Status connect(std::span<const std::byte> address, DeviceAddr& at, base::Failure* /*failure*/) {
            connected.push_back(address.size());
            at = DeviceAddr{2};
            return Status::kOk;
        }
    };
    std::optional<Device> device{Device{}};
    struct {
        bool full = false;
        std::vector<uint32_t> known;
        [[nodiscard]] bool admits(DeviceAddr /*peer*/) const { return !full; }
        void know(DeviceAddr peer) { known.push_back(peer); }
        auto* operator->() { return this; }
    } packets;
};

}  // namespace

template <>
class rma::DeniedCopies<FakeCore> {
  public:
    void report(const velo_peer& peer) { peers.push_back(peer.rank); }
    std::vector<uint32_t> peers;
};
template <>
class Failures<FakeCore> {
  public:
    [[nodiscard]] bool idle(const velo_peer& /*peer*/) const { return nothing_pending; }
    void recycle(velo_peer& /*peer*/) { ++recycled; }
    bool nothing_pending = true;
    int recycled = 0;
};

namespace {

class ConnectorAlone : public testing::Test {
  protected:
    /// That of a peer of this node.
    [[nodiscard]] EngineAddress near() const {
        EngineAddress address = connector_.address();
        address.process.name = 50;
        address.process.rank = 7;
        address.on_node.name = 50;
        address.on_node.segment.pid = 4000;
        address.probe.value = core_.system.memory;
        return address;
    }
    /// That of a peer of another node of this host.
    [[nodiscard]] EngineAddress far() const {
        EngineAddress address = near();
        address.process.node = 1;
        return address;
    }
    Status connect(const EngineAddress& address, bool same_host = true) {
        error_.clear();
        return connector_.connect(address, same_host, &context_, peer_, error_);
    }
    /// Refused with a line that says this, and nothing was attached.
    void refused(const EngineAddress& address, const std::string& text, bool same_host = true) {
        EXPECT_EQ(connect(address, same_host), Status::kUnsupported);
        EXPECT_NE(error_.find(text), std::string::npos) << error_;
        EXPECT_TRUE(core_.on_node.connected.empty() && core_.device->connected.empty());
        EXPECT_EQ(peer_, nullptr);
        EXPECT_TRUE(peers_.on_node().empty() && peers_.device().empty());
    }

    FakeCore core_;
    Peers peers_;
    rma::DeniedCopies<FakeCore> denied_;
    Failures<FakeCore> failures_;
    Connector<FakeCore> connector_{core_, peers_, denied_, failures_};
    velo_peer* peer_ = nullptr;
    std::string error_;
    int context_ = 0;
};

TEST_F(ConnectorAlone, another_version_is_refused_before_anything_else_of_it_is_looked_at) {
    EngineAddress address = near();
    ++address.version;
    address.device_bytes = UINT32_MAX;
    refused(address, "another version of velo");
    address = near();
    address.magic ^= 1;
    refused(address, "another version of velo");
}

TEST_F(ConnectorAlone, values_that_differ_are_named_with_both_ranks) {
    EngineAddress address = far();
    address.settings.slots = 9;
    refused(address, "btl_velo_slots is 0 at rank 3 and 9 at rank 7");
    address = far();
    address.message_bytes_max = 5000;
    refused(address, "btl_velo_max_send_size or eager_limit is 4096 at rank 3 and 5000 at rank 7");
    // Nodes of another size: then neither knows the other's.
    address = near();
    address.settings.ranks_per_node = 4;
    refused(address, "btl_velo_ranks_per_node");
}

TEST_F(ConnectorAlone, impossible_device_addresses_reach_no_device) {
    EngineAddress address = far();
    for (const uint32_t bytes : {0u, static_cast<uint32_t>(sizeof address.device) + 1, UINT32_MAX}) {
        address.device_bytes = bytes;
        refused(address, "impossible address");
    }
    core_.device.reset();
    EXPECT_EQ(connect(far()), Status::kUnsupported);
}

TEST_F(ConnectorAlone, mailbox_that_was_planned_otherwise_is_refused) {
    const std::vector<std::function<void(EngineAddress&)>> changes = {
        [](EngineAddress& address) { ++address.mailbox.quota; },
        [](EngineAddress& address) { ++address.mailbox.credit_slots; },
        [](EngineAddress& address) { ++address.mailbox.slots; },
        [](EngineAddress& address) { ++address.contact_slots; },
        [](EngineAddress& address) { ++address.mailbox.flow_control; }};
    for (const auto& change : changes) {
        EngineAddress address = far();
        change(address);
        refused(address, "planned its mailbox otherwise");
    }
    EngineAddress other_job = far();
    other_job.process.job = 6;
    other_job.on_node.segment.namespaces = 8;  // and not attachable
    core_.device->with.other_hosts = true;
    other_job.network = 1;
    refused(other_job, "of another job, in another container");
    core_.options.plan.contact_slots = 3;
    other_job.mailbox.slots = 50;
    refused(other_job, "mailboxes of 50 slots");
}

TEST_F(ConnectorAlone, peer_of_another_host_needs_a_network_at_both_ends) {
    EngineAddress address = far();
    address.host = 0xdef;
    refused(address, "on another host, and this rank began without a network", false);
    core_.device->with.other_hosts = true;
    refused(address, "has no network's device open", false);
    core_.options.no_network = "libfabric found none";
    refused(address, "libfabric found none", false);
    core_.options.no_network.clear();
    address.network = 1;
    EXPECT_EQ(connect(address, false), Status::kOk);
    EXPECT_EQ(peer_->path, VELO_PATH_DEVICE);
    EXPECT_FALSE(peer_->attachable);
}

TEST_F(ConnectorAlone, host_that_is_not_known_is_another_one) {
    EngineAddress address = near();
    address.host = 0;
    refused(address, "on another host", false);
}

TEST_F(ConnectorAlone, sender_that_the_mailbox_was_not_planned_for_is_refused) {
    core_.packets.full = true;
    EXPECT_EQ(connect(far()), Status::kNoResource);
    EXPECT_EQ(error_, "the mailbox was planned for 4 senders");
    EXPECT_TRUE(core_.packets.known.empty());
    core_.packets.full = false;
    EXPECT_EQ(connect(far()), Status::kOk);
    EXPECT_EQ(core_.packets.known, std::vector<uint32_t>{2});
    EXPECT_EQ(core_.device->connected.back(), 16u);
}

TEST_F(ConnectorAlone, direct_copies_need_that_the_peers_own_word_was_read) {
    core_.system.memory = 0x77;
    EXPECT_EQ(connect(near()), Status::kOk);
    EXPECT_TRUE(peer_->direct);
    EXPECT_TRUE(denied_.peers.empty());
    peer_->connected = false;
    core_.system.memory = 0x78;  // another process has that PID, or that address
    EngineAddress stale = near();
    stale.probe.value = 0x77;
    EXPECT_EQ(connect(stale), Status::kOk);
    EXPECT_FALSE(peer_->direct);
    peer_->connected = false;
    core_.system.says = Status::kUnsupported;
    EXPECT_EQ(connect(near()), Status::kOk);
    EXPECT_FALSE(peer_->direct);
    EXPECT_EQ(denied_.peers, (std::vector<uint32_t>{7, 7}));
}

TEST_F(ConnectorAlone, without_single_copies_no_memory_is_read) {
    core_.options.node_copies.single = false;
    EXPECT_EQ(connect(near()), Status::kOk);
    EXPECT_FALSE(peer_->direct);
    EXPECT_EQ(core_.system.probed, 0);
    EXPECT_TRUE(denied_.peers.empty()) << "it was the user's wish";
}

TEST_F(ConnectorAlone, peer_that_connects_again_is_the_same) {
    EXPECT_EQ(connect(near()), Status::kOk);
    velo_peer* const first = peer_;
    EXPECT_EQ(connect(near()), Status::kOk);
    EXPECT_EQ(peer_, first);
    EXPECT_EQ(core_.system.probed, 1);
    EXPECT_EQ(peer_->context, &context_);
    EXPECT_EQ(peer_->name, 50u);
}

TEST_F(ConnectorAlone, process_of_another_job_is_attached_where_it_can_be) {
    EngineAddress address = far();
    address.process.job = 6;
    address.settings.slots = 9;  // its own job's
    EXPECT_EQ(connect(address), Status::kOk);
    EXPECT_EQ(peer_->path, VELO_PATH_ON_NODE);
}

TEST_F(ConnectorAlone, memory_that_cannot_be_attached_is_said_with_its_cause) {
    core_.on_node.says = Status::kNoResource;
    EXPECT_EQ(connect(near()), Status::kNoResource);
    EXPECT_NE(error_.find("its shared memory cannot be attached: open: Permission denied"), std::string::npos)
        << error_;
    EXPECT_EQ(peer_, nullptr);
}

TEST_F(ConnectorAlone, peer_that_is_left_is_recycled_once_nothing_of_it_is_pending) {
    EXPECT_EQ(connect(near()), Status::kOk);
    failures_.nothing_pending = false;
    EXPECT_FALSE(connector_.disconnect(*peer_));
    EXPECT_EQ(peer_->context, nullptr);
    failures_.nothing_pending = true;
    core_.events.told = false;
    EXPECT_FALSE(connector_.disconnect(*peer_)) << "an event of it may be queued";
    core_.events.told = true;
    EXPECT_TRUE(connector_.disconnect(*peer_));
    EXPECT_EQ(failures_.recycled, 0) << "its process lives, and may write";
    peer_->reclaimed = true;
    EXPECT_TRUE(connector_.disconnect(*peer_));
    EXPECT_EQ(failures_.recycled, 1);
}

}  // namespace
}  // namespace velo
