/// The cost of credits: ns a packet that flow control takes on either side, in each mode.
///
///   make -C build bench && build/bench/credits [--peers N] [--slots N] [--rounds N] [--csv]
///
/// One core, no device, no memory traffic but flow control's own. A message has `packets` packets. Sender:
/// sendable, packets_sent, what is piggybacked, and the credits that come back. Receiver: the packets reported as
/// the engine reports those that it finds together, and what goes back. Peers take turns, message by message. Figures
/// are medians of rounds in which the modes take turns. --csv: rows of measuring.h, where `size` is packets a message.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <variant>
#include <vector>

#include "arguments.h"
#include "measuring.h"
#include "flowctl/flow_control.h"

namespace {

using measuring::median;
using measuring::seconds;
using velo::Status;
using namespace velo::flowctl;

constexpr uint32_t kMessages = 100'000;

struct Settings {
    uint32_t peers = 64;
    uint32_t slots = 58;
    uint32_t rounds = 9;
    bool csv = false;
};

[[noreturn]] void usage(const char* wrong) {
    std::fprintf(stderr,
                 "credits: %s\nusage: credits [--peers N] [--slots N] [--rounds N] [--csv], each a number from 1\n",
                 wrong);
    std::exit(2);
}

Settings parse(int count, char** arguments) {
    Settings settings;
    for (int at = 1; at < count; at += 2) {
        const std::string_view name = arguments[at];
        if (name == "--csv") {
            settings.csv = true;
            --at;
            continue;
        }
        uint32_t* const value = name == "--peers"    ? &settings.peers
                                : name == "--slots"  ? &settings.slots
                                : name == "--rounds" ? &settings.rounds
                                                     : nullptr;
        if (value == nullptr || at + 1 == count) usage("an option that is not known, or without its value");
        const std::string error = measuring::parse_number(name, arguments[at + 1], {.smallest = 1}, *value);
        if (!error.empty()) usage(error.c_str());
    }
    return settings;
}

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

int main(int count, char** arguments) {
    const Settings settings = parse(count, arguments);
    constexpr Mode kModes[] = {Mode::kNone, Mode::kStatic, Mode::kGrowing, Mode::kDynamic};
    if (!settings.csv) {
        std::printf("%u peers, %u slots each; ns a packet\n%-10s %8s %8s %10s\n", settings.peers, settings.slots,
                    "mode", "packets", "sender", "receiver");
    }
    for (const uint32_t packets : {1u, 2u, 37u}) {
        std::vector<double> sender[std::size(kModes)];
        std::vector<double> receiver[std::size(kModes)];
        for (uint32_t round = 0; round < settings.rounds; ++round) {
            for (size_t mode = 0; mode < std::size(kModes); ++mode) {
                const PlanResult result =
                    plan({.mode = kModes[mode],
                          .peers = settings.peers,
                          .slots_per_peer = settings.slots,
                          .growing_start = settings.slots - kCreditSlotsDefault});
                if (const auto* error = std::get_if<PlanError>(&result)) usage(error->message.c_str());
                const Cost cost = measure(std::get<Plan>(result), settings.slots, packets);
                sender[mode].push_back(cost.sender);
                receiver[mode].push_back(cost.receiver);
            }
        }
        for (size_t mode = 0; mode < std::size(kModes); ++mode) {
            const std::string name(to_string(kModes[mode]));
            if (settings.csv) {
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
