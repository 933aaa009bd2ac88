#include "velo/ofi/connections.h"

#include <netinet/in.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace velo::ofi {
namespace {

/// The kernel's probes of an idle connection: the first after so long, each further one, and how many are not answered
/// before it gives the connection up.
constexpr int kIdleSeconds = 2;
constexpr int kIntervalSeconds = 1;
constexpr int kProbes = 4;

void set(int socket, int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value);
}

/// The bytes of an address as getsockname() or getpeername() gives it; empty for none.
template <class Call>
std::string address_of(int socket, Call&& call) {
    sockaddr_storage address = {};
    socklen_t bytes = sizeof address;
    if (call(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "";
    return {reinterpret_cast<const char*>(&address), std::min<size_t>(bytes, sizeof address)};
}

/// Calls each(socket, local, remote) for all of this process's TCP sockets; `remote` is empty for one that listens.
template <class Each>
void each_tcp_socket(Each&& each) {
    std::error_code error;
    const std::filesystem::directory_iterator end;
    for (std::filesystem::directory_iterator at("/proc/self/fd", error); !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        int socket = -1;
        std::from_chars(name.data(), name.data() + name.size(), socket);
        int protocol = 0;
        socklen_t bytes = sizeof protocol;
        if (getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0 || protocol != IPPROTO_TCP) continue;
        each(socket, address_of(socket, getsockname), address_of(socket, getpeername));
    }
}

/// Without the port.
std::string host_of(const std::string& address) {
    sockaddr_storage known = {};
    std::memcpy(&known, address.data(), std::min(address.size(), sizeof known));
    if (known.ss_family == AF_INET) {
        const auto& ip = reinterpret_cast<const sockaddr_in&>(known).sin_addr;
        return {reinterpret_cast<const char*>(&ip), sizeof ip};
    }
    const auto& ip = reinterpret_cast<const sockaddr_in6&>(known).sin6_addr;
    return {reinterpret_cast<const char*>(&ip), sizeof ip};
}

void keep_alive(int socket) {
    int already = 0;
    socklen_t bytes = sizeof already;
    if (getsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &already, &bytes) != 0 || already != 0) return;
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kIntervalSeconds);
    set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

/// The kernel repeats what is not acknowledged. A peer with a full buffer acknowledges the kernel's probes.
bool is_stuck(int socket) {
    tcp_info info = {};
    socklen_t bytes = sizeof info;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    return info.tcpi_state == TCP_ESTABLISHED && info.tcpi_retransmits >= Connections::kRepeatsMin &&
           info.tcpi_last_ack_recv >= Connections::kStuckMs;
}

/// The provider sees its end, and closes it: bytes that were not sent are dropped then.
void reset_connection(int socket) {
    const linger none = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    shutdown(socket, SHUT_RDWR);
}

}  // namespace

bool Connections::possible(const char* provider) {
    constexpr std::array kOverTcp = {"net", "tcp", "tcp;ofi_rxm"};
    return std::ranges::find(kOverTcp, std::string_view(provider)) != kOverTcp.end();
}

/// A socket that listens hands its settings on to those that it accepts.
void Connections::look_after() const {
    each_tcp_socket([this](int socket, const std::string& local, const std::string& remote) {
        if (local != own_ && !known_.contains(remote)) return;
        keep_alive(socket);
        if (!remote.empty() && is_stuck(socket)) reset_connection(socket);
    });
}

bool Connections::acknowledged() const {
    bool all = true;
    each_tcp_socket([&](int socket, const std::string& local, const std::string& remote) {
        if (remote.empty() || (local != own_ && !known_.contains(remote))) return;
        int unacknowledged = 0;
        if (ioctl(socket, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged != 0) all = false;
    });
    return all;
}

void Connections::reset(std::span<const std::byte> name) const {
    const std::string other = text(name);
    each_tcp_socket([&](int socket, const std::string& local, const std::string& remote) {
        if (remote.empty()) return;
        const bool accepted = local == own_ && host_of(remote) == host_of(other);
        if (remote == other || accepted) reset_connection(socket);
    });
}

}  // namespace velo::ofi
