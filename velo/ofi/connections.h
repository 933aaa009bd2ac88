/// The TCP connections of a provider's endpoint, which the provider keeps to itself.
///
/// A link that is down ends no connection: the kernel repeats what was not acknowledged for a quarter of an hour, and
/// an end that only waits is not notified at all. Nothing takes an operation back from the provider meanwhile. So the
/// connections are found among this process's sockets by their addresses: each is kept alive by the kernel's probes,
/// and one that does not get through is reset, upon which the provider ends its operations with an error and connects
/// again with the next one. Nothing that was on its way arrives later. A peer that does not read is no such case: its
/// kernel answers.
///
/// Owner: a rail. Thread: the device's. Source: tcp(7).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <unordered_set>

namespace velo::ofi {

class Connections {
  public:
    /// A connection of which nothing was acknowledged for so long, and whose data were repeated so often, is reset.
    static constexpr unsigned kStuckMs = 3000;
    static constexpr unsigned kRepeatsMin = 3;

    /// `own`: the endpoint's name, an IP address and port.
    explicit Connections(std::span<const std::byte> own) : own_(text(own)) {}

    /// Whether this provider's endpoints have connections of this kind.
    [[nodiscard]] static bool possible(const char* provider);

    /// An endpoint that is connected to.
    void know(std::span<const std::byte> name) { known_.insert(text(name)); }
    /// To be called every second or so.
    void look_after() const;
    /// The peers' kernels have all that was written to the connections.
    [[nodiscard]] bool acknowledged() const;
    /// Resets those with an endpoint, and those that its host has opened to this one: their ports do not show the
    /// endpoint.
    void reset(std::span<const std::byte> name) const;

  private:
    [[nodiscard]] static std::string text(std::span<const std::byte> name) {
        return {reinterpret_cast<const char*>(name.data()), name.size()};
    }

    std::string own_;
    std::unordered_set<std::string> known_;
};

}  // namespace velo::ofi
