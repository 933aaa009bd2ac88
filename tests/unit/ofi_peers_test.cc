// The parts of the device over libfabric that know its peers, without the device: table, transmitter, watch, endings.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tests/conformance/ofi_names.h"
#include "velo/ofi/peer_endings.h"
#include "velo/ofi/peer_watch.h"

namespace velo::ofi {
namespace {

constexpr uint32_t kSlots = 64;
constexpr uint64_t kTimeoutNs = 1'000'000'000;
constexpr uint32_t kPlanned = 4;

Address address_of(const Endpoint& endpoint, uint16_t node, uint64_t job_token) {
    Address address;
    address.head.token = 1000 + node;
    address.head.job_token = job_token;
    address.head.mailbox_slots = kSlots;
    address.head.name_format = endpoint.info().addr_format;
    address.head.node = node;
    address.head.name_bytes = static_cast<uint16_t>(endpoint.name().size());
    address.set_provider(endpoint.provider());
    std::ranges::copy(endpoint.name(), address.name.begin());
    return address;
}

/// The parts of the device of node 0, of job 1, in the order that the device has them.
struct Parts {
    explicit Parts(bool other_jobs = false) : other_jobs(other_jobs) {}
    ~Parts() {
        mailbox.cancel();
        endpoint.close();
    }
    static void write(void* context, int /*level*/, const char* line) {
        static_cast<std::string*>(context)->append(line).append("\n");
    }
    /// A peer whose messages would come to this endpoint.
    DeviceAddr known(uint16_t node) {
        DeviceAddr addr = kNoAddr;
        EXPECT_EQ(peers.know(address_of(endpoint, node, 1), addr, nullptr), Status::kOk);
        return addr;
    }

