// Which provider is taken, and what is said of the others.
#include <gtest/gtest.h>
#include <netdb.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/conformance/ofi_names.h"
#include "velo/os/shared_segment.h"
#include "velo/ofi/ofi_device.h"
#include "velo/ofi/interfaces.h"
#include "velo/ofi/provider.h"

namespace velo::ofi {
namespace {

using conformance::kTcpProvider;

const Candidate* find(const std::vector<Candidate>& all, const std::string& provider, const std::string& interface) {
    const auto found = std::ranges::find_if(all, [&](const Candidate& candidate) {
        return candidate.provider == provider && (interface.empty() || candidate.interface == interface);
    });
    return found == all.end() ? nullptr : &*found;
}

std::string chosen(const NetworkOptions& options) {
    try {
        const Choice choice = choose_provider(options);
        return std::string(choice.info->fabric_attr->prov_name) + " " + choice.interface;
    } catch (const base::SetupError& error) {
        return error.what();
    }
}

TEST(OfiProvider, lists_are_of_whole_words) {
    EXPECT_TRUE(list_has("net,tcp;ofi_rxm", "tcp;ofi_rxm"));
    EXPECT_TRUE(list_has(",net,", "net"));
    EXPECT_FALSE(list_has("net;ofi_rxm", "net"));
    EXPECT_FALSE(list_has("", ""));
}

TEST(OfiProvider, networks_are_compared_by_their_bits) {
    EXPECT_TRUE(address_in("192.0.2.7", "192.0.2.0/24"));
    EXPECT_TRUE(address_in("192.0.2.7", "192.0.2.6/31"));
    EXPECT_TRUE(address_in("192.0.2.7", "0.0.0.0/0"));
    EXPECT_TRUE(address_in("fd00::1:2", "fd00::/64"));
    EXPECT_FALSE(address_in("192.0.2.7", "192.0.2.7/33"));
    EXPECT_FALSE(address_in("192.0.2.7", "192.0.2.7"));
    EXPECT_FALSE(address_in("192.0.2.8", "192.0.2.6/31"));
    EXPECT_FALSE(address_in("192.0.2.7", "fd00::/64"));
    EXPECT_FALSE(address_in("192.0.2.7", "192.0.2.0/x"));
    EXPECT_FALSE(address_in("192.0.2.7", "/"));
    EXPECT_FALSE(address_in("", "0.0.0.0/0"));
}

TEST(OfiProvider, a_word_names_an_interface_a_label_an_address_or_a_network) {
    const auto named = [](const char* word) { return names_address(word, "eth0", "eth0:1", "192.0.2.7"); };
    for (const char* word : {"eth0", "eth0:1", "192.0.2.7", "192.0.2.0/24"}) EXPECT_TRUE(named(word)) << word;
    for (const char* word : {"eth", "eth1", "eth0:2", "eth0/32", "192.0.2.8", "192.0.2.7/", ""}) {
        EXPECT_FALSE(named(word)) << word;
    }
    EXPECT_TRUE(names_address("fd00::1", "eth0", "eth0", "fd00:0::1"));
    EXPECT_FALSE(names_address("fd00::2", "eth0", "eth0", "fd00::1"));
}

TEST(OfiProvider, addresses_of_an_interface_have_places_of_their_own) {
    const std::vector<Interface> all = interfaces();
    const auto is_ipv6 = [](const Interface& one) { return one.address.find(':') != std::string::npos; };
    for (const Interface& one : all) {
        for (const Interface& other : all) {
            if (&one == &other || one.name != other.name || is_ipv6(one) != is_ipv6(other)) continue;
            EXPECT_NE(one.place, other.place) << one.address << ", " << other.address;
        }
        EXPECT_EQ(interface_of(one.address).empty(), false);
    }
    EXPECT_EQ(interface_of("127.0.0.1"), "lo");
    EXPECT_EQ(interface_of("192.0.2.1"), "");
}

TEST(OfiProvider, the_way_to_a_host_is_the_kernels) {
    using Addresses = std::vector<std::string>;
    EXPECT_EQ(source_addresses_to("127.0.0.1"), Addresses{"127.0.0.1"});
    // A system without a file of hosts and without a name server knows no name, not even this one.
    addrinfo* known = nullptr;
    const bool knows_names = getaddrinfo("localhost", nullptr, nullptr, &known) == 0;
    if (known != nullptr) freeaddrinfo(known);
    EXPECT_EQ(source_addresses_to("localhost").empty(), !knows_names);
    EXPECT_EQ(source_addresses_to(""), Addresses{});
    EXPECT_EQ(source_addresses_to(nullptr), Addresses{});
    EXPECT_EQ(source_addresses_to("a name, which no host has"), Addresses{});
}

TEST(OfiProvider, an_address_of_another_network_is_named) {
    EXPECT_EQ(other_network("127.0.0.1", "127.3.2.1"), "");
    EXPECT_EQ(other_network("127.0.0.1", ""), "");
    EXPECT_EQ(other_network("", "127.0.0.1"), "");
    EXPECT_EQ(other_network("192.0.2.1", "127.0.0.1"), "") << "no interface has it";
    EXPECT_EQ(other_network("127.0.0.1", "192.0.2.1"),
              "is in another network than lo (127.0.0.1/8)");
}

TEST(OfiProvider, loopback_and_providers_of_one_host_are_taken_by_name_only) {
    const std::vector<Candidate> all = look_for_providers({});
    for (const Candidate& candidate : all) {
        EXPECT_FALSE(candidate.provider.empty());
        if (candidate.interface == "lo" || candidate.provider == "shm" || candidate.provider == "sockets") {
            EXPECT_FALSE(candidate.refused.empty()) << candidate.provider;
        }
    }
    // Those that can be used come first.
    EXPECT_TRUE(std::ranges::is_sorted(all, {}, [](const Candidate& one) { return !one.refused.empty(); }));
    EXPECT_EQ(chosen({.interface_include = "lo"}).find(" lo"), chosen({.interface_include = "lo"}).size() - 3);
    EXPECT_EQ(chosen({.provider_include = "shm"}).substr(0, 3), "shm");
}

TEST(OfiProvider, names_are_exact_and_the_preferred_one_comes_first) {
    const std::string name = kTcpProvider;
    const std::string both = "tcp;ofi_rxm," + name;
    EXPECT_EQ(chosen({.provider_include = both.c_str(), .interface_include = "lo"}), name + " lo");
    EXPECT_EQ(chosen({.provider_include = "tcp;ofi_rxm", .interface_include = "127.0.0.0/8"}), "tcp;ofi_rxm lo");
    const std::string without = "^" + name + ",shm";
    EXPECT_EQ(chosen({.provider_include = without.c_str(), .interface_include = "lo"}), "tcp;ofi_rxm lo");
}

TEST(OfiProvider, words_behind_a_circumflex_are_left_out_of_those_in_front_of_it) {
    const auto refusal = [](const char* interfaces) {
        const std::vector<Candidate> all =
            look_for_providers({.provider_include = kTcpProvider, .interface_include = interfaces});
        const Candidate* loopback = nullptr;
        for (const Candidate& candidate : all) {
            if (candidate.provider == kTcpProvider && candidate.address == "127.0.0.1") loopback = &candidate;
        }
        return loopback == nullptr ? "none" : loopback->refused;
    };
    EXPECT_EQ(refusal("lo"), "");
    EXPECT_EQ(refusal("lo,^10.0.0.1"), "");
    for (const char* words : {"^lo", "lo,^127.0.0.1", "127.0.0.0/8,^lo", "^10.0.0.1,lo", "^10.0.0.1,^lo"}) {
        EXPECT_EQ(refusal(words), "btl_velo_if_include has it behind a ^") << words;
    }
    EXPECT_NE(refusal("^eth7"), "") << "the loopback interface is not taken unless it is named";
}

TEST(OfiProvider, one_that_hangs_is_refused_even_by_name) {
    const std::vector<Candidate> all = look_for_providers({.provider_include = "udp;ofi_rxd,net;ofi_rxm"});
    for (const char* name : {"udp;ofi_rxd", "net;ofi_rxm"}) {
        const Candidate* candidate = find(all, name, "");
        if (candidate == nullptr && FI_MAJOR_VERSION >= 2) continue;  // it is no more
        ASSERT_NE(candidate, nullptr) << name;
        EXPECT_FALSE(candidate->refused.empty());
    }
}

TEST(OfiProvider, a_refusal_names_what_there_was_and_why) {
    const std::string text = chosen({.provider_include = kTcpProvider, .interface_include = "nowhere0"});
    const std::string line = std::string(kTcpProvider) + " (lo): btl_velo_if_include does not have it";
    EXPECT_NE(text.find(line), std::string::npos) << text;
    EXPECT_NE(text.find("tcp;ofi_rxm (lo): btl_velo_provider_include does not have it"), std::string::npos) << text;
    EXPECT_NE(text.find("btl_velo_if_include"), std::string::npos) << text;
}

/// Longer messages go in pieces, which later messages overtake.
TEST(OfiProvider, a_message_over_rxm_fits_one_of_its_buffers) {
    constexpr size_t kRxmBufferBytes = 16'384;
    constexpr uint32_t kSlots = 1u << 16;
    for (const char* provider : {"tcp;ofi_rxm", "verbs;ofi_rxm"}) {
        EXPECT_LT(part_packets_max(provider) * kPacketBytes, kRxmBufferBytes) << provider;
        EXPECT_GT(part_packets_max(provider), kPartPacketsMin) << provider;
    }
    for (const char* provider : {"tcp;ofi_rxm", kTcpProvider}) {
        const OfiDevice device({.mailbox_slots = kSlots, .faults = {}},
                               {.provider_include = provider, .interface_include = "lo"});
        EXPECT_EQ(device.limits().send_packets_max, Transmitter::kSendPartsMax * part_packets_max(provider))
            << provider;
    }
    EXPECT_EQ(part_packets_max(kTcpProvider), kPartPacketsMax);
    EXPECT_EQ(part_packets_max("unknown"), kPartPacketsMin);
}

/// The nodes of cards as the kernel shows them, and a card of that place.
TEST(OfiProvider, a_card_is_near_by_its_numa_node) {
    namespace fs = std::filesystem;
    const fs::path devices = fs::temp_directory_path() / ("ofi_provider_test." + std::to_string(getpid()));
    const fs::path device = devices / "0000:c1:00.2";
    fs::create_directories(device);
    const auto node_is = [&](const std::string& node) { std::ofstream(device / "numa_node") << node << "\n"; };
    const std::unique_ptr<fi_info, InfoDeleter> info(fi_allocinfo());
    EXPECT_EQ(card_nearness(*info, devices.c_str()), CardNearness::kUnknown) << "no card";
    fi_bus_attr bus = {};
    fid_nic nic = {};
    nic.bus_attr = &bus;
    info->nic = &nic;
    EXPECT_EQ(card_nearness(*info, devices.c_str()), CardNearness::kUnknown) << "no place";
    bus.bus_type = FI_BUS_PCI;
    bus.attr.pci = {.domain_id = 0, .bus_id = 0xc1, .device_id = 0, .function_id = 2};
    unsigned cpu = 0;
    unsigned own = 0;
    ASSERT_EQ(getcpu(&cpu, &own), 0);
    node_is("-1");
    EXPECT_EQ(card_nearness(*info, devices.c_str()), CardNearness::kUnknown) << "a host with one node";
    node_is("4096");
    EXPECT_EQ(card_nearness(*info, devices.c_str()), CardNearness::kOtherNode);
    // The thread may be moved meanwhile, on a host with several nodes.
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    ASSERT_EQ(sched_setaffinity(0, sizeof only, &only), 0);
    node_is(std::to_string(own));
    EXPECT_EQ(card_nearness(*info, devices.c_str()), CardNearness::kSameNode);
    bus.attr.pci.bus_id = 0xc2;
    EXPECT_EQ(card_nearness(*info, devices.c_str()), CardNearness::kUnknown);
    sched_setaffinity(0, sizeof before, &before);
    info->nic = nullptr;
    fs::remove_all(devices);
}

TEST(OfiProvider, settings_that_the_device_does_not_know_are_refused_with_a_sentence) {
    const auto refusal = [](DeviceConfig config) -> std::string {
        try {
            const OfiDevice device(config, {.provider_include = kTcpProvider, .interface_include = "lo"});
        } catch (const base::SetupError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_NE(refusal({.ports = 0, .faults = {}}), "");
    EXPECT_NE(refusal({.ports = 9, .faults = {}}), "");
    EXPECT_NE(refusal({.mailbox_slots = 1, .contact_slots = 2, .faults = {}}), "");
    EXPECT_EQ(refusal({.mailbox_slots = 1, .faults = {}}), "");
}

}  // namespace
}  // namespace velo::ofi
