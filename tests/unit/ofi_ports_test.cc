// The ports that endpoints over TCP listen at. libfabric reads their range once a process, so that nothing else here
// may open it before.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/ofi_names.h"
#include "velo/ofi/ofi_device.h"
#include "velo/options/options.h"
#include "velo/os/shared_segment.h"

namespace velo::ofi {
namespace {

constexpr uint16_t kPortsCount = 3;

/// Below those that the kernel gives out, and other ones in each process that runs this.
uint16_t low_port() {
    return static_cast<uint16_t>(10'000 + getpid() % 5'000 * kPortsCount);
}

NetworkOptions on_lo(const char* provider, uint16_t low) {
    return {.provider_include = provider,
            .interface_include = "lo",
            .port_low = low,
            .port_high = static_cast<uint16_t>(low + kPortsCount - 1)};
}

std::string refusal(const NetworkOptions& options) {
    try {
        const OfiDevice device({.mailbox_slots = 8, .faults = {}}, options);
    } catch (const base::SetupError& error) {
        return error.what();
    }
    return "";
}

TEST(OfiPorts, a_range_is_kept_to_until_it_is_used_up) {
    const uint16_t low = low_port();
    const PortRange range = {low, static_cast<uint16_t>(low + kPortsCount - 1)};
    const std::string text = "btl_velo_port_range=" + range.text();
    for (const char* provider : {conformance::kTcpProvider, "tcp;ofi_rxm"}) {
        std::vector<std::unique_ptr<OfiDevice>> devices;
        std::vector<uint16_t> ports;
        for (uint16_t i = 0; i < kPortsCount; ++i) {
            devices.push_back(std::make_unique<OfiDevice>(DeviceConfig{.mailbox_slots = 8, .faults = {}},
                                                          on_lo(provider, low)));
            const Endpoint& endpoint = devices.back()->endpoint();
            const uint16_t port = ip_port(endpoint.info().addr_format, endpoint.name());
            EXPECT_TRUE(range.has(port)) << provider << " listens at " << port << ", not in " << range.text();
            EXPECT_EQ(std::ranges::count(ports, port), 0) << port;
            ports.push_back(port);
        }
        const std::string none = refusal(on_lo(provider, low));
        EXPECT_NE(none.find("No port of " + text + " is free"), std::string::npos) << provider << ": " << none;
    }
    // A range that comes too late is found out.
    const std::string late = refusal(on_lo(conformance::kTcpProvider, static_cast<uint16_t>(low + 20'000)));
    EXPECT_NE(late.find(", outside btl_velo_port_range="), std::string::npos) << late;
    EXPECT_NE(late.find("FI_NET_PORT_LOW_RANGE"), std::string::npos) << late;
    // So is a provider that has no range.
    const std::string never = refusal(on_lo("sockets", low));
    EXPECT_NE(never.find(", outside " + text + ": it takes no range"), std::string::npos) << never;
    EXPECT_EQ(refusal(on_lo("shm", low)), "") << "it has no ports";
}

TEST(OfiPorts, a_range_is_two_numbers_the_smaller_one_first) {
    const auto range = [](const char* text) {
        velo_params_t params;
        velo_params_default(&params);
        params.port_range = text;
        const velo_identity_t identity = {
            .name = 0, .job = 1, .rank = 0, .job_size = 2, .local_rank = 0, .local_size = 2,
            .host = 0, .hosts = 1, .host_ranks_min = 2, .more_hosts = false, .other_host = {}};
        const NetworkOptions options = make_options(params, identity, {}).network;
        return std::pair(options.port_low, options.port_high);
    };
    EXPECT_EQ(range("1024-65535"), std::pair(uint16_t{1024}, uint16_t{65535}));
    EXPECT_EQ(range("42000-42000"), std::pair(uint16_t{42000}, uint16_t{42000}));
    EXPECT_EQ(range(""), std::pair(uint16_t{0}, uint16_t{0}));
    for (const char* text : {"42000", "42000-", "-42999", "42999-42000", "42000:42999", "42000-42999-43999", "1-2000",
                             "42000-65536", " 42000-42999", "0x1000-0x2000", "-"}) {
        try {
            (void)range(text);
            ADD_FAILURE() << text;
        } catch (const base::SetupError& error) {
            const std::string said = error.what();
            for (const char* word : {"btl_velo_port_range=", text, "not LOW-HIGH", "1024 to 65535", "42000-42999"}) {
                EXPECT_NE(said.find(word), std::string::npos) << word << " is not in: " << said;
            }
        }
    }
}

TEST(OfiPorts, are_read_from_addresses_of_the_right_length_only) {
    std::array<std::byte, 28> name = {};
    name[2] = std::byte{0x12};
    name[3] = std::byte{0x34};
    const std::span<const std::byte> all = name;
    EXPECT_EQ(ip_port(FI_SOCKADDR_IN, all.first(16)), 0x1234);
    EXPECT_EQ(ip_port(FI_SOCKADDR_IN6, all), 0x1234);
    EXPECT_EQ(ip_port(FI_SOCKADDR_IN, all.first(15)), 0);
    EXPECT_EQ(ip_port(FI_ADDR_STR, all), 0);
    EXPECT_EQ(ip_text(FI_SOCKADDR_IN, all.first(15)), "");
    EXPECT_EQ(ip_text(FI_SOCKADDR_IN, {}), "");
}

}  // namespace
}  // namespace velo::ofi