    bool other_jobs;
    Endpoint endpoint{choose_provider({.provider_include = conformance::kTcpProvider, .interface_include = "lo"}), 1024,
                      kSlots};
    Address own = address_of(endpoint, 0, 1);
    std::string lines;
    Log log{{.write = write, .context = &lines}, endpoint.title()};
    Mailbox mailbox{endpoint, kSlots, kPlanned* kControlBytesPerPeer};
    ContactGate gate{1};
    PeerTable peers{endpoint, mailbox, gate, own, kPlanned, other_jobs};
    Transmitter transmitter{endpoint, peers, own, log, mailbox.space().part_bytes()};
    RmaUnit rma{endpoint, 1};
    PeerEndings endings{endpoint, peers, transmitter, gate, rma, log};
    PeerWatch watch{endpoint, peers, transmitter, endings, kTimeoutNs};
};

TEST(PeerTable, an_address_is_one_peer_and_resolves_once) {
    Parts parts;
    const DeviceAddr first = parts.known(1);
    EXPECT_EQ(first, 0u);
    EXPECT_EQ(parts.known(2), 1u);
    EXPECT_EQ(parts.known(1), first);
    EXPECT_EQ(parts.peers.size(), 2u);
    EXPECT_EQ(parts.peers[first].at, FI_ADDR_NOTAVAIL);
    ASSERT_TRUE(parts.peers.resolve(first));
    const fi_addr_t at = parts.peers[first].at;
    ASSERT_TRUE(parts.peers.resolve(first));
    EXPECT_EQ(parts.peers[first].at, at);
}

TEST(PeerTable, a_refused_address_leaves_no_trace_and_a_reason) {
    Parts parts;
    parts.known(1);
    DeviceAddr addr = kNoAddr;
    const auto why = [&](const Address& address) {
        base::Failure failure;
        EXPECT_EQ(parts.peers.know(address, addr, &failure), Status::kUnsupported);
        return std::string(failure.call);
    };
    EXPECT_EQ(why(address_of(parts.endpoint, 2, 7)), "it is of another job");
    Address same = address_of(parts.endpoint, 1, 1);
    same.head.token = 7;
    EXPECT_EQ(why(same), "another process has its node and VPID");
    same.head.node = 0;
    EXPECT_EQ(why(same), "another process has its node and VPID");
    same.set_provider("another");
    EXPECT_NE(why(same).find("another provider"), std::string::npos);
    EXPECT_EQ(addr, kNoAddr);
    EXPECT_EQ(parts.peers.size(), 1u);

    Address cut = address_of(parts.endpoint, 2, 1);
    cut.head.name_bytes = 8;
    EXPECT_EQ(why(cut), "its address is damaged");
    EXPECT_EQ(parts.endpoint.insert(cut.endpoint()), FI_ADDR_NOTAVAIL);
    EXPECT_EQ(parts.peers.size(), 1u);

    Parts open(true);
    EXPECT_EQ(open.peers.know(address_of(open.endpoint, 2, 7), addr, nullptr), Status::kOk);
}

/// A process may come back with the node and VPID of one that has ended.
TEST(PeerTable, an_ended_peer_frees_its_source) {
    Parts parts;
    const DeviceAddr first = parts.known(1);
    parts.endings.ended(first, base::Ending::kClosed, "it said so");
    Address next = address_of(parts.endpoint, 1, 1);
    next.head.token = 7;
    DeviceAddr addr = kNoAddr;
    EXPECT_EQ(parts.peers.know(next, addr, nullptr), Status::kOk);
    EXPECT_NE(addr, first);
    parts.peers[addr].in.hello_received = true;
    EXPECT_EQ(parts.peers.identify(source_of(1, 0), FI_ADDR_NOTAVAIL), addr);
}

TEST(PeerTable, a_message_is_of_a_peer_whose_hello_came_and_whose_place_agrees) {
    Parts parts;
    const DeviceAddr addr = parts.known(1);
    const uint32_t source = source_of(1, 0);
    EXPECT_EQ(parts.peers.identify(source, FI_ADDR_NOTAVAIL), kNoAddr) << "no hello";
    Peer& peer = parts.peers[addr];
    peer.in.hello_received = true;
    EXPECT_EQ(parts.peers.identify(source_of(2, 0), FI_ADDR_NOTAVAIL), kNoAddr) << "another source";
    EXPECT_EQ(parts.peers.identify(source, FI_ADDR_NOTAVAIL), addr) << "the provider does not know its place yet";
    ASSERT_TRUE(parts.peers.resolve(addr));
    EXPECT_EQ(parts.peers.identify(source, peer.at + 1), kNoAddr) << "from elsewhere";
    EXPECT_EQ(parts.peers.identify(source, peer.at), addr);
    EXPECT_EQ(parts.peers.identify(source, FI_ADDR_NOTAVAIL), kNoAddr) << "its place was seen before";
    peer.dead = true;
    EXPECT_EQ(parts.peers.identify(source, peer.at), kNoAddr);
}

TEST(PeerEndings, a_peer_ends_once_and_what_was_left_for_it_is_dropped) {
    Parts parts;
    const DeviceAddr addr = parts.known(1);
    parts.transmitter.say(addr, kPong);
    EXPECT_TRUE(parts.transmitter.under_way());
    parts.endings.ended(addr, base::Ending::kFollowed, "it said so");
    parts.endings.stream_broke(addr, "messages from it were lost");
    EXPECT_EQ(parts.peers[addr].ending, base::Ending::kFollowed);
    EXPECT_EQ(parts.peers[addr].out.signals, 0u);
    EXPECT_EQ(parts.endings.broken_streams(), 1u);
    parts.transmitter.progress();
    EXPECT_FALSE(parts.transmitter.under_way());
    EXPECT_EQ(parts.transmitter.counters().hellos, 0u);
    const auto fill = [](uint32_t, std::byte*) { return PacketStatus{}; };
    EXPECT_EQ(parts.transmitter.send(addr, 1, Admission::kCredited, PacketFill(fill)), Status::kPeerDead);
    EXPECT_EQ(std::ranges::count(parts.lines, '\n'), 1) << parts.lines;
}

/// A port of the loopback interface at which nothing listens; another listener of the kernel's choice.
class DeafPeer {
  public:
    explicit DeafPeer(bool listens) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
        socklen_t bytes = sizeof address_;
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
        EXPECT_EQ(listens ? listen(socket_, 4) : 0, 0);
        EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &bytes), 0);
    }
    ~DeafPeer() { close(socket_); }
    [[nodiscard]] std::span<const std::byte> name() const { return std::as_bytes(std::span(&address_, 1)); }
    [[nodiscard]] std::string port() const { return std::to_string(ntohs(address_.sin_port)); }

  private:
    int socket_;
    sockaddr_in address_ = {};
};

/// Polls a watched peer until it counts as ended, or for twice the timeout.
void watch_to_the_end(Parts& parts, DeviceAddr addr) {
    uint64_t now_ns = 1;
    parts.watch.polled(now_ns);
    for (uint64_t ns = 0; ns <= 2 * kTimeoutNs && !parts.peers[addr].dead; ns += 10'000'000) {
        parts.watch.watch(addr);
        parts.watch.polled(now_ns += 10'000'000);
        if (parts.watch.take_due(now_ns)) parts.watch.check();
    }
}

