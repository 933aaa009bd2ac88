// The production code and the independent model of FC 6 do the same, event for event, on random paths.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/exhaustive/flowctl_worlds.h"
#include "tests/exhaustive/paper_model.h"

namespace velo::exhaustive {
namespace {

struct Sent {
    uint32_t peer;
    ControlKind kind;
    uint32_t value;
    bool operator==(const Sent&) const = default;
};

template <class Flow>
std::vector<Sent> control_of(Flow& flow) {
    std::vector<Sent> all;
    flow.send_control([&](uint32_t peer, ControlKind kind, uint32_t value) {
        all.push_back({peer, kind, value});
        return Status::kOk;
    });
    return all;
}

/// One receiver with several senders, whose credits, requests and responses the test plays.
void expect_alike(uint64_t seed) {
    Random random(seed);
    const uint32_t peers = 1 + random.below(6);
    const uint32_t credit_slots = 1 + random.below(3);
    flowctl::Plan plan = dynamic_plan({.peers = peers,
                                       .quota = credit_slots + random.below(8),
                                       .credit_slots = credit_slots,
                                       .excess = random.below(peers)});
    flowctl::FlowControl ships(plan);
    PaperModel model(plan);
    for (uint32_t event = 0; event < 2'000; ++event) {
        const uint32_t peer = random.below(peers);
        const uint32_t kind = random.below(10);
        if (kind < 6) {
            const uint32_t packets = 1 + random.below(4);
            ASSERT_EQ(ships.packets_retrieved(peer, packets, {.ended = random.below(2) == 0}),
                      model.packets_retrieved(peer, packets, {}));
        } else if (kind < 8) {
            const uint32_t max = 1 + random.below(20);
            ASSERT_EQ(ships.take_piggyback(peer, max), model.take_piggyback(peer, max));
        } else if (kind == 8) {
            const uint32_t credits = random.below(8);
            ASSERT_EQ(ships.control_arrived(peer, ControlKind::kReturnResponse, credits),
                      model.control_arrived(peer, ControlKind::kReturnResponse, credits));
        } else {
            const uint32_t credits = random.below(4);
            ASSERT_EQ(ships.credits_arrived(peer, credits), model.credits_arrived(peer, credits));
            if (random.below(4) == 0) {
                ASSERT_EQ(ships.control_arrived(peer, ControlKind::kReturnRequest, 0),
                          model.control_arrived(peer, ControlKind::kReturnRequest, 0));
            }
        }
        ASSERT_EQ(control_of(ships), control_of(model));
        for (uint32_t at = 0; at < peers; ++at) {
            ASSERT_EQ(ships.granted(at), model.granted(at));
            ASSERT_EQ(ships.quota(at), model.quota(at));
            ASSERT_EQ(ships.threshold(at), model.threshold(at));
            ASSERT_EQ(ships.retrieved(at), model.retrieved(at));
            ASSERT_EQ(ships.credits(at), model.credits(at));
        }
        ASSERT_EQ(ships.available_slots(), model.available_slots());
    }
}

TEST(PaperOracle, what_ships_does_what_the_model_of_the_paper_does) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        expect_alike(seed);
        ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    }
}

}  // namespace
}  // namespace velo::exhaustive
