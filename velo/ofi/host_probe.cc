#include "velo/ofi/host_probe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace velo::ofi {
namespace {

/// On a kept connection the host's kernel is asked every second or two. Its last answer counts for so long.
constexpr int kIdleSeconds = 2;
constexpr int kIntervalSeconds = 1;
constexpr uint32_t kAnswerMs = 4000;
/// Unanswered ones before the kernel gives the connection up; a second one is tried then.
constexpr int kProbes = 8;

void set(int socket, int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value);
}

/// Only its host itself says that a process has ended: nothing accepts at the port. That there is no way to the host,
/// or no answer, is a link that is down and may come back; that this process is short of something says nothing either.
/// A reset comes from a port that is open: a full queue may be answered so (tcp_abort_on_overflow). The next connection
/// tells.
bool says_gone(int error) {
    return error == ECONNREFUSED;
}

}  // namespace

bool HostProbe::possible(uint32_t addr_format) {
    return addr_format == FI_SOCKADDR_IN || addr_format == FI_SOCKADDR_IN6;
}

void HostProbe::close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
    state_ = State::kClosed;
}

HostProbe::Answer HostProbe::ask(std::span<const std::byte> name) {
    if (state_ == State::kConnected) {
        char byte = 0;
        const ssize_t got = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))) {
            return answered_lately() ? Answer::kRuns : Answer::kPending;
        }
        // The process has accepted and closed it, or has ended: a second connection tells which.
        close();
    }
    return state_ == State::kConnecting ? connecting() : connect(name);
}

HostProbe::Answer HostProbe::connect(std::span<const std::byte> name) {
    sockaddr_storage address = {};
    if (name.size() > sizeof address) return Answer::kPending;
    std::memcpy(&address, name.data(), name.size());
    socket_ = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (socket_ < 0) return Answer::kPending;
    set(socket_, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(socket_, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
    set(socket_, IPPROTO_TCP, TCP_KEEPINTVL, kIntervalSeconds);
    set(socket_, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
    state_ = State::kConnecting;
    if (error_ == 0) error_ = ETIMEDOUT;
    const int result =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(name.size()));
    if (result == 0 || errno == EINPROGRESS) return connecting();
    return failed(errno);
}

HostProbe::Answer HostProbe::failed(int error) {
    close();
    error_ = error;
    return says_gone(error) ? Answer::kGone : Answer::kPending;
}

/// Of a connection on which nothing is written the last acknowledgement is that of a keepalive probe.
bool HostProbe::answered_lately() const {
    tcp_info info = {};
    socklen_t bytes = sizeof info;
    return getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_last_ack_recv <= kAnswerMs;
}

HostProbe::Answer HostProbe::connecting() {
    pollfd descriptor = {socket_, POLLOUT, 0};
    if (poll(&descriptor, 1, 0) != 1) return Answer::kPending;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0) {
        state_ = State::kConnected;
        error_ = 0;
        return Answer::kRuns;
    }
    return failed(error);
}

}  // namespace velo::ofi
