/// Messages over a device's mailboxes: cut into packets, sent under credits, put together again (FC 2, 3, 5).
///
/// Owner: the engine. Thread: the engine's; poll() may nest, because a handler may poll again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "flowctl/flow_control.h"
#include "velo/base/check.h"
#include "velo/base/copy.h"
#include "velo/channels/credit_stalls.h"
#include "velo/channels/gather.h"
#include "velo/channels/peer_report.h"
#include "velo/device/device.h"
#include "velo/os/clock.h"
#include "velo/velo.h"

namespace velo {

/// Events that the channel counts itself; what the device sees is in DeviceCounters.
struct PacketChannelCounters {
#define VELO_PACKETS_COUNTER(name, field, text) uint64_t field = 0;
#include "velo/counters.def"
};

/// A channel over device D (velo/channels/ring_channel.h says what a channel is); `Clock` has now_ns().
template <class D, class Clock = base::MonotonicClock>
class PacketChannel {
  public:
    static constexpr velo_path_t kPath = VELO_PATH_DEVICE;

    /// `message_bytes_max`: longest message, in either direction.
    PacketChannel(D& device, const flowctl::Plan& plan, uint32_t message_bytes_max, const Clock& clock = {})
        : clock_(clock),
          device_(device),
          plan_(plan),
          flow_(plan),
          send_packets_max_(device.limits().send_packets_max),
          message_bytes_max_(message_bytes_max),
          gathers_(device.traits().gathers) {}

