/// Random traffic between engines under every mode of flow control, with delays and stalls of the device.
///
/// Safety while it lasts: no mailbox overflows, no packet is out of protocol. Liveness at its end: everything
/// arrives whole and in order, and each compulsory request has had its response. A failure names its seed;
/// VELO_SEED repeats one.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>

#include "tests/unit/job.h"

namespace velo::test {
namespace {

constexpr uint32_t kRanks = 5;
constexpr uint64_t kFirstSeed = 1;
constexpr uint64_t kSeeds = 12;

struct Mode {
    const char* name;
    const char* flow_control;
    flowctl::Stealing stealing = flowctl::Stealing::kTurns;
    flowctl::Growth growth = flowctl::Growth::kLinear;
    /// Of the whole mailbox; 0: enough for all peers.
    int mailbox_slots = 0;
};

/// Events in all seeds together.
struct Events {
    uint64_t requests = 0;
    uint64_t closes = 0;
    uint64_t contacts = 0;
};

class EngineFlowSoak : public testing::TestWithParam<Mode> {};

/// One message after the other between two ranks; the first word is its number.
struct Flow {
    uint32_t sent = 0;
    uint32_t received = 0;
};

void soak(const Mode& mode, uint64_t seed, Events& events) {
    std::mt19937_64 random(seed);
    const auto below = [&random](uint64_t bound) { return static_cast<uint32_t>(random() % bound); };
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.flow_control = mode.flow_control;
    params.slots = static_cast<int>(4 + below(30));
    Tuning tuning;
    tuning.flow.stealing = mode.stealing;
    tuning.flow.growth = mode.growth;
    tuning.flow.credit_slots = 1 + below(2);
    tuning.flow.piggyback = below(4) != 0;
    tuning.flow.growing_start = 1 + below(5);
    tuning.flow.sender_slots_max = below(3) == 0 ? 10 + below(40) : 0;
    const std::string faults = "seed=" + std::to_string(seed) + ",delay=0.02:20us,stall=0.002:50us";
    if (below(2) == 0) params.faults = faults.c_str();
    if (mode.mailbox_slots != 0) {
        params.mailbox_bytes = mode.mailbox_slots * 64;
        params.slots = 0;
        tuning.flow.sender_slots_max = 0;
    }
    Job job(kRanks, params, tuning);
    ASSERT_EQ(job.ranks.size(), kRanks);

    std::map<std::pair<uint32_t, uint32_t>, Flow> flows;
    for (uint32_t to = 0; to < kRanks; ++to) {
        ASSERT_NE(job[to].engine, nullptr) << job[to].error;
        job[to].on_receive = [&flows, &job, to](const Received& message) {
            uint32_t from = 0;
            while (job.ranks[from].get() != message.peer_context) ++from;
            Flow& flow = flows[{from, to}];
            uint32_t number = 0;
            std::memcpy(&number, message.data.data(), sizeof number);
            ASSERT_EQ(number, flow.received) << from << " to " << to;
            const auto expected = pattern(message.data.size() - sizeof number, from * 1000 + number);
            ASSERT_TRUE(std::equal(expected.begin(), expected.end(), message.data.begin() + sizeof number));
            ++flow.received;
        };
    }
    // The senders' rates change from phase to phase, so that activity does.
    std::deque<velo_send_t> sends;
    std::deque<std::vector<std::byte>> bytes;
    for (int phase = 0; phase < 6; ++phase) {
        const uint32_t senders = 1 + below(kRanks);
        for (int i = 0; i < 150; ++i) {
            const uint32_t from = below(senders);
            const uint32_t to = (from + 1 + below(kRanks - 1)) % kRanks;
            Flow& flow = flows[{from, to}];
            std::vector<std::byte>& data = bytes.emplace_back(sizeof(uint32_t));
            std::memcpy(data.data(), &flow.sent, sizeof flow.sent);
            const auto rest = pattern(below(4) == 0 ? below(2050) : below(80), from * 1000 + flow.sent);
            data.insert(data.end(), rest.begin(), rest.end());
            velo_send_t& send = sends.emplace_back();
            send.data[0] = data.data();
            send.bytes[0] = static_cast<uint32_t>(data.size());
            velo_send(job[from].engine, job[from].peers[to], &send, 1);
            ++flow.sent;
            for (uint32_t step = below(4); step != 0; --step) velo_progress(job[below(kRanks)].engine);
        }
    }
    job.drive([&] {
        return std::all_of(flows.begin(), flows.end(),
                           [](const auto& flow) { return flow.second.sent == flow.second.received; });
    });
    const auto answered = [&] {
        uint64_t asked = 0;
        uint64_t responses = 0;
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            asked += job[rank].counters().requests_tx;
            responses += job[rank].counters().responses_rx;
        }
        // A closing link answers a request as well.
        return asked == responses || mode.mailbox_slots != 0;
    };
    job.drive(answered);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        const velo_counters_t counters = job[rank].counters();
        events.requests += counters.requests_rx;
        events.closes += counters.closes_rx;
        events.contacts += counters.contacts_rx;
        EXPECT_EQ(counters.velo_overflows, 0u);
        EXPECT_EQ(counters.velo_rx_malformed, 0u);
        if (std::string(mode.flow_control) != "hardware") {
            EXPECT_EQ(counters.velo_backpressure, 0u);
        }
    }
}

TEST_P(EngineFlowSoak, everything_arrives_in_order_and_nothing_overflows) {
    uint64_t first = kFirstSeed;
    uint64_t seeds = kSeeds;
    Events events;
    if (const char* text = std::getenv("VELO_SEED")) {
        first = std::strtoull(text, nullptr, 0);
        seeds = 1;
    }
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
        soak(GetParam(), seed, events);
        ASSERT_FALSE(HasFailure()) << "VELO_SEED=" << seed;
    }
    if (seeds == 1) return;
    if (GetParam().stealing == flowctl::Stealing::kPaper) {
        EXPECT_GT(events.requests, 0u) << "no peer was asked";
    } else if (std::string(GetParam().flow_control) == "dynamic") {
        EXPECT_GT(events.contacts, 0u) << "no peer began without slots";
    }
    if (GetParam().mailbox_slots != 0) {
        EXPECT_GT(events.closes, 0u) << "no link was closed";
    }
}

INSTANTIATE_TEST_SUITE_P(Modes, EngineFlowSoak,
                         testing::Values(Mode{"hardware", "hardware"},
                                         Mode{"static_shares", "static"},
                                         Mode{"growing_linear", "growing"},
                                         Mode{.name = "growing_exponential",
                                              .flow_control = "growing",
                                              .growth = flowctl::Growth::kExponential},
                                         Mode{"dynamic_turns", "dynamic"},
                                         Mode{"dynamic_paper", "dynamic", flowctl::Stealing::kPaper},
                                         Mode{.name = "dynamic_crowded",
                                              .flow_control = "dynamic",
                                              .mailbox_slots = 7}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace velo::test
