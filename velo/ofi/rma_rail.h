/// One more rail of a device: an endpoint on an interface of its own, which carries RMA operations and nothing else.
///
/// It has no mailbox, and knows of no peer's life or death: those are the first rail's. It only finds out whether a
/// peer is reached by it (path_watch.h), and ends operations as failed where not. A peer is here the name of its
/// endpoint, which is inserted with the first operation to it. An owner of registered memory has to call progress()
/// as well, because the providers over TCP serve a get in the owner's calls only.
///
/// Owner: RailsDevice. Thread: the device's.
#pragma once

#include <span>
#include <vector>

#include "velo/device/device.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/path_watch.h"
#include "velo/ofi/poll_pacer.h"
#include "velo/ofi/provider.h"
#include "velo/ofi/rma_unit.h"

namespace velo::ofi {

class RmaRail {
  public:
    /// `ports`: queues of operations. Throws base::SetupError.
    [[gnu::cold]] RmaRail(Choice choice, uint32_t ports);
    RmaRail(const RmaRail&) = delete;
    RmaRail& operator=(const RmaRail&) = delete;
    ~RmaRail() { endpoint_.close(); }

    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
    [[nodiscard]] const RmaUnit& rma() const { return rma_; }
    /// Bytes of a peer that is known here.
    [[nodiscard]] static constexpr uint32_t peer_bytes() { return sizeof(Peer) + PathWatch::peer_bytes(); }

    /// The endpoint that a peer is reached at from here; the first one given stays.
    [[gnu::cold]] void know(DeviceAddr peer, std::span<const std::byte> name);

    Status register_as(void* base, const Registration& registration) { return rma_.register_as(base, registration); }
    Status deregister(const Registration& registration) { return rma_.deregister(registration); }

    /// Posts an operation on a peer that is known here. `facts`: what its notification says.
    Status post(const RmaOperation& operation, const DevicePeer& facts, bool dead);
    /// Whether a peer that is known here was not reached of late.
    [[nodiscard]] bool broken(DeviceAddr peer) const { return watch_.broken(peer); }
    bool poll_notification(Notification& notification) { return rma_.poll_notification(notification); }
    /// Returns how many operations ended.
    uint32_t progress(uint64_t now_ns);
    [[gnu::cold]] void peer_died(DeviceAddr peer);
    /// See RmaUnit.
    template <class Responsive>
    void end_overdue(uint64_t timeout_ns, Responsive&& responsive) {
        rma_.end_overdue(timeout_ns, responsive);
    }

  private:
    struct Peer {
        std::vector<std::byte> name;
        fi_addr_t at = FI_ADDR_NOTAVAIL;
    };

    void read();
    bool read_error();
    void completed(Context& context, int error);

    Endpoint endpoint_;
    RmaUnit rma_;
    PathWatch watch_;
    PollPacer pacer_;
    std::vector<Peer> peers_;  ///< by DeviceAddr
    uint64_t now_ns_ = 0;      ///< of the last progress()
};

}  // namespace velo::ofi
