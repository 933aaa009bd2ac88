#include "velo/options/options.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "velo/options/list_params.h"
#include "velo/os/shared_segment.h"
#include "velo/wire/packet.h"

namespace velo {
namespace {

using base::SetupError;

void check_range(const char* name, int64_t value, int64_t smallest, int64_t largest) {
    if (value < smallest || value > largest) {
        throw SetupError("btl_velo_" + std::string(name) + "=" + std::to_string(value) + " is outside " +
                         std::to_string(smallest) + " to " + std::to_string(largest) +
                         "; choose a value in that range");
    }
}

void check_power_of_two(const char* name, int64_t value) {
    if (!std::has_single_bit(static_cast<uint64_t>(value))) {
        throw SetupError("btl_velo_" + std::string(name) + "=" + std::to_string(value) +
                         " is not a power of two; the nearest are " +
                         std::to_string(std::bit_floor(static_cast<uint64_t>(value))) + " and " +
                         std::to_string(std::bit_ceil(static_cast<uint64_t>(value))));
    }
}

template <class Names>
std::string listed(const Names& names) {
    std::string list;
    for (const auto& [value, name] : names) list += (list.empty() ? "" : ", ") + std::string(name);
    return list;
}

constexpr uint64_t kMailboxSlotsMost = 1u << 24;  // 1 GiB, as btl_velo_mailbox_bytes

/// Slots of a mailbox: those that the user gives each sender, or as many as the mode does well with. The bound in
/// bytes limits the latter and may not contradict the former.
uint32_t mailbox_slots(const velo_params_t& params, const EngineOptions& options, flowctl::Mode mode,
                       uint64_t senders) {
    // Without credits nothing bounds what may arrive: the mailbox has slots for a burst of long messages.
    constexpr uint64_t kUncreditedSlots = 4096;
    // If shares follow the conversation, a mailbox need not grow with the job without bound, and that of few
    // processes should hold some messages: its senders share it.
    constexpr uint64_t kSharedSlotsOnHost = (256u << 10) / kPacketBytes;
    constexpr uint64_t kSharedSlotsOfNetwork = (1u << 20) / kPacketBytes;
    constexpr uint64_t kSharedSlotsMost = (4u << 20) / kPacketBytes;

    const auto bytes = static_cast<uint64_t>(params.mailbox_bytes);
    if (bytes != 0 && bytes < kPacketBytes) {
        throw SetupError("btl_velo_mailbox_bytes=" + std::to_string(bytes) + " is less than a slot of " +
                         std::to_string(kPacketBytes) + " bytes; give more, or 0 for no bound");
    }
    const uint64_t most = bytes != 0 ? bytes / kPacketBytes : kMailboxSlotsMost;
    if (params.slots != 0) {
        const uint64_t slots = senders * static_cast<uint64_t>(params.slots);
        if (slots <= most) return static_cast<uint32_t>(slots);
        const std::string bound = bytes != 0 ? "btl_velo_mailbox_bytes=" + std::to_string(bytes) +
                                                   " allows fewer; set only one of them"
                                             : "the largest has " + std::to_string(kMailboxSlotsMost * kPacketBytes) +
                                                   "; lower it to at most " +
                                                   std::to_string(kMailboxSlotsMost / senders) +
                                                   ", or set btl_velo_mailbox_bytes instead";
        throw SetupError("btl_velo_slots=" + std::to_string(params.slots) + " makes a mailbox of " +
                         std::to_string(slots * kPacketBytes) + " bytes for " + std::to_string(senders) +
                         " senders, and " + bound);
    }
    uint64_t slots = senders * flowctl::kSlotsPerPeerDefault;
    if (mode == flowctl::Mode::kNone) slots = std::max(slots, kUncreditedSlots);
    if (mode == flowctl::Mode::kDynamic && options.tuning.contact_slots_max != 0) {
        slots = std::max(slots, options.network_used ? kSharedSlotsOfNetwork : kSharedSlotsOnHost);
        if (bytes == 0) slots = std::min(slots, kSharedSlotsMost);
    }
    return static_cast<uint32_t>(std::min(slots, most));
}

/// The slots that flow control speaks of, as the user spells them.
std::string in_users_words(const flowctl::PlanError& error) {
    constexpr std::string_view kFrom = "slots_per_peer";
    std::string text = error.message;
    if (const size_t at = text.find(kFrom); at != std::string::npos) text.replace(at, kFrom.size(), "btl_velo_slots");
    return text;
}

/// Value of a parameter, out of those that `names` lists.
template <class Names>
auto parsed(const char* parameter, const char* text, const Names& names) {
    for (const auto& [value, name] : names) {
        if (name == text) return value;
    }
    throw SetupError("btl_velo_" + std::string(parameter) + "=" + text + " is not one of " + listed(names));
}

constexpr std::array<std::pair<std::optional<CoopMethod>, std::string_view>, kCoopMethods + 1> kBlockWays{
    {{std::nullopt, "measured"},
     {CoopMethod::kRing, "ring"},
     {CoopMethod::kRingNontemporal, "nontemporal"},
     {CoopMethod::kDirect, "direct"}}};

constexpr std::array<std::pair<bool, std::string_view>, 2> kSingleCopies{{{true, "cma"}, {false, "none"}}};

/// Remedies beside those of flow control, which knows of slots alone.
std::string other_remedies(const flowctl::PlanError& error, const flowctl::Config& config,
                           const EngineOptions& options) {
    const bool all_own = config.mode == flowctl::Mode::kStatic || config.mode == flowctl::Mode::kGrowing ||
                         config.contact_slots == 0;
    if (all_own && uint64_t{2} * config.peers * config.credit_slots > kMailboxSlotsMost) {
        return "; the largest mailbox has " + std::to_string(kMailboxSlotsMost) +
               " slots, with which btl_velo_flow_control=dynamic does: it needs them for the senders that are active";
    }
    // The bound in bytes enlarges no mailbox.
    const uint64_t smallest = error.smallest_mailbox_slots;
    velo_params_t params = options.params;
    params.slots = 0;
    params.mailbox_bytes = static_cast<int>(std::min(smallest, kMailboxSlotsMost) * kPacketBytes);
    if (smallest == 0 || mailbox_slots(params, options, config.mode, config.peers) < smallest) return "";
    return "; where memory is given in bytes, btl_velo_mailbox_bytes=" + std::to_string(params.mailbox_bytes);
}

flowctl::Plan make_plan(const EngineOptions& options, flowctl::Mode mode, uint32_t senders) {
    const velo_params_t& params = options.params;
    flowctl::Config config = options.tuning.flow;
    config.mode = mode;
    config.peers = senders;
    config.mailbox_slots = mailbox_slots(params, options, mode, senders);
    config.contact_slots = flowctl::contact_slots_for(config, options.tuning.contact_slots_max);
    const flowctl::PlanResult result = flowctl::plan(config);
    if (const auto* error = std::get_if<flowctl::PlanError>(&result)) {
        throw SetupError("btl_velo_flow_control=" + std::string(params.flow_control) + ": " + in_users_words(*error) +
                         other_remedies(*error, config, options));
    }
    return std::get<flowctl::Plan>(result);
}

/// Bytes of one ring of a process that has `peers` of them. A ring twice as deep as the second level of
/// caches is faster: its lines have left the reader's L2 when they are written again. They lie in
/// the L3 then, not in memory: so no deeper, and a process takes no more than its share of the L3 in all.
uint64_t ring_bytes_by_caches(const base::Locality& locality, uint32_t on_node, uint32_t peers) {
    constexpr uint64_t kUnknownL2 = 1u << 20;
    constexpr uint64_t kLargest = 16u << 20;  // that the parameter can be
    const bool known = locality.l2_bytes != 0 && locality.l3_bytes != 0;
    const uint64_t l2 = known ? locality.l2_bytes : kUnknownL2;
    const uint32_t sharers = std::clamp(locality.l3_cpus, 1u, std::max(on_node, 1u));
    const uint64_t all = known ? std::min(4 * l2, locality.l3_bytes / sharers) : 4 * l2;
    return std::min({2 * l2, all / peers, kLargest});
}

shm::RingGeometry ring_geometry(const velo_params_t& params, uint32_t lines, const velo_identity_t& identity,
                                const base::Locality& locality) {
    constexpr uint64_t kSmallestBody = 128u << 10;
    constexpr uint32_t kLines = 256;
    // All lines of a ring that is in use are resident. With many rings, that is what a process's memory is.
    constexpr uint32_t kLinesAmongMany = 128;
    constexpr uint32_t kMany = 16;
    uint32_t on_node = identity.local_size;
    if (params.ranks_per_node != 0) on_node = std::min(on_node, static_cast<uint32_t>(params.ranks_per_node));
    const uint32_t peers = std::max(on_node, 2u) - 1;
    const uint64_t body = std::bit_floor(ring_bytes_by_caches(locality, on_node, peers));
    shm::RingGeometry geometry = {.lines = peers < kMany ? kLines : kLinesAmongMany,
                                  .body_bytes = static_cast<uint32_t>(std::max(body, kSmallestBody))};
    if (lines != 0) geometry.lines = lines;
    if (params.ring_bytes != 0) geometry.body_bytes = static_cast<uint32_t>(params.ring_bytes);
    return geometry;
}

/// Ports below are the system's.
constexpr base::NumberRange kPorts = {.smallest = 1024, .largest = 65535};

/// The first and the last port of a range in text; 0 and 0 for none.
std::pair<uint16_t, uint16_t> port_range(std::string_view text) {
    if (text.empty()) return {0, 0};
    const size_t dash = std::min(text.find('-'), text.size());
    const auto low = base::read_number(text.substr(0, dash), kPorts);
    const auto high = base::read_number(text.substr(std::min(dash + 1, text.size())), kPorts);
    if (!low || !high || *low > *high) {
        throw SetupError("btl_velo_port_range=" + std::string(text.substr(0, 64)) +
                         " is not LOW-HIGH, two numbers from " + std::to_string(kPorts.smallest) + " to " +
                         std::to_string(kPorts.largest) +
                         ", the smaller one first; write it like 42000-42999, or leave it out for any port");
    }
    return {static_cast<uint16_t>(*low), static_cast<uint16_t>(*high)};
}

/// The user's words on networks, which are good as long as the parameters are, and the identity.
NetworkOptions network_options(const velo_params_t& params, const velo_identity_t& identity) {
    const auto [port_low, port_high] = port_range(params.port_range);
    return {.provider_include = params.provider_include,
            .interface_include = params.if_include,
            .port_low = port_low,
            .port_high = port_high,
            .other_host = identity.other_host};
}

/// Processes that 24 bits tell apart, as EXTOLL's status word does: 65536 nodes of 256 each.
constexpr uint32_t kNamesMost = 1u << 24;
constexpr uint32_t kVpids = 256;
constexpr uint32_t kDeviceNodes = kNamesMost / kVpids;

/// Over a network a packet's source names one process among those of all jobs that meet: the ranks of a job are
/// numbered from here on, modulo 2^24. The jobs of one launcher, which counts them, are far apart, and those of two
/// anywhere.
uint32_t first_name(uint64_t job) {
    const auto reversed = [](uint32_t bits) {
        uint32_t result = 0;
        for (int i = 0; i < 16; ++i, bits >>= 1) result = result << 1 | (bits & 1);
        return result;
    };
    const uint64_t launcher = (job >> 16) * 0x9e3779b97f4a7c15;
    return static_cast<uint16_t>(reversed(static_cast<uint32_t>(job)) + (launcher >> 48)) * kVpids;
}

/// This process's name on the device. An emulated node is one of EXTOLL's as long as 256 VPIDs do for its ranks.
/// Larger ones, and a network, name processes by rank: no host has a bound of its own, however unequal hosts are.
uint32_t device_name(const EngineOptions& options, uint32_t node, uint32_t vpid) {
    const auto ranks_per_node = static_cast<uint32_t>(options.params.ranks_per_node);
    const uint32_t rank = options.identity.rank;
    if (options.network_used) return first_name(options.identity.job) + rank;
    return ranks_per_node <= kVpids ? node * kVpids + vpid : rank;
}

/// Looks at the whole job, so that all its ranks come to the same end.
void check_names(const EngineOptions& options) {
    const uint32_t ranks = options.identity.job_size;
    const auto ranks_per_node = static_cast<uint32_t>(options.params.ranks_per_node);
    if (ranks > kNamesMost) {
        throw SetupError("a job of " + std::to_string(ranks) + " ranks has more than the " +
                         std::to_string(kNamesMost) +
                         " that the device tells apart (24 bits); start fewer, or " +
                         (options.network_used ? "set btl to others than velo" : "leave btl_velo_ranks_per_node out"));
    }
    if (options.network_used || ranks_per_node > kVpids) return;
    const uint32_t nodes = (ranks + ranks_per_node - 1) / ranks_per_node;
    if (nodes <= kDeviceNodes) return;
    throw SetupError("btl_velo_ranks_per_node=" + std::to_string(ranks_per_node) + " makes " + std::to_string(nodes) +
                     " nodes of " + std::to_string(ranks) + " ranks, and the software device tells " +
                     std::to_string(kDeviceNodes) + " apart; set it to " +
                     std::to_string((ranks + kDeviceNodes - 1) / kDeviceNodes) + " or more");
}

/// The node and name of this process, and the device through which it reaches those of other nodes.
void choose_device(EngineOptions& options) {
    const velo_params_t& params = options.params;
    const velo_identity_t& identity = options.identity;
    const std::string_view wanted = params.device;
    if (wanted != "auto" && wanted != "ofi" && wanted != "sim") {
        throw SetupError("btl_velo_device=" + std::string(wanted) + " is not one of auto, ofi, sim");
    }
    const bool other_hosts = identity.hosts > 1;
    const auto ranks_per_node = static_cast<uint32_t>(params.ranks_per_node);
    const bool emulated = ranks_per_node != 0;
    options.network_used = wants_network(params, identity);
    options.network_wanted = wanted == "ofi";
    options.device_used = options.network_used || (emulated && identity.job_size > ranks_per_node);
    if (wanted == "sim" && other_hosts) {
        options.no_network = "btl_velo_device=sim reaches what shares memory with this rank";
    }
    options.node = emulated ? identity.rank / ranks_per_node : identity.host;
    if (!options.device_used) return;
    check_names(options);
    const uint32_t name = device_name(options, options.node, emulated ? identity.rank % ranks_per_node : 0);
    options.device.node = static_cast<uint16_t>(name / kVpids);
    options.device.vpid = static_cast<uint8_t>(name % kVpids);
}

/// Processes of the job that may send to one of it through the device. All processes plan for the same number, the most
/// that any of them has: those of the smallest node have most peers elsewhere.
uint32_t senders_in_job(const velo_identity_t& identity, uint32_t ranks_per_node) {
    const uint32_t others = std::max(identity.job_size, 2u) - 1;
    if (identity.hosts > 1) {
        // A node that is made of ranks of several hosts has some that only the device reaches.
        return ranks_per_node != 0 ? others : identity.job_size - std::min(identity.host_ranks_min, others);
    }
    if (ranks_per_node == 0 || ranks_per_node >= identity.job_size) return others;
    const uint32_t remainder = identity.job_size % ranks_per_node;
    return identity.job_size - (remainder == 0 ? ranks_per_node : remainder);
}

constexpr uint32_t kPortsMost = 8;  // that the parameter can be

/// The window of transfers (RDRP 4.1).
void set_window(EngineOptions& options) {
    const velo_params_t& params = options.params;
    const auto chunk = static_cast<uint64_t>(params.chunk);
    const auto bytes = static_cast<uint64_t>(params.window_bytes);
    if (bytes != 0 && bytes < chunk) {
        throw SetupError("btl_velo_window_bytes=" + std::to_string(bytes) + " is less than btl_velo_chunk=" +
                         std::to_string(chunk) + "; a chunk must fit into the window: raise one or lower the other");
    }
    options.window.chunk_bytes = static_cast<uint32_t>(chunk);
    options.window.bytes = bytes != 0 ? bytes : kWindowChunks * chunk;
    // A window for the device alone takes none from transfers on the node.
    constexpr uint64_t kWindowChunksMost = 256;
    options.window.chunks = static_cast<uint32_t>(
        std::clamp<uint64_t>(options.window.bytes / chunk, kWindowChunks, kWindowChunksMost));
    const LinkOptions& link = options.device.link;
    if (bytes != 0 || link.bytes_per_us == 0) return;
    // Nothing is asked for beyond what the network holds, so that nothing stands in senders' ports (RDRP 4.1).
    constexpr uint64_t kChunkBytesMin = 4096;
    const uint64_t held = link.buffer_bytes;
    options.window.chunk_bytes = static_cast<uint32_t>(std::clamp(held / kWindowChunks, kChunkBytesMin, chunk));
    options.window.bytes = std::max<uint64_t>(std::min(held, kWindowChunks * chunk), options.window.chunk_bytes);
}

/// Rails of the device and their allocation (RAILS). Numbers of nodes come from the job, so all its processes find the
/// same columns.
void set_rails(EngineOptions& options) {
    using rma::RailRule;
    const velo_params_t& params = options.params;
    // Over a network at most: EngineOptions::have_rails().
    const auto rails = static_cast<uint32_t>(params.ports);
    const RailsParam given = read_rails(params.rails);
    const std::string_view rule = given.rule;
    options.settings.rails = rule == "static";
    options.rails = {.rails = rails,
                     .policy = {.rule = rule == "round_robin" ? RailRule::kRoundRobin
                                        : rule == "hybrid"    ? RailRule::kHybrid
                                                              : RailRule::kLocalDynamic,
                                .striping_percent = static_cast<uint32_t>(given.striping_percent),
                                .fragment_bytes_min = options.window.chunk_bytes,
                                .short_bytes = given.short_bytes},
                     .retry_ns = given.retry_ms * 1'000'000};
    if (rule == "dynamic") options.rails.reserve_ns = given.wait_ms * 1'000'000;
    if (rule != "static" || !options.device_used || (options.network_used && rails == 1)) return;
    const velo_identity_t& identity = options.identity;
    const auto per_node = static_cast<uint32_t>(params.ranks_per_node);
    const uint32_t nodes = per_node != 0 ? (identity.job_size + per_node - 1) / per_node : identity.hosts;
    const auto fewest = rma::fewest_rails(rma::StaticRule::kOptimal, nodes);
    if (!fewest || *fewest > rails) {
        throw SetupError("btl_velo_rails=static joins at most " +
                         std::to_string(rma::most_nodes(rma::StaticRule::kOptimal, rails)) + " nodes by " +
                         std::to_string(rails) + " rails, and the job has " + std::to_string(nodes) + "; " +
                         (fewest && *fewest <= kPortsMost
                              ? "set btl_velo_ports=" + std::to_string(*fewest) + ", or another rule"
                              : "choose another rule"));
    }
    options.static_rails = rma::StaticAllocation::make(rma::StaticRule::kOptimal, *fewest, nodes);
    options.rails.own_column = options.static_column(options.node);
}

/// As the host gave them. Open MPI gives no pointer for a text that is set to nothing.
velo_params_t checked(velo_params_t params) {
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) \
    check_range(#name, params.name, smallest, largest);
#define VELO_PARAM_TEXT(name, value, audience, text) \
    if (params.name == nullptr) params.name = "";
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    if (params.ring_bytes != 0) {
        check_range("ring_bytes", params.ring_bytes, 16384, 16777216);
        check_power_of_two("ring_bytes", params.ring_bytes);
    }
    return params;
}

/// Rings and blocks between processes of the node.
void set_on_node(EngineOptions& options, const base::Locality& locality) {
    const velo_params_t& params = options.params;
    options.on_node = {.name = options.identity.name,
                       .geometry = ring_geometry(params, options.tuning.ring_lines, options.identity, locality),
                       .registrations_max = static_cast<uint32_t>(params.registrations),
                       .place = locality.place,
                       // A process whose memory policy the user has set does not choose.
                       .place_rings = locality.numa_nodes > 1 && !locality.user_policy,
                       .timeout_ns = static_cast<uint64_t>(params.timeout) * 1'000'000'000};
    if (params.on_node_message_bytes_max > options.on_node.geometry.message_bytes_max()) {
        throw SetupError("btl_velo_ring_bytes=" + std::to_string(options.on_node.geometry.body_bytes) +
                         " is less than twice the longest on-node message of " +
                         std::to_string(params.on_node_message_bytes_max) +
                         " bytes; raise it or lower btl_velo_shm_max_send_size, btl_velo_shm_eager_limit or "
                         "btl_velo_shm_rndv_eager_limit");
    }
}

/// Of the device that was chosen: what it is opened with, and the plan of its memory.
void set_device(EngineOptions& options) {
    const velo_params_t& params = options.params;
    // The receiver sets that much aside for each peer in the middle of a message.
    constexpr uint32_t kDeviceMessageBytesMax = 16u << 20;
    if (options.device_used && params.device_message_bytes_max > kDeviceMessageBytesMax) {
        throw SetupError("messages of up to " + std::to_string(params.device_message_bytes_max) +
                         " bytes through the device are not possible, the longest have " +
                         std::to_string(kDeviceMessageBytesMax) +
                         "; lower btl_velo_max_send_size, btl_velo_eager_limit or btl_velo_rndv_eager_limit");
    }
    DeviceConfig& device = options.device;
    device.host_name = options.identity.name;
    device.job_token = options.identity.job;
    device.ports = static_cast<uint32_t>(params.ports);
    device.shares_cpus = options.shares_cpus;
    device.faults = params.faults;
    device.log = {.write = options.host.log, .context = options.host.context};
    if (!options.device_used) return;
    const uint32_t senders = senders_in_job(options.identity, static_cast<uint32_t>(params.ranks_per_node));
    options.plan = make_plan(options, options.settings.flow_control, senders);
    device.peers_max = senders;
    device.operation_timeout_ns = static_cast<uint64_t>(params.timeout) * 1'000'000'000;
    device.peer_timeout_ns = static_cast<uint64_t>(params.peer_timeout) * 1'000'000'000;
    device.mailbox_slots = options.plan.mailbox_slots;
    device.contact_slots = options.plan.contact_slots;
}

}  // namespace

bool wants_network(const velo_params_t& params, const velo_identity_t& identity) {
    const std::string_view device = params.device == nullptr ? "" : params.device;
    // A user who emulates nodes on one host does without.
    const bool others = identity.hosts > 1 || (identity.more_hosts && params.ranks_per_node == 0);
    return device == "ofi" || (device == "auto" && others);
}

EngineOptions make_options(const velo_params_t& given, const velo_identity_t& identity,
                           const velo_host_t& host, const base::Locality& locality, const Tuning& tuning) {
    EngineOptions options;
    options.identity = identity;
    options.host = host;
    options.params = checked(given);
    options.tuning = tuning;
    const velo_params_t& params = options.params;
    options.node_copies = {.single = parsed("single_copy", params.single_copy, kSingleCopies),
                           .way = parsed("block_way", params.block_way, kBlockWays)};
    options.device.link = read_emulate(params.emulate);
    set_window(options);
    options.stall = read_stall_report(params.stall_report);
    options.shares_cpus = locality.cpus != 0 && identity.local_size > locality.cpus;
    options.settings = {.ranks_per_node = static_cast<uint32_t>(params.ranks_per_node),
                        .slots = static_cast<uint32_t>(params.slots),
                        .mailbox_bytes = static_cast<uint32_t>(params.mailbox_bytes),
                        .ports = static_cast<uint8_t>(params.ports),
                        // A word that is not known is one whether a device is used or not.
                        .flow_control = parsed("flow_control", params.flow_control, flowctl::kModeNames)};
    set_on_node(options, locality);
    choose_device(options);
    set_rails(options);
    options.network = network_options(params, identity);
    set_device(options);
    return options;
}

base::Locality find_locality(const velo_params_t& params, hwloc_topology* topology, std::string& why) {
    const std::string_view source = params.locality == nullptr ? "" : params.locality;
    if (source == "none") return {};
    if (source != "auto" && source != "hwloc") {
        throw SetupError("btl_velo_locality=" + std::string(source) + " is not one of auto, hwloc, none");
    }
    base::TopologyPtr loaded;
    if (topology == nullptr && source == "hwloc") {
        loaded = base::load_topology(why);
        topology = loaded.get();
    }
    if (topology != nullptr) {
        const base::Locality found = base::locality_by_hwloc(*topology, why);
        if (found.source != base::Locality::Source::kNone) return found;
    }
    return base::locality_by_kernel();
}

}  // namespace velo
