/// Messages over a device's mailboxes: cut into packets, sent under credits, put together again (FC 2, 3, 5).
///
/// Owner: the engine. Thread: the engine's; poll() may nest, because a handler may poll again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "flowctl/flow_control.h"
#include "velo/base/check.h"
#include "velo/channels/control_packets.h"
#include "velo/channels/credit_stalls.h"
#include "velo/channels/packet_counters.h"
#include "velo/channels/packet_fill.h"
#include "velo/channels/peer_report.h"
#include "velo/channels/reassembly.h"
#include "velo/device/device.h"
#include "velo/os/clock.h"
#include "velo/velo.h"

namespace velo {

/// A channel over device D (velo/channels/ring_channel.h says what a channel is); `Clock` has now_ns().
template <class D, class Clock = base::MonotonicClock>
class PacketChannel {
  public:
    static constexpr velo_path_t kPath = VELO_PATH_DEVICE;

    /// `message_bytes_max`: longest message, in either direction.
    PacketChannel(D& device, const flowctl::Plan& plan, uint32_t message_bytes_max, const Clock& clock = {})
        : control_(device, plan),
          clock_(clock),
          device_(device),
          plan_(plan),
          send_packets_max_(device.limits().send_packets_max),
          gathers_(device.traits().gathers),
          incoming_(message_bytes_max) {}
    PacketChannel(const PacketChannel&) = delete;
    PacketChannel& operator=(const PacketChannel&) = delete;

    /// Bytes of state of a peer, before it is talked to and afterwards, without what a device keeps.
    [[nodiscard]] static uint32_t idle_peer_bytes(const flowctl::Plan& plan) {
        return plan.contact_slots != 0 ? 0 : flowctl::state_bytes_per_peer(plan);
    }
    [[nodiscard]] static uint32_t peer_bytes(const flowctl::Plan& plan) {
        return flowctl::state_bytes_per_peer(plan) + static_cast<uint32_t>(sizeof(Reassembly::Message));
    }

    template <class Peer>
    [[nodiscard]] static DeviceAddr name_of(const Peer& peer) {
        return peer.device_addr();
    }

    [[nodiscard]] bool credited() const {
        return plan_.mode != flowctl::Mode::kNone && plan_.mode != flowctl::Mode::kHardware;
    }

    /// False when the peer is one more than the mailbox was planned for. With contact slots no peer owns anything
    /// before it sends, so that those of other jobs may come as well.
    [[nodiscard]] bool admits(DeviceAddr peer) const { return peer < plan_.peers || plan_.contact_slots != 0; }

    /// Sends what credits allow of a message; send.done tells how much of it went. kOk: all of it; kAgain:
    /// call again later, with nothing else to this peer in between; kPeerDead.
    Status send(DeviceAddr to, velo_send_t& send);
    /// Sends a message that has not begun, whole or not at all. kAgain: nothing of it went; kPeerDead.
    Status send_whole(DeviceAddr to, velo_send_t& send) { return send_part(to, send, Parts::kWhole); }
    /// Sends several messages, none of which has begun, in one go: all or none.
    Status send_together(DeviceAddr to, std::span<velo_send_t* const> sends);

    /// Short messages gain by going together (DeviceTraits::gathers).
    [[nodiscard]] bool gathers() const { return gathers_; }
    [[nodiscard]] uint32_t message_bytes_max() const { return incoming_.message_bytes_max(); }

    /// Whether the message to this peer waits for credits. It need not be tried before take_ready() names the peer.
    [[nodiscard]] bool waits(DeviceAddr to) const { return control_.flow().waits_to_send(to); }
    [[nodiscard]] bool take_ready(DeviceAddr& to) {
        flowctl::PeerIndex ready = 0;
        if (!control_.flow().take_ready(ready)) return false;
        to = DeviceAddr(ready);
        return true;
    }

