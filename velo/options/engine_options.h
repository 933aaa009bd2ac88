/// Options that the engine is opened with, checked and translated (velo/options/options.h makes it from parameters).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "flowctl/plan.h"
#include "rma/rails.h"
#include "velo/device/device.h"
#include "velo/device/network_device.h"
#include "velo/options/list_params.h"
#include "velo/shm/on_node.h"
#include "velo/velo.h"
#include "velo/wire/engine_wire.h"
#include "velo/wire/shared_settings.h"

namespace velo {

/// Chunks under way at a time, unless the user gives a window for more (RDRP 4.1): several rails and several peers
/// have work while an ended chunk is followed by the next one.
inline constexpr uint32_t kWindowChunks = 8;

/// Values that no parameter turns: a job has those that stand here, and tests vary them.
struct Tuning {
    /// Two credit slots are the best trade-off (FC 5.3), and a share grows by a message of some packets (IBFC 5). The
    /// mode, the peers and the sizes are filled in.
    flowctl::Config flow{};
    /// Slots for first packets of a mailbox under dynamic. With more of them small mailboxes lack slots for data.
    uint32_t contact_slots_max = 64;
    /// Lines of an on-node ring; 0: by the number of peers.
    uint32_t ring_lines = 0;
    /// Bytes of one message of a transfer that goes in messages: half of the longest message on the node, so that
    /// messages of others come in between.
    uint32_t copy_bytes = 16384;
    /// Between two samples of the trace: each looks at all peers, and stalls of a millisecond are in their sums.
    uint32_t trace_period_ms = 10;
};

/// Blocks between processes of the node.
struct NodeCopies {
    bool single = true;             ///< the kernel copies from one to the other, where it may
    std::optional<CoopMethod> way;  ///< none: as measured
};

/// Bounds of a process's transfers.
struct Window {
    uint32_t chunk_bytes = 262144;    ///< most of one get or put through the device
    uint64_t bytes = UINT64_MAX;      ///< most under way through the device
    uint32_t chunks = kWindowChunks;  ///< most under way in all, on the node too
};

struct EngineOptions {
    velo_identity_t identity{};
    velo_host_t host{};
    velo_params_t params{};
    Tuning tuning;
    SharedSettings settings;
    flowctl::Plan plan;
    shm::OnNodeConfig on_node;
    DeviceConfig device;
    NetworkOptions network;
    uint32_t node = 0;  ///< in this job; the device may number nodes otherwise
    bool device_used = false;
    bool network_used = false;    ///< and it is that of a network
    bool network_wanted = false;  ///< by the user: without it velo is not used at all
    std::string no_network;  ///< why there is none, where some rank of the job would be reached through it
    NodeCopies node_copies;
    Window window;
    StallParam stall;
    rma::RailsSettings rails;
    std::optional<rma::StaticAllocation> static_rails;  ///< of the job's nodes, under that policy
    /// Rails on which a node of the job sends under static allocation; 0: another policy, or no such node.
    [[nodiscard]] rma::RailMask static_column(uint32_t of) const {
        if (!static_rails || of >= static_rails->nodes() || static_rails->rails() == 0) return 0;
        return rma::repeat_column(static_rails->column(of), static_rails->rails(), rails.rails);
    }
    /// The network's device has `count` of the rails that the user wants. False: too few for static allocation.
    [[nodiscard]] bool have_rails(uint32_t count) {
        rails.rails = count;
        const bool enough = !static_rails || count >= static_rails->rails();
        if (!enough) static_rails.reset();
        rails.own_column = static_column(node);
        return enough;
    }
    /// More ranks of the job than CPUs on this host: a peer that has its part in anything may not be running.
    bool shares_cpus = false;
};

}  // namespace velo
