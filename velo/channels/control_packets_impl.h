/// Bodies of velo/channels/control_packets.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/channels/control_packets.h"

namespace velo {

/// The packet has a slot: of the credit region, one that flow control pays for with a credit, or a contact slot.
/// kAgain: later.
template <class D>
Status ControlPackets<D>::send(DeviceAddr to, flowctl::ControlKind kind, uint32_t value) {
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

template <class D>
void ControlPackets<D>::count_sent(flowctl::ControlKind kind, uint32_t value) {
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

template <class D>
void ControlPackets<D>::take_credits(DeviceAddr from, uint32_t credits) {
    if (flow_.credits_arrived(from, credits) != Status::kOk) {
        ++counters_.malformed;
        return;
    }
    counters_.credits_received += credits;
    send_due();
}

template <class D>
void ControlPackets<D>::take(DeviceAddr from, const Packet& packet) {
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

template <class D>
void ControlPackets<D>::take_control(DeviceAddr from, flowctl::ControlKind kind, uint32_t value) {
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
    send_due();
}

template <class D>
void ControlPackets<D>::contact_retrieved(DeviceAddr from, uint32_t packets, bool ended) {
    counters_.contacts_received += packets;
    if (flow_.contact_retrieved(from, packets, ended) != Status::kOk) ++counters_.malformed;
    send_due();
}

}  // namespace velo