    /// Bytes of state of a peer, before it is talked to and afterwards, without what a device keeps.
    [[nodiscard]] static uint32_t idle_peer_bytes(const flowctl::Plan& plan) {
        return plan.contact_slots != 0 ? 0 : flowctl::state_bytes_per_peer(plan);
    }
    [[nodiscard]] static uint32_t peer_bytes(const flowctl::Plan& plan) {
        return flowctl::state_bytes_per_peer(plan) + static_cast<uint32_t>(sizeof(PeerState));
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
    [[nodiscard]] uint32_t message_bytes_max() const { return message_bytes_max_; }

    /// Whether the message to this peer waits for credits. It need not be tried before take_ready() names the peer.
    [[nodiscard]] bool waits(DeviceAddr to) const { return flow_.waits_to_send(to); }
    [[nodiscard]] bool take_ready(DeviceAddr& to) {
        flowctl::PeerIndex ready = 0;
        if (!flow_.take_ready(ready)) return false;
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
        if (peer >= peers_.size()) [[unlikely]]
            grow(peer);
    }

    /// Takes up to `budget` packets, where those from the middle of a message count as one.
    /// handler.accepts(class, tag) is asked before a message's last packet is taken;
    /// handler.deliver(DeviceAddr, class, tag, data, bytes) gets whole messages. Returns how many packets
    /// were taken.
    template <class Handler>
    uint32_t poll(uint32_t budget, Handler&& handler);

    /// Sends flow control packets that the device has refused.
    void resend_control() {
        flow_.resend_control(control_sender());
    }
    [[nodiscard]] bool control_deferred() const { return flow_.control_refused(); }

    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const {
        return health::announced_ending(device_, peer);
    }
    /// Fills in this channel's part of a report; returns when the peer was last in progress, in ns, 0: not known.
    [[gnu::cold]] uint64_t describe(DeviceAddr peer, PeerReport& out) const;

    [[nodiscard]] const PacketChannelCounters& counters() const { return counters_; }
    [[nodiscard]] const CreditStalls& stalls() const { return stalls_; }
    /// The message to this peer that waited for credits waits no longer: send() does so when it leaves, the
    /// engine when it never will.
    void stall_ended(DeviceAddr peer) { stalls_.ended(peer, clock_.now_ns()); }
    void all_stalls_ended() { stalls_.all_ended(clock_.now_ns()); }
    [[nodiscard]] const flowctl::FlowControl& flow() const { return flow_; }
    [[nodiscard]] const flowctl::Plan& plan() const { return plan_; }

  private:
    /// Messages under reassembly: a buffer exists only while its peer is in the middle of a message.
    struct Reassembly {
        std::unique_ptr<std::byte[]> buffer;
        uint32_t bytes = 0;
        bool broken = false;  ///< the rest of this message is dropped
    };
    struct PeerState {
        Reassembly in;
    };
    /// The packets of a part of a message, for Device::send().
    struct PartFill {
        PacketChannel& path;
        DeviceAddr to;
        const velo_send_t& send;
        bool contact;
        uint16_t opens;

        PacketStatus operator()(uint32_t index, std::byte* payload) const {
            return PacketStatus::unpack(word(index, payload));
        }
        /// Out of line, so that it does not slow the loop over those that are alike; and as a word, because a status
        /// that is returned is put together on the stack, and read from there only after every store before it is done:
        /// those into the mailbox, whose lines the receiver has.
        [[gnu::noinline]] uint64_t word(uint32_t index, std::byte* payload) const;
        [[nodiscard]] BodyPackets body() const;
        [[nodiscard]] PacketRun run(uint32_t index) const;
        [[nodiscard]] PacketStatus status() const {
            return {.message_class = static_cast<MessageClass>(send.message_class),
                    .contact = contact,
                    .tag = send.tag,
                    .length = static_cast<uint8_t>(kPayload),
                    .opens = opens};
        }
    };
    /// The packets of several messages, for Device::send().
    struct TogetherFill {
        PacketChannel& path;
        DeviceAddr to;
        std::span<velo_send_t* const> sends;
        mutable size_t at = 0;       ///< message of the packet that was filled last
        mutable uint32_t first = 0;  ///< its first packet

        PacketStatus operator()(uint32_t index, std::byte* payload) const { return of(index)(index - first, payload); }
        [[nodiscard]] PacketRun run(uint32_t index) const { return of(index).run(index - first); }
        /// The message that the packet is of.
        [[nodiscard]] PartFill of(uint32_t index) const;
    };
    static constexpr auto kPayload = static_cast<uint32_t>(kPayloadBytes);
    static constexpr uint32_t kCreditPacketsAtOnce = 64;
    /// Under `hardware` a message that the mailbox cannot take as a whole goes in parts of a quarter of the mailbox,
    /// and of no fewer packets than these.
    static constexpr uint32_t kGuardedParts = 4;
    static constexpr uint32_t kGuardedPacketsAtOnce = 8;
    enum class Parts : uint8_t { kAllowed, kWhole };

    PeerState& state(DeviceAddr peer) {
        know(peer);
        return peers_[peer];
    }
    [[gnu::cold]] void grow(DeviceAddr peer) {
        peers_.resize(peer + 1);
        flow_.know(peer);
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
    [[nodiscard]] auto control_sender() {
        return [this](flowctl::PeerIndex to, flowctl::ControlKind kind, uint32_t value) {
            return send_control_packet(DeviceAddr(to), kind, value);
        };
    }
    /// Sends what flow control asks for after an event.
    void send_control() { flow_.send_control(control_sender()); }
    [[gnu::noinline]] Status send_control_packet(DeviceAddr to, flowctl::ControlKind kind, uint32_t value);
    void count_sent(flowctl::ControlKind kind, uint32_t value);
    uint32_t credits_for(DeviceAddr to, uint32_t packets);
    void take_credit_packet(DeviceAddr from, const Packet& packet);
    void take_credits(DeviceAddr from, uint32_t credits);
    bool append(Reassembly& in, const std::byte* payload, uint32_t length);
    void retrieved(DeviceAddr from, uint32_t packets, flowctl::MessageEnd end);
    void take_control(DeviceAddr from, flowctl::ControlKind kind, uint32_t value);
    void contact_retrieved(DeviceAddr from, uint32_t packets, bool ended);
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
    std::unique_ptr<std::byte[]> take_buffer();

    [[no_unique_address]] Clock clock_;
    D& device_;
    flowctl::Plan plan_;
    flowctl::FlowControl flow_;
    uint32_t send_packets_max_;  ///< of one send() of the device
    uint32_t message_bytes_max_;
    bool gathers_;
    std::vector<PeerState> peers_;
    std::vector<std::unique_ptr<std::byte[]>> buffers_;
    PacketChannelCounters counters_;
    CreditStalls stalls_;
};

template <class D, class Clock>
Status PacketChannel<D, Clock>::send(DeviceAddr to, velo_send_t& send) {
    for (;;) {
        const uint32_t before = send.done;
        const Status status = send_part(to, send);
        // Credits have let go all that may. A message without them goes on while the mailbox has slots, and one that
        // the device takes in parts while it takes them.
        if (status != Status::kAgain) return status;
        if (send.done - before == uint64_t{send_packets_max_} * kPayload) continue;
        if (credited() && !flow_.by_contact(to)) {
            if (flow_.sendable(to, 1) == 0 && health::alive(device_, to)) flow_.wait_to_send(to);
            return status;
        }
        if (send.done == before) return status;
    }
}

template <class D, class Clock>
Status PacketChannel<D, Clock>::send_part(DeviceAddr to, velo_send_t& send, Parts parts) {
    const uint32_t left = send.total - send.done;
    const uint32_t wanted = send.total == 0 ? 1 : packets_for(left);
    const uint32_t part_max = std::min(wanted, send_packets_max_);
    know(to);
    // Flow control has to say first what it said it would.
    if (flow_.response_due(to) && !flow_.send_control_to(to, control_sender())) [[unlikely]] {
        return health::alive(device_, to) ? Status::kAgain : Status::kPeerDead;
    }
    uint32_t packets = credits_for(to, part_max);
    Admission admission = credited() ? Admission::kCredited : Admission::kGuarded;
    // A message that goes whole or not at all is not stalled: it waits elsewhere, and is counted there.
    const auto stall = [&] {
        if (send.stalled || parts == Parts::kWhole) return;
        send.stalled = true;
        stalls_.began(to, clock_.now_ns());
    };
    if (packets < part_max) {
        if (packets == 0 && (parts == Parts::kAllowed || wanted == 1) && flow_.by_contact(to)) {
            packets = 1;
            admission = Admission::kContact;
        } else {
            stall();
        }
    }
    if (packets == 0) return health::alive(device_, to) ? Status::kAgain : Status::kPeerDead;
    if (!credited()) packets = std::min(packets, mailbox_slots(to));
    if (parts == Parts::kWhole && packets < wanted) return Status::kAgain;
    const bool contact = admission == Admission::kContact;

    // Our opening rides in the packet that makes the contact.
    uint16_t opens = 0;
    if (contact) [[unlikely]] {
        flow_.contact_sent(to, send.done == 0 && !send.stalled);
        opens = static_cast<uint16_t>(flow_.opening_due(to, PacketStatus::kOpensMax));
    }
    const PartFill fill = {.path = *this, .to = to, .send = send, .contact = contact, .opens = opens};
    Status status = device_.send(to, packets, admission, fill);
    const uint32_t part = status == Status::kAgain && parts == Parts::kAllowed ? part_packets(to, packets) : packets;
    if (part < packets) [[unlikely]] {
        packets = part;
        status = device_.send(to, packets, admission, fill);
    }
    if (status != Status::kOk) {
        if (contact && status == Status::kAgain) stall();
        return status;
    }
    if (contact) [[unlikely]] {
        ++counters_.contacts_sent;
        if (opens != 0) {
            flow_.opening_left(to);
            count_sent(flowctl::ControlKind::kOpen, opens);
        }
    } else {
        flow_.packets_sent(to, packets);
    }
    send.done = std::min(send.total, send.done + packets * kPayload);
    send_control();
    if (packets < wanted) return Status::kAgain;
    if (send.stalled) [[unlikely]]
        stall_ended(to);
    ++counters_.messages_sent;
    return Status::kOk;
}

/// Credits are taken ahead of a longer message's last payload: the mailbox's lines, which the receiver has, come over
/// one another's latency only while nothing else is stored between them (measured: 20 ns less at 256 bytes). If the
/// packet is the first one as well, its line comes while credits are taken.
template <class D, class Clock>
uint64_t PacketChannel<D, Clock>::PartFill::word(uint32_t index, std::byte* payload) const {
    const uint32_t offset = send.done + index * kPayload;
    const uint32_t length = std::min(send.total - offset, kPayload);
    PacketStatus status = this->status();
    status.length = static_cast<uint8_t>(length);
    status.end_of_message = offset + length == send.total;
    if (index == 0) gather(send, offset, payload, length);
    uint16_t credits = 0;
    if (status.end_of_message) {
        status.waited = send.stalled;
        // FC 5.4. The packet goes at once, so the credits in it cannot wait for a credit themselves; and they do not
        // overtake a return that waits.
        if (length <= kPiggybackOffset && path.flow_.deferred_credits(to) == 0)
            credits = static_cast<uint16_t>(path.flow_.take_piggyback(to, UINT16_MAX));
        status.piggyback = credits != 0;
        path.counters_.credits_returned_piggyback += credits;
    }
    if (index != 0) gather(send, offset, payload, length);
    if (status.piggyback) std::memcpy(payload + kPiggybackOffset, &credits, sizeof credits);
    return status.pack();
}

/// Packets that lie in the last part that has bytes, whole, and are not the message's last. A queued message
/// may have all its bytes in the first part.
template <class D, class Clock>
BodyPackets PacketChannel<D, Clock>::PartFill::body() const {
    const uint32_t part = send.bytes[1] != 0 ? 1 : 0;
    const uint32_t start = part == 0 ? 0 : send.bytes[0];
    const uint32_t before = start - std::min(start, send.done);
    const uint32_t first = (before + kPayload - 1) / kPayload;
    const uint32_t offset = send.done + first * kPayload;
    if (offset >= send.total) return {};
    return {.data = static_cast<const std::byte*>(send.data[part]) + (offset - start),
            .status = status(),
            .first = first,
            .count = packets_for(send.total - offset) - 1};
}

template <class D, class Clock>
PacketRun PacketChannel<D, Clock>::PartFill::run(uint32_t index) const {
    const uint32_t offset = send.done + index * kPayload;
    if (contact || offset >= send.total) return {};
    const uint32_t count = packets_for(send.total - offset) - 1;
    PacketRun run = {.status = status(), .count = count};
    size_t left = size_t{count} * kPayload;
    size_t at = offset;
    for (uint32_t part = 0; part < 2; ++part) {
        const size_t skipped = std::min<size_t>(at, send.bytes[part]);
        run.data[part] = static_cast<const std::byte*>(send.data[part]) + skipped;
        run.bytes[part] = std::min(left, send.bytes[part] - skipped);
        at -= skipped;
        left -= run.bytes[part];
    }
    return run;
}

template <class D, class Clock>
typename PacketChannel<D, Clock>::PartFill PacketChannel<D, Clock>::TogetherFill::of(uint32_t index) const {
    if (index < first) at = first = 0;
    for (uint32_t packets; index - first >= (packets = packets_for(sends[at]->total)); ++at) first += packets;
    return {.path = path, .to = to, .send = *sends[at], .contact = false, .opens = 0};
}

template <class D, class Clock>
Status PacketChannel<D, Clock>::send_together(DeviceAddr to, std::span<velo_send_t* const> sends) {
    uint32_t packets = 0;
    for (const velo_send_t* send : sends) packets += packets_for(send->total);
    if (!prepare_packets(to, packets)) return Status::kAgain;
    if (flow_.response_due(to) && !flow_.send_control_to(to, control_sender())) return Status::kAgain;
    const TogetherFill fill = {.path = *this, .to = to, .sends = sends};
    const Status status = device_.send(to, packets, credited() ? Admission::kCredited : Admission::kGuarded, fill);
    if (status != Status::kOk) return status;
    counters_.messages_sent += sends.size();
    flow_.packets_sent(to, packets);
    for (velo_send_t* send : sends) {
        send->done = send->total;
        if (send->stalled) stall_ended(to);
    }
    send_control();
    return Status::kOk;
}

/// How many of `packets` packets may go to a peer now. If credits do not suffice, the credit packets that
/// are next in the mailbox are taken first: a peer that exchanges messages with this one has returned credits
/// behind its own last message, which has not been polled since.
template <class D, class Clock>
uint32_t PacketChannel<D, Clock>::credits_for(DeviceAddr to, uint32_t packets) {
    // Not more than a few, so that a peer that sends many does not hold this process.
    for (uint32_t taken = 0;; ++taken) {
        const uint32_t sendable = flow_.sendable(to, packets);
        if (sendable == packets || taken == kCreditPacketsAtOnce) return sendable;
        DeviceAddr from = kNoAddr;
        const Packet* packet = device_.peek(from);
        if (packet == nullptr || !admits(from) ||
            PacketStatus::unpack(packet->status).message_class != MessageClass::kCredit) {
            return sendable;
        }
        know(from);
        take_credit_packet(from, *packet);
    }
}

template <class D, class Clock>
std::unique_ptr<std::byte[]> PacketChannel<D, Clock>::take_buffer() {
    if (buffers_.empty()) return std::make_unique_for_overwrite<std::byte[]>(message_bytes_max_);
    auto buffer = std::move(buffers_.back());
    buffers_.pop_back();
    return buffer;
}

template <class D, class Clock>
bool PacketChannel<D, Clock>::append(Reassembly& in, const std::byte* payload, uint32_t length) {
    if (length > message_bytes_max_ - in.bytes) return false;
    if (!in.buffer) in.buffer = take_buffer();
    std::byte* const to = in.buffer.get() + in.bytes;
    if (length == kPayload) [[likely]] {
        std::memcpy(to, payload, kPayload);
    } else {
        base::copy_small(to, payload, length);
    }
    in.bytes += length;
    return true;
}

template <class D, class Clock>
void PacketChannel<D, Clock>::retrieved(DeviceAddr from, uint32_t packets, flowctl::MessageEnd end) {
    if (flow_.packets_retrieved(from, packets, end) != Status::kOk) ++counters_.malformed;
    send_control();
}

/// Takes a run of body packets of one message, the shown one and those that follow. False: none.
template <class D, class Clock>
bool PacketChannel<D, Clock>::take_run(DeviceAddr from, bool contact) {
    Reassembly& in = state(from).in;
    const uint32_t room = (message_bytes_max_ - in.bytes) / kPayload;
    if (in.broken || room == 0) return false;
    if (!in.buffer) in.buffer = take_buffer();
    const uint32_t taken = device_.take_run(in.buffer.get() + in.bytes, room);
    if (taken == 0) return false;
    in.bytes += taken * kPayload;
    if (contact) [[unlikely]] {
        contact_retrieved(from, taken, false);
    } else {
        if (flow_.run_retrieved(from, taken) != Status::kOk) ++counters_.malformed;
        send_control();
    }
    return true;
}

template <class D, class Clock>
template <class Handler>
uint32_t PacketChannel<D, Clock>::poll(uint32_t budget, Handler&& handler) {
    uint32_t taken = 0;
    DeviceAddr from = kNoAddr;
    alignas(16) std::array<std::byte, kPayloadBytes> single;
    while (taken < budget) {
        const Packet* packet = device_.peek(from);
        if (packet == nullptr) break;
        const PacketStatus status = PacketStatus::unpack(packet->status);
        if (!admits(from) || !well_formed(packet->status)) [[unlikely]] {
            device_.advance();
            ++counters_.malformed;
            ++taken;
            continue;
        }
        know(from);
        if (status.message_class == MessageClass::kCredit) {
            take_credit_packet(from, *packet);
            ++taken;
            continue;
        }
        if (status.end_of_message && !handler.accepts(status.message_class, status.tag)) [[unlikely]]
            break;

        if (!status.end_of_message && !status.piggyback && status.length == kPayload && status.opens == 0) {
            if (take_run(from, status.contact)) {
                ++taken;
                continue;
            }
        }
        bool alone = false;
        {
            Reassembly& in = state(from).in;
            alone = status.end_of_message && in.bytes == 0 && !in.broken;
            if (alone) {
                std::memcpy(single.data(), packet->payload, status.length);
            } else if (!in.broken && !append(in, packet->payload, status.length)) {
                in.broken = true;
                ++counters_.malformed;
            }
        }
        uint16_t credits = 0;
        if (status.piggyback) std::memcpy(&credits, packet->payload + kPiggybackOffset, sizeof credits);
        device_.advance();
        ++taken;
        if (status.contact) [[unlikely]] {
            contact_retrieved(from, 1, status.end_of_message);
            if (status.opens != 0) take_control(from, flowctl::ControlKind::kOpen, status.opens);
        } else {
            retrieved(from, 1, {.ended = status.end_of_message, .waited = status.waited});
        }
        if (status.piggyback) take_credits(from, credits);
        if (!status.end_of_message) continue;

        // Nothing of the peer's state is in use during the upcall: it may poll again.
        Reassembly& in = state(from).in;
        std::unique_ptr<std::byte[]> buffer = std::move(in.buffer);
        const uint32_t bytes = alone ? status.length : in.bytes;
        const bool broken = std::exchange(in.broken, false);
        in.bytes = 0;
        if (!broken) {
            ++counters_.messages_received;
            handler.deliver(from, status.message_class, status.tag, alone ? single.data() : buffer.get(),
                            bytes);
        }
        if (buffer) buffers_.push_back(std::move(buffer));
    }
    flow_.settle_run();
    send_control();
    return taken;
}

}  // namespace velo

#include "velo/channels/packet_channel_control.h"
