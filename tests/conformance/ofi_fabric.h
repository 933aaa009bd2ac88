/// Devices of velo/ofi in one process, over the loopback interface or shared memory of one provider.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/conformance/fabric.h"
#include "tests/conformance/ofi_names.h"
#include "velo/ofi/faulty_device.h"
#include "velo/ofi/ofi_device.h"
#include "velo/ofi/rails_device.h"
#include "velo/os/clock.h"

namespace velo::conformance {

/// Libfabric's provider `Provider::kName` as a device that the suites know.
template <class Provider>
class OfiTestDevice {
  public:
    explicit OfiTestDevice(const DeviceConfig& config, const char* interfaces = Provider::kInterface)
        : device_(
              ofi::open_device(config, {.provider_include = Provider::kName, .interface_include = interfaces})) {}

    size_t address(std::span<std::byte> out) const { return device_->address(out); }
    [[nodiscard]] const DeviceTraits& traits() const { return device_->traits(); }
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure = nullptr) {
        return device_->connect(address, peer, failure);
    }
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const { return device_->peer(peer); }
    [[nodiscard]] bool alive(DeviceAddr peer) const { return device_->alive(peer); }
    void watch(DeviceAddr peer) { device_->watch(peer); }
    void announce_ending(base::Ending ending) { device_->announce_ending(ending); }
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const { return device_->announced_ending(peer); }
    template <class Fill>
    Status send(DeviceAddr to, uint32_t packets, Admission admission, Fill&& fill) {
        return device_->send(to, packets, admission, PacketFill(fill));
    }
    const Packet* peek(DeviceAddr& from) { return device_->peek(from); }
    void advance() { device_->advance(); }
    uint32_t take_run(std::byte* to, uint32_t packets_max) { return device_->take_run(to, packets_max); }
    Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out) {
        return device_->register_memory(base, bytes, access, out);
    }
    Status deregister(const Registration& registration) { return device_->deregister(registration); }
    Status post(const RmaOperation& operation) { return device_->post(operation); }
    bool poll_notification(Notification& notification) { return device_->poll_notification(notification); }
    uint32_t progress(uint64_t now_ns) { return device_->progress(now_ns); }
    [[nodiscard]] DeviceReport report(DeviceAddr peer) const { return device_->report(peer); }
    [[nodiscard]] DeviceLimits limits() const { return device_->limits(); }
    [[nodiscard]] DeviceCounters counters() const { return device_->counters(); }
    /// The device under this one, if it has one rail and no faults.
    [[nodiscard]] ofi::OfiDevice& ofi() { return dynamic_cast<ofi::OfiDevice&>(*device_); }
    /// The device under this one, if it has several rails and no faults.
    [[nodiscard]] ofi::RailsDevice& rails() { return dynamic_cast<ofi::RailsDevice&>(*device_); }

  private:
    std::unique_ptr<NetworkDevice> device_;
};

struct Net {
    static constexpr const char* kName = kTcpProvider;
    static constexpr const char* kInterface = "lo";
    static constexpr uint64_t kLaps = 600;
};
/// Two rails, which share the interface.
struct NetRails {
    static constexpr const char* kName = kTcpProvider;
    static constexpr const char* kInterface = "lo,lo";
    static constexpr uint64_t kLaps = 600;
};
struct TcpRxm {
    static constexpr const char* kName = "tcp;ofi_rxm";
    static constexpr const char* kInterface = "lo";
    static constexpr uint64_t kLaps = 600;
};
struct Shm {
    static constexpr const char* kName = "shm";
    static constexpr const char* kInterface = "";
    static constexpr uint64_t kLaps = 600;
};
struct Sockets {
    static constexpr const char* kName = "sockets";
    static constexpr const char* kInterface = "lo";
    static constexpr uint64_t kLaps = 20;  ///< its thread lets a packet wait for milliseconds
};
static_assert(Device<OfiTestDevice<Net>>);

/// Time is the machine's.
template <class Provider>
class OfiFabric {
  public:
    using Device = OfiTestDevice<Provider>;
    /// Timeout of peers that do not answer.
    static constexpr uint64_t kPeerTimeoutNs = 300'000'000;
    static constexpr uint64_t kDriveNs = 20'000'000'000;
    static constexpr uint64_t kLaps = Provider::kLaps;

    Device& open(DeviceConfig config) {
        config.peer_timeout_ns = kPeerTimeoutNs;
        devices_.push_back(std::make_unique<Device>(config));
        return *devices_.back();
    }
    Device& operator[](size_t index) { return *devices_[index]; }
    void close(size_t index) { devices_[index].reset(); }
    void step() {
        for (const auto& device : devices_) {
            if (device) device->progress(now_ns());
        }
    }
    [[nodiscard]] uint64_t now_ns() const { return base::monotonic_ns(); }

  private:
    std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace velo::conformance
