// Several rails of the device over libfabric, which here share the loopback interface.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "tests/conformance/ofi_fabric.h"

namespace velo::ofi {
namespace {

using conformance::DeviceTest;

constexpr uint32_t kBytes = 100'000;

NetworkOptions on_lo(const char* interfaces) {
    return {.provider_include = conformance::kTcpProvider, .interface_include = interfaces};
}

TEST(OfiRails, an_interface_carries_as_many_as_it_is_named_times) {
    EXPECT_EQ(choose_rails(on_lo("lo"), 4).size(), 1u);
    EXPECT_EQ(choose_rails(on_lo("lo,lo"), 4).size(), 2u);
    EXPECT_EQ(choose_rails(on_lo("lo,127.0.0.0/8,lo"), 4).size(), 3u);
    EXPECT_EQ(choose_rails(on_lo("lo,lo,lo,lo,lo"), 4).size(), 4u);
    EXPECT_EQ(choose_rails(on_lo("lo,lo"), 1).size(), 1u);
}

TEST(OfiRails, those_of_other_interfaces_are_of_one_provider) {
    const std::vector<Choice> rails = choose_rails({.provider_include = conformance::kTcpProvider}, 4);
    for (size_t i = 0; i < rails.size(); ++i) {
        EXPECT_STREQ(rails[i].info->fabric_attr->prov_name, conformance::kTcpProvider);
        for (size_t j = 0; j < i; ++j) EXPECT_NE(rails[i].interface, rails[j].interface);
    }
}

TEST(OfiRails, one_is_the_plain_device) {
    const DeviceConfig config = {.mailbox_slots = 8, .ports = 4, .faults = {}};
    const auto one = open_device(config, on_lo("lo"));
    EXPECT_NE(dynamic_cast<OfiDevice*>(one.get()), nullptr);
    EXPECT_EQ(one->limits().ports, 4u);
    EXPECT_EQ(one->limits().rails, 1u);
    const auto two = open_device(config, on_lo("lo,lo"));
    ASSERT_NE(dynamic_cast<RailsDevice*>(two.get()), nullptr);
    EXPECT_EQ(two->limits().ports, 4u);
    EXPECT_EQ(two->limits().rails, 2u);
    EXPECT_EQ(two->name(), std::string(conformance::kTcpProvider) + " (lo, lo)");
}

TEST(OfiRails, a_key_that_a_rail_has_given_already_is_refused) {
    RmaRail rail(choose_provider(on_lo("lo")), 1);
    std::array<std::byte, 64> memory = {};
    const Registration registration = {.bytes = memory.size(), .key = 0x1234567, .access = kAccessRead};
    EXPECT_EQ(rail.register_as(memory.data(), registration), Status::kOk);
    EXPECT_EQ(rail.register_as(memory.data(), registration), Status::kNoResource);
    EXPECT_EQ(rail.deregister(registration), Status::kOk);
    EXPECT_EQ(rail.register_as(memory.data(), registration), Status::kOk);
}

std::vector<uint32_t> registrations(const RailsDevice& device) {
    std::vector<uint32_t> counts;
    for (uint32_t rail = 0; rail < device.rails(); ++rail)
        counts.push_back(device.rail_counters(rail).registrations);
    return counts;
}

TEST(OfiRails, memory_that_one_rail_cannot_register_stays_on_none) {
    std::vector<Choice> choices = choose_rails(on_lo("lo,lo,lo"), 4);
    ASSERT_EQ(choices.size(), 3u);
    choices.back().info->caps &= ~uint64_t{FI_RMA};
    RailsDevice device({.mailbox_slots = 8, .ports = 4, .faults = {}}, std::move(choices));
    std::array<std::byte, 64> memory = {};
    Registration registration;
    EXPECT_EQ(device.register_memory(memory.data(), memory.size(), kAccessRead, registration), Status::kNoResource);
    EXPECT_EQ(registrations(device), (std::vector<uint32_t>{0, 0, 0}));
}

TEST(OfiRails, a_name_of_another_length_than_the_providers_is_not_handed_to_it) {
    RmaRail rail(choose_provider(on_lo("lo")), 1);
    const std::array<std::byte, 8> cut = {};
    rail.know(0, cut);
    EXPECT_EQ(rail.post({.peer = 0}, {}, false), Status::kNoResource);
}

/// Devices with rails of their own numbers.
class RailsFabric {
  public:
    using Device = conformance::OfiTestDevice<conformance::NetRails>;
    static constexpr uint64_t kDriveNs = 20'000'000'000;

