#include "velo/ofi/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace velo::ofi {
namespace {

/// The bytes of an IP address; none for other families.
std::span<const uint8_t> bytes_of(const sockaddr* address) {
    if (address == nullptr) return {};
    if (address->sa_family == AF_INET) {
        const auto& ip = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
        return {reinterpret_cast<const uint8_t*>(&ip), sizeof ip};
    }
    if (address->sa_family == AF_INET6) {
        const auto& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
        return {reinterpret_cast<const uint8_t*>(&ip), sizeof ip};
    }
    return {};
}

int prefix_bits(const sockaddr* mask) {
    int bits = 0;
    for (const uint8_t byte : bytes_of(mask)) bits += std::popcount(byte);
    return bits;
}

bool is_ipv6(const std::string& address) {
    return address.find(':') != std::string::npos;
}

/// More than an interface has addresses.
constexpr uint32_t kAlone = 1u << 16;

struct AddrinfoDeleter {
    void operator()(addrinfo* first) const { freeaddrinfo(first); }
};

}  // namespace

std::string address_text(const sockaddr* address) {
    std::array<char, INET6_ADDRSTRLEN> text = {};
    const std::span<const uint8_t> bytes = bytes_of(address);
    if (!bytes.empty()) inet_ntop(address->sa_family, bytes.data(), text.data(), text.size());
    return text.data();
}

std::vector<Interface> interfaces() {
    std::vector<Interface> all;
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) return all;
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
        const std::string text = address_text(at->ifa_addr);
        if (text.empty()) continue;
        const std::string label = at->ifa_name;
        const auto name = label.substr(0, label.find(':'));
        const int bits = prefix_bits(at->ifa_netmask);
        const bool alone = bits == static_cast<int>(8 * bytes_of(at->ifa_addr).size());
        const auto before = std::ranges::count_if(all, [&](const Interface& other) {
            return other.name == name && is_ipv6(other.address) == is_ipv6(text);
        });
        all.push_back({.name = name,
                       .address = text,
                       .network = text + "/" + std::to_string(bits),
                       .label = label,
                       .flags = at->ifa_flags,
                       .place = static_cast<uint32_t>(before) + (alone ? kAlone : 0)});
    }
    freeifaddrs(first);
    return all;
}

bool address_in(const std::string& address, const std::string& network) {
    const size_t slash = network.find('/');
    if (slash == std::string::npos) return false;
    const std::string digits = network.substr(slash + 1);
    if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos)
        return false;
    for (const int family : {AF_INET, AF_INET6}) {
        std::array<uint8_t, 16> one = {};
        std::array<uint8_t, 16> other = {};
        const size_t bits_max = family == AF_INET ? 32 : 128;
        const size_t bits = std::stoul(digits);
        if (inet_pton(family, address.c_str(), one.data()) != 1) continue;
        if (inet_pton(family, network.substr(0, slash).c_str(), other.data()) != 1 || bits > bits_max) return false;
        for (size_t bit = 0; bit < bits; ++bit) {
            if (((one[bit / 8] ^ other[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
        }
        return true;
    }
    return false;
}

bool names_address(const std::string& word, const std::string& interface, const std::string& label,
                   const std::string& address) {
    return word == interface || word == label || address_in(address, word) ||
           address_in(address, word + (is_ipv6(word) ? "/128" : "/32"));
}

std::vector<std::string> source_addresses_to(const char* host) {
    std::vector<std::string> sources;
    addrinfo hints = {};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (host == nullptr || *host == '\0' || getaddrinfo(host, "9", &hints, &found) != 0) return sources;
    const std::unique_ptr<addrinfo, AddrinfoDeleter> all(found);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
        const int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        sockaddr_storage own = {};
        socklen_t bytes = sizeof own;
        // A datagram socket that is connected has a route, and nothing was sent.
        const bool routed = connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
                            getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) == 0;
        close(fd);
        if (routed) sources.push_back(address_text(reinterpret_cast<const sockaddr*>(&own)));
    }
    return sources;
}

std::string interface_of(const std::string& address) {
    const std::vector<Interface> all = interfaces();
    const auto found = std::ranges::find(all, address, &Interface::address);
    return found == all.end() ? "" : found->name;
}

std::string other_network(const std::string& own, const std::string& peer) {
    if (own.empty() || peer.empty()) return "";
    const std::vector<Interface> all = interfaces();
    const auto at = std::ranges::find(all, own, &Interface::address);
    if (at == all.end() || address_in(peer, at->network)) return "";
    return "is in another network than " + at->name + " (" + at->network + ")";
}

}  // namespace velo::ofi
