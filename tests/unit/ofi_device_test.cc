// The device over libfabric beyond what every device promises: what silent peers cost, and its library.
#include "velo/ofi/ofi_device.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/conformance/ofi_fabric.h"

namespace velo::ofi {
namespace {

using conformance::address_of;
using conformance::Net;
using conformance::OfiFabric;
using conformance::PublishedAddress;
using conformance::send_numbered;
using conformance::TestPacket;

constexpr NetworkOptions kNetOptions = {.provider_include = conformance::kTcpProvider, .interface_include = "lo"};

size_t open_files() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(OfiDevice, silent_peers_cost_no_connection) {
    // Pings would come after a twentieth of the timeout.
    constexpr uint64_t kTimeoutNs = 200'000'000;
    OfiDevice device({.node = 1, .mailbox_slots = 64, .faults = {}, .peer_timeout_ns = kTimeoutNs}, kNetOptions);
    Address address;
    ASSERT_EQ(read_address(address_of(device).span(), address), Status::kOk);
    const size_t files = open_files();
    for (uint16_t node = 2; node < 1002; ++node) {
        address.head.node = node;
        ++address.head.token;
        std::array<std::byte, kAddressBytesMax> bytes;
        const size_t length = write_address(address, bytes);
        DeviceAddr peer = kNoAddr;
        ASSERT_EQ(device.connect(std::span(bytes).first(length), peer, nullptr), Status::kOk);
        EXPECT_EQ(peer, node - 2u);
    }
    // Nor where any that was met may be waited for: none of these was.
    for (const uint64_t end = base::monotonic_ns() + 2 * kTimeoutNs; base::monotonic_ns() < end;) {
        device.watch(kNoAddr);
        device.progress(base::monotonic_ns());
    }
    EXPECT_TRUE(device.alive(0));
    EXPECT_EQ(open_files(), files);
    EXPECT_EQ(device.ofi_counters().hellos_sent, 0u);
}

/// Senders that keep to their credits, and a reader that leaves as much unread as it may.
TEST(OfiDevice, no_credited_packet_ever_waits_for_a_buffer) {
    constexpr uint32_t kSlots = 300;
    constexpr uint32_t kSenders = 3;
    OfiFabric<Net> fabric;
    for (uint16_t node = 0; node <= kSenders; ++node) {
        fabric.open({.node = node, .mailbox_slots = kSlots, .faults = {}, .peers_max = kSenders});
    }
    std::array<DeviceAddr, kSenders + 1> to = {};
    std::array<uint64_t, kSenders + 1> sent = {};
    std::array<uint64_t, kSenders + 1> read = {};
    for (uint32_t i = 1; i <= kSenders; ++i) {
        ASSERT_EQ(fabric[i].connect(address_of(fabric[0]).span(), to[i]), Status::kOk);
    }
    std::mt19937 random(1);
    uint64_t all_read = 0;
    while (all_read < 30'000) {
        for (uint32_t i = 1; i <= kSenders; ++i) {
            const auto credits = static_cast<uint32_t>(kSlots / kSenders - (sent[i] - read[i]));
            if (credits == 0) continue;
            const uint32_t count =
                std::min<uint32_t>(random() % 3 == 0 ? 1 + random() % credits : credits, kPartPacketsMin);
            const Status status = send_numbered(fabric[i], to[i], i, sent[i], count);
            sent[i] += status == Status::kOk ? count : 0;
        }
        fabric.step();
        for (uint32_t reads = random() % 5 == 0 ? random() % kSlots : 0; reads != 0; --reads) {
            DeviceAddr from = kNoAddr;
            const Packet* packet = fabric[0].peek(from);
            if (packet == nullptr) break;
            const uint16_t sender = PacketStatus::unpack(packet->status).node;
            ASSERT_TRUE(TestPacket::is(*packet, sender, read[sender]++));
            fabric[0].advance();
            ++all_read;
        }
    }
    EXPECT_EQ(fabric[0].counters().starved, 0u);
}

TEST(OfiDevice, peers_of_other_jobs_beyond_the_plan_find_room) {
    constexpr uint32_t kSlots = 300;
    OfiFabric<Net> fabric;
    fabric.open({.node = 0, .job_token = 1, .mailbox_slots = kSlots, .contact_slots = 4, .faults = {}, .peers_max = 1});
    for (uint16_t node = 1; node <= 40; ++node) {
        fabric.open({.node = node,
                     .job_token = node % 3 + 1u,
                     .mailbox_slots = kSlots,
                     .contact_slots = 4,
                     .faults = {},
                     .peers_max = 1});
        DeviceAddr to = kNoAddr;
        ASSERT_EQ(fabric[node].connect(address_of(fabric[0]).span(), to), Status::kOk);
        Status status = Status::kAgain;
        for (int step = 0; step < 100'000 && status == Status::kAgain; ++step) {
            status = send_numbered(fabric[node], to, node, 0, 1);
            fabric.step();
        }
        ASSERT_EQ(status, Status::kOk);
    }
    std::vector<bool> came(41);
    for (int step = 0, left = 40; left != 0; ++step) {
        ASSERT_LT(step, 1'000'000);
        fabric.step();
        DeviceAddr from = kNoAddr;
        const Packet* packet = fabric[0].peek(from);
        if (packet == nullptr) continue;
        const uint16_t node = PacketStatus::unpack(packet->status).node;
        EXPECT_TRUE(TestPacket::is(*packet, node, 0));
        EXPECT_FALSE(came[node]);
        came[node] = true;
        fabric[0].advance();
        --left;
    }
    EXPECT_EQ(fabric[0].counters().starved, 0u);
}

/// An engine to which nothing happens asks for whom its host may wait: pings must not keep it from that.
TEST(OfiDevice, what_devices_say_to_each_other_is_no_event) {
    OfiFabric<Net> fabric;
    for (uint16_t node = 0; node < 2; ++node) {
        fabric.open({.node = node, .mailbox_slots = 8, .faults = {}});
    }
    DeviceAddr to = kNoAddr;
    ASSERT_EQ(fabric[0].connect(address_of(fabric[1]).span(), to), Status::kOk);
    Status status = Status::kAgain;
    for (int step = 0; step < 100'000 && status == Status::kAgain; ++step) {
        status = send_numbered(fabric[0], to, 0, 0, 1);
        fabric.step();
    }
    ASSERT_EQ(status, Status::kOk);
    uint32_t events = 0;
    DeviceAddr from = kNoAddr;
    const uint64_t end_ns = base::monotonic_ns() + 2'000'000'000;
    while (fabric[0].ofi().ofi_counters().pings_sent + fabric[1].ofi().ofi_counters().pings_sent < 4) {
        const uint64_t now_ns = base::monotonic_ns();
        ASSERT_LT(now_ns, end_ns) << "no pings";
        for (size_t i = 0; i < 2; ++i) {
            fabric[i].watch(kNoAddr);
            events += fabric[i].progress(now_ns);
        }
        if (fabric[1].peek(from) != nullptr) {
            fabric[1].advance();
            EXPECT_LE(events, 1u) << "the packet";
            events = 0;
        }
    }
    EXPECT_EQ(events, 0u);
}

/// The provider has taken gets of memory that is not mapped any more, and ends none of them, while the owner answers.
TEST(OfiDevice, an_operation_that_stands_still_ends_while_its_peer_lives) {
    constexpr uint64_t kTimeoutNs = 500'000'000;
    constexpr size_t kBytes = 1 << 20;
    OfiFabric<Net> fabric;
    for (uint16_t node = 0; node < 2; ++node) {
        fabric.open({.node = node, .mailbox_slots = 8, .faults = {}, .operation_timeout_ns = kTimeoutNs});
    }
    DeviceAddr to = kNoAddr;
    ASSERT_EQ(fabric[0].connect(address_of(fabric[1]).span(), to), Status::kOk);
    void* const source = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(source, MAP_FAILED);
    std::vector<std::byte> target(kBytes);
    Registration there;
    ASSERT_EQ(fabric[1].register_memory(source, kBytes, kAccessRead, there), Status::kOk);
    munmap(source, kBytes);
    const RmaOperation get = {.kind = RmaKind::kGet,
                              .notify = kNotifyRequester,
                              .cookie = 7,
                              .peer = to,
                              .local = target.data(),
                              .nla = there.nla,
                              .key = there.key,
                              .bytes = kBytes};
    ASSERT_EQ(fabric[0].post(get), Status::kOk);
    Notification notification;
    bool ended = false;
    for (const uint64_t end = base::monotonic_ns() + 20 * kTimeoutNs; !ended && base::monotonic_ns() < end;) {
        fabric[0].watch(to);
        for (size_t i = 0; i < 2; ++i) fabric[i].progress(base::monotonic_ns());
        ended = fabric[0].poll_notification(notification);
    }
    ASSERT_TRUE(ended);
    EXPECT_EQ(notification.status, Status::kTimedOut);
    EXPECT_EQ(notification.cookie, 7u);
    EXPECT_TRUE(fabric[0].alive(to));
}

/// A last word is answered, so that nothing is lost with the connection; and none is waited for that cannot come.
TEST(OfiDevice, what_a_device_sent_before_it_closed_is_read_afterwards) {
    OfiFabric<Net> fabric;
    for (uint16_t node = 0; node < 2; ++node) fabric.open({.node = node, .mailbox_slots = 64, .faults = {}});
    DeviceAddr to = kNoAddr;
    ASSERT_EQ(fabric[0].connect(address_of(fabric[1]).span(), to), Status::kOk);
    for (uint32_t sent = 0; sent < 40;) {
        sent += send_numbered(fabric[0], to, 0, sent, 1) == Status::kOk;
        fabric[0].progress(base::monotonic_ns());
        if (sent == 0) fabric[1].progress(base::monotonic_ns());
    }
    fabric.close(0);
    DeviceAddr from = kNoAddr;
    uint32_t read = 0;
    for (const uint64_t end = base::monotonic_ns() + 5'000'000'000; base::monotonic_ns() < end && read < 40;) {
        fabric[1].progress(base::monotonic_ns());
        for (; fabric[1].peek(from) != nullptr; ++read) fabric[1].advance();
    }
    EXPECT_EQ(read, 40u);
    EXPECT_FALSE(fabric[1].alive(from));
    EXPECT_EQ(fabric[1].announced_ending(from), base::Ending::kClosed);
}

/// Listens at a free port of loopback, with a queue of this length; `address` is its. Negative: errno says why.
int listener_of(int queue, sockaddr_in& address) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, at, bytes) != 0 || listen(listener, queue) != 0) return -1;
    return getsockname(listener, at, &bytes) == 0 ? listener : -1;
}

