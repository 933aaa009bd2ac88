#include "sim/rails_command.h"

#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "rma/static_allocation.h"
#include "sim/rails.h"
#include "velo/base/read_number.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {

namespace {

const std::map<std::string, RailsPolicy> kPolicies = {{"basic", RailsPolicy::kBasic},
                                                      {"static", RailsPolicy::kStatic},
                                                      {"local", RailsPolicy::kLocalDynamic},
                                                      {"dynamic", RailsPolicy::kDynamic},
                                                      {"hybrid", RailsPolicy::kHybrid},
                                                      {"shipped-hybrid", RailsPolicy::kShippedHybrid},
                                                      {"shipped-dynamic", RailsPolicy::kShippedDynamic}};
const std::map<std::string, rma::StaticRule> kRules = {{"optimal", rma::StaticRule::kOptimal},
                                                       {"logarithmic", rma::StaticRule::kLogarithmic}};

template <typename T>
CLI::Option* add_number(CLI::App& command, const char* name, T& value, const char* text) {
    const auto check = [](const std::string& given) -> std::string {
        const base::NumberRange range = {.smallest = 0, .largest = UINT32_MAX};
        return base::read_number(given, range) ? "" : given + " " + base::why_no_number(range);
    };
    return command.add_option(name, value, text)->check(CLI::Validator(check, ""));
}

template <typename T>
std::vector<std::string> names_of(const std::map<std::string, T>& table) {
    std::vector<std::string> names;
    for (const auto& [name, value] : table) names.push_back(name);
    return names;
}

}  // namespace

struct RailsCommand::Arguments {
    CLI::App* command = nullptr;
    RailsConfig config;
    std::string policy = "dynamic";
    uint32_t both_ways_percent = 100;
    bool not_blocking = false;
    bool ask_used = false;
    bool no_header = false;
};

RailsCommand::RailsCommand(CLI::App& app) : arguments_(std::make_unique<Arguments>()) {
    Arguments& a = *arguments_;
    RailsConfig& c = a.config;
    a.command = app.add_subcommand("rails", "Policies of rail allocation (RAILS 5): one run, one row");
    CLI::App& command = *a.command;
    command.option_defaults()->always_capture_default();
    command
        .add_option("--policy", a.policy,
                    "basic: round robin; local: local dynamic; shipped-hybrid, shipped-dynamic: the plugin's "
                    "btl_velo_rails=hybrid and =dynamic")
        ->check(CLI::IsMember(names_of(kPolicies)));
    add_number(command, "--nodes", c.nodes, "Nodes of the fat tree, 2 to 128");
    add_number(command, "--processes-per-node", c.processes_per_node, "Processes of a node");
    add_number(command, "--rails", c.rails, "Rails of a node");
    add_number(command, "--bytes", c.bytes, "Bytes of a mean message");
    command.add_option("--load", c.load, "Offered, of the bandwidth of all rails one way");
    command.add_flag("--not-blocking", a.not_blocking,
                     "A process sends all its messages at once; else one after the other");
    command.add_flag("--pointer-per-node", c.pointer_per_node, "Round robin of a node, not of each process");
    command.add_flag("--duplex", c.duplex, "Buses carry data both ways at once; requests queue");
    add_number(command, "--both-ways", a.both_ways_percent,
               "Capacity of a bus that is not duplex while data goes both ways, %");
    add_number(command, "--striping", c.striping_percent, "Part of the free rails that a message takes, %");
    add_number(command, "--short-bytes", c.short_bytes, "hybrid: messages below it are sent at once");
    add_number(command, "--chunk", c.chunk_bytes, "shipped-...: most bytes of a chunk, as btl_velo_chunk");
    command.add_flag("--ask-used", a.ask_used, "An RTS on each rail to be used only, not on all free ones");
    add_number(command, "--wait", c.wait_percent,
               "Longest random wait after a refusal, % of a round trip; 0: algorithm 4");
    add_number(command, "--reply-cycles", c.links.reply_cycles, "Of a NIC's thread, for each control message");
    add_number(command, "--control-flits", c.links.control_flits, "Flits of a control message");
    add_number(command, "--flit-bytes", c.links.flit_bytes, "Bytes of a flit, which a link carries in a cycle");
    add_number(command, "--switch-cycles", c.links.switch_cycles, "Cycles of a switch");
    add_number(command, "--channels", c.links.channels, "Virtual channels of a link");
    add_number(command, "--warm-up", c.warm_up, "In times of a mean message on one rail");
    add_number(command, "--measured", c.measured, "In times of a mean message on one rail");
    add_number(command, "--seed", c.seed, "Of sizes, gaps, destinations and waits");
    command.add_flag("--no-header", a.no_header, "Print the row without the names of its columns");
}
RailsCommand::~RailsCommand() = default;

