/// Flow control over a device: its state machine, and the control packets of both directions (FC 5, 6).
///
/// The state machine says what is due after an event; it is sent here, as packets of the class kCredit, and what peers
/// send of that class becomes events here. Owner: PacketChannel. Thread: the engine's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "flowctl/flow_control.h"
#include "velo/base/status.h"
#include "velo/channels/packet_counters.h"
#include "velo/device/device.h"
#include "velo/wire/packet.h"

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

/// Whether each kind of control packet has a tag that is read as that kind.
[[nodiscard]] constexpr bool tags_are_read_back() {
    for (uint8_t i = 0; i < flowctl::kControlKinds; ++i) {
        const auto kind = static_cast<flowctl::ControlKind>(i);
        flowctl::ControlKind read = {};
        if (!control_kind(static_cast<uint8_t>(credit_tag(kind)), read) || read != kind) return false;
    }
    return true;
}
static_assert(tags_are_read_back());

/// Owns the state machine and the channel's counters, instead of referring to them: the channel asks both for each
/// message, and a member of a member costs no load. An event of a peer that breaks the protocol is counted as malformed
/// and changes nothing.
template <class D>
class ControlPackets {
  public:
    ControlPackets(D& device, const flowctl::Plan& plan) : device_(device), flow_(plan) {}

    [[nodiscard]] flowctl::FlowControl& flow() { return flow_; }
    [[nodiscard]] const flowctl::FlowControl& flow() const { return flow_; }
    [[nodiscard]] PacketChannelCounters& counters() { return counters_; }
    [[nodiscard]] const PacketChannelCounters& counters() const { return counters_; }

    /// Sends what flow control asks for after an event.
    void send_due() { flow_.send_control(sender()); }
    /// Sends packets that the device has refused.
    void resend() { flow_.resend_control(sender()); }
    /// Sends what has to leave before data to this peer does. False: the device has refused it.
    [[nodiscard, gnu::always_inline]] bool send_before_data(DeviceAddr to) {
        return !flow_.response_due(to) || flow_.send_control_to(to, sender());
    }

    /// A message's packet is about to fill a contact slot; `begins`: the first of a message, for the first time.
    /// Returns the first credits of an opening that rides in it; 0: none does.
    [[nodiscard]] uint16_t begin_contact(DeviceAddr to, bool begins) {
        flow_.contact_sent(to, begins);
        return static_cast<uint16_t>(flow_.opening_due(to, PacketStatus::kOpensMax));
    }
    /// The device has accepted a message's packet that fills a contact slot, with the opening of begin_contact().
    void contact_left(DeviceAddr to, uint16_t opens) {
        ++counters_.contacts_sent;
        if (opens == 0) return;
        flow_.opening_left(to);
        count_sent(flowctl::ControlKind::kOpen, opens);
    }

    /// Packets of the peer's that filled data slots have left the mailbox.
    void retrieved(DeviceAddr from, uint32_t packets, flowctl::MessageEnd end) {
        if (flow_.packets_retrieved(from, packets, end) != Status::kOk) ++counters_.malformed;
        send_due();
    }
    /// A run of body packets has left the mailbox, ahead of its message's end.
    void run_retrieved(DeviceAddr from, uint32_t packets) {
        if (flow_.run_retrieved(from, packets) != Status::kOk) ++counters_.malformed;
        send_due();
    }
    /// Packets of one message that filled contact slots have left the mailbox; `ended`: its last one, too.
    void contact_retrieved(DeviceAddr from, uint32_t packets, bool ended);

    /// Takes the packet that the device shows, which is of the class kCredit.
    void take(DeviceAddr from, const Packet& packet);
    /// Credits came back, in a packet of their own or in a message's last one.
    void take_credits(DeviceAddr from, uint32_t credits);
    /// An opening came in a message's packet; `opens`: its first credits.
    void take_opening(DeviceAddr from, uint16_t opens) { take_control(from, flowctl::ControlKind::kOpen, opens); }

  private:
    [[nodiscard]] auto sender() {
        return [this](flowctl::PeerIndex to, flowctl::ControlKind kind, uint32_t value) {
            return send(DeviceAddr(to), kind, value);
        };
    }
    [[gnu::noinline]] Status send(DeviceAddr to, flowctl::ControlKind kind, uint32_t value);
    void count_sent(flowctl::ControlKind kind, uint32_t value);
    void take_control(DeviceAddr from, flowctl::ControlKind kind, uint32_t value);

    D& device_;
    flowctl::FlowControl flow_;
    PacketChannelCounters counters_;
};

}  // namespace velo
