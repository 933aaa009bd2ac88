#include "sim/saturation_command.h"

#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "sim/saturation_run.h"
#include "velo/base/read_number.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {

struct SaturationCommand::Arguments {
    CLI::App* command = nullptr;
    SaturationConfig config;
    std::string topology = "dragonfly:3,6,3";
    std::string routing = "par";
    std::string method = "rdrp";
    std::string slow = "0";
    bool requests_with_data_only = false;
    bool no_vc_classes = false;
    bool no_header = false;
};

namespace {

const std::map<std::string, switched::Routing> kRoutings = {{"minimal", switched::Routing::kMinimal},
                                                            {"ugal", switched::Routing::kUgal},
                                                            {"par", switched::Routing::kPar}};
const std::map<std::string, TransferMethod> kMethods = {{"big", TransferMethod::kBig},
                                                        {"fecn", TransferMethod::kFecn},
                                                        {"fecn-aggressive", TransferMethod::kFecnAggressive},
                                                        {"rdrp", TransferMethod::kRdrp}};

template <class Value>
CLI::Validator one_of(const std::map<std::string, Value>& known) {
    std::vector<std::string> names;
    for (const auto& [name, value] : known) names.push_back(name);
    return CLI::IsMember(names);
}

/// "2": nodes; "0.5%": of all, to the nearest number.
uint32_t slow_nodes(const std::string& text, uint32_t nodes) {
    const auto refuse = [&] {
        throw base::SetupError("--slow '" + text +
                               "' is not understood; give a number of nodes (2), or a part of them "
                               "in percent (0.5%)");
    };
    if (text.empty() || text.find_first_not_of("0123456789.%") != std::string::npos) refuse();
    if (text.back() != '%') {
        const auto count = base::read_number(text, {.smallest = 0, .largest = UINT32_MAX});
        if (!count) refuse();
        return static_cast<uint32_t>(*count);
    }
    size_t end = 0;
    double percent = 0;
    try {
        percent = std::stod(text, &end);
    } catch (const std::exception&) {
        refuse();
    }
    if (end + 1 != text.size() || percent > 100) refuse();
    return static_cast<uint32_t>(std::lround(percent * nodes / 100));
}

}  // namespace

