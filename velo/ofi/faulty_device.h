/// A network's device under faults on demand (velo/device/faults.h). They strike between the engine and the device, so
/// no provider is touched, and a device without faults pays nothing.
///
///   delay      a message waits here, and those to the same peer behind it
///   stall      the device makes no progress and shows no packet
///   rma_fail   an operation ends here, and moves nothing
///   port_down  all operations of a port end here from one on, and move nothing
///
/// The n-th message, packet and operation meet the n-th draw of their kind: a draw for something that the device does
/// not take now is kept for the next attempt. Owner and thread: the device's.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "velo/device/faults.h"
#include "velo/device/network_device.h"

namespace velo::ofi {

class FaultyDevice final : public NetworkDevice {
  public:
    static constexpr std::string_view kSettings = "seed=N, delay=P:T, stall=P:T, rma_fail=P, port_down=PORT:N";

    FaultyDevice(std::unique_ptr<NetworkDevice> device, std::unique_ptr<base::Faults> faults)
        : device_(std::move(device)), faults_(std::move(faults)) {}
    ~FaultyDevice() override { release_all(); }

    size_t address(std::span<std::byte> out) const override { return device_->address(out); }
    [[nodiscard]] const DeviceTraits& traits() const override { return device_->traits(); }
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure) override {
        return device_->connect(address, peer, failure);
    }
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const override { return device_->peer(peer); }
    [[nodiscard]] bool alive(DeviceAddr peer) const override { return device_->alive(peer); }
    void watch(DeviceAddr peer) override { device_->watch(peer); }
    void announce_ending(base::Ending ending) override;
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const override {
        return device_->announced_ending(peer);
    }
    Status send(DeviceAddr to, uint32_t packets, Admission admission, PacketFill fill) override;
    const Packet* peek(DeviceAddr& from) override;
    void advance() override;
    /// None: stalls strike single packets.
    uint32_t take_run(std::byte* /*to*/, uint32_t /*packets_max*/) override { return 0; }
    Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out) override {
        return device_->register_memory(base, bytes, access, out);
    }
    Status deregister(const Registration& registration) override { return device_->deregister(registration); }
    Status post(const RmaOperation& operation) override;
    bool poll_notification(Notification& notification) override;
    uint32_t progress(uint64_t now_ns) override;
    [[nodiscard]] DeviceReport report(DeviceAddr peer) const override;
    [[nodiscard]] DeviceLimits limits() const override { return device_->limits(); }
    [[nodiscard]] DeviceCounters counters() const override;
    [[nodiscard]] uint32_t peer_bytes() const override { return device_->peer_bytes(); }
    [[nodiscard]] const char* name() const override { return device_->name(); }

  private:
    [[nodiscard]] bool valid(const RmaOperation& operation) const;
    [[nodiscard]] bool stalled() const { return now_ns_ < stalled_until_ns_; }
    uint32_t release(uint64_t now_ns);
    void release_all();

    std::unique_ptr<NetworkDevice> device_;
    std::unique_ptr<base::Faults> faults_;
    base::DelayLine delayed_;
    std::deque<Notification> failed_;   ///< to be polled
    uint64_t failed_count_ = 0;
    std::optional<uint64_t> delay_ns_;  ///< drawn for the next message
    std::optional<Status> fails_;       ///< drawn for the next operation
    bool stall_drawn_ = false;          ///< for the packet that is first in the mailbox
    uint64_t stalled_until_ns_ = 0;
    uint64_t now_ns_ = 0;  ///< of the last progress()
};

/// The device over libfabric, with the faults that `config` asks for. Throws base::SetupError.
[[gnu::cold]] std::unique_ptr<NetworkDevice> open_device(const DeviceConfig& config, const NetworkOptions& options);

}  // namespace velo::ofi
