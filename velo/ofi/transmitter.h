/// Messages to peers: hellos, the packets of sends, signals, and what the provider has not taken yet.
///
/// Order to one peer: its hello, then packets as send() accepted them, then the contact packet that it called for, then
/// signals. A peer for which something is left is driven: progress() tries again, and nothing overtakes it.
///
/// Owner: the device. Thread: the device's. Invariant: a frame is free, the provider has it, or one peer holds it.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "velo/ofi/connections.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/frames.h"
#include "velo/ofi/log.h"
#include "velo/ofi/parts.h"
#include "velo/ofi/peer_table.h"

namespace velo::ofi {

class Transmitter {
  public:
    struct Counters {
        uint64_t packets = 0;  ///< that send() accepted
        uint64_t hellos = 0;
        uint64_t pings = 0;
    };

    /// `part_bytes`: of the longest message. References are borrowed.
    Transmitter(const Endpoint& endpoint, PeerTable& peers, const Address& own, const Log& log, size_t part_bytes)
        : endpoint_(endpoint),
          peers_(peers),
          own_(own),
          log_(log),
          source_(source_of(own.head.node, own.head.vpid)),
          packets_max_(kSendPartsMax * endpoint.part_packets(own.head.mailbox_slots)),
          frames_(endpoint, part_bytes),
          scratch_(std::min(endpoint.inject_bytes(), part_bytes) / kPacketBytes),
          answers_closing_(Connections::possible(endpoint.provider())) {}

    /// Longest messages of the provider that one send() takes.
    static constexpr uint32_t kSendPartsMax = 4;

    /// The device's send() (velo/device/device.h), for a peer that is checked.
    Status send(DeviceAddr to, uint32_t packets, Admission admission, const PacketFill& fill);
    [[nodiscard]] uint32_t packets_max() const { return packets_max_; }

    /// Sends SignalBits to a peer with the next progress().
    void say(DeviceAddr to, uint32_t bits) {
        if (closing_ && bits == kPing) return;  // nothing follows the last word
        peers_[to].out.signals |= bits;
        drive(to);
    }
    /// The receiver's answers to the contact packet that was sent to it.
    void contact_admitted(DeviceAddr by) { peers_[by].out.contact.admitted(); }
    void contact_called(DeviceAddr by);
    /// Says to all peers that know this process how it ends. Nothing follows that.
    void close(base::Ending ending);
    [[nodiscard]] bool closing() const { return closing_; }
    [[nodiscard]] base::Ending ending() const { return ending_; }
    /// Calls visit(addr) for each living peer that has not answered this process's last word.
    template <class Visit>
    void for_each_unheard(Visit&& visit) const {
        for (DeviceAddr to = 0; answers_closing_ && closing_ && to < peers_.size(); ++to) {
            const Peer& peer = peers_[to];
            if (!peer.dead && knows(peer) && !peer.out.closing_heard) visit(to);
        }
    }
    /// Answers the last word of a peer, which ends now; unless this process's own last word went there. Over shared
    /// memory a peer that has closed is not written to: what it sent lies here.
    void hear_closing(DeviceAddr from) {
        if (answers_closing_ && !peers_[from].out.said_closing) say(from, kClosingHeard);
    }

    /// The provider is done with a frame.
    void sent(Frame& frame) { frames_.put(frame); }
    /// Drops all that is left for a peer that has ended.
    void peer_died(Peer& peer);
    /// Sends what is left for peers, as far as the provider takes it.
    void progress();

    /// Something has not left yet.
    [[nodiscard]] bool under_way() const { return frames_.used() != 0 || !driven_.empty(); }
    /// The provider has refused something since forget_refusals().
    [[nodiscard]] bool refused() const { return refused_; }
    void forget_refusals() { refused_ = false; }
    /// Packets to a peer that were accepted, and have not left.
    [[nodiscard]] static uint32_t held_packets(const Peer& peer);
    [[nodiscard]] const Counters& counters() const { return counters_; }

  private:
    [[nodiscard]] static bool knows(const Peer& peer) { return peer.out.hello_sent || peer.in.hello_received; }
    bool send_hello(DeviceAddr to);
    void drive(DeviceAddr to);
    bool drive_peer(DeviceAddr to);
    bool transmit(DeviceAddr to, const Packet* slots, uint32_t count, bool completion = false);
    bool transmit_frame(Frame& frame);
    void hold(DeviceAddr to, Frame* frames);
    uint32_t fill_part(Peer::Outgoing& out, Packet* slots, uint32_t first, uint32_t count, bool contact,
                       const PacketFill& fill);
    Status again() {
        refused_ = true;
        return Status::kAgain;
    }
    bool refused(ssize_t result, DeviceAddr to);

