#include "info/job.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "info/probes.h"
#include "series_limits.h"
#include "sim_device/shim/layout.h"
#include "sim_device/shim/shim_device.h"
#include "velo/base/text.h"
#include "velo/core/core.h"
#include "velo/core/system.h"
#include "velo/engine/any_device.h"
#include "velo/options/list_params.h"
#include "velo/os/shared_segment.h"
#include "velo/shm/on_node.h"

namespace velo::info {
namespace {

using base::append;
using base::number;

/// Of ob1's headers the shortest, of a message that is sent at once, and bytes for the longest.
constexpr uint32_t kMatchHeaderBytes = 14;
constexpr uint32_t kHeaderBytesMax = VELO_OB1_HEADER_BYTES;

/// Message bytes that a limit leaves, which counts headers.
uint32_t beside(uint32_t limit, uint32_t header) {
    return limit > header ? limit - header : 0;
}

/// Open MPI reads its own sizes less strictly than a job of velo does, and ompi_info does not show what was written.
void check_sizes() {
    for (const char* name : {"shm_eager_limit", "shm_rndv_eager_limit", "shm_max_send_size", "eager_limit",
                             "rndv_eager_limit", "max_send_size", "get_limit", "put_limit", "get_alignment",
                             "put_alignment"}) {
        const char* text = std::getenv(("OMPI_MCA_btl_velo_" + std::string(name)).c_str());
        if (text != nullptr) (void)read_param(name, text, {.smallest = 0, .largest = SIZE_MAX, .bytes = true});
    }
}

}  // namespace

Job::Job(const Settings& settings, uint32_t ranks) : ranks_(ranks) {
    velo_params_t params;
    velo_params_default(&params);
    try {
        const auto set = [&](const char* name) {
            if (const auto setting = settings.find("btl_velo_" + std::string(name))) {
                set_param(params, name, texts_.emplace_back(setting->value).c_str());
            }
        };
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) set(#name);
#define VELO_PARAM_TEXT(name, value, audience, text) set(#name);
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
        check_sizes();
    } catch (const base::SetupError& error) {
        refusal_ = error.what();
        return;
    }
    const auto longest = [&](const char* prefix, uint32_t otherwise) {
        long long bytes = 0;
        for (const char* name : {"eager_limit", "rndv_eager_limit", "max_send_size"}) {
            bytes = std::max(bytes, settings.number(std::string("btl_velo_") + prefix + name, 0));
        }
        return bytes == 0 ? otherwise : static_cast<uint32_t>(std::min<long long>(bytes, UINT32_MAX));
    };
    params.on_node_message_bytes_max = longest("shm_", params.on_node_message_bytes_max);
    params.device_message_bytes_max = longest("", params.device_message_bytes_max);
    const velo_identity_t identity = {
        .name = 1, .job = 1, .rank = 0, .job_size = ranks, .local_rank = 0, .local_size = ranks,
        .host = 0, .hosts = 1, .host_ranks_min = ranks, .more_hosts = false, .other_host = {}};
    try {
        // Whether Open MPI will have loaded a topology in a job is not known; a topology of its own says the same.
        const base::TopologyPtr topology = base::load_topology(why_not_hwloc_);
        locality_ = find_locality(params, topology.get(), why_not_hwloc_);
        options_ = make_options(params, identity, {}, locality_);
        // Refusals of the device itself end a job as well.
        if (options_.device_used && !options_.network_used) const shim::ShimDevice device(options_.device);
        direct_ = options_.node_copies.single && probe_direct_copy().works;
    } catch (const base::SetupError& error) {
        refusal_ = error.what();
    }
}

uint32_t Job::on_node_peers() const {
    const auto ranks_per_node = static_cast<uint32_t>(options_.params.ranks_per_node);
    return ranks_per_node == 0 ? ranks_ - 1 : std::min(ranks_per_node, ranks_) - 1;
}

std::string machine_text(const Job& job) {
    const base::Locality& found = job.locality();
    const shm::OnNodeConfig& on_node = job.options().on_node;
    std::string text;
    const auto bytes = [](uint64_t size) { return size == 0 ? "unknown" : std::to_string(size) + " bytes"; };
    switch (found.source) {
        case base::Locality::Source::kNone: text = "Machine, not looked at (btl_velo_locality=none)\n"; break;
        case base::Locality::Source::kKernel:
            append(text, "Machine, as the kernel describes it (%s)\n", job.why_not_hwloc().c_str());
            break;
        case base::Locality::Source::kHwloc:
            append(text, "Machine, as hwloc sees it from here (btl_velo_locality=%s)\n",
                   job.options().params.locality);
            break;
    }
    if (found.source != base::Locality::Source::kNone) {
        append(text, "  NUMA nodes   %u; this process is on %s\n", found.numa_nodes,
               found.place.numa_node < 0 ? "none that is known"
                                         : ("node " + std::to_string(found.place.numa_node)).c_str());
        append(text, "  caches       L2 %s, L3 %s", bytes(found.l2_bytes).c_str(),
               bytes(found.l3_bytes).c_str());
        if (found.l3_cpus != 0) append(text, " of %u CPUs", found.l3_cpus);
        if (found.cpus != 0) {
            append(text, "\n  CPUs         %u for %u ranks", found.cpus, job.options().identity.local_size);
        }
        text += "\n";
    }
    append(text, "  ring memory  %s\n",
           on_node.place_rings     ? "on the NUMA node of the rank that reads"
           : found.user_policy     ? "where this process's memory policy puts it (numactl or the like)"
           : found.numa_nodes == 1 ? "on the one NUMA node"
                                   : "where the rank runs that writes");
    append(text, "  ring depth   %u bytes (btl_velo_ring_bytes=%d)\n", on_node.geometry.body_bytes,
           job.options().params.ring_bytes);
    append(text, "  far cores    non-temporal stores from %u bytes\n",
           shm::kNontemporalBytesMin);
    return text;
}

std::string paths_text(const Job& job) {
    const EngineOptions& options = job.options();
    std::string text;
    append(text, "Paths from rank 0 of %u (btl_velo_ranks_per_node=%d)\n", job.ranks(),
           options.params.ranks_per_node);
    const char* copied = options.node_copies.single
                             ? "copies in messages, because the kernel does not permit direct copies"
                             : "copies in messages (btl_velo_single_copy=none)";
    const auto to = [](uint32_t first, uint32_t last) {
        return first == last ? "rank " + std::to_string(first)
                             : "ranks " + std::to_string(first) + " to " + std::to_string(last);
    };
    if (job.on_node_peers() != 0) {
        append(text, "  to %s: on-node ring; large messages by %s\n", to(1, job.on_node_peers()).c_str(),
               !job.direct()          ? copied
               : options.shares_cpus ? "direct copies of the receiver, as there are more ranks than CPUs"
                                     : "both ends jointly, in the ring or by direct copies, whichever takes less time");
    }
    if (job.device_peers() != 0) {
        append(text, "  to %s: VELO packets of the software device; large messages by %s\n",
               to(job.on_node_peers() + 1, job.ranks() - 1).c_str(), job.direct() ? "RMA gets" : copied);
    }
    text += "  to other jobs (MPI_Comm_spawn, MPI_Comm_connect): on-node ring\n";
    return text;
}

std::string protocols_text(const Job& job, const Settings& settings) {
    const EngineOptions& options = job.options();
    std::string text =
        "Protocols by bytes of a message (contiguous data; parameters count headers, these do not)\n";
    if (settings.of_velo().empty()) return text + "  unknown: Open MPI does not find the plugin\n";
    auto eager = static_cast<uint32_t>(settings.number("btl_velo_shm_eager_limit", 0));
    const auto given = settings.find("btl_velo_shm_eager_limit");
    if (options.shares_cpus && given && given->source == "default") {
        eager = std::min<uint32_t>(eager, VELO_SHARED_CPU_BYTES + kHeaderBytesMax);
    }
    const uint32_t lines = beside(options.on_node.geometry.short_bytes_max(), kMatchHeaderBytes);
    const uint32_t shared = beside(eager, kHeaderBytesMax);
    append(text, "  on node  up to %10u  in the lines of the ring\n", std::min(lines, shared));
    if (shared > lines) {
        append(text, "           up to %10u  in the body area of the ring (btl_velo_shm_eager_limit=%u)\n",
               shared, eager);
    }
    append(text, "           above %10u  rendezvous: the receiver fetches, %s\n", shared,
           !job.direct()         ? "in messages"
           : options.shares_cpus ? "alone"
                                 : "and the sender helps (ring or direct copies, whichever takes less time)");
    if (!options.device_used) return text;
    const auto packets = static_cast<uint32_t>(settings.number("btl_velo_eager_limit", 0));
    const uint32_t sent = beside(packets, kHeaderBytesMax);
    append(text, "  device   up to %10u  one VELO packet\n",
           static_cast<uint32_t>(kPayloadBytes) - kMatchHeaderBytes);
    append(text, "           up to %10u  VELO packets, up to %u (btl_velo_eager_limit=%u)\n", sent,
           packets_for(sent + kMatchHeaderBytes), packets);
    if (job.direct()) {
        append(text,
               "           above %10u  rendezvous: RMA gets of %u bytes, %llu at a time (btl_velo_chunk, "
               "btl_velo_window_bytes)\n",
               sent, options.window.chunk_bytes, number(options.window.bytes / options.window.chunk_bytes));
    } else {
        append(text,
               "           above %10u  rendezvous: the receiver fetches, in messages of up to %u bytes\n",
               sent,
               std::min(options.tuning.copy_bytes, options.params.device_message_bytes_max));
    }
    return text;
}

std::string rails_text(const Job& job) {
    const EngineOptions& options = job.options();
    const std::string_view rule = read_rails(options.params.rails).rule;
    std::string text = "Rails of the device (long messages, one-sided operations)\n";
    if (!options.device_used) return text + "  not used\n";
    if (options.rails.rails == 1) {
        text += "  1, which everything takes (btl_velo_ports)\n";
        return text;
    }
    append(text, "  %s%u (btl_velo_ports), by the rule %s (btl_velo_rails)\n",
           options.network_used ? "one for each interface above that is used, at most " : "", options.rails.rails,
           options.params.rails);
    if (rule == "static") {
        append(text,
               "  this node sends on %u of them; a pair of nodes has at least one of its own each way\n",
               static_cast<uint32_t>(std::popcount(options.rails.own_column)));
        return text;
    }
    constexpr const char* next = "the next one of those that work, busy or not";
    const auto striped = [&](const char* subject) {
        append(text, "  %s: %u %% of those that are free here, and at least one\n", subject,
               options.rails.policy.striping_percent);
    };
    if (rule == "round_robin") append(text, "  each transfer: %s\n", next);
    if (rule == "hybrid") {
        append(text, "  a transfer below %llu bytes: %s\n", number(options.rails.policy.short_bytes), next);
        striped("a longer one");
    }
    if (rule == "local_dynamic" || rule == "dynamic") striped("each transfer");
    if (rule == "dynamic") {
        append(text,
               "  its peer sets them aside first, or it waits, at most %llu ms; then it goes without\n",
               number(options.rails.reserve_ns / 1'000'000));
    }
    return text;
}

std::string memory_text(const Job& job) {
    const EngineOptions& options = job.options();
    std::string text;
    append(text, "Shared memory of a process, in bytes (job of %u)\n", job.ranks());
    uint64_t fixed = 0;
    try {
        fixed = shm::OnNode(options.on_node).address().segment.bytes;
    } catch (const base::SetupError& error) {
        return text + "  unknown: " + error.what() + "\n";
    }
    const uint64_t ring = base::round_up(shm::ring_bytes(options.on_node.geometry), 4096);
    uint64_t device = 0;
    uint64_t mailbox = 0;
    append(text, "  on node  fixed part                      %12llu\n", number(fixed));
    append(text, "           each peer, idle                 %12u\n", 0);
    append(text,
           "           each peer that was sent to      %12llu  (btl_velo_ring_bytes)\n",
           number(ring));
    if (options.device_used) {
        mailbox = uint64_t{options.plan.mailbox_slots} * kPacketBytes;
        device = base::round_up(shim::Layout(options.plan.mailbox_slots, options.device.ports).bytes, 4096);
        append(text, "  device   fixed part                      %12llu\n", number(device - mailbox));
        const flowctl::Plan& plan = options.plan;
        const uint32_t share = plan.mailbox_slots / std::max(plan.peers, 1u);
        const bool at_contact = plan.contact_slots != 0;
        append(text, "           mailbox                         %12llu  (%u slots, flow control %s)\n",
               number(mailbox), plan.mailbox_slots, std::string(flowctl::to_string(plan.mode)).c_str());
        append(text, "           each peer, idle                 %12u  (owns %u slots)\n",
               PacketChannel<shim::ShimDevice>::idle_peer_bytes(plan), at_contact ? 0 : share);
        append(text, "           each peer that was talked to    %12u  (owns %s%u slots)\n",
               Core<System<AnyDevice>>::device_peer_bytes(plan) + shim::ShimDevice::kPeerBytes,
               at_contact ? "at least " : "",
               at_contact ? plan.quota + plan.credit_slots : share);
        if (plan.quota != 0) {
            append(text, "           credits of a peer, at first     %12u\n", plan.quota);
        }
    }
    append(text, "  sum      nothing has been sent yet       %12llu\n", number(fixed + device));
    append(text, "           every other rank has            %12llu\n",
           number(fixed + device + ring * job.on_node_peers()));
    return text;
}

std::string parameters_text(const Settings& settings) {
    std::string text = "Parameters\n";
    if (settings.of_velo().empty()) return text + "  unknown: Open MPI does not find the plugin\n";
    std::map<std::string, int> audiences;
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) \
    audiences["btl_velo_" #name] = VELO_AUDIENCE_##audience;
#define VELO_PARAM_TEXT(name, value, audience, text) audiences["btl_velo_" #name] = VELO_AUDIENCE_##audience;
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    const std::pair<const char*, int> groups[] = {{"for users", VELO_AUDIENCE_user},
                                                  {"for tuners", VELO_AUDIENCE_tuner},
                                                  {"for developers", VELO_AUDIENCE_developer},
                                                  {"of every BTL", 0}};
    for (const auto& [title, audience] : groups) {
        append(text, "  %s\n", title);
        for (const std::string& name : settings.of_velo()) {
            const auto known = audiences.find(name);
            if (audience != (known == audiences.end() ? 0 : known->second)) continue;
            const auto setting = settings.find(name);
            append(text, "    %-40s %-20s %s\n", name.c_str(),
                   setting->value.empty() ? "(empty)" : setting->value.c_str(), setting->source.c_str());
        }
    }
    return text;
}

}  // namespace velo::info