    Device& open(const DeviceConfig& config, const char* interfaces) {
        return *devices_.emplace_back(std::make_unique<Device>(config, interfaces));
    }
    Device& operator[](size_t index) { return *devices_[index]; }
    void close(size_t index) { devices_[index].reset(); }
    void step() {
        for (const auto& device : devices_) {
            if (device) device->progress(now_ns());
        }
    }
    [[nodiscard]] uint64_t now_ns() const { return base::monotonic_ns(); }

  private:
    std::vector<std::unique_ptr<Device>> devices_;
};

class OfiRailsPair : public DeviceTest<RailsFabric> {
  protected:
    static constexpr uint32_t kPorts = 4;

    void open_pair(const char* first, const char* second) {
        for (uint16_t i = 0; i < 2; ++i) {
            fabric_.open({.node = i, .mailbox_slots = 32, .ports = kPorts, .faults = {}}, i == 0 ? first : second);
        }
        names_ = {{kNoAddr, connect(0, 1)}, {connect(1, 0), kNoAddr}};
        for (size_t i = 0; i < 2; ++i) {
            memory_[i].resize(kBytes);
            registrations_[i] = registered(i, memory_[i].data(), kBytes);
        }
    }
    RmaOperation operation(size_t from, RmaKind kind, uint8_t port, std::byte* local) {
        const Registration& to = registrations_[1 - from];
        return {.kind = kind,
                .port = port,
                .peer = name(from, 1 - from),
                .local = local,
                .nla = to.nla,
                .key = to.key,
                .bytes = kBytes};
    }
    /// Each of a device's ports puts and gets the peer's memory.
    void every_port_moves(size_t from) {
        for (uint8_t port = 0; port < kPorts; ++port) {
            std::vector<std::byte> local(kBytes, static_cast<std::byte>(16 * from + port + 1));
            EXPECT_EQ(run(from, operation(from, RmaKind::kPut, port, local.data())).status, Status::kOk);
            EXPECT_EQ(memory_[1 - from], local) << "a put at port " << int{port};
            local.assign(kBytes, std::byte{});
            EXPECT_EQ(run(from, operation(from, RmaKind::kGet, port, local.data())).status, Status::kOk);
            EXPECT_EQ(memory_[1 - from], local) << "a get at port " << int{port};
        }
    }
    /// Bytes that each rail of a device has moved.
    std::vector<uint64_t> rail_bytes(size_t index) {
        const RailsDevice& device = fabric_[index].rails();
        std::vector<uint64_t> bytes;
        for (uint32_t rail = 0; rail < device.rails(); ++rail) bytes.push_back(device.rail_counters(rail).rma_bytes);
        return bytes;
    }