    const Endpoint& endpoint_;
    PeerTable& peers_;
    const Address& own_;
    const Log& log_;
    uint32_t source_;
    uint32_t packets_max_;
    Frames frames_;
    std::vector<Packet> scratch_;     ///< a message that is short enough for fi_inject
    std::vector<DeviceAddr> driven_;  ///< that something must be sent to
    bool answers_closing_;  ///< what a connection still holds when it is closed may be lost
    bool refused_ = false;
    bool closing_ = false;
    base::Ending ending_ = base::Ending::kNone;  ///< this process's, once announced
    Counters counters_;
};

/// False: the frame stays the caller's.
inline bool Transmitter::transmit_frame(Frame& frame) {
    Peer& peer = peers_[frame.to];
    const ssize_t result = fi_send(endpoint_.ep(), frame.slots, frame.count * kPacketBytes, frames_.descriptor(),
                                   peer.at, &frame.context);
    if (result != 0) return refused(result, frame.to);
    ++peer.out.messages;
    return true;
}

/// Sends slots that stay the caller's; `completion`: the provider is to report when it is done with them.
inline bool Transmitter::transmit(DeviceAddr to, const Packet* slots, uint32_t count, bool completion) {
    VELO_DCHECK(count != 0 && peers_[to].at != FI_ADDR_NOTAVAIL, "%u packets to a peer that is not resolved",
                count);
    const size_t bytes = count * kPacketBytes;
    if (bytes <= endpoint_.inject_bytes() && !completion) {
        Peer& peer = peers_[to];
        const ssize_t result = fi_inject(endpoint_.ep(), slots, bytes, peer.at);
        if (result != 0) return refused(result, to);
        ++peer.out.messages;
        return true;
    }
    if (frames_.free() == 0) return refused(-FI_EAGAIN, to);
    Frame* frame = frames_.take(to, count);
    std::memcpy(frame->slots, slots, bytes);
    if (transmit_frame(*frame)) return true;
    frames_.put(*frame);
    return false;
}

/// Writes packets [first, first + count) of a send, which is one message of the provider. Returns its slots.
inline uint32_t Transmitter::fill_part(Peer::Outgoing& out, Packet* slots, uint32_t first, uint32_t count,
                                       bool contact, const PacketFill& fill) {
    VELO_DCHECK(!contact || (first == 0 && count == 1), "%u packets fill a contact slot", count);
    const uint64_t own = source_ | uint64_t{contact} << PacketStatus::kContactBit;
    const uint32_t written = write_part(slots, fill, first, count, own, out.packets);
    out.packets = static_cast<uint8_t>(out.packets + count);
    if (contact) [[unlikely]] {
        out.contact_packet = slots[0];
        out.contact.sent();
    }
    return written;
}

[[gnu::always_inline]] inline Status Transmitter::send(DeviceAddr to, uint32_t packets, Admission admission,
                                                       const PacketFill& fill) {
    Peer& peer = peers_.checked(to);
    if (peer.dead) [[unlikely]]
        return Status::kPeerDead;
    if (peer.facts.mailbox_slots == 0) [[unlikely]]
        return Status::kUnsupported;
    const bool contact = admission == Admission::kContact;
    if (packets - 1 >= (contact ? 1 : packets_max_)) [[unlikely]]
        return Status::kBadParam;
    // Once fill was called the packets have to go, if need be in frames. A smaller mailbox takes them in several.
    const uint32_t frames = (packets + peer.part_packets - 1) / peer.part_packets;
    if (peer.out.held != nullptr || peer.out.contact.blocks() || frames_.free() < frames) [[unlikely]]
        return again();
    if (!peer.out.hello_sent && (!send_hello(to) || frames_.free() < frames)) [[unlikely]]
        return again();
    counters_.packets += packets;
    if (packets <= scratch_.size()) {
        const uint32_t slots = fill_part(peer.out, scratch_.data(), 0, packets, contact, fill);
        if (transmit(to, scratch_.data(), slots)) return Status::kOk;
        Frame* frame = frames_.take(to, packets);
        frame->count = slots;
        std::memcpy(frame->slots, scratch_.data(), slots * kPacketBytes);
        hold(to, frame);
        return Status::kOk;
    }
    Frame** last = nullptr;
    for (uint32_t done = 0; done < packets;) {
        Frame* frame = frames_.take(to, std::min(packets - done, peer.part_packets));
        frame->count = fill_part(peer.out, frame->slots, done, frame->packets, contact, fill);
        done += frame->packets;
        if (last == nullptr && transmit_frame(*frame)) continue;
        if (last == nullptr) {
            hold(to, frame);
        } else {
            *last = frame;
        }
        last = &frame->next;
    }
    return Status::kOk;
}

}  // namespace velo::ofi
