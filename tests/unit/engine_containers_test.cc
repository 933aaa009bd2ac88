/// Two processes of one host that cannot attach each other's memory, as those of two containers.
#include <optional>

#include "tests/unit/job.h"
#include "velo/core/peer.h"

namespace velo::test {
namespace {

TEST(Vicinity, is_what_both_sides_find) {
    constexpr uint64_t kIds[] = {0, 1, 2};
    for (const uint64_t host : kIds) {
        for (const uint64_t namespaces : kIds) {
            for (const bool same_host : {false, true}) {
                EngineAddress a, b;
                a.host = 1;
                a.on_node.segment.namespaces = 1;
                b.host = host;
                b.on_node.segment.namespaces = namespaces;
                EXPECT_EQ(vicinity(a, b, same_host), vicinity(b, a, same_host));
                EXPECT_EQ(vicinity(a, b, same_host) == Vicinity::kOtherHost, !same_host && host != 1);
                EXPECT_EQ(vicinity(a, b, same_host) == Vicinity::kAttachable,
                          (same_host || host == 1) && namespaces == 1);
            }
        }
    }
}

TEST(Vicinity, of_hosts_that_do_not_tell_is_the_launchers_word) {
    const EngineAddress silent;
    EXPECT_EQ(vicinity(silent, silent, false), Vicinity::kOtherHost);
    EXPECT_EQ(vicinity(silent, silent, true), Vicinity::kAttachable);
}

/// Whether the ranks of emulated nodes have a network's device here; the software device otherwise.
bool over_network() {
    return std::getenv("VELO_TEST_DEVICE") != nullptr;
}

velo_params_t nodes_of(int ranks, const char* flow_control = "dynamic") {
    velo_params_t params = default_params();
    params.ranks_per_node = ranks;
    params.flow_control = flow_control;
    return params;
}

/// Connects as if the two were in different containers. The error, if it is refused.
std::optional<std::string> connect_apart(Rank& from, Rank& to, velo_peer_t*& peer) {
    EngineAddress address;
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    EXPECT_TRUE(address.parse(bytes.data(), velo_address(to.engine, bytes.data(), bytes.size())));
    ++address.on_node.segment.namespaces;
    char error[512] = "";
    const int status =
        velo_connect(from.engine, &address, address.bytes(), true, &to, &peer, error, sizeof error);
    if (status == VELO_OK) return {};
    EXPECT_EQ(status, VELO_UNSUPPORTED);
    return error;
}

bool says(const std::optional<std::string>& error, const char* part) {
    return error && error->find(part) != std::string::npos;
}

TEST(EngineContainers, without_a_device_that_reaches_it_the_remedy_is_named) {
    Rank a(nodes_of(0), 0, 2), b(nodes_of(0), 1, 2);
    velo_peer_t* peer = nullptr;
    const std::optional<std::string> error = connect_apart(a, b, peer);
    EXPECT_TRUE(says(error, "its shared memory cannot be attached")) << error.value_or("");
    EXPECT_TRUE(says(error, "btl_velo_device=ofi")) << error.value_or("");
}

TEST(EngineContainers, what_can_be_attached_goes_by_the_ring_whatever_device_is_open) {
    Job job(2, nodes_of(2));
    EXPECT_EQ(velo_peer_path(job[0].peers[1]), VELO_PATH_ON_NODE);
    EXPECT_TRUE(velo_peer_attachable(job[0].peers[1]));
}

TEST(EngineContainers, both_send_by_a_networks_device_or_both_refuse) {
    Rank ranks[2] = {{nodes_of(2), 0, 2}, {nodes_of(2), 1, 2}};
    velo_peer_t* peers[2] = {};
    for (int i : {0, 1}) {
        ASSERT_EQ(connect_apart(ranks[i], ranks[1 - i], peers[i]).has_value(), !over_network());
    }
    if (!over_network()) return;
    velo_send_t sends[2] = {};
    for (int i : {0, 1}) {
        EXPECT_EQ(velo_peer_path(peers[i]), VELO_PATH_DEVICE);
        EXPECT_FALSE(velo_peer_attachable(peers[i]));
        (void)velo_send(ranks[i].engine, peers[i], &sends[i], 1);
    }
    for (int round = 0; round < 2'000'000 && (ranks[0].inbox.empty() || ranks[1].inbox.empty()); ++round) {
        for (Rank& rank : ranks) velo_progress(rank.engine);
    }
    for (const Rank& rank : ranks) {
        ASSERT_EQ(rank.inbox.size(), 1u);
        EXPECT_EQ(rank.inbox[0].path, VELO_PATH_DEVICE);
        EXPECT_EQ(rank.counters().on_node_tx_messages, 0u);
    }
}

/// Of four ranks on two nodes, mailboxes are planned for those of the other node.
TEST(EngineContainers, one_that_no_mailbox_was_planned_for_needs_contact_slots) {
    for (const char* const flow_control : {"static", "dynamic"}) {
        Rank ranks[2] = {{nodes_of(2, flow_control), 0, 4}, {nodes_of(2, flow_control), 1, 4}};
        const bool planned = std::string(flow_control) == "dynamic";
        for (int i : {0, 1}) {
            velo_peer_t* peer = nullptr;
            const std::optional<std::string> error = connect_apart(ranks[i], ranks[1 - i], peer);
            EXPECT_EQ(error.has_value(), !over_network() || !planned) << error.value_or("");
            EXPECT_EQ(says(error, "use btl_velo_flow_control=dynamic"), over_network() && !planned)
                << error.value_or("");
        }
    }
}

}  // namespace
}  // namespace velo::test
