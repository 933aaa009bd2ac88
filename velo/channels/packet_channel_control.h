/// PacketChannel: the packets of flow control, in both directions, and reports. The end of packet_channel.h, which
/// alone includes it.
#pragma once

namespace velo {

/// The words of flow control on the wire. Nothing for a tag that is none of them.
[[nodiscard]] constexpr bool control_kind(uint8_t tag, flowctl::ControlKind& kind) {
    using flowctl::ControlKind;
    switch (static_cast<CreditTag>(tag)) {
        case CreditTag::kCredits: kind = ControlKind::kCredits; return true;
        case CreditTag::kReturnRequest: kind = ControlKind::kReturnRequest; return true;
        case CreditTag::kReturnResponse: kind = ControlKind::kReturnResponse; return true;
        case CreditTag::kOpen: kind = ControlKind::kOpen; return true;
        case CreditTag::kClose: kind = ControlKind::kClose; return true;
        case CreditTag::kClosed: kind = ControlKind::kClosed; return true;
    }
    return false;
}
[[nodiscard]] constexpr CreditTag credit_tag(flowctl::ControlKind kind) {
    using flowctl::ControlKind;
    switch (kind) {
        case ControlKind::kCredits: return CreditTag::kCredits;
        case ControlKind::kReturnRequest: return CreditTag::kReturnRequest;
        case ControlKind::kReturnResponse: return CreditTag::kReturnResponse;
        case ControlKind::kOpen: return CreditTag::kOpen;
        case ControlKind::kClose: return CreditTag::kClose;
        case ControlKind::kClosed: return CreditTag::kClosed;
    }
    return CreditTag::kCredits;
}

/// The packet has a slot: of the credit region, one that flow control pays for with a credit, or a contact
/// slot. kAgain: later.
template <class D, class Clock>
Status PacketChannel<D, Clock>::send_control_packet(DeviceAddr to, flowctl::ControlKind kind, uint32_t value) {
    const bool contact = flowctl::fills_contact_slot(kind);
    const auto fill = [=](uint32_t, std::byte* payload) {
        // Little endian, as everything that velo runs on.
        std::memcpy(payload, &value, sizeof value);
        return PacketStatus{.message_class = MessageClass::kCredit,
                            .end_of_message = true,
                            .contact = contact,
                            .tag = static_cast<uint8_t>(credit_tag(kind)),
                            .length = sizeof value};
    };
    const Status status = device_.send(to, 1, contact ? Admission::kContact : Admission::kCredited, fill);
    // Packets to a dead peer are given up without being counted.
    if (status == Status::kOk) count_sent(kind, value);
    return status;
}

template <class D, class Clock>
void PacketChannel<D, Clock>::count_sent(flowctl::ControlKind kind, uint32_t value) {
    // A switch without default makes the next kind a compile error here.
    switch (kind) {
        case flowctl::ControlKind::kCredits:
            ++counters_.credit_packets_sent;
            counters_.credits_returned_explicit += value;
            break;
        case flowctl::ControlKind::kReturnRequest: ++counters_.requests_sent; break;
        case flowctl::ControlKind::kReturnResponse:
            ++counters_.responses_sent;
            counters_.credits_given_up += value;
            break;
        case flowctl::ControlKind::kOpen: ++counters_.opens_sent; break;
        case flowctl::ControlKind::kClose: ++counters_.closes_sent; break;
        case flowctl::ControlKind::kClosed: ++counters_.closed_sent; break;
    }
}

template <class D, class Clock>
void PacketChannel<D, Clock>::take_credits(DeviceAddr from, uint32_t credits) {
    if (flow_.credits_arrived(from, credits) != Status::kOk) {
        ++counters_.malformed;
        return;
    }
    counters_.credits_received += credits;
    send_control();
}

template <class D, class Clock>
void PacketChannel<D, Clock>::take_credit_packet(DeviceAddr from, const Packet& packet) {
    const PacketStatus status = PacketStatus::unpack(packet.status);
    uint32_t value = 0;
    std::memcpy(&value, packet.payload, std::min<size_t>(status.length, sizeof value));
    device_.advance();
    flowctl::ControlKind kind = flowctl::ControlKind::kCredits;
    if (!control_kind(status.tag, kind) || status.contact != flowctl::fills_contact_slot(kind)) {
        ++counters_.malformed;
        return;
    }
    if (kind == flowctl::ControlKind::kCredits) {
        ++counters_.credit_packets_received;
        return take_credits(from, value);
    }
    take_control(from, kind, value);
}

template <class D, class Clock>
void PacketChannel<D, Clock>::take_control(DeviceAddr from, flowctl::ControlKind kind, uint32_t value) {
    switch (kind) {
        case flowctl::ControlKind::kCredits: break;
        case flowctl::ControlKind::kReturnRequest: ++counters_.requests_received; break;
        case flowctl::ControlKind::kReturnResponse: ++counters_.responses_received; break;
        case flowctl::ControlKind::kOpen: ++counters_.opens_received; break;
        case flowctl::ControlKind::kClose: ++counters_.closes_received; break;
        case flowctl::ControlKind::kClosed: ++counters_.closed_received; break;
    }
    // Its slot is free again, and was paid for.
    if (flowctl::costs_a_credit(kind)) retrieved(from, 1, {.control = true});
    if (flow_.control_arrived(from, kind, value) != Status::kOk) ++counters_.malformed;
    send_control();
}

template <class D, class Clock>
void PacketChannel<D, Clock>::contact_retrieved(DeviceAddr from, uint32_t packets, bool ended) {
    counters_.contacts_received += packets;
    if (flow_.contact_retrieved(from, packets, ended) != Status::kOk) ++counters_.malformed;
    send_control();
}

template <class D, class Clock>
uint64_t PacketChannel<D, Clock>::describe(DeviceAddr peer, PeerReport& out) const {
    if (!admits(peer)) return 0;
    out.credits.used = credited();
    out.credits.by_contact = flow_.by_contact(peer);
    out.credits.available = flow_.credits(peer);
    // If shares change, only the peer knows ours.
    out.credits.quota = plan_.mode == flowctl::Mode::kStatic ? plan_.quota : 0;
    out.credits.retrieved = flow_.retrieved(peer);
    out.credits.threshold = flow_.threshold(peer);
    out.credits.deferred = flow_.deferred_credits(peer);
    out.partial_bytes = peer < peers_.size() ? peers_[peer].in.bytes : 0;
    out.device = device_.report(peer);
    return out.device.beat_ns;
}

}  // namespace velo
