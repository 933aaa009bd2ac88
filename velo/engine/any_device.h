/// The device of a job: the software EXTOLL device, or a network's. Which of them is chosen when it is opened.
///
/// One branch a call; the on-node path never comes here.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "sim_device/shim/shim_device.h"
#include "velo/device/device.h"
#include "velo/device/network_device.h"
#include "velo/device/network_library.h"

namespace velo {

/// Thread: as the devices.
class AnyDevice {
  public:
    /// Throws base::SetupError. `config.network` set: the network's device, from the library beside the plugin.
    [[gnu::cold]] explicit AnyDevice(const DeviceConfig& config) {
        if (config.network != nullptr) {
            network_ = open_network(config);
        } else {
            shim_.emplace(config);
        }
    }

    size_t address(std::span<std::byte> out) const { return shim_ ? shim_->address(out) : network_->address(out); }
    [[nodiscard]] const DeviceTraits& traits() const { return shim_ ? shim_->traits() : network_->traits(); }
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure = nullptr) {
        return shim_ ? shim_->connect(address, peer, failure) : network_->connect(address, peer, failure);
    }
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const { return shim_ ? shim_->peer(peer) : network_->peer(peer); }
    [[nodiscard]] bool alive(DeviceAddr peer) const { return shim_ ? shim_->alive(peer) : network_->alive(peer); }
    void watch(DeviceAddr peer) {
        if (!shim_) network_->watch(peer);
    }
    void announce_ending(base::Ending ending) {
        shim_ ? shim_->announce_ending(ending) : network_->announce_ending(ending);
    }
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const {
        return shim_ ? shim_->announced_ending(peer) : network_->announced_ending(peer);
    }
    bool claim_report(DeviceAddr peer) { return shim_ && shim_->claim_report(peer); }
    template <class Fill>
    Status send(DeviceAddr to, uint32_t packets, Admission admission, Fill&& fill) {
        if (shim_) [[likely]]
            return shim_->send(to, packets, admission, fill);
        return network_->send(to, packets, admission, PacketFill(fill));
    }
    const Packet* peek(DeviceAddr& from) {
        if (shim_) [[likely]]
            return shim_->peek(from);
        return network_->peek(from);
    }
    void advance() {
        if (shim_) [[likely]]
            return shim_->advance();
        network_->advance();
    }
    uint32_t take_run(std::byte* to, uint32_t packets_max) {
        return shim_ ? shim_->take_run(to, packets_max) : network_->take_run(to, packets_max);
    }
    Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out) {
        return shim_ ? shim_->register_memory(base, bytes, access, out)
                     : network_->register_memory(base, bytes, access, out);
    }
    Status deregister(const Registration& registration) {
        return shim_ ? shim_->deregister(registration) : network_->deregister(registration);
    }
    Status post(const RmaOperation& operation) { return shim_ ? shim_->post(operation) : network_->post(operation); }
    bool poll_notification(Notification& notification) {
        return shim_ ? shim_->poll_notification(notification) : network_->poll_notification(notification);
    }
    uint32_t progress(uint64_t now_ns) { return shim_ ? shim_->progress(now_ns) : network_->progress(now_ns); }
    [[nodiscard]] DeviceReport report(DeviceAddr peer) const {
        return shim_ ? shim_->report(peer) : network_->report(peer);
    }
    [[nodiscard]] DeviceLimits limits() const { return shim_ ? shim_->limits() : network_->limits(); }
    [[nodiscard]] DeviceCounters counters() const { return shim_ ? shim_->counters() : network_->counters(); }

    /// Bytes of a connected peer that was talked to.
    [[nodiscard]] uint32_t peer_bytes() const {
        return shim_ ? shim::ShimDevice::kPeerBytes : network_->peer_bytes();
    }
    /// The device's name, for the user.
    [[nodiscard]] const char* name() const { return shim_ ? "the software device" : network_->name(); }

  private:
    std::optional<shim::ShimDevice> shim_;
    std::unique_ptr<NetworkDevice> network_;
};
static_assert(Device<AnyDevice>);

}  // namespace velo
