/// The target's half of the RMA unit: executes what peers cannot do by themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "sim_device/shim/copy_helper.h"
#include "sim_device/shim/peer_table.h"

namespace velo::shim {

/// The CPU atomics that serve requests are those of the owner's own memory, so they are atomic also with
/// what the owner does to it by atomics. Thread: the owner's.
class RequestServer {
  public:
    static constexpr uint32_t kRequestsPerProgress = 64;  ///< a port

    /// `atu`: the owner's private copy of its table; the one in the segment peers could overwrite. Offers to
    /// help with puts and gets go to `helper`.
    RequestServer(PeerTable& peers, SegmentView own, uint32_t ports, base::AtuView atu, CopyHelper& helper);

    /// Serves each port's ring. A request whose notification finds its ring full waits, and its port with it.
    uint32_t progress();

    [[nodiscard]] RequestRing& request_ring(uint32_t port) { return ports_[port].ring; }

    /// Requests from processes that never connected.
    [[nodiscard]] uint64_t unknown_source() const { return unknown_source_; }
    /// Requests that made no sense, and answers that found no cell: their requester sent more than the cells it
    /// set aside.
    [[nodiscard]] uint64_t malformed() const { return malformed_; }

  private:
    struct Port {
        RequestRing ring;
        bool notifying = false;  ///< `request` is executed; its notification has to be placed
        DeviceAddr from = kNoAddr;
        Request request;
        Answer answer;
    };

    void execute(Port& port);
    Status apply(const Request& request, uint64_t address, uint64_t& value) const;
    bool finish(Port& port);

    PeerTable& peers_;
    NotificationRing notifications_;
    base::AtuView atu_;
    CopyHelper& helper_;
    std::vector<Port> ports_;
    uint64_t unknown_source_ = 0;
    uint64_t malformed_ = 0;
};

}  // namespace velo::shim
