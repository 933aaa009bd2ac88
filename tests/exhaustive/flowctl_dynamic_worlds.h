/// Worlds under dynamic flow control that its exhaustive tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tests/exhaustive/flowctl_worlds.h"

namespace velo::exhaustive {

struct Case {
    uint32_t data_slots;  ///< for each peer
    uint32_t credit_slots;
    bool piggyback;
    bool batched_reports;
    bool refusals;
};

inline std::string case_name(const ::testing::TestParamInfo<Case>& info) {
    return "slots" + std::to_string(info.param.data_slots) + "_credit_slots" +
           std::to_string(info.param.credit_slots) + (info.param.piggyback ? "_piggyback" : "") +
           (info.param.batched_reports ? "_batched" : "") + (info.param.refusals ? "_delayed" : "");
}

inline std::vector<Case> cases(uint32_t slots_min, uint32_t slots_max, bool with_batches = true) {
    std::vector<Case> all;
    for (uint32_t slots = slots_min; slots <= slots_max; ++slots) {
        for (uint32_t credit_slots = 1; credit_slots <= std::min(slots, 2u); ++credit_slots) {
            for (const bool piggyback : {false, true}) {
                for (const bool batched : {false, true}) {
                    if (batched && !with_batches) continue;
                    all.push_back({slots, credit_slots, piggyback, batched, false});
                    // Both together have more states than time allows.
                    if (!batched) all.push_back({slots, credit_slots, piggyback, batched, true});
                }
            }
        }
    }
    return all;
}

/// From, to.
using Flows = std::initializer_list<std::pair<uint32_t, uint32_t>>;

/// Two senders and one receiver.
struct Trio {
    Shares shares;
    flowctl::Stealing stealing = flowctl::Stealing::kPaper;
    bool refusals = false;
    uint8_t message_packets = 1;
    bool batched_reports = false;
};

inline Verdict explore_trio(const Trio& trio, Flows flows, uint16_t messages) {
    TrioWorld::Options options{.plan = dynamic_plan(trio.shares)};
    options.plan.stealing = trio.stealing;
    options.refusals = trio.refusals;
    options.batched_reports = trio.batched_reports;
    options.message_packets = trio.message_packets;
    options.direct = true;
    for (const auto& [from, to] : flows) options.messages[from][to] = messages;
    return explore(TrioWorld(options));
}

inline const Flows kInto2 = {{0, 2}, {1, 2}};
inline const Flows kThrough2 = {{0, 2}, {1, 2}, {2, 0}};

}  // namespace velo::exhaustive