SaturationCommand::SaturationCommand(CLI::App& app) : arguments_(std::make_unique<Arguments>()) {
    Arguments& a = *arguments_;
    switched::SwitchedConfig& n = a.config.network;
    a.command = app.add_subcommand("saturation",
                                   "Pairs of nodes that send all they can over a network with back-pressure, "
                                   "some slow (RDRP 4.1): one run, "
                                   "one row. A packet time is that of one packet on a link");
    a.command->option_defaults()->always_capture_default();
    const auto number = [&](const char* name, auto& value, const char* text) {
        const auto check = [](const std::string& given) -> std::string {
            const base::NumberRange range = {.smallest = 0, .largest = UINT32_MAX};
            return base::read_number(given, range) ? "" : given + " " + base::why_no_number(range);
        };
        a.command->add_option(name, value, text)->check(CLI::Validator(check, ""));
    };
    a.command->add_option("--topology", a.topology, "dragonfly:p,a,h or fattree:k,levels");
    a.command->add_option("--routing", a.routing, "Ways of packets")->check(one_of(kRoutings));
    a.command
        ->add_option(
            "--method", a.method,
            "big: one transfer without a limit; fecn and fecn-aggressive: the same under FECN/BECN; rdrp: "
            "chunks that the receiver fetches")
        ->check(one_of(kMethods));
    a.command->add_option("--slow", a.slow, "Nodes that take packets slowly: a number, or percent as 0.5%");
    number("--slowdown", a.config.slowdown, "Packet times in which a slow node takes one packet");
    number("--window", a.config.window, "rdrp: chunks that a node has asked for and not got");
    number("--chunk-packets", a.config.chunk_packets, "rdrp: packets of a chunk");
    a.command->add_flag("--requests-with-data-only", a.requests_with_data_only,
                        "rdrp: no request leaves without data; the first window is granted");
    number("--packets", a.config.packet_times, "Length of the run, packet times");
    number("--iteration", a.config.iteration, "Packet times of one entry of the series");
    number("--packet-flits", n.packet_flits, "Flits of a packet");
    number("--buffer-flits", n.buffer_flits, "Buffer of each virtual channel, flits");
    number("--ejection-flits", n.ejection_flits, "Buffer of a node for what it has not taken, flits");
    number("--vcs-per-class", n.vcs_per_class, "Virtual channels of each class");
    a.command->add_flag("--no-vc-classes", a.no_vc_classes,
                        "Every packet may use every virtual channel: deadlocks are possible");
    number("--speedup-permille", n.speedup_permille, "Passes of a crossbar in a packet time, in thousandths");
    number("--local-cycles", n.local_cycles, "Latency of a link in a group, flit times");
    number("--global-cycles", n.global_cycles, "Latency of a link between groups, flit times");
    number("--minimal-bias-percent", n.minimal_bias_percent,
           "Minimal if q_min <= this * q_detour + --threshold-flits");
    number("--threshold-flits", n.threshold_flits, "Of that comparison");
    number("--nic-queue", n.nic_queue_packets, "Packets that wait for injection at a node");
    number("--deadlock-slots", n.deadlock_slots,
           "Packet times without any movement that end the run with an error");
    number("--seed", n.seed, "Of pairs, slow nodes and detours; same seed, same trace_hash");
    a.command->add_flag("--no-header", a.no_header, "Print the row without the names of its columns");
}
SaturationCommand::~SaturationCommand() = default;

bool SaturationCommand::given() const {
    return arguments_->command->parsed();
}

void SaturationCommand::run() const {
    Arguments& a = *arguments_;
    a.config.network.topology = switched::SwitchedTopology::parse(a.topology);
    a.config.network.routing = kRoutings.at(a.routing);
    a.config.network.vc_classes = !a.no_vc_classes;
    a.config.method = kMethods.at(a.method);
    a.config.bare_requests = !a.requests_with_data_only;
    const uint32_t nodes = a.config.network.topology.nodes();
    a.config.slow_nodes = slow_nodes(a.slow, nodes);
    const SaturationResult r = run_saturation(a.config);
    if (!a.no_header) {
        std::puts(
            "topology,nodes,routing,vcs_per_class,bias_percent,threshold_flits,method,window,chunk_packets,"
            "slow_nodes,"
            "slowdown,packet_times,iteration,seed,steady,trough,stopped,fast,packets,bare_requests,marks,"
            "detours,"
            "latency,outstanding_max,trace_hash,series");
    }
    const bool rdrp = a.config.method == TransferMethod::kRdrp;
    const switched::SwitchedConfig& n = a.config.network;
    std::printf("\"%s\",%u,%s,%u,%u,%u,%s,%u,%u,%u,%u,%u,%u,%" PRIu64 ",", a.topology.c_str(), nodes,
                a.routing.c_str(), n.vcs_per_class, n.minimal_bias_percent, n.threshold_flits,
                a.method.c_str(), rdrp ? a.config.window : 0, rdrp ? a.config.chunk_packets : 0,
                a.config.slow_nodes, a.config.slowdown, a.config.packet_times, a.config.iteration, n.seed);
    std::printf("%.4f,%.4f,%.4f,%.4f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.4f,%.1f,%u,%016" PRIx64 ",",
                r.steady, r.trough, r.stopped, r.fast, r.packets, r.bare_requests, r.marks, r.detours,
                r.latency, r.outstanding_max, r.trace_hash);
    for (size_t i = 0; i < r.series.size(); ++i) std::printf(i == 0 ? "%.3f" : " %.3f", r.series[i]);
    std::puts("");
}

}  // namespace velo::sim
