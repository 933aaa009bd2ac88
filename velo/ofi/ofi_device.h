/// The device of a network: packets and RMA operations over libfabric (velo/device.h is its contract).
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

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "velo/base/check.h"
#include "velo/network_device.h"
#include "velo/ofi/contact_gate.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/frames.h"
#include "velo/ofi/host_probe.h"
#include "velo/ofi/mailbox.h"
#include "velo/ofi/peer_health.h"
#include "velo/ofi/poll_pacer.h"
#include "velo/ofi/rma_unit.h"
#include "velo/ofi/wire.h"

namespace velo::ofi {

/// Events that DeviceCounters has no field for.
struct OfiCounters {
    uint64_t malformed = 0;       ///< messages that no process of this version writes; dropped
    uint64_t strangers = 0;       ///< hellos and signals without this process's token; dropped
    uint64_t broken_streams = 0;  ///< peers of which messages were lost
    uint64_t lost_receives = 0;   ///< receives that the provider ended with an error
    uint64_t hellos_sent = 0;
    uint64_t hellos_received = 0;
    uint64_t pings_sent = 0;
    uint64_t pings_received = 0;
};

class OfiDevice final : public NetworkDevice {
  public:
    /// Throws base::SetupError. `config.faults` are open_device()'s to inject.
    [[gnu::cold]] explicit OfiDevice(const DeviceConfig& config, const NetworkOptions& options = {});
    ~OfiDevice() override;

    size_t address(std::span<std::byte> out) const override { return write_address(own_, out); }
    [[nodiscard]] const DeviceTraits& traits() const override { return kTraits; }
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure) override;
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const override { return checked(peer).facts; }
    [[nodiscard]] bool alive(DeviceAddr peer) const override { return !checked(peer).dead; }
    void watch(DeviceAddr peer) override;
    void announce_ending(base::Ending ending) override;
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const override { return checked(peer).ending; }

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
    [[nodiscard]] const OfiCounters& ofi_counters() const { return ofi_counters_; }
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
    /// Slots for a contact packet are set aside so long for a sender that was told to send it again.
    static constexpr uint64_t kContactCallNs = 1'000'000'000;
    /// Watched peers are looked at so often, or 32 times in the timeout where that is shorter.
    static constexpr uint64_t kHealthCheckNs = 100'000'000;
    /// Closing waits so long for what the provider has not sent yet.
    static constexpr uint64_t kCloseNs = 100'000'000;
    static constexpr uint32_t kMailboxSlotsMax = 1u << 24;
    static constexpr uint32_t kPortsMax = 8;
    /// Longest messages of the provider that one send() takes.
    static constexpr uint32_t kSendPartsMax = 4;

  private:
    struct Peer {
        DevicePeer facts;
        uint64_t token = 0;
        fi_addr_t at = FI_ADDR_NOTAVAIL;
        std::vector<std::byte> endpoint;   ///< its name
        std::unique_ptr<HostProbe> probe;  ///< while it is watched and silent
        uint32_t part_packets = 0;         ///< of the longest message to it
        uint32_t due = 0;                  ///< SignalBits to say to it
        uint32_t messages_sent = 0;        ///< to it, after the hello
        uint32_t messages_received = 0;    ///< of it, after its hello
        uint8_t sent = 0;                  ///< packets to it, modulo 256
        uint8_t received = 0;              ///< packets of it, modulo 256
        bool hello_sent = false;          ///< our hello has left
        bool hello_received = false;      ///< its hello has come
        bool source_seen = false;          ///< its messages come with its address
        bool driven = false;               ///< in driven_
        bool watched = false;              ///< in watched_
        bool dead = false;
        base::Ending ending = base::Ending::kNone;
        ContactSender contact;
        PeerHealth::Peer health;
        Frame* held = nullptr;  ///< accepted by send(), and not taken by the provider yet; the first of them
        Packet contact_packet = {};
    };

