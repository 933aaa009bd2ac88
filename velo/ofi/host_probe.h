/// Whether a silent process still runs, asked of its host's kernel.
///
/// A process that computes answers no ping, for minutes, and has not ended. Over TCP its kernel answers for it: the
/// endpoint's port listens as long as the process lives. So a connection to that port is opened and kept, on which
/// nothing is ever written. A process that ends takes its port along, and what waits there to be accepted is reset; a
/// host that is gone, or to which there is no way, answers neither SYN nor keepalive probes, and then nothing is known.
/// One connection is kept for each silent peer, because many short ones would fill the queue of a process that accepts
/// none.
///
/// Owner: the device, for a peer that it watches. Thread: the device's. No call blocks. Source: tcp(7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace velo::ofi {

class HostProbe {
  public:
    enum class Answer : uint8_t {
        kPending,
        kRuns,
        kGone,  ///< its host says so
    };

    HostProbe() = default;
    HostProbe(const HostProbe&) = delete;
    HostProbe& operator=(const HostProbe&) = delete;
    ~HostProbe() { close(); }

    /// The present knowledge of the process whose endpoint has this name, an IP address and port.
    [[nodiscard]] Answer ask(std::span<const std::byte> name);

    /// Why no connection came about, an errno: of the last attempt that ended, and ETIMEDOUT where none has an answer.
    /// 0: there was one, or none was tried.
    [[nodiscard]] int error() const { return error_; }

    /// Whether endpoints with names of libfabric's `addr_format` can be asked for.
    [[nodiscard]] static bool possible(uint32_t addr_format);

  private:
    enum class State : uint8_t { kClosed, kConnecting, kConnected };

    Answer connect(std::span<const std::byte> name);
    Answer connecting();
    Answer failed(int error);
    [[nodiscard]] bool answered_lately() const;
    void close();

    int socket_ = -1;
    int error_ = 0;
    State state_ = State::kClosed;
};

}  // namespace velo::ofi