TEST(PeerEndings, a_peer_that_was_never_reached_is_told_of_with_its_port_and_the_error) {
    const DeafPeer deaf(false);
    Parts parts;
    const DeviceAddr addr = parts.known(1);
    parts.peers[addr].endpoint.assign(deaf.name().begin(), deaf.name().end());
    watch_to_the_end(parts, addr);
    ASSERT_TRUE(parts.peers[addr].dead);
    const std::string line = "VPID 0, at 127.0.0.1 port " + deaf.port() +
                             ", never answered (Connection refused). It has ended before its first";
    EXPECT_NE(parts.lines.find(line), std::string::npos) << parts.lines;
    EXPECT_NE(parts.lines.find("btl_velo_port_range=LOW-HIGH"), std::string::npos) << parts.lines;
}

TEST(PeerEndings, an_address_that_is_one_of_this_host_leads_back) {
    const DeafPeer deaf(false);
    Parts parts;
    const DeviceAddr addr = parts.known(1);
    parts.peers[addr].endpoint.assign(deaf.name().begin(), deaf.name().end());
    watch_to_the_end(parts, addr);
    for (const char* const part :
         {"(Connection refused). It has ended before its first message",
          " Its address is one of this host, too (lo): of a rank on another host it leads back here",
          "^127.0.0.1 in btl_velo_if_include leaves it out."}) {
        EXPECT_NE(parts.lines.find(part), std::string::npos) << parts.lines;
    }
}

TEST(PeerEndings, one_that_was_heard_of_is_not_said_to_be_unreached) {
    const DeafPeer deaf(false);
    Parts parts;
    const DeviceAddr addr = parts.known(1);
    parts.peers[addr].endpoint.assign(deaf.name().begin(), deaf.name().end());
    parts.peers[addr].in.hello_received = true;
    watch_to_the_end(parts, addr);
    EXPECT_TRUE(parts.peers[addr].dead);
    EXPECT_EQ(parts.lines.find("never answered"), std::string::npos) << parts.lines;
}

TEST(HostProbe, says_why_no_connection_came_about) {
    const DeafPeer deaf(false);
    const DeafPeer hears(true);
    HostProbe refused;
    EXPECT_EQ(refused.error(), 0);
    for (int i = 0; i < 1'000'000 && refused.ask(deaf.name()) != HostProbe::Answer::kGone; ++i) {
    }
    EXPECT_EQ(refused.error(), ECONNREFUSED);
    HostProbe accepted;
    for (int i = 0; i < 1'000'000 && accepted.ask(hears.name()) != HostProbe::Answer::kRuns; ++i) {
    }
    EXPECT_EQ(accepted.error(), 0);
    // Only the host of the process says that it is gone: no other error does.
    sockaddr_in everywhere = {};
    everywhere.sin_family = AF_INET;
    everywhere.sin_port = htons(9);
    everywhere.sin_addr.s_addr = INADDR_BROADCAST;
    HostProbe no_way;
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(no_way.ask(std::as_bytes(std::span(&everywhere, 1))), HostProbe::Answer::kPending);
    }
    EXPECT_NE(no_way.error(), 0);
}

TEST(PeerWatch, a_silent_peer_is_pinged_and_one_that_is_not_watched_is_left) {
    Parts parts;
    const DeviceAddr watched = parts.known(1);
    const DeviceAddr left = parts.known(2);
    uint64_t now_ns = 1;
    parts.watch.polled(now_ns);
    for (uint64_t ns = 0; ns <= kTimeoutNs / PeerHealth::kPingsInTimeout; ns += 10'000'000) {
        parts.watch.watch(watched);
        parts.watch.polled(now_ns += 10'000'000);
        if (parts.watch.take_due(now_ns)) parts.watch.check();
    }
    EXPECT_EQ(parts.peers[watched].out.signals, kPing);
    EXPECT_EQ(parts.peers[left].out.signals, 0u);
    parts.watch.heard(parts.peers[watched]);
    EXPECT_EQ(parts.peers[watched].watch.health.pings, 0);
}

TEST(PeerWatch, any_peer_means_those_that_something_was_exchanged_with) {
    Parts parts;
    const DeviceAddr wrote = parts.known(1);
    const DeviceAddr silent = parts.known(2);
    parts.peers[wrote].in.hello_received = true;
    parts.watch.watch(kNoAddr);
    EXPECT_TRUE(parts.peers[wrote].watch.listed);
    EXPECT_FALSE(parts.peers[silent].watch.listed);
}

}  // namespace
}  // namespace velo::ofi