    std::array<std::vector<std::byte>, 2> memory_;
    std::array<Registration, 2> registrations_;
};

TEST_F(OfiRailsPair, every_rail_carries_what_its_ports_are_given) {
    open_pair("lo,lo", "lo,lo");
    every_port_moves(0);
    every_port_moves(1);
    for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(rail_bytes(i), (std::vector<uint64_t>{4 * kBytes, 4 * kBytes}));
        EXPECT_EQ(device(i).counters().rma_bytes, 8 * kBytes);
        EXPECT_EQ(device(i).counters().rma_posted, 8u);
    }
}

TEST_F(OfiRailsPair, a_peer_with_one_rail_is_reached_by_all_ports_and_reaches_back) {
    open_pair("lo,lo", "lo");
    every_port_moves(0);
    every_port_moves(1);
    EXPECT_EQ(rail_bytes(0), (std::vector<uint64_t>{8 * kBytes, 0}));
}

TEST_F(OfiRailsPair, of_different_numbers_the_smaller_one_is_used) {
    open_pair("lo,lo,lo,lo", "lo,lo");
    every_port_moves(0);
    every_port_moves(1);
    EXPECT_EQ(rail_bytes(0), (std::vector<uint64_t>{4 * kBytes, 4 * kBytes, 0, 0}));
    EXPECT_EQ(rail_bytes(1), (std::vector<uint64_t>{4 * kBytes, 4 * kBytes}));
}

TEST_F(OfiRailsPair, memory_is_given_back_on_all_rails) {
    open_pair("lo,lo", "lo,lo");
    for (int i = 0; i < 100; ++i) {
        const Registration registration = registered(0, memory_[0].data(), 64);
        EXPECT_EQ(registrations(fabric_[0].rails()), (std::vector<uint32_t>{2, 2}));
        EXPECT_EQ(device(0).deregister(registration), Status::kOk);
        EXPECT_EQ(registrations(fabric_[0].rails()), (std::vector<uint32_t>{1, 1}));
        EXPECT_EQ(device(0).deregister(registration), Status::kBadParam);
    }
    every_port_moves(1);
}

TEST_F(OfiRailsPair, a_peer_that_ends_takes_its_operations_on_all_rails_along) {
    open_pair("lo,lo", "lo,lo");
    every_port_moves(0);
    every_port_moves(1);
    // The first rails have met.
    ASSERT_EQ(send(1, name(1, 0), 1, 0, 1), Status::kOk);
    ASSERT_TRUE(take(0, 1, 0));
    std::vector<std::byte> local(kBytes);
    for (uint8_t port = 0; port < kPorts; ++port) {
        ASSERT_EQ(device(0).post(operation(0, RmaKind::kGet, port, local.data())), Status::kOk);
    }
    fabric_.close(1);
    for (uint8_t port = 0; port < kPorts; ++port) {
        Notification notification;
        ASSERT_TRUE(notified(0, notification)) << "of " << int{port};
        EXPECT_TRUE(notification.status == Status::kPeerDead || notification.status == Status::kFailed ||
                    notification.status == Status::kOk)
            << to_string(notification.status);
    }
    ASSERT_TRUE(drive([&] { return !device(0).alive(name(0, 1)); }));
    for (uint8_t port = 0; port < kPorts; ++port) {
        EXPECT_EQ(run(0, operation(0, RmaKind::kGet, port, local.data())).status, Status::kPeerDead);
    }
}

/// Connections end where a link is down for long, or a device between the hosts forgets them.
TEST_F(OfiRailsPair, a_rail_whose_connections_end_fails_its_operations_and_works_again) {
    open_pair("lo,lo", "lo,lo");
    every_port_moves(0);
    every_port_moves(1);
    std::array<RailsAddress, 2> addresses;
    for (size_t i = 0; i < 2; ++i) {
        ASSERT_EQ(read_rails_address(conformance::address_of(device(i)).span(), addresses[i]), Status::kOk);
    }
    std::vector<std::byte> local(kBytes);
    // The owner of the memory does nothing, so the get stays under way.
    ASSERT_EQ(device(0).post(operation(0, RmaKind::kGet, 1, local.data())), Status::kOk);
    Connections(addresses[0].others[0]).reset(addresses[1].others[0]);
    Notification notification = {.status = Status::kOk};
    const uint64_t end_ns = base::monotonic_ns() + 10'000'000'000;
    while (!device(0).poll_notification(notification) && base::monotonic_ns() < end_ns) {
        device(0).progress(base::monotonic_ns());
    }
    EXPECT_EQ(notification.status, Status::kFailed);
    EXPECT_TRUE(device(0).alive(name(0, 1)));
    EXPECT_EQ(run(0, operation(0, RmaKind::kGet, 0, local.data())).status, Status::kOk) << "the other rail";
    for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(drive([&] { return run(i, operation(i, RmaKind::kGet, 1, local.data())).status == Status::kOk; }))
            << "it is not used again";
        EXPECT_EQ(local, memory_[1 - i]);
    }
    every_port_moves(0);
    every_port_moves(1);
}

/// A host to which packets are lost: its queue of connections is full, and its kernel drops what comes.
class SilentHost {
  public:
    SilentHost() {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listener_ = socket(AF_INET, SOCK_STREAM, 0);
        socklen_t bytes = sizeof address_;
        EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
        EXPECT_EQ(listen(listener_, 0), 0);
        EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address_), &bytes), 0);
        for (int& filler : fillers_) {
            filler = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            (void)connect(filler, reinterpret_cast<const sockaddr*>(&address_), sizeof address_);
        }
    }
    ~SilentHost() {
        speak();
        close(listener_);
    }
    void speak() {
        for (int& filler : fillers_) {
            if (filler >= 0) close(filler);
            filler = -1;
        }
        for (int taken; (taken = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK)) >= 0;) {
            close(taken);
            pollfd more = {listener_, POLLIN, 0};
            if (poll(&more, 1, 100) != 1) break;
        }
    }
    [[nodiscard]] std::span<const std::byte> name() const { return std::as_bytes(std::span(&address_, 1)); }

  private:
    sockaddr_in address_ = {};
    int listener_ = -1;
    std::array<int, 3> fillers_ = {};
};

