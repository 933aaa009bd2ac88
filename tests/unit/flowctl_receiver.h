/// One process under dynamic flow control, to which a test hands packets.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/unit/flowctl_driver.h"

namespace velo::flowctl {

inline constexpr MessageEnd kEnd{.ended = true};

/// `data_slots`: of the whole mailbox.
inline Plan dynamic_plan(uint32_t peers, uint32_t data_slots, uint32_t credit_slots = 2,
                         Stealing stealing = Stealing::kPaper, uint32_t sender_slots_max = 0) {
    const PlanResult result = plan({.mode = Mode::kDynamic,
                                    .peers = peers,
                                    .mailbox_slots = data_slots + peers * credit_slots,
                                    .credit_slots = credit_slots,
                                    .sender_slots_max = sender_slots_max,
                                    .stealing = stealing});
    EXPECT_TRUE(std::holds_alternative<Plan>(result));
    return std::get<Plan>(result);
}

struct Receiver {
    DrivenFlowControl flow;
    Actions actions;

    explicit Receiver(const Plan& plan) : flow(plan) {}

    /// Packets of one sender, one at a time. Returns the credits that go back explicitly.
    uint32_t retrieve(PeerIndex from, uint32_t packets, MessageEnd end = {}) {
        uint32_t returned = 0;
        for (uint32_t i = 0; i < packets; ++i) {
            actions.clear();
            EXPECT_EQ(flow.packets_retrieved(from, 1, end, actions), Status::kOk);
            for (const Action& action : actions) {
                if (action.kind == ControlKind::kCredits) returned += action.credits;
                if (action.kind == ControlKind::kReturnRequest) requested.push_back(action.peer);
            }
        }
        EXPECT_TRUE(flow.check_invariants(from));
        return returned;
    }
    uint32_t piggyback(PeerIndex to) {
        actions.clear();
        const uint32_t credits = flow.take_piggyback(to, kReturnMax, actions);
        EXPECT_TRUE(flow.check_invariants(to));
        return credits;
    }
    std::vector<uint32_t> thresholds(PeerIndex peer) const {
        std::vector<uint32_t> all;
        for (uint32_t place = 0; place < 3; ++place)
            all.push_back(flow.dynamic()->ledger.threshold(peer, place));
        return all;
    }
    uint32_t available() const { return flow.available_slots(); }
    Activity activity(PeerIndex peer) const { return flow.dynamic()->activity(peer); }

    std::vector<PeerIndex> requested;
};

}  // namespace velo::flowctl
