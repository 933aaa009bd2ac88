/// The cost of credits: ns a packet that flow control takes on either side, in each mode.
///
///   velo_bench credits [--peers 64] [--slots 58] [--rounds 9] [--csv]
///
/// One core, no device, no memory traffic but flow control's own. A message has `packets` packets. Sender:
/// sendable, packets_sent, what is piggybacked, and the credits that come back. Receiver: the packets reported as
/// the engine reports those that it finds together, and what goes back. Peers take turns, message by message. Figures
/// are medians of rounds in which the modes take turns. --csv: rows of measuring.h, where `size` is packets a message.
#include <cstdio>
#include <cstdlib>
#include <variant>
#include <vector>

#include "commands.h"
#include "measuring.h"
#include "flowctl/flow_control.h"

namespace {

using measuring::median;
using measuring::seconds;
using velo::Status;
using namespace velo::flowctl;

constexpr uint32_t kMessages = 100'000;

struct Options {
    uint32_t peers = 64;
    uint32_t slots = 58;
    uint32_t rounds = 9;
    bool csv = false;
};

/// ns a packet.
struct Cost {
    double sender = 0;
    double receiver = 0;
};

/// Messages to and from each peer in turn. Both roles act on one state, as in a process that exchanges
/// messages: what its receiver role returns is what its sender role gets, so credits never run out.
Cost measure(const Plan& plan, uint32_t slots, uint32_t packets) {
    FlowControl flow(plan);
    std::vector<uint32_t> returned(plan.peers, 0);
    std::vector<uint32_t> under_way(plan.peers, 0);
    double sending = 0;
    double receiving = 0;
    // In stretches, because the clock costs more than what is measured; no longer than credits last.
    const uint32_t messages_of_share = std::max(1u, (slots - kCreditSlotsDefault) / packets);
    const uint32_t stretch = std::min(1000u, plan.peers * messages_of_share);
    double all = 0;
    for (uint32_t message = 0; message < kMessages; message += stretch) {
        const double start = seconds();
        for (uint32_t i = 0; i < stretch; ++i) {
            const PeerIndex peer = (message + i) % plan.peers;
            if (returned[peer] != 0 && flow.credits_arrived(peer, returned[peer]) != Status::kOk)
                std::abort();
            returned[peer] = 0;
            const uint32_t possible = flow.sendable(peer, packets);
            flow.packets_sent(peer, possible);
            under_way[peer] += possible;
            returned[peer] += flow.take_piggyback(peer, UINT16_MAX);
            all += possible;
        }
        const double middle = seconds();
        for (uint32_t i = 0; i < stretch; ++i) {
            const PeerIndex peer = (message + i) % plan.peers;
            const uint32_t left = std::min(packets, under_way[peer]);
            under_way[peer] -= left;
            if (left == 0) continue;
            if (flow.packets_retrieved(peer, left, {.ended = true}) != Status::kOk) std::abort();
            flow.send_control([&](PeerIndex to, ControlKind, uint32_t credits) {
                returned[to] += credits;
                return Status::kOk;
            });
        }
        sending += middle - start;
        receiving += seconds() - middle;
    }
    return {1e9 * sending / all, 1e9 * receiving / all};
}

}  // namespace

int bench::credits(int argc, char** argv) {
    Options options;
    take_options(argc, argv,
                 {{"--peers", &options.peers, {.smallest = 1}},
                  {"--slots", &options.slots, {.smallest = 1}},
                  {"--rounds", &options.rounds, kRounds},
                  {"--csv", &options.csv}});
    constexpr Mode kModes[] = {Mode::kNone, Mode::kStatic, Mode::kGrowing, Mode::kDynamic};
    if (!options.csv) {
        std::printf("%u peers, %u slots each; ns a packet\n%-10s %8s %8s %10s\n", options.peers, options.slots,
                    "mode", "packets", "sender", "receiver");
    }
    for (const uint32_t packets : {1u, 2u, 37u}) {
        std::vector<double> sender[std::size(kModes)];
        std::vector<double> receiver[std::size(kModes)];
        for (uint32_t round = 0; round < options.rounds; ++round) {
            for (size_t mode = 0; mode < std::size(kModes); ++mode) {
                const PlanResult result =
                    plan({.mode = kModes[mode],
                          .peers = options.peers,
                          .slots_per_peer = options.slots,
                          .growing_start = options.slots - kCreditSlotsDefault});
                if (const auto* error = std::get_if<PlanError>(&result)) fail(error->message);
                const Cost cost = measure(std::get<Plan>(result), options.slots, packets);
                sender[mode].push_back(cost.sender);
                receiver[mode].push_back(cost.receiver);
            }
        }
        for (size_t mode = 0; mode < std::size(kModes); ++mode) {
            const std::string name(to_string(kModes[mode]));
            if (options.csv) {
                measuring::print(measuring::row(name, "core", "sender", packets, median(sender[mode])) +
                                 measuring::row(name, "core", "receiver", packets, median(receiver[mode])));
                continue;
            }
            std::printf("%-10s %8u %8.2f %10.2f\n", name.c_str(), packets, median(sender[mode]),
                        median(receiver[mode]));
        }
    }
    return 0;
}