class OfiPathWatch : public testing::Test {
  protected:
    OfiPathWatch() { watch_.know(0, host_.name()); }
    /// Checks for so long, with an operation under way or none.
    void check_for(uint64_t ns, uint32_t operations) {
        for (const uint64_t end_ns = now_ns_ + ns; now_ns_ < end_ns; now_ns_ += PathWatch::kCheckNs) {
            ASSERT_TRUE(watch_.due(now_ns_));
            watch_.check(
                now_ns_, [&](DeviceAddr) { return watch_.broken(0) ? 0 : operations; }, [&](DeviceAddr) { ++failed_; });
        }
    }

    SilentHost host_;
    Endpoint endpoint_{choose_provider(on_lo("lo")), 64, 0};
    PathWatch watch_{endpoint_};
    uint64_t now_ns_ = 1'000'000'000'000;
    uint32_t failed_ = 0;
};

TEST_F(OfiPathWatch, one_on_which_nothing_ends_is_broken_until_the_host_answers) {
    watch_.posted(0);
    check_for(PathWatch::kSilenceNs + PathWatch::kAnswerNs - 2 * PathWatch::kCheckNs, 1);
    EXPECT_FALSE(watch_.broken(0));
    check_for(3 * PathWatch::kCheckNs, 1);
    EXPECT_TRUE(watch_.broken(0));
    EXPECT_EQ(failed_, 1u);
    check_for(10 * PathWatch::kAnswerNs, 0);
    EXPECT_TRUE(watch_.broken(0));
    host_.speak();
    check_for(2 * PathWatch::kAnswerNs, 0);
    EXPECT_FALSE(watch_.broken(0));
    EXPECT_EQ(failed_, 1u);
}

TEST_F(OfiPathWatch, what_ends_and_a_host_that_answers_keep_it_whole) {
    for (int i = 0; i < 20; ++i) {
        watch_.posted(0);
        check_for(PathWatch::kSilenceNs, 1);
        watch_.heard(0);
    }
    EXPECT_FALSE(watch_.broken(0));
    host_.speak();
    check_for(10 * PathWatch::kAnswerNs, 1);
    EXPECT_FALSE(watch_.broken(0)) << "a peer that computes";
    EXPECT_EQ(failed_, 0u);
}

TEST_F(OfiPathWatch, a_process_that_was_stopped_has_not_listened) {
    watch_.posted(0);
    check_for(PathWatch::kCheckNs, 1);
    now_ns_ += 100 * PathWatch::kAnswerNs;
    check_for(PathWatch::kCheckNs, 1);
    EXPECT_FALSE(watch_.broken(0));
}

TEST_F(OfiPathWatch, a_failure_breaks_it_and_an_answer_mends_it) {
    watch_.posted(0);
    watch_.failed(0);
    EXPECT_TRUE(watch_.broken(0));
    check_for(3 * PathWatch::kAnswerNs, 0);
    EXPECT_TRUE(watch_.broken(0));
    host_.speak();
    check_for(2 * PathWatch::kAnswerNs, 0);
    EXPECT_FALSE(watch_.broken(0));
}

TEST_F(OfiRailsPair, a_port_that_is_down_fails_its_operations_and_no_others) {
    fabric_.open({.node = 0, .mailbox_slots = 32, .ports = 2, .faults = "port_down=1:1"}, "lo,lo");
    fabric_.open({.node = 1, .mailbox_slots = 32, .ports = 2, .faults = {}}, "lo,lo");
    names_ = {{kNoAddr, connect(0, 1)}, {connect(1, 0), kNoAddr}};
    memory_[1].resize(kBytes);
    registrations_[1] = registered(1, memory_[1].data(), kBytes);
    std::vector<std::byte> local(kBytes);
    EXPECT_EQ(run(0, operation(0, RmaKind::kGet, 1, local.data())).status, Status::kOk);
    EXPECT_EQ(run(0, operation(0, RmaKind::kGet, 1, local.data())).status, Status::kNotBegun);
    EXPECT_EQ(run(0, operation(0, RmaKind::kGet, 0, local.data())).status, Status::kOk);
    EXPECT_TRUE(device(0).alive(name(0, 1)));
}

}  // namespace
}  // namespace velo::ofi
