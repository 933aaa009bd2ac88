/// A network's device in a library of its own, which is opened by those jobs alone that reach other hosts.
///
/// NetworkDevice is the contract of velo/device/device.h by virtual calls: a packet over a network costs microseconds,
/// a virtual call a nanosecond. The library exports one function, velo_network_library(), and needs none of the
/// plugin's symbols. No exception leaves it but std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "velo/device/device.h"

namespace velo {

/// The `fill` of Device::send, whatever its type; good during the call that it is handed to.
class PacketFill {
  public:
    template <class Fill>
    explicit PacketFill(Fill& fill)
        : fill_(const_cast<void*>(static_cast<const void*>(&fill))),
          write_([](void* of, uint32_t index, std::byte* payload) {
              return (*static_cast<Fill*>(of))(index, payload).pack();
          }) {
        if constexpr (requires { fill.run(0u); }) {
            run_ = [](const void* of, uint32_t index) { return static_cast<const Fill*>(of)->run(index); };
        }
    }

    /// Writes packet `index`'s payload and returns its status word, without a source.
    uint64_t operator()(uint32_t index, std::byte* payload) const { return write_(fill_, index, payload); }
    /// Packets from `index` on that need no call.
    [[nodiscard]] PacketRun run(uint32_t index) const { return run_ == nullptr ? PacketRun{} : run_(fill_, index); }

  private:
    void* fill_;
    uint64_t (*write_)(void*, uint32_t, std::byte*);
    PacketRun (*run_)(const void*, uint32_t) = nullptr;
};

/// Each function is that of Device.
class NetworkDevice {
  public:
    NetworkDevice() = default;
    NetworkDevice(const NetworkDevice&) = delete;
    NetworkDevice& operator=(const NetworkDevice&) = delete;
    virtual ~NetworkDevice() = default;

    virtual size_t address(std::span<std::byte> out) const = 0;
    [[nodiscard]] virtual const DeviceTraits& traits() const = 0;
    virtual Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure) = 0;
    [[nodiscard]] virtual DevicePeer peer(DeviceAddr peer) const = 0;
    [[nodiscard]] virtual bool alive(DeviceAddr peer) const = 0;
    virtual void watch(DeviceAddr peer) = 0;
    virtual void announce_ending(base::Ending ending) = 0;
    [[nodiscard]] virtual base::Ending announced_ending(DeviceAddr peer) const = 0;
    virtual Status send(DeviceAddr to, uint32_t packets, Admission admission, PacketFill fill) = 0;
    virtual const Packet* peek(DeviceAddr& from) = 0;
    virtual void advance() = 0;
    virtual uint32_t take_run(std::byte* to, uint32_t packets_max) = 0;
    virtual Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out) = 0;
    virtual Status deregister(const Registration& registration) = 0;
    virtual Status post(const RmaOperation& operation) = 0;
    virtual bool poll_notification(Notification& notification) = 0;
    virtual uint32_t progress(uint64_t now_ns) = 0;
    [[nodiscard]] virtual DeviceReport report(DeviceAddr peer) const = 0;
    [[nodiscard]] virtual DeviceLimits limits() const = 0;
    [[nodiscard]] virtual DeviceCounters counters() const = 0;
    /// Bytes of a connected peer that was talked to, without what the provider keeps.
    [[nodiscard]] virtual uint32_t peer_bytes() const = 0;
    /// The provider and the interfaces, for the user: "net (eth0)" or "net (eth0, eth1)".
    [[nodiscard]] virtual const char* name() const = 0;
};

/// How a network's device is opened, beside DeviceConfig: the user's choice. Texts are borrowed for the call, and lists
/// are of words with commas between them, empty for no choice. Words from the first ^ on are not to be used.
struct NetworkOptions {
    const char* provider_include = "";
    const char* interface_include = "";  ///< names, addresses, or address/bits
    uint16_t port_low = 0;  ///< first and last port to listen at, for providers over TCP; 0: any
    uint16_t port_high = 0;
    const char* other_host = "";  ///< of the job; of several interfaces, one on the way there is preferred
};

/// The library's exported table.
struct NetworkLibrary {
    /// The interface that the library was built with: kNetworkAbi; any other is refused.
    uint64_t abi = 0;
    /// Opens the device. nullptr on failure, with a sentence for the user in `error`.
    NetworkDevice* (*open)(const DeviceConfig& config, const NetworkOptions& options, char* error,
                           size_t error_bytes) noexcept = nullptr;
    /// Calls `each` for every provider, interface and address that there is (empty for one that is no IP address);
    /// `refused` is nullptr for one that can be used. `rails`: how many of them open() would make of it, with
    /// DeviceConfig::ports of `rails_max`.
    void (*list)(const NetworkOptions& options, uint32_t rails_max, void* context,
                 void (*each)(void* context, const char* provider, const char* interface, const char* address,
                              const char* refused, uint32_t rails)) noexcept = nullptr;
};
inline constexpr uint64_t kNetworkAbi = 8;
inline constexpr const char* kNetworkLibraryFunction = "velo_network_library";
using NetworkLibraryFunction = const NetworkLibrary* (*)();

}  // namespace velo
