/// Flow control with a device that never refuses: each event gives back the control packets that left.
#pragma once

#include <cstdint>
#include <vector>

#include "flowctl/flow_control.h"

namespace velo::flowctl {

struct Action {
    ControlKind kind;
    PeerIndex peer;
    uint32_t credits;

    friend constexpr bool operator==(const Action&, const Action&) = default;
};
using Actions = std::vector<Action>;

class DrivenFlowControl : public FlowControl {
  public:
    using FlowControl::FlowControl;

    Status credits_arrived(PeerIndex from, uint32_t credits, Actions& actions) {
        return then(FlowControl::credits_arrived(from, credits), actions);
    }
    Status packets_retrieved(PeerIndex from, uint32_t packets, MessageEnd end, Actions& actions) {
        return then(FlowControl::packets_retrieved(from, packets, end), actions);
    }
    Status contact_retrieved(PeerIndex from, uint32_t packets, bool ended, Actions& actions) {
        return then(FlowControl::contact_retrieved(from, packets, ended), actions);
    }
    Status control_arrived(PeerIndex from, ControlKind kind, uint32_t value, Actions& actions) {
        return then(FlowControl::control_arrived(from, kind, value), actions);
    }
    Status open_arrived(PeerIndex from, uint32_t credits, Actions& actions) {
        return control_arrived(from, ControlKind::kOpen, credits, actions);
    }
    /// The peer closes, or answers where we have.
    Status end_arrived(PeerIndex from, Actions& actions) {
        const bool answered = link(from) == LinkState::kClosing;
        return control_arrived(from, answered ? ControlKind::kClosed : ControlKind::kClose, 0, actions);
    }
    uint32_t take_piggyback(PeerIndex to, uint32_t max, Actions& actions) {
        const uint32_t credits = FlowControl::take_piggyback(to, max);
        (void)then(Status::kOk, actions);
        return credits;
    }
    void contact_sent(PeerIndex to, Actions& actions) {
        FlowControl::contact_sent(to, true);
        (void)then(Status::kOk, actions);
    }
    void close(PeerIndex from, Actions& actions) {
        FlowControl::close(from);
        (void)then(Status::kOk, actions);
    }

  private:
    Status then(Status status, Actions& actions) {
        send_control([&](PeerIndex to, ControlKind kind, uint32_t value) {
            actions.push_back({.kind = kind, .peer = to, .credits = value});
            return Status::kOk;
        });
        return status;
    }
};

}  // namespace velo::flowctl
