/// This host's network interfaces, and what their addresses say of the way to other hosts.
///
/// Addresses are IPv4 or IPv6, in text without a port. Thread: any.
#pragma once

#include <string>
#include <vector>

struct sockaddr;

namespace velo::ofi {

/// One address of an interface; an interface with several appears once for each.
struct Interface {
    std::string name;
    std::string address;
    std::string network;  ///< the address and the length of its prefix, "10.1.0.7/16"
    unsigned flags = 0;   ///< IFF_UP and others
};

/// Those with an IP address.
[[nodiscard]] std::vector<Interface> interfaces();

/// The address in text; empty for those of other families.
[[nodiscard]] std::string address_text(const sockaddr* address);
/// Whether an address in text lies in `network`, "address/bits".
[[nodiscard]] bool address_in(const std::string& address, const std::string& network);

/// The address that this host's kernel would send from to `host`, a name or an address; empty where the name is not
/// known or no route leads there. Nothing is sent but what it takes to look the name up.
[[nodiscard]] std::string source_address_to(const char* host);

/// Empty where `peer` lies in the network of the interface that has the address `own`, or where one of them is not
/// known; otherwise a clause that names both.
[[nodiscard]] std::string other_network(const std::string& own, const std::string& peer);

}  // namespace velo::ofi