    Peer& checked(DeviceAddr addr) {
        VELO_CHECK(addr < peers_.size(), "device address %u of %zu", addr, peers_.size());
        return *peers_[addr];
    }
    [[nodiscard]] const Peer& checked(DeviceAddr addr) const {
        VELO_CHECK(addr < peers_.size(), "device address %u of %zu", addr, peers_.size());
        return *peers_[addr];
    }

    // Peers (ofi_peers.cc).
    Status know(const Address& address, DeviceAddr& peer, base::Failure* failure);
    bool resolve(DeviceAddr addr);
    bool send_hello(DeviceAddr addr);
    void drive(DeviceAddr addr);
    bool drive_peer(DeviceAddr addr);
    void drive_peers();
    void watch_known();
    void check_health();
    bool check_health(DeviceAddr addr);
    void probe(DeviceAddr addr);
    void call_contacts();
    [[gnu::cold]] void tell_other_network(const Peer& peer) const;
    [[gnu::cold]] void peer_died(DeviceAddr addr, base::Ending ending, const char* why);

    // Arrivals (ofi_arrivals.cc).
    uint32_t read_completions();
    void completed(const fi_cq_data_entry& entry, fi_addr_t from);
    bool read_error();
    void frame_failed(Frame& frame, int error);
    void message_arrived(ReceiveBuffer& buffer, const std::byte* at, size_t bytes, fi_addr_t from);
    uint32_t packets_arrived(std::span<const std::byte> part, fi_addr_t from, DeviceAddr& peer, bool& contact);
    [[gnu::cold]] void hello_arrived(std::span<const std::byte> message, fi_addr_t from);
    void signal_arrived(std::span<const std::byte> message, fi_addr_t from);
    DeviceAddr identify(uint32_t source, fi_addr_t from);
    /// Its messages are told from those in its name.
    [[nodiscard]] bool place_known(const Peer& peer) const { return peer.source_seen || !endpoint_.has_source(); }
    [[gnu::cold]] void stream_broke(DeviceAddr peer);
    [[gnu::cold]] void stranger(const char* what);

    // ofi_device.cc
    bool transmit(DeviceAddr to, const Packet* slots, uint32_t count, bool completion = false);
    bool transmit_frame(Frame& frame);
    void hold(DeviceAddr to, Frame* frames);
    uint32_t fill_part(Peer& peer, Packet* slots, uint32_t first, uint32_t count, bool contact,
                       const PacketFill& fill);
    bool refused(ssize_t result, DeviceAddr to);
    Status again() {
        refused_ = true;
        return Status::kAgain;
    }
    [[nodiscard]] bool busy() const {
        return refused_ || frames_.used() != 0 || rma_.under_way() || !driven_.empty() || mailbox_.refused();
    }
    [[gnu::cold, gnu::format(printf, 3, 4)]] void log(int level, const char* format, ...) const;

    DeviceConfig config_;
    Endpoint endpoint_;
    Mailbox mailbox_;
    Frames frames_;
    RmaUnit rma_;
    Address own_;
    uint32_t source_;
    uint32_t send_packets_max_;

    std::vector<std::unique_ptr<Peer>> peers_;
    std::unordered_map<uint32_t, DeviceAddr> by_source_;
    std::unordered_map<uint64_t, DeviceAddr> by_token_;
    std::unordered_map<fi_addr_t, DeviceAddr> by_address_;
    size_t peers_with_room_;          ///< whose own messages the mailbox has room for
    std::vector<DeviceAddr> driven_;  ///< that something must be sent to
    std::vector<DeviceAddr> watched_;
    ContactGate gate_;
    PeerHealth health_;
    PollPacer pacer_;
    uint64_t now_ns_ = 0;           ///< of the last progress()
    uint64_t operations_done_ = 0;  ///< by the provider
    uint64_t health_check_ns_;
    uint64_t next_health_check_ns_ = 0;
    bool refused_ = false;  ///< something since the last look at the provider
    bool closing_ = false;
    base::Ending ending_ = base::Ending::kNone;  ///< this process's, once announced
    bool stranger_told_ = false;
    DeviceCounters counters_;
    OfiCounters ofi_counters_;
    std::vector<Packet> scratch_;  ///< a message that is short enough for fi_inject
};

}  // namespace velo::ofi
