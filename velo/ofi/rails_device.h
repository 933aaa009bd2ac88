/// The device of a network with several rails: an OfiDevice on the first interface, and RmaRails on others.
///
/// Packets, contacts, endings and the watch over peers go by the first rail alone, so that those of a pair stay in
/// order. An operation goes by the rail of its port. A registration has one key and one address on all rails, so any
/// rail of a process may meet any rail of a peer: each process chooses by itself, for each of its rails, one of the
/// peer's in the same network, and otherwise the one of the same number. Ports whose rail meets none take those that
/// meet one, so processes with different numbers of rails reach each other.
///
/// A rail that fails ends its operations with kFailed, which the engine takes for a failure of that rail. That a peer
/// has died is the first rail's word, and ends the operations with it on all of them.
///
/// Thread: one at a time. Not to be used by a child of fork().
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "velo/ofi/ofi_device.h"
#include "velo/ofi/rma_rail.h"

namespace velo::ofi {

class RailsDevice final : public NetworkDevice {
  public:
    /// `choices`: 1 to kRailsMax, of one provider whose endpoints share registrations (choose_rails). Throws
    /// base::SetupError.
    [[gnu::cold]] RailsDevice(const DeviceConfig& config, std::vector<Choice> choices);

    size_t address(std::span<std::byte> out) const override;
    [[nodiscard]] const DeviceTraits& traits() const override { return first_.traits(); }
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure) override;
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const override { return first_.peer(peer); }
    [[nodiscard]] bool alive(DeviceAddr peer) const override { return first_.alive(peer); }
    void watch(DeviceAddr peer) override { first_.watch(peer); }
    void announce_ending(base::Ending ending) override { first_.announce_ending(ending); }
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const override {
        return first_.announced_ending(peer);
    }
    Status send(DeviceAddr to, uint32_t packets, Admission admission, PacketFill fill) override {
        return first_.send(to, packets, admission, fill);
    }
    const Packet* peek(DeviceAddr& from) override { return first_.peek(from); }
    void advance() override { first_.advance(); }
    uint32_t take_run(std::byte* to, uint32_t packets_max) override { return first_.take_run(to, packets_max); }

    /// All rails or none.
    Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out) override;
    Status deregister(const Registration& registration) override;
    Status post(const RmaOperation& operation) override;
    bool poll_notification(Notification& notification) override;
    uint32_t progress(uint64_t now_ns) override;

    [[nodiscard]] DeviceReport report(DeviceAddr peer) const override;
    [[nodiscard]] DeviceLimits limits() const override;
    [[nodiscard]] DeviceCounters counters() const override;
    [[nodiscard]] uint32_t peer_bytes() const override;
    [[nodiscard]] const char* name() const override { return name_.c_str(); }

    [[nodiscard]] uint32_t rails() const { return static_cast<uint32_t>(others_.size()) + 1; }
    /// Counters of one rail; `rail` below rails(). Those of all but the first are of operations and registrations.
    [[nodiscard]] DeviceCounters rail_counters(uint32_t rail) const;

  private:
    /// Routes to a peer: the rail that each port takes.
    using Routes = std::array<uint8_t, OfiDevice::kPortsMax>;

    void choose_routes(DeviceAddr peer, const RailsAddress& address);
    [[nodiscard]] Routes spread(const std::vector<uint8_t>& rails) const;
    void end_with_the_dead();

    OfiDevice first_;
    std::vector<std::unique_ptr<RmaRail>> others_;
    std::vector<std::string> networks_;  ///< of each rail's interface; empty where it has none
    std::string name_;
    std::vector<Routes> routes_;  ///< by DeviceAddr; peers that are not in it take the first rail
    uint64_t peers_ended_ = 0;    ///< whose operations were ended on the other rails
    uint64_t operation_timeout_ns_;
    uint64_t next_overdue_ns_ = 0;
    uint32_t polled_ = 0;         ///< rail whose notifications come next
};

}  // namespace velo::ofi
