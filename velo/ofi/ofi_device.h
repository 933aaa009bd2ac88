/// The device of a network: packets and RMA operations over libfabric (velo/device/device.h is its contract).
///
/// One endpoint, one completion queue. A message of libfabric is the packets of one send(), as they lie in the
/// receiver's mailbox (mailbox.h); ahead of the first one to a peer goes a hello with the receiver's token (wire.h), so
/// that strangers are dropped. No address is resolved and nothing is connected before that.
///
/// Lost messages are found: each packet has the count of those before it, and each signal that of the messages before
/// it. A peer whose count does not go on is taken for ended, because its messages would come with a gap.
///
/// Thread: one at a time. Not to be used by a child of fork().
#pragma once

#include "velo/device/network_device.h"
#include "velo/ofi/arrivals.h"
#include "velo/ofi/contact_gate.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/log.h"
#include "velo/ofi/mailbox.h"
#include "velo/ofi/peer_endings.h"
#include "velo/ofi/peer_table.h"
#include "velo/ofi/peer_watch.h"
#include "velo/ofi/poll_pacer.h"
#include "velo/ofi/rma_unit.h"
#include "velo/ofi/transmitter.h"
#include "velo/ofi/wire.h"

namespace velo::ofi {

/// Events that DeviceCounters has no field for.
struct OfiCounters {
    uint64_t malformed = 0;
    uint64_t strangers = 0;
    uint64_t broken_streams = 0;
    uint64_t lost_receives = 0;
    uint64_t hellos_sent = 0;
    uint64_t hellos_received = 0;
    uint64_t pings_sent = 0;
    uint64_t pings_received = 0;
};

class OfiDevice final : public NetworkDevice {
  public:
    /// Throws base::SetupError. `config.faults` are open_device()'s to inject.
    [[gnu::cold]] explicit OfiDevice(const DeviceConfig& config, const NetworkOptions& options = {})
        : OfiDevice(config, choose_provider(options)) {}
    [[gnu::cold]] OfiDevice(const DeviceConfig& config, Choice choice);
    ~OfiDevice() override;

    size_t address(std::span<std::byte> out) const override { return write_address(own_, out); }
    [[nodiscard]] const Address& own_address() const { return own_; }
    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
    [[nodiscard]] const DeviceTraits& traits() const override { return traits_; }
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure) override;
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const override { return peers_.checked(peer).facts; }
    [[nodiscard]] bool alive(DeviceAddr peer) const override { return !peers_.checked(peer).dead; }
    void watch(DeviceAddr peer) override { watch_.watch(peer); }
    void announce_ending(base::Ending ending) override;
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const override { return peers_.checked(peer).ending; }

    /// Besides what the contract says: kBadParam for no packets or more than DeviceLimits::send_packets_max, and
    /// kUnsupported when the peer has no mailbox.
    Status send(DeviceAddr to, uint32_t packets, Admission admission, PacketFill fill) override;
    const Packet* peek(DeviceAddr& from) override { return mailbox_.peek(from); }
    void advance() override;
    uint32_t take_run(std::byte* to, uint32_t packets_max) override;

    Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out) override {
        return rma_.register_memory(base, bytes, access, out);
    }
    Status deregister(const Registration& registration) override { return rma_.deregister(registration); }
    Status post(const RmaOperation& operation) override;
    bool poll_notification(Notification& notification) override { return rma_.poll_notification(notification); }

    uint32_t progress(uint64_t now_ns) override;

    [[nodiscard]] DeviceReport report(DeviceAddr peer) const override;
    [[nodiscard]] DeviceLimits limits() const override;
    [[nodiscard]] DeviceCounters counters() const override;
    [[nodiscard]] OfiCounters ofi_counters() const;
    /// Peers that have ended.
    [[nodiscard]] uint64_t peers_ended() const { return endings_.count(); }
    [[nodiscard]] uint32_t peer_bytes() const override { return sizeof(Peer) + sizeof(void*); }
    [[nodiscard]] const char* name() const override { return endpoint_.title(); }

    static constexpr DeviceTraits kTraits = {.other_hosts = true,
                                             .sees_room = false,
                                             .sees_processes = false,
                                             .elects = false,
                                             .checks_keys = false,
                                             .atomics = false,
                                             .notifies_targets = false,
                                             .gathers = true,
                                             .dear_to_poll = true};
    /// Of the providers over TCP: what they send ahead of a get's data, and with the target of a put, as libfabric 1.17
    /// and 2.1 do (xnet_base_hdr, ofi_rma_iov).
    static constexpr uint8_t kGetHeaderBytes = 16;
    static constexpr uint8_t kPutHeaderBytes = 40;
    /// Slots for a contact packet are set aside so long for a sender that was called to send it again.
    static constexpr uint64_t kContactCallNs = 1'000'000'000;
    /// Closing waits so long for what the provider has not sent yet.
    static constexpr uint64_t kCloseNs = 100'000'000;
    /// Closing waits for this share of the timeout of peers for the answer of a process that computes, whose kernel
    /// has all that was sent.
    static constexpr uint64_t kLingerShare = 20;
    static constexpr uint32_t kMailboxSlotsMax = 1u << 24;
    static constexpr uint32_t kPortsMax = 8;

    /// The peer was heard of lately: it is in MPI, and serves operations.
    [[nodiscard]] bool responsive(DeviceAddr peer) const { return watch_.heard_lately(peers_[peer]); }

  private:
    [[gnu::cold]] void settle();
    void call_contacts();
    [[nodiscard]] bool busy() const {
        return transmitter_.refused() || transmitter_.under_way() || rma_.under_way() || mailbox_.refused();
    }
    [[nodiscard]] uint64_t events() const { return mailbox_.packets_arrived() + rma_.completions(); }

    // Each part has references to some of those before it, and to no later one.
    Endpoint endpoint_;
    Address own_;
    Log log_;
    Mailbox mailbox_;
    ContactGate gate_;
    PeerTable peers_;
    Transmitter transmitter_;
    RmaUnit rma_;
    PeerEndings endings_;
    PeerWatch watch_;
    Arrivals arrivals_;
    PollPacer pacer_;
    DeviceTraits traits_;
    uint32_t ports_;
    uint64_t operation_timeout_ns_;
    uint64_t linger_ns_;
    uint64_t now_ns_ = 0;  ///< of the last progress()
    uint64_t packets_read_ = 0;
};

}  // namespace velo::ofi