bool RailsCommand::given() const {
    return arguments_->command->parsed();
}

void RailsCommand::run() const {
    Arguments& a = *arguments_;
    RailsConfig& c = a.config;
    c.policy = kPolicies.at(a.policy);
    c.blocking = !a.not_blocking;
    c.ask_all = !a.ask_used;
    c.links.both_ways = a.both_ways_percent / 100.0;
    const bool hybrid = c.policy == RailsPolicy::kHybrid || c.policy == RailsPolicy::kShippedHybrid;
    const RailsResult r = run_rails(c);
    if (!a.no_header) {
        std::puts(
            "policy,nodes,rails,bytes,load,blocking,duplex,both_ways,striping,short_bytes,wait,seed,"
            "offered,accepted,latency_cycles,messages,fragments,tries,controls,against,waiting,trace_hash");
    }
    std::printf("%s,%u,%u,%u,%g,%d,%d,%u,%u,%u,%u,%" PRIu64 ",", a.policy.c_str(), c.nodes, c.rails, c.bytes,
                c.load, c.blocking ? 1 : 0, c.duplex ? 1 : 0, a.both_ways_percent, c.striping_percent,
                hybrid ? c.short_bytes : 0, c.wait_percent, c.seed);
    std::printf("%.4f,%.4f,%.0f,%" PRIu64 ",%" PRIu64 ",%.2f,%.2f,%.3f,%" PRIu64 ",%016" PRIx64 "\n",
                r.offered, r.accepted, r.latency_cycles, r.messages, r.fragments, r.tries, r.controls,
                r.both_ways, r.waiting, r.trace_hash);
}

struct AllocationCommand::Arguments {
    CLI::App* command = nullptr;
    std::string rule = "optimal";
    std::vector<uint32_t> nodes = {20};
    uint32_t rails = 0;
    bool no_header = false;
};

AllocationCommand::AllocationCommand(CLI::App& app) : arguments_(std::make_unique<Arguments>()) {
    Arguments& a = *arguments_;
    a.command =
        app.add_subcommand("allocation", "Static allocation of rails (RAILS 2): fewest rails, or a matrix");
    a.command->option_defaults()->always_capture_default();
    a.command->add_option("--rule", a.rule, "optimal: algorithm 2; logarithmic: algorithm 1")
        ->check(CLI::IsMember(names_of(kRules)));
    add_number(*a.command, "--nodes", a.nodes, "Nodes; several without --rails")->delimiter(',');
    add_number(*a.command, "--rails", a.rails,
               "Prints the matrix of that many rails: 1 where a node sends; 0: prints the fewest rails");
    a.command->add_flag("--no-header", a.no_header, "Print the rows without the names of their columns");
}
AllocationCommand::~AllocationCommand() = default;

bool AllocationCommand::given() const {
    return arguments_->command->parsed();
}

void AllocationCommand::run() const {
    const Arguments& a = *arguments_;
    const rma::StaticRule rule = kRules.at(a.rule);
    if (a.rails == 0) {
        if (!a.no_header) std::puts("rule,nodes,fewest_rails");
        for (const uint32_t nodes : a.nodes) {
            const auto fewest = rma::fewest_rails(rule, nodes);
            if (!fewest)
                throw base::SetupError("--nodes " + std::to_string(nodes) + ": no 64 rails connect them");
            std::printf("%s,%u,%u\n", a.rule.c_str(), nodes, *fewest);
        }
        return;
    }
    const uint32_t nodes = a.nodes.front();
    const auto allocation = rma::StaticAllocation::make(rule, a.rails, nodes);
    if (a.nodes.size() != 1 || !allocation) {
        throw base::SetupError("--rails " + std::to_string(a.rails) +
                               ": give one number of nodes, which so few rails connect");
    }
    if (!a.no_header) {
        std::printf("rail");
        for (uint32_t node = 0; node < nodes; ++node) std::printf(",node %u", node);
        std::printf("\n");
    }
    for (uint32_t rail = 0; rail < a.rails; ++rail) {
        std::printf("%u", rail);
        for (uint32_t node = 0; node < nodes; ++node)
            std::printf(",%u", static_cast<unsigned>(allocation->column(node) >> rail & 1));
        std::printf("\n");
    }
}

}  // namespace velo::sim