    /// Takes credits that have arrived, as far as this number of packets needs them, of whole messages. True: they
    /// could go at once, in one send().
    [[nodiscard]] bool prepare_packets(DeviceAddr to, uint32_t packets) {
        if (packets > send_packets_max_) return false;
        know(to);
        return credited() ? credits_for(to, packets) == packets : packets <= mailbox_slots(to);
    }

    /// There is state for the peer from here on, so that it can be looked at.
    void know(DeviceAddr peer) {
        if (!incoming_.knows(peer)) [[unlikely]]
            grow(peer);
    }

    /// Takes up to `budget` packets, where those from the middle of a message count as one.
    /// handler.accepts(class, tag) is asked before a message's last packet is taken;
    /// handler.deliver(DeviceAddr, class, tag, data, bytes) gets whole messages. Returns how many packets
    /// were taken.
    template <class Handler>
    uint32_t poll(uint32_t budget, Handler&& handler);

    /// Sends flow control packets that the device has refused.
    void resend_control() { control_.resend(); }
    [[nodiscard]] bool control_deferred() const { return flow().control_refused(); }

    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const {
        return health::announced_ending(device_, peer);
    }
    /// Fills in this channel's part of a report; returns when the peer was last in progress, in ns, 0: not known.
    [[gnu::cold]] uint64_t describe(DeviceAddr peer, PeerReport& out) const;

    [[nodiscard]] const PacketChannelCounters& counters() const { return control_.counters(); }
    [[nodiscard]] const CreditStalls& stalls() const { return stalls_; }
    /// The message to this peer that waited for credits waits no longer: send() does so when it leaves, the
    /// engine when it never will.
    void stall_ended(DeviceAddr peer) { stalls_.ended(peer, clock_.now_ns()); }
    void all_stalls_ended() { stalls_.all_ended(clock_.now_ns()); }
    [[nodiscard]] const flowctl::FlowControl& flow() const { return control_.flow(); }
    [[nodiscard]] const flowctl::Plan& plan() const { return plan_; }

  private:
    static constexpr auto kPayload = static_cast<uint32_t>(kPayloadBytes);
    static constexpr uint32_t kCreditPacketsAtOnce = 64;
    /// Under `hardware` a message that the mailbox cannot take as a whole goes in parts of a quarter of the mailbox,
    /// and of no fewer packets than these.
    static constexpr uint32_t kGuardedParts = 4;
    static constexpr uint32_t kGuardedPacketsAtOnce = 8;
    enum class Parts : uint8_t { kAllowed, kWhole };

    [[gnu::cold]] void grow(DeviceAddr peer) {
        incoming_.know(peer);
        control_.flow().know(peer);
    }
    [[nodiscard]] uint32_t mailbox_slots(DeviceAddr to) {
        return std::max(1u, device_.peer(to).mailbox_slots);
    }
    /// Packets that go at once of a message of `packets`, if the mailbox cannot take all of them.
    [[nodiscard]] uint32_t part_packets(DeviceAddr to, uint32_t packets) {
        if (plan_.mode != flowctl::Mode::kHardware) return packets;
        return std::min(packets, std::max(mailbox_slots(to) / kGuardedParts, kGuardedPacketsAtOnce));
    }
    Status send_part(DeviceAddr to, velo_send_t& send, Parts parts = Parts::kAllowed);
    uint32_t credits_for(DeviceAddr to, uint32_t packets);
    /// Whether a status word is one that this path writes. A length that is too large and an opening where there can
    /// be none are one comparison, because a packet that opens is rare.
    [[nodiscard]] static bool well_formed(uint64_t word) {
        const PacketStatus status = PacketStatus::unpack(word);
        if (word >> PacketStatus::kLengthBit > kPayloadBytes) [[unlikely]] {
            const bool opens = status.contact && status.message_class != MessageClass::kCredit;
            if (status.length > kPayloadBytes || !opens) return false;
        }
        return !status.piggyback || status.length <= kPiggybackOffset;
    }
    bool take_run(DeviceAddr from, bool contact);
    template <class Handler>
    void take_packet(DeviceAddr from, const Packet& packet, PacketStatus status, Handler& handler);

