/// Parameters: texts and numbers that a user may give.
#include <bit>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "velo/device/faults.h"
#include "velo/options/options.h"
#include "velo/os/shared_segment.h"

namespace velo::fuzz {
namespace {

/// Any text, or one of those that mean something.
std::string text_of(Input& input, std::span<const char* const> known) {
    const uint8_t choice = input.byte();
    if (choice < known.size()) return known[choice];
    const auto bytes = input.bytes(choice % 64);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Any number, or one near a limit of the parameter.
int number_of(Input& input, int value, int smallest, int largest) {
    switch (input.below(5)) {
        case 0: return static_cast<int>(input.take<uint32_t>());
        case 1: return smallest + input.byte() - 128;
        case 2: return largest - input.byte() % 4;
        case 3: return 1 << input.below(31);
        default: return value;
    }
}

/// Faults that parse behave; those that do not name what is wrong.
void parse_faults(const std::string& text) {
    try {
        const auto faults = base::Faults::parse(text, 3, 1);
        require((faults == nullptr) == text.empty(), "no faults without a text");
        if (faults == nullptr) return;
        for (uint32_t i = 0; i < 8; ++i) {
            (void)faults->rma(i % 2);
            (void)faults->packet_delay_ns();
            (void)faults->mailbox_stall_ns();
            (void)faults->dies(i);
        }
    } catch (const base::SetupError& error) {
        require(std::strlen(error.what()) > 20, "an error is a sentence");
    }
}

}  // namespace

void params(Input& input) {
    constexpr const char* kModes[] = {"static", "none", "dynamic", "hardware", "growing", ""};
    constexpr const char* kCopies[] = {"cma", "none", ""};
    constexpr const char* kRails[] = {"static", "hybrid,striping=50,short=4k", "dynamic,retry=1,wait=1", ",", ""};
    constexpr const char* kNetworks[] = {"link=40,buffer=64k", "link=1,sink=1,source=1", "buffer=1", "=", ""};
    constexpr const char* kStalls[] = {"1,signal=10", "signal=64", "30", ",", ""};
    constexpr const char* kFaults[] = {"seed=1,delay=0.01:200us", "port_down=0:3", "die_after=7",
                                       "rma_fail=1", ""};
    velo_params_t params;
    velo_params_default(&params);
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) \
    params.name = number_of(input, value, smallest, largest);
#define VELO_PARAM_TEXT(name, value, audience, text)
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    const std::string flow_control = text_of(input, kModes);
    const std::string single_copy = text_of(input, kCopies);
    const std::string rails = text_of(input, kRails);
    const std::string emulate = text_of(input, kNetworks);
    const std::string stall_report = text_of(input, kStalls);
    const std::string faults = text_of(input, kFaults);
    params.flow_control = flow_control.c_str();
    params.single_copy = single_copy.c_str();
    params.rails = rails.c_str();
    params.emulate = emulate.c_str();
    params.stall_report = stall_report.c_str();
    params.faults = faults.c_str();
    params.on_node_message_bytes_max = static_cast<uint32_t>(number_of(input, 32768, 0, INT32_MAX));
    const uint32_t size = 1 + static_cast<uint32_t>(input.below(70000));
    const velo_identity_t identity = {.name = 1,
                                      .job = 1,
                                      .rank = static_cast<uint32_t>(input.below(size)),
                                      .job_size = size,
                                      .local_rank = static_cast<uint32_t>(input.below(size)),
                                      .local_size = size,
                                      .host = 0,
                                      .hosts = 1,
                                      .host_ranks_min = size, .more_hosts = false, .other_host = {}};
    parse_faults(params.faults);
    try {
        const EngineOptions options = make_options(params, identity, velo_host_t{});
        require(options.on_node.geometry.valid(), "a ring that is possible");
        require(params.on_node_message_bytes_max <= options.on_node.geometry.message_bytes_max(),
                "a ring that holds the longest message");
        if (!options.device_used) return;
        require(options.plan.peers >= 1 && options.plan.peers < size, "a plan for the others");
        require(options.device.mailbox_slots == options.plan.mailbox_slots, "a mailbox as planned");
    } catch (const base::SetupError& error) {
        require(std::strstr(error.what(), "btl_velo_") != nullptr, "an error names the parameter");
    }
}

}  // namespace velo::fuzz