TEST(HostProbe, a_port_that_nothing_accepts_at_is_a_process_that_runs_until_it_is_closed) {
    sockaddr_in address = {};
    const int listener = listener_of(4, address);
    ASSERT_GE(listener, 0);
    const auto name = std::as_bytes(std::span(&address, 1));
    HostProbe probe;
    const size_t files = open_files();
    HostProbe::Answer answer = HostProbe::Answer::kPending;
    for (int i = 0; i < 1'000'000 && answer == HostProbe::Answer::kPending; ++i) answer = probe.ask(name);
    for (int i = 0; i < 1000; ++i) {
        ASSERT_EQ(answer, HostProbe::Answer::kRuns);
        answer = probe.ask(name);
    }
    EXPECT_EQ(open_files(), files + 1) << "one connection, however often it is asked";
    // It accepts the connection and closes it, as it does with a stranger's.
    close(accept(listener, nullptr, nullptr));
    for (int i = 0; i < 100; ++i) EXPECT_NE(probe.ask(name), HostProbe::Answer::kGone);
    close(listener);
    for (int i = 0; i < 1'000'000 && answer != HostProbe::Answer::kGone; ++i) answer = probe.ask(name);
    EXPECT_EQ(answer, HostProbe::Answer::kGone);
}

/// As a kernel with net.ipv4.tcp_abort_on_overflow does it, and a process that ends with a connection in its queue.
TEST(HostProbe, a_connection_that_is_reset_is_no_end_and_the_next_one_tells) {
    sockaddr_in address = {};
    const int listener = listener_of(0, address);
    ASSERT_GE(listener, 0);
    const auto name = std::as_bytes(std::span(&address, 1));
    // The only place of the queue is taken, so the probe is connected once that is free, and not in its first call.
    const int filler = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(filler, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    HostProbe probe;
    ASSERT_EQ(probe.ask(name), HostProbe::Answer::kPending);
    close(accept(listener, nullptr, nullptr));
    const int connection = accept(listener, nullptr, nullptr);
    const linger reset = {.l_onoff = 1, .l_linger = 0};
    ASSERT_EQ(setsockopt(connection, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    close(connection);
    EXPECT_EQ(probe.ask(name), HostProbe::Answer::kPending);
    EXPECT_EQ(probe.error(), ECONNRESET);
    HostProbe::Answer answer = HostProbe::Answer::kPending;
    for (int i = 0; i < 1'000'000 && answer == HostProbe::Answer::kPending; ++i) answer = probe.ask(name);
    EXPECT_EQ(answer, HostProbe::Answer::kRuns);
    close(listener);
    for (int i = 0; i < 1'000'000 && answer != HostProbe::Answer::kGone; ++i) answer = probe.ask(name);
    EXPECT_EQ(answer, HostProbe::Answer::kGone);
    close(filler);
}

class OfiLibrary : public testing::Test {
  protected:
    OfiLibrary() {
        // The one of this build, from whatever folder the test is run in.
        handle_ = dlopen(VELO_OFI_BUILT, RTLD_NOW | RTLD_LOCAL);
        if (handle_ == nullptr) return;
        const auto function = reinterpret_cast<NetworkLibraryFunction>(dlsym(handle_, kNetworkLibraryFunction));
        if (function != nullptr) library_ = function();
    }

    void* handle_ = nullptr;
    const NetworkLibrary* library_ = nullptr;
};

TEST_F(OfiLibrary, opens_a_device_and_says_why_it_does_not) {
    ASSERT_NE(library_, nullptr) << dlerror();
    ASSERT_EQ(library_->abi, kNetworkAbi);
    std::array<char, 1024> error = {};
    const DeviceConfig config = {.node = 1, .mailbox_slots = 8, .faults = {}};
    const std::unique_ptr<NetworkDevice> device(library_->open(config, kNetOptions, error.data(), error.size()));
    ASSERT_NE(device, nullptr) << error.data();
    EXPECT_EQ(device->name(), std::string(conformance::kTcpProvider) + " (lo)");
    EXPECT_TRUE(device->traits().other_hosts);
    EXPECT_EQ(library_->open(config, {.provider_include = "none"}, error.data(), error.size()), nullptr);
    EXPECT_NE(std::string(error.data()).find("libfabric"), std::string::npos);
    // A short buffer gets as much as fits.
    std::array<char, 8> little = {};
    EXPECT_EQ(library_->open(config, {.provider_include = "none"}, little.data(), little.size()), nullptr);
    EXPECT_EQ(little.back(), '\0');
}

TEST_F(OfiLibrary, lists_each_provider_and_interface_once) {
    ASSERT_NE(library_, nullptr);
    std::vector<std::string> lines;
    const auto add = [](void* to, const char* provider, const char* interface, const char* address,
                        const char* refused, uint32_t rails) {
        const std::string verdict = refused == nullptr ? std::to_string(rails) : refused;
        static_cast<std::vector<std::string>*>(to)->push_back(std::string(provider) + " " + interface + " " + address +
                                                              " " + verdict);
    };
    library_->list(kNetOptions, 4, &lines, add);
    ASSERT_GE(lines.size(), 3u);
    EXPECT_EQ(lines[0], std::string(conformance::kTcpProvider) + " lo 127.0.0.1 1");
    for (const std::string& line : lines) EXPECT_EQ(std::ranges::count(lines, line), 1) << line;
    lines.clear();
    library_->list({.provider_include = conformance::kTcpProvider, .interface_include = "lo,lo,lo"}, 2, &lines, add);
    EXPECT_EQ(lines[0], std::string(conformance::kTcpProvider) + " lo 127.0.0.1 2");
}

}  // namespace
}  // namespace velo::ofi
