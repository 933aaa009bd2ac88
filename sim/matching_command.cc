#include "sim/matching_command.h"

#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "sim/matching_run.h"
#include "velo/base/read_number.h"

namespace velo::sim {

struct MatchingCommand::Arguments {
    CLI::App* command = nullptr;
    MatchingConfig config;
    std::string program = "killer";
    std::string mode = "dynamic";
    uint32_t messages = 5;
    uint32_t bytes = 1024;
    bool no_header = false;
};

namespace {

/// The smallest cube of nodes that holds all processes.
cluster::Topology cube_for(uint32_t nodes) {
    uint32_t side = 1;
    while (uint64_t{side} * side * side < nodes) ++side;
    const std::string text = std::to_string(side);
    return cluster::Topology::parse("mesh:" + text + "x" + text + "x" + text);
}

}  // namespace

MatchingCommand::MatchingCommand(CLI::App& app) : arguments_(std::make_unique<Arguments>()) {
    Arguments& a = *arguments_;
    a.command = app.add_subcommand(
        "matching", "Engines that match, with little memory for unexpected messages: one run, one row");
    a.command->option_defaults()->always_capture_default();
    a.config.cluster.cpu = {.send_ns = 100, .receive_ns = 80, .credit_ns = 20};
    const auto number = [&](const char* name, auto& value, const char* text) {
        const auto check = [](const std::string& given) -> std::string {
            const base::NumberRange range = {.smallest = 0, .largest = UINT32_MAX};
            return base::read_number(given, range) ? "" : given + " " + base::why_no_number(range);
        };
        a.command->add_option(name, value, text)->check(CLI::Validator(check, ""));
    };
    a.command
        ->add_option("--program", a.program,
                     "killer (MEM 5.1: all send to process 0, which receives the last tag first) or alltoall")
        ->check(CLI::IsMember({"killer", "alltoall"}));
    a.command->add_option("--mode", a.mode, "Flow control of the packets");
    number("--processes", a.config.processes, "Processes of the job");
    number("--processes-per-node", a.config.processes_per_node, "Processes of a node");
    number("--messages", a.messages, "Messages of a sender (alltoall: to each other process)");
    number("--bytes", a.bytes, "Bytes of a message");
    number("--records", a.config.unexpected_records, "unexpected_records, bytes");
    number("--data", a.config.unexpected_bytes, "unexpected_bytes, bytes");
    number("--granted", a.config.unexpected_granted, "unexpected_granted");
    number("--seed", a.config.cluster.seed, "Of the times' jitter");
    number("--jitter-permille", a.config.cluster.cpu.jitter_permille, "Of the CPUs' times");
    a.command->add_flag("--no-header", a.no_header, "Print the row without the names of its columns");
}
MatchingCommand::~MatchingCommand() = default;

bool MatchingCommand::given() const {
    return arguments_->command->parsed();
}

void MatchingCommand::run() const {
    Arguments& a = *arguments_;
    const auto mode = flowctl::parse_mode(a.mode);
    if (!mode) throw base::SetupError("--mode '" + a.mode + "' is not known; velo_sim --help lists them");
    for (const auto& [name, value] :
         {std::pair{"--processes-per-node", a.config.processes_per_node}, {"--messages", a.messages}}) {
        if (value == 0) throw base::SetupError(std::string(name) + " 0; give at least 1");
    }
    a.config.flow.mode = *mode;
    const uint32_t nodes =
        (a.config.processes + a.config.processes_per_node - 1) / a.config.processes_per_node;
    a.config.cluster.topology = cube_for(nodes);
    const auto program = a.program == "killer" ? make_killer(a.config.processes, a.messages, a.bytes)
                                               : make_all_to_all(a.config.processes, a.messages, a.bytes);
    const MatchingResult r = run_matching(a.config, *program);
    if (!a.no_header) {
        std::puts(
            "program,processes,messages_each,bytes,records,data,granted,seed,time_us,us_a_message,messages,"
            "eager,requests,"
            "refused,offers,records_hwm,data_hwm,packets,fastest_sender_us,slowest_sender_us,trace_hash");
    }
    const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1000; };
    std::printf("%s,%u,%u,%u,%" PRIu64 ",%" PRIu64 ",%u,%" PRIu64 ",%.3f,%.4f,", a.program.c_str(),
                a.config.processes, a.messages, a.bytes, a.config.unexpected_records,
                a.config.unexpected_bytes, a.config.unexpected_granted, a.config.cluster.seed, us(r.time_ns),
                us(r.time_ns) / static_cast<double>(r.messages));
    std::printf("%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                ",%.3f,%.3f,%016" PRIx64 "\n",
                r.messages, r.eager, r.requests, r.refused, r.offers, r.records_hwm, r.data_hwm, r.packets,
                us(r.fastest_sender_ns), us(r.slowest_sender_ns), r.trace_hash);
}

}  // namespace velo::sim
