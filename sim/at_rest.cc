#include "sim/at_rest.h"

#include <string_view>

#include "flowctl/flow_control.h"
#include "sim/process.h"
#include "sim/simulation.h"

namespace velo::sim {
namespace {

using flowctl::FlowControl;
using flowctl::LinkState;

std::string_view name_of(LinkState state) {
    switch (state) {
        case LinkState::kUnknown: return "unknown";
        case LinkState::kOffered: return "offered";
        case LinkState::kOpening: return "opening";
        case LinkState::kOpen: return "open";
        case LinkState::kClosing: return "closing";
    }
    return "?";
}

bool links_agree(LinkState one, LinkState other) {
    if (one == LinkState::kOpening) return other == LinkState::kOffered;
    if (one == LinkState::kOffered) return other == LinkState::kOpening;
    return one == other && one != LinkState::kClosing;
}

std::string pair_name(const Process& one, const Process& other) {
    return "processes " + std::to_string(one.rank()) + " and " + std::to_string(other.rank());
}

/// Work that a process still has for one of its peers.
std::string unrest_of_peer(const Process& process, const FlowControl& flow, DeviceAddr peer) {
    if (peer >= flow.known()) return "";  // met, and sent nothing
    const auto of = [&](std::string_view what) {
        return "process " + std::to_string(process.rank()) + " " + std::string(what) + " process " +
               std::to_string(process.device().process_of(peer));
    };
    if (flow.any_control_due(peer)) return of("has a control packet that has not left, to");
    if (flow.blocked(peer)) return of("waits for the answer to a compulsory request, from");
    if (!flow.check_invariants(peer)) return of("has accounts that do not balance, of");
    return "";
}

/// Credits of one process at another: held by it, or offered to it, and granted by the other.
std::string credits_apart(const Process& holder, const FlowControl& held, DeviceAddr at,
                          const Process& granter, const FlowControl& granted, DeviceAddr to) {
    const uint32_t here = held.credits(at) + held.offered_credits(at);
    const uint32_t there = granted.granted(to);
    if (here == there) return "";
    return "process " + std::to_string(holder.rank()) + " holds " + std::to_string(here) +
           " credits of the " + std::to_string(there) + " that process " + std::to_string(granter.rank()) +
           " has granted it";
}

std::string unrest_of_pair(const Process& one, const Process& other, DeviceAddr to_other, DeviceAddr to_one) {
    const FlowControl& flow = one.packets()->flow();
    const FlowControl& theirs = other.packets()->flow();
    const LinkState link = flow.link(to_other);
    const LinkState their_link = theirs.link(to_one);
    if (!links_agree(link, their_link)) {
        return "the link of " + pair_name(one, other) +
               " is left half closed: " + std::string(name_of(link)) + " at the first, " +
               std::string(name_of(their_link)) + " at the second";
    }
    std::string unrest = credits_apart(one, flow, to_other, other, theirs, to_one);
    if (unrest.empty()) unrest = credits_apart(other, theirs, to_one, one, flow, to_other);
    return unrest;
}

std::string unrest_of(const Process& process) {
    const auto& device = process.device();
    const DeviceReport report = device.report(kNoAddr);
    if (report.mailbox_written != report.mailbox_read) {
        return "the mailbox of process " + std::to_string(process.rank()) + " still has " +
               std::to_string(report.mailbox_written - report.mailbox_read) + " packets";
    }
    if (process.packets() == nullptr) return "";
    if (process.engine()->busy()) {
        return "the engine of process " + std::to_string(process.rank()) + " has something left to do";
    }
    const FlowControl& flow = process.packets()->flow();
    if (flow.control_refused()) {
        return "process " + std::to_string(process.rank()) + " has a control packet that its device refused";
    }
    if (const auto* accounts = flow.dynamic(); accounts != nullptr && !accounts->ledger.conserved()) {
        return "process " + std::to_string(process.rank()) + " has lost or made slots of its mailbox";
    }
    for (DeviceAddr peer = 0; peer < device.peers(); ++peer) {
        if (std::string unrest = unrest_of_peer(process, flow, peer); !unrest.empty()) return unrest;
    }
    return "";
}

/// Each pair is looked at by its lower rank.
std::string unrest_of_pairs(Simulation& simulation, Process& process) {
    for (DeviceAddr peer = 0; peer < process.device().peers(); ++peer) {
        Process& other = simulation.process(process.device().process_of(peer));
        if (other.rank() < process.rank() || process.packets() == nullptr || other.packets() == nullptr) continue;
        const DeviceAddr back = other.device().meet(process.rank());
        if (peer >= process.packets()->flow().known() || back >= other.packets()->flow().known()) continue;
        if (std::string unrest = unrest_of_pair(process, other, peer, back); !unrest.empty()) return unrest;
    }
    return "";
}

}  // namespace

std::string first_unrest(Simulation& simulation) {
    if (!simulation.has_credits()) return "";
    const uint32_t processes = simulation.workload().config().processes;
    for (uint32_t rank = 0; rank < processes; ++rank) {
        if (std::string unrest = unrest_of(simulation.process(rank)); !unrest.empty()) return unrest;
    }
    for (uint32_t rank = 0; rank < processes; ++rank) {
        if (std::string unrest = unrest_of_pairs(simulation, simulation.process(rank)); !unrest.empty())
            return unrest;
    }
    return "";
}

}  // namespace velo::sim
