/// Bodies of velo/channels/packet_channel.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/channels/packet_channel.h"

namespace velo {

template <class D, class Clock>
Status PacketChannel<D, Clock>::send(DeviceAddr to, velo_send_t& send) {
    for (;;) {
        const uint32_t before = send.done;
        const Status status = send_part(to, send);
        // Credits have let go all that may. A message without them goes on while the mailbox has slots, and one that
        // the device takes in parts while it takes them.
        if (status != Status::kAgain) return status;
        if (send.done - before == uint64_t{send_packets_max_} * kPayload) continue;
        if (credited() && !control_.flow().by_contact(to)) {
            if (control_.flow().sendable(to, 1) == 0 && health::alive(device_, to)) control_.flow().wait_to_send(to);
            return status;
        }
        if (send.done == before) return status;
    }
}

template <class D, class Clock>
Status PacketChannel<D, Clock>::send_part(DeviceAddr to, velo_send_t& send, Parts parts) {
    VELO_DCHECK(send.done <= send.total, "%u of %u bytes have left", send.done, send.total);
    const uint32_t left = send.total - send.done;
    const uint32_t wanted = send.total == 0 ? 1 : packets_for(left);
    const uint32_t part_max = std::min(wanted, send_packets_max_);
    know(to);
    // Flow control has to say first what it said it would.
    if (!control_.send_before_data(to)) [[unlikely]] {
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
        if (packets == 0 && (parts == Parts::kAllowed || wanted == 1) && control_.flow().by_contact(to)) {
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
    if (contact) [[unlikely]]
        opens = control_.begin_contact(to, send.done == 0 && !send.stalled);
    const PartFill<D> fill = {.control = control_, .to = to, .send = send, .contact = contact, .opens = opens};
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
        control_.contact_left(to, opens);
    } else {
        control_.flow().packets_sent(to, packets);
    }
    send.done = std::min(send.total, send.done + packets * kPayload);
    control_.send_due();
    if (packets < wanted) return Status::kAgain;
    if (send.stalled) [[unlikely]]
        stall_ended(to);
    ++control_.counters().messages_sent;
    return Status::kOk;
}

template <class D, class Clock>
Status PacketChannel<D, Clock>::send_together(DeviceAddr to, std::span<velo_send_t* const> sends) {
    uint32_t packets = 0;
    for (const velo_send_t* send : sends) packets += packets_for(send->total);
    if (!prepare_packets(to, packets)) return Status::kAgain;
    if (!control_.send_before_data(to)) return Status::kAgain;
    const TogetherFill<D> fill = {.control = control_, .to = to, .sends = sends};
    const Status status = device_.send(to, packets, credited() ? Admission::kCredited : Admission::kGuarded, fill);
    if (status != Status::kOk) return status;
    control_.counters().messages_sent += sends.size();
    control_.flow().packets_sent(to, packets);
    for (velo_send_t* send : sends) {
        VELO_DCHECK(send->done == 0, "a message of which %u bytes have left goes with others", send->done);
        send->done = send->total;
        if (send->stalled) stall_ended(to);
    }
    control_.send_due();
    return Status::kOk;
}

/// How many of `packets` packets may go to a peer now. If credits do not suffice, the credit packets that
/// are next in the mailbox are taken first: a peer that exchanges messages with this one has returned credits
/// behind its own last message, which has not been polled since.
template <class D, class Clock>
uint32_t PacketChannel<D, Clock>::credits_for(DeviceAddr to, uint32_t packets) {
    // Not more than a few, so that a peer that sends many does not hold this process.
    for (uint32_t taken = 0;; ++taken) {
        const uint32_t sendable = control_.flow().sendable(to, packets);
        if (sendable == packets || taken == kCreditPacketsAtOnce) return sendable;
        DeviceAddr from = kNoAddr;
        const Packet* packet = device_.peek(from);
        if (packet == nullptr || !admits(from) ||
            PacketStatus::unpack(packet->status).message_class != MessageClass::kCredit) {
            return sendable;
        }
        know(from);
        control_.take(from, *packet);
    }
}

template <class D, class Clock>
uint64_t PacketChannel<D, Clock>::describe(DeviceAddr peer, PeerReport& out) const {
    if (!admits(peer)) return 0;
    out.credits.used = credited();
    out.credits.by_contact = flow().by_contact(peer);
    out.credits.available = flow().credits(peer);
    // If shares change, only the peer knows ours.
    out.credits.quota = plan_.mode == flowctl::Mode::kStatic ? plan_.quota : 0;
    out.credits.retrieved = flow().retrieved(peer);
    out.credits.threshold = flow().threshold(peer);
    out.credits.deferred = flow().deferred_credits(peer);
    out.partial_bytes = incoming_.partial_bytes(peer);
    out.device = device_.report(peer);
    return out.device.beat_ns;
}

}  // namespace velo
