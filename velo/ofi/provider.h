/// Which of libfabric's providers and interfaces there are, which can be used, and which one is.
///
/// Thread: any, one at a time. The first look costs 50 to 300 ms, the constructors of libfabric's libraries included.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "velo/device/network_device.h"
#include "velo/ofi/nearness.h"

namespace velo::ofi {

struct InfoDeleter {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

/// Ports of endpoints over TCP; 0 and 0: any.
struct PortRange {
    uint16_t low = 0;
    uint16_t high = 0;

    [[nodiscard]] bool given() const { return low != 0; }
    [[nodiscard]] bool has(uint16_t port) const { return low <= port && port <= high; }
    [[nodiscard]] std::string text() const { return std::to_string(low) + "-" + std::to_string(high); }
};

/// Provider names are compared as a whole: "tcp" and "tcp;ofi_rxm" are two.
inline constexpr uint32_t kApiVersion = FI_VERSION(1, 9);

/// One provider on one interface with one address.
struct Candidate {
    InfoPtr info;
    std::string provider;
    std::string interface;  ///< as the system or the provider calls it; empty where it has none
    std::string label;      ///< the interface, or what the system calls this address of several
    std::string address;    ///< IP, in text; empty for addresses of other kinds
    std::string refused;    ///< a few words; empty for one that can be used
    int preference = 0;     ///< less is better
    uint32_t place = 0;     ///< of several addresses of one interface (Interface)
    CardNearness nearness = CardNearness::kUnknown;  ///< of those that are preferred alike
};

/// All that there are, the best first: those that can be used come before the others.
[[gnu::cold]] std::vector<Candidate> look_for_providers(const NetworkOptions& options);

/// A provider on one interface, described as it is opened.
struct Choice {
    InfoPtr info;
    std::string interface;
    std::string address;  ///< as in Candidate
    PortRange ports;
};

/// The first usable one, and behind it the same provider on other interfaces, up to `rails_max` in all and the nearest
/// first. An interface has one address in use, unless btl_velo_if_include names networks or addresses of it, each of
/// which is a rail. One that it names several times is taken as often, after one rail on each. Throws
/// base::SetupError, with a sentence that names what there was and what to do.
[[gnu::cold]] std::vector<Choice> choose_rails(const NetworkOptions& options, uint32_t rails_max);
/// The first of them.
[[gnu::cold]] Choice choose_provider(const NetworkOptions& options);

/// Packets of the longest message that a provider takes whole and in its order, at least kPartPacketsMin.
[[nodiscard]] uint32_t part_packets_max(const std::string& provider);

/// Whether a provider's data travel in a stream of TCP, behind the headers that DeviceTraits has of it.
[[nodiscard]] bool over_stream(const std::string& provider);

/// Whether `words`, with commas between them, has `word`.
[[nodiscard]] bool list_has(std::string_view words, const std::string& word);
/// An address of libfabric's format `format` in text, without its port; empty for those that are no IP addresses.
[[nodiscard]] std::string ip_text(uint32_t format, std::span<const std::byte> address);
/// The port of an address; 0 for those that are no IP addresses.
[[nodiscard]] uint16_t ip_port(uint32_t format, std::span<const std::byte> address);
/// Bytes of an address of that format; 0: any number.
[[nodiscard]] size_t address_bytes(uint32_t format);

}  // namespace velo::ofi
