/// This host's network interfaces, and what their addresses say of the way to other hosts.
///
/// Addresses are IPv4 or IPv6, in text without a port. Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct sockaddr;

namespace velo::ofi {

/// One address of an interface; an interface with several appears once for each.
struct Interface {
    std::string name;
    std::string address;
    std::string network;  ///< the address and the length of its prefix, "10.1.0.7/16"
    std::string label;    ///< what the system calls this address of the interface: its name, or "eth0:1"
    unsigned flags = 0;   ///< IFF_UP and others
    /// Less is better among the addresses of one interface and family: one that is alone in its network (a /32, as
    /// floating addresses have it) comes after the others, and these are in the kernel's order, the main one first.
    uint32_t place = 0;
};

/// Interfaces with an IP address.
[[nodiscard]] std::vector<Interface> interfaces();

/// The address in text; empty for those of other families.
[[nodiscard]] std::string address_text(const sockaddr* address);
/// Whether an address in text lies in `network`, "address/bits".
[[nodiscard]] bool address_in(const std::string& address, const std::string& network);

/// The addresses that this host's kernel would send from to `host`, a name or an address: one for each of its own. None
/// where the name is not known or no route leads there. Nothing is sent but what it takes to look the name up.
[[nodiscard]] std::vector<std::string> source_addresses_to(const char* host);

/// Whether `word` of a list of the user's is this interface, label or address, or a network that the address is in.
[[nodiscard]] bool names_address(const std::string& word, const std::string& interface, const std::string& label,
                                 const std::string& address);

/// Name of the interface that has this address; empty where none has.
[[nodiscard]] std::string interface_of(const std::string& address);

/// Empty where `peer` lies in the network of the interface that has the address `own`, or where one of them is not
/// known; otherwise a clause that names the own network.
[[nodiscard]] std::string other_network(const std::string& own, const std::string& peer);

}  // namespace velo::ofi
