// velo_sim: velo's flow control on a simulated cluster, one run a call, as a row of CSV.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "sim/matching_command.h"
#include "sim/process.h"
#include "sim/rails_command.h"
#include "sim/saturation_command.h"
#include "sim/simulation.h"
#include "velo/base/read_number.h"

namespace {

using namespace velo;
using namespace velo::sim;

struct Arguments {
    SimulationConfig config;
    std::string mode = "static";
    std::string topology = "mesh:4x4";
    std::string rounding = "subset";
    std::string stealing = "turns";
    std::string trace;
    uint32_t trace_rank = 0;
    bool no_header = false;
    bool no_shared_memory = false;
    bool no_piggyback = false;
};

/// A number, or several, which is read strictly.
template <class T>
CLI::Option* add_number(CLI::App& app, const char* name, T& value, const char* text) {
    const auto check = [](const std::string& given) -> std::string {
        const base::NumberRange range = {.smallest = 0,
                                         .largest = std::is_same_v<T, uint64_t> ? UINT64_MAX : UINT32_MAX};
        return base::read_number(given, range) ? "" : given + " " + base::why_no_number(range);
    };
    static_assert(std::is_same_v<T, uint32_t> || std::is_same_v<T, uint64_t> ||
                  std::is_same_v<T, std::vector<uint32_t>>);
    return app.add_option(name, value, text)->check(CLI::Validator(check, ""));
}

void add_workload(CLI::App& app, Arguments& a) {
    WorkloadConfig& w = a.config.workload;
    const auto group = "Workload";
    app.add_option("--workload", w.name, "One of " + workload_names())->group(group);
    add_number(app, "--processes", w.processes, "Processes of the job")->group(group);
    add_number(app, "--bytes", w.bytes,
                   "Bytes of a message, without its header of 16; random: at most. Longer ones of a workload "
                   "go by RMA")
        ->group(group);
    add_number(app, "--iterations", w.iterations,
                   "Repetitions; phases: of each step; new_partner, bursts: partners of each process")
        ->group(group);
    add_number(app, "--warmup", w.warmup,
                   "Iterations before those, which time_us leaves out, and a barrier after them. "
                   "hot_then_all: those of the "
                   "ranks that begin; 0: as many as --iterations")
        ->group(group);
    add_number(app, "--active", w.active,
                   "alltoall: ranks that take part, the others wait in the barrier; 0: all. hot_then_all: "
                   "those that begin; "
                   "0: an eighth")
        ->group(group);
    app.add_flag("--barrier", w.barrier,
                 "A barrier of all processes after each iteration; phases: always after a step")
        ->group(group);
    add_number(app, "--steps", w.steps, "phases: active ranks of each step (default: FC figure 19's shares)")
        ->delimiter(',')
        ->group(group);
    add_number(app, "--repetitions", w.repetitions, "scatterv: iterations with one root")->group(group);
    add_number(app, "--neighbours", w.neighbours, "neighbours: partners on either side")->group(group);
    add_number(app, "--messages", w.messages,
                   "random: that each process sends (0: 100); new_partner, bursts: to one partner (0: 10)")
        ->group(group);
    add_number(app, "--idle-ns", w.idle_ns, "bursts: mean pause of a process before each, in ns")
        ->group(group);
    add_number(app, "--hops", a.config.hops, "multi_pingpong, pingping: hops between their two nodes")
        ->group(group);
    app.add_flag("--no-shared-memory", a.no_shared_memory, "Processes of one node use the device, too")
        ->group(group);
}

void add_flow_control(CLI::App& app, Arguments& a) {
    flowctl::Config& f = a.config.flow;
    const auto group = "Flow control";
    std::string modes;
    for (const auto& [mode, name] : flowctl::kModeNames)
        modes += (modes.empty() ? "" : ", ") + std::string(name);
    app.add_option("--mode", a.mode, "One of " + modes)->group(group);
    add_number(app, "--slots", f.slots_per_peer,
                   "Mailbox slots of 64 bytes for each peer, credit slots included")
        ->group(group);
    add_number(app, "--mailbox-slots", f.mailbox_slots, "Slots of a whole mailbox; 0: peers x slots")
        ->group(group);
    add_number(app, "--credit-slots", f.credit_slots, "Credit slots for each peer")->group(group);
    add_number(app, "--contact-slots", a.config.contact_slots_max,
           "dynamic: at most this number of slots is kept for first packets; 0: all own slots from the start")
        ->group(group);
    app.add_option("--stealing", a.stealing, "dynamic: who has slots taken, and whether messages take turns")
        ->group(group)
        ->check(CLI::IsMember({"turns", "paper"}));
    app.add_option("--rounding", a.rounding, "Slots that do not divide: subset, down or up")->group(group);
    app.add_flag("--no-piggyback", a.no_piggyback, "Credits return in packets of their own only")
        ->group(group);
    app.add_flag("--bounded", a.config.bounded_without_credits,
                 "Mode none: mailboxes of that size, under back-pressure, and not ones that are never full")
        ->group(group);
    add_number(app, "--peers", f.peers,
                   "Peers that mailboxes are planned for; 0: all processes of other nodes")
        ->group(group);
}

void add_cluster(CLI::App& app, Arguments& a) {
    cluster::ClusterConfig& c = a.config.cluster;
    const auto group = "Cluster (times in ns)";
    const auto ns = [&](const char* name, uint32_t& value, const char* text) {
        add_number(app, name, value, text)->group(group);
    };
    app.add_option("--topology", a.topology, "mesh or torus and its sides: mesh:4x4x4, torus:8x8")
        ->group(group);
    add_number(app, "--processes-per-node", a.config.processes_per_node, "Processes behind one NIC")
        ->group(group);
    ns("--nic-packet-ns", c.network.nic_packet_ns, "Injection, and ejection, of a packet of 64 bytes");
    ns("--link-packet-ns", c.network.link_packet_ns, "A packet of 64 bytes on a link (80 ns: 800 MB/s)");
    ns("--nic-ns", c.network.nic_ns, "Latency of a NIC, on each side");
    ns("--nic-queue", c.network.nic_queue_packets,
       "Packets that wait in a NIC for injection (count): a CPU waits while it is full; 0: without end");
    ns("--link-ns", c.network.link_ns, "Latency of a link");
    ns("--hop-ns", c.network.hop_ns, "Latency of a router");
    app.add_flag("--control-no-traffic", c.network.control_free,
                 "Explicit packets of flow control keep no other packet from using NICs and links")
        ->group(group);
}

void add_host(CLI::App& app, Arguments& a) {
    cluster::CpuConfig& c = a.config.cluster.cpu;
    HostConfig& h = a.config.host;
    const auto group = "Processes (times in ns)";
    const auto number = [&](const char* name, uint32_t& value, const char* text) {
        add_number(app, name, value, text)->group(group);
    };
    number("--cpu-send-ns", c.send_ns, "Writing a packet");
    number("--cpu-receive-ns", c.receive_ns, "Taking a packet");
    number("--cpu-credit-ns", c.credit_ns, "Besides, for an explicit packet of flow control, on each side");
    number("--cpu-account-ns", h.account_ns,
           "Besides, for every packet under a mode with credits, on each side");
    app.add_flag("--control-no-cpu", c.control_free,
                 "Explicit packets of flow control take no time of the CPU on either side")
        ->group(group);
    number("--cpu-jitter-permille", c.jitter_permille,
           "All of these times but polls, each by up to so much more or less, by the seed");
    number("--cpu-poll-ns", c.poll_ns, "A look at the mailbox");
    number("--cpu-message-ns", h.message_ns, "A message, on each side");
    number("--cpu-turn-ns", h.turn_ns,
           "Besides, where its peer is not that of the message before, on each side");
    number("--cpu-posted-ns", h.posted_ns,
           "Besides, for each message still expected, on the receiver's side");
    number("--cpu-on-node-ns", h.on_node_ns, "A message through shared memory, on each side");
    number("--copy-kib-ns", h.copy_kib_ns, "KiB of a message longer than --bytes, by RMA or on the node");
    number("--polls-per-message", h.polls_per_message, "Polls after each message sent (count)");
    number("--packets-per-poll", h.packets_per_poll, "Packets, or runs of them, taken by one poll (count)");
    number("--packets-per-take", c.take_packets,
           "Most packets of a run taken before flow control is told (count)");
    number("--window", h.window, "Messages that a process has begun and not sent (count)");
}

void add_run(CLI::App& app, Arguments& a) {
    cluster::ClusterConfig& c = a.config.cluster;
    cluster::FaultConfig& f = c.faults;
    const auto group = "Run";
    add_number(app, "--seed", c.seed, "Of random workloads, jitter and faults; same seed, same trace_hash")
        ->group(group);
    app.add_option("--trace", a.trace,
                   "File for credits over time, CSV: one row a peer at the end of each phase")
        ->group(group);
    add_number(app, "--trace-rank", a.trace_rank, "Rank whose credits --trace writes")->group(group);
    app.add_flag("--no-header", a.no_header, "Print the row without the names of its columns")->group(group);
    add_number(app, "--fault-delay-permille", f.delay_permille, "Runs of packets that are late")->group(group);
    add_number(app, "--fault-delay-ns", f.delay_ns_max, "By how much at most, in ns")->group(group);
    add_number(app, "--fault-stall-permille", f.stall_permille, "Steps of a process that stall")->group(group);
    add_number(app, "--fault-stall-ns", f.stall_ns_max, "For how long at most, in ns")->group(group);
    add_number(app, "--fault-until-ns", f.until_ns, "End of all faults, in ns; then everything must complete")
        ->group(group);
}

/// Options that CLI11 leaves as text.
void finish(Arguments& a) {
    const auto mode = flowctl::parse_mode(a.mode);
    if (!mode) throw base::SetupError("--mode '" + a.mode + "' is not known; --help lists them");
    const auto rounding = flowctl::parse_rounding(a.rounding);
    if (!rounding)
        throw base::SetupError("--rounding '" + a.rounding + "' is not known; give subset, down or up");
    SimulationConfig& config = a.config;
    config.flow.mode = *mode;
    config.flow.rounding = *rounding;
    config.flow.stealing = flowctl::parse_stealing(a.stealing).value_or(config.flow.stealing);
    config.flow.piggyback = !a.no_piggyback;
    config.shared_memory = !a.no_shared_memory;
    config.cluster.topology = cluster::Topology::parse(a.topology);
    config.workload.seed = config.cluster.seed;
    if (a.trace_rank >= config.workload.processes) {
        throw base::SetupError("--trace-rank " + std::to_string(a.trace_rank) + " of " +
                               std::to_string(config.workload.processes) + " processes; give 0 to " +
                               std::to_string(config.workload.processes - 1));
    }
}

void trace_credits(std::ofstream& file, Process& process, uint32_t phase) {
    if (process.packets() == nullptr) return;
    const double time_us = static_cast<double>(process.device().clock_ns()) / 1000;
    for (DeviceAddr peer = 0; peer < process.device().peers(); ++peer) {
        file << time_us << ',' << phase << ',' << process.device().process_of(peer) << ','
             << process.packets()->flow().credits(peer) << '\n';
    }
}

void print(const Arguments& a, const Simulation& simulation, const Result& r) {
    if (!a.no_header) {
        std::puts(
            "mode,workload,topology,processes,active,bytes,slots,credit_slots,piggyback,seed,time_us,"
            "messages,"
            "messages_on_node,delayed_messages,packets,credit_packets,credits_explicit,credits_piggybacked,"
            "control_packets,opens,closes,pairs,adapted_after,backpressure,mailbox_slots,mailbox_fill_max,"
            "overflow,peers_"
            "max,"
            "state_bytes_per_peer,state_bytes_per_process,trace_hash");
    }
    const WorkloadConfig& w = simulation.workload().config();
    const flowctl::Plan& plan = simulation.plan();
    const uint64_t per_peer = flowctl::state_bytes_per_peer(plan);
    const uint64_t per_process =
        sizeof(flowctl::FlowControl) + per_peer * (plan.contact_slots != 0 ? r.peers_max : plan.peers);
    std::printf("%s,%s,%s,%u,%u,%u,%u,%u,%d,%" PRIu64 ",%.3f,", a.mode.c_str(), w.name.c_str(),
                a.topology.c_str(), w.processes, w.active == 0 ? w.processes : w.active, w.bytes,
                a.config.flow.slots_per_peer, a.config.flow.credit_slots, plan.piggyback ? 1 : 0,
                a.config.cluster.seed, r.time_us);
    std::printf("%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",",
                r.messages, r.messages_on_node, r.messages_delayed, r.packets, r.credit_packets,
                r.credits_explicit, r.credits_piggybacked);
    std::printf("%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", r.control_packets, r.opens, r.closes,
                r.pairs);
    if (r.adapted_after) std::printf("%u", *r.adapted_after);
    std::printf(",%" PRIu64 ",%u,%" PRIu64 ",0,%u,%" PRIu64 ",%" PRIu64 ",%016" PRIx64 "\n", r.backpressure,
                plan.mailbox_slots, r.mailbox_fill_max, r.peers_max, per_peer, per_process, r.trace_hash);
}

int run(Arguments& a) {
    finish(a);
    Simulation simulation(a.config);
    std::ofstream trace;
    if (!a.trace.empty()) {
        trace.open(a.trace);
        trace << "time_us,phase,peer,credits\n";
        if (!trace)
            throw base::SetupError("--trace " + a.trace +
                                   " cannot be written; name a file in a folder that exists");
        simulation.on_phase_end([&](Process& process, uint32_t phase) {
            if (process.rank() == a.trace_rank) trace_credits(trace, process, phase);
        });
    }
    print(a, simulation, simulation.run());
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app(
        "velo's flow control on a simulated cluster: one run, one row of CSV. time_us is of one iteration "
        "(multi_pingpong: "
        "half a round trip). docs/simulation.md has the model.");
    app.option_defaults()->always_capture_default();
    add_workload(app, arguments);
    add_flow_control(app, arguments);
    add_cluster(app, arguments);
    add_host(app, arguments);
    add_run(app, arguments);
    const MatchingCommand matching(app);
    const RailsCommand rails(app);
    const AllocationCommand allocation(app);
    const SaturationCommand saturation(app);
    CLI11_PARSE(app, argc, argv);
    try {
        if (matching.given()) {
            matching.run();
            return EXIT_SUCCESS;
        }
        if (rails.given()) {
            rails.run();
            return EXIT_SUCCESS;
        }
        if (allocation.given()) {
            allocation.run();
            return EXIT_SUCCESS;
        }
        if (saturation.given()) {
            saturation.run();
            return EXIT_SUCCESS;
        }
        return run(arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "velo_sim: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