    ControlPackets<D> control_;  ///< first: one register is enough for both addresses while a message is sent
    [[no_unique_address]] Clock clock_;
    D& device_;
    flowctl::Plan plan_;
    uint32_t send_packets_max_;  ///< of one send() of the device
    bool gathers_;
    Reassembly incoming_;
    CreditStalls stalls_;
};

/// Takes a run of body packets of one message, the shown one and those that follow. False: none.
template <class D, class Clock>
bool PacketChannel<D, Clock>::take_run(DeviceAddr from, bool contact) {
    const uint32_t taken =
        incoming_.append_run(incoming_.of(from), [this](std::byte* to, uint32_t packets_max) {
            return device_.take_run(to, packets_max);
        });
    if (taken == 0) return false;
    if (contact) [[unlikely]] {
        control_.contact_retrieved(from, taken, false);
    } else {
        control_.run_retrieved(from, taken);
    }
    return true;
}

template <class D, class Clock>
template <class Handler>
uint32_t PacketChannel<D, Clock>::poll(uint32_t budget, Handler&& handler) {
    uint32_t taken = 0;
    DeviceAddr from = kNoAddr;
    for (; taken < budget; ++taken) {
        const Packet* packet = device_.peek(from);
        if (packet == nullptr) break;
        const PacketStatus status = PacketStatus::unpack(packet->status);
        if (!admits(from) || !well_formed(packet->status)) [[unlikely]] {
            device_.advance();
            ++control_.counters().malformed;
            continue;
        }
        know(from);
        if (status.message_class == MessageClass::kCredit) {
            control_.take(from, *packet);
            continue;
        }
        if (status.end_of_message && !handler.accepts(status.message_class, status.tag)) [[unlikely]]
            break;
        if (!status.end_of_message && !status.piggyback && status.length == kPayload && status.opens == 0) {
            if (take_run(from, status.contact)) continue;
        }
        take_packet(from, *packet, status, handler);
    }
    control_.flow().settle_run();
    control_.send_due();
    return taken;
}

/// Takes a packet of a message, the shown one, and hands the message up if this is its last one.
template <class D, class Clock>
template <class Handler>
[[gnu::always_inline]] inline void PacketChannel<D, Clock>::take_packet(DeviceAddr from, const Packet& packet,
                                                                        PacketStatus status, Handler& handler) {
    alignas(16) std::array<std::byte, kPayloadBytes> single;
    Reassembly::Message& message = incoming_.of(from);
    const bool alone = status.end_of_message && message.empty();
    if (alone) {
        std::memcpy(single.data(), packet.payload, status.length);
    } else if (!incoming_.append(message, packet.payload, status.length)) {
        ++control_.counters().malformed;
    }
    uint16_t credits = 0;
    if (status.piggyback) std::memcpy(&credits, packet.payload + kPiggybackOffset, sizeof credits);
    device_.advance();
    if (status.contact) [[unlikely]] {
        control_.contact_retrieved(from, 1, status.end_of_message);
        if (status.opens != 0) control_.take_opening(from, status.opens);
    } else {
        control_.retrieved(from, 1, {.ended = status.end_of_message, .waited = status.waited});
    }
    if (status.piggyback) control_.take_credits(from, credits);
    if (!status.end_of_message) return;

    // Nothing of the peer's state is in use during the upcall: it may poll again.
    Reassembly::Message whole = incoming_.end(from);
    if (!whole.broken) {
        ++control_.counters().messages_received;
        handler.deliver(from, status.message_class, status.tag, alone ? single.data() : whole.buffer.get(),
                        alone ? status.length : whole.bytes);
    }
    incoming_.reuse(std::move(whole));
}

}  // namespace velo
