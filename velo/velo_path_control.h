/// VeloPath: the packets of flow control, in both directions. Part of velo_path.h.
#pragma once

#include "velo/velo_path.h"

namespace velo {

template <class D>
void VeloPath<D>::perform_all(const flowctl::Actions& actions) {
    for (const flowctl::Action& action : actions) {
        PeerState& peer = state(action.peer);
        // A switch without default makes the next kind a compile error here.
        switch (action.kind) {
            case flowctl::ActionKind::kSendCredits: peer.owed += action.credits; break;
            case flowctl::ActionKind::kSendReturnRequest: peer.request_due = true; break;
            case flowctl::ActionKind::kSendReturnResponse:
                peer.response_due = true;
                peer.response_credits = action.credits;
                break;
            case flowctl::ActionKind::kSendWelcome: peer.welcome_credits = action.credits; break;
            case flowctl::ActionKind::kSendFarewell:
                peer.owed = 0;
                peer.request_due = peer.response_due = false;
                peer.welcome_credits = 0;
                peer.farewell_due = true;
                break;
        }
        if (peer.owing || send_due(action.peer, peer)) continue;
        peer.owing = true;
        owing_.push_back(action.peer);
    }
}

/// False when something is left for later.
template <class D>
bool VeloPath<D>::send_due(DeviceAddr to, PeerState& peer) {
    if ((peer.farewell_due || peer.welcome_credits != 0) && !send_contact_due(to, peer)) return false;
    while (peer.owed != 0) {
        const uint32_t credits = std::min(peer.owed, plan_.return_max);
        if (!send_credits(to, credits)) return false;
        peer.owed -= credits;
    }
    // What a dead peer was to get is given up without being counted.
    if (peer.request_due) {
        const Status status = send_control(to, CreditTag::kReturnRequest, 0, 0);
        if (status == Status::kAgain) return false;
        peer.request_due = false;
        counters_.requests_sent += status == Status::kOk;
    }
    if (peer.response_due) {
        const Status status =
            send_control(to, CreditTag::kReturnResponse, peer.response_credits, sizeof(uint32_t));
        if (status == Status::kAgain) return false;
        peer.response_due = false;
        counters_.responses_sent += status == Status::kOk;
        counters_.credits_given_up += status == Status::kOk ? peer.response_credits : 0;
    }
    return true;
}

/// A farewell that waits goes before a later welcome.
template <class D>
bool VeloPath<D>::send_contact_due(DeviceAddr to, PeerState& peer) {
    if (peer.farewell_due) {
        const Status status = send_control(to, CreditTag::kFarewell, 0, 0, Admission::kContact);
        if (status == Status::kAgain) return false;
        peer.farewell_due = false;
        counters_.farewells_sent += status == Status::kOk;
    }
    if (peer.welcome_credits != 0) {
        const Status status = send_control(to, CreditTag::kWelcome, peer.welcome_credits, sizeof(uint16_t),
                                           Admission::kContact);
        if (status == Status::kAgain) return false;
        peer.welcome_credits = 0;
        counters_.welcomes_sent += status == Status::kOk;
    }
    return true;
}

template <class D>
bool VeloPath<D>::send_credits(DeviceAddr to, uint32_t credits) {
    const Status status = send_control(to, CreditTag::kCredits, credits, sizeof(uint16_t));
    if (status == Status::kAgain) return false;
    if (status != Status::kOk) return true;  // a dead peer needs no credits
    ++counters_.credit_packets_sent;
    counters_.credits_returned_explicit += credits;
    return true;
}

/// The packet has a slot: of the credit region, or one that flow control paid for with a credit; or it takes
/// a contact slot. kAgain: later.
template <class D>
Status VeloPath<D>::send_control(DeviceAddr to, CreditTag tag, uint32_t value, uint32_t bytes,
                                 Admission admission) {
    const auto fill = [=](uint32_t, std::byte* payload) {
        // Little endian, as everything that velo runs on.
        std::memcpy(payload, &value, sizeof value);
        return PacketStatus{.message_class = MessageClass::kCredit,
                            .end_of_message = true,
                            .contact = admission == Admission::kContact,
                            .tag = static_cast<uint8_t>(tag),
                            .length = static_cast<uint8_t>(bytes)};
    };
    return device_.send(to, 1, admission, fill);
}

template <class D>
void VeloPath<D>::flush_owed() {
    for (size_t i = 0; i < owing_.size();) {
        PeerState& peer = state(owing_[i]);
        if (!send_due(owing_[i], peer)) {
            ++i;
            continue;
        }
        peer.owing = false;
        owing_[i] = owing_.back();
        owing_.pop_back();
    }
}

template <class D>
void VeloPath<D>::take_credits(DeviceAddr from, uint32_t credits) {
    flowctl::Actions actions;
    if (flow_.credits_arrived(from, credits, actions) != Status::kOk) {
        ++counters_.malformed;
        return;
    }
    counters_.credits_received += credits;
    perform(actions);
}

template <class D>
void VeloPath<D>::take_credit_packet(DeviceAddr from, const Packet& packet) {
    const PacketStatus status = PacketStatus::unpack(packet.status);
    const auto tag = static_cast<CreditTag>(status.tag);
    uint32_t value = 0;
    std::memcpy(&value, packet.payload, std::min<size_t>(status.length, sizeof value));
    device_.advance();
    if (status.contact) return take_contact(from, tag, static_cast<uint16_t>(value));
    if (tag != CreditTag::kCredits) return take_control(from, tag, value);
    ++counters_.credit_packets_received;
    take_credits(from, static_cast<uint16_t>(value));
}

/// A compulsory request or response (FC 6.5.4), which filled a slot that a credit had paid for.
template <class D>
void VeloPath<D>::take_control(DeviceAddr from, CreditTag tag, uint32_t given_up) {
    if (tag != CreditTag::kReturnRequest && tag != CreditTag::kReturnResponse) {
        ++counters_.malformed;
        return;
    }
    retrieved(from, 1, {.control = true});
    const bool request = tag == CreditTag::kReturnRequest;
    ++(request ? counters_.requests_received : counters_.responses_received);
    flowctl::Actions actions;
    const auto kind = request ? flowctl::ControlKind::kReturnRequest : flowctl::ControlKind::kReturnResponse;
    if (flow_.control_arrived(from, kind, given_up, actions) != Status::kOk) ++counters_.malformed;
    perform(actions);
}

template <class D>
void VeloPath<D>::take_contact(DeviceAddr from, CreditTag tag, uint32_t credits) {
    flowctl::Actions actions;
    Status status = Status::kProtocol;
    if (tag == CreditTag::kWelcome) {
        ++counters_.welcomes_received;
        status = flow_.welcome_arrived(from, credits, actions);
    } else if (tag == CreditTag::kFarewell) {
        ++counters_.farewells_received;
        status = flow_.farewell_arrived(from, actions);
    }
    if (status != Status::kOk) ++counters_.malformed;
    perform(actions);
}

template <class D>
void VeloPath<D>::contact_retrieved(DeviceAddr from, uint32_t packets, bool ended) {
    counters_.contacts_received += packets;
    flowctl::Actions actions;
    if (flow_.contact_retrieved(from, packets, ended, actions) != Status::kOk) ++counters_.malformed;
    perform(actions);
}

}  // namespace velo
