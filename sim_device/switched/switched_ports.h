/// The ports of a switched network by number, and the links that join them.
///
/// Ports of routers come first, router by router, and then one of each node. An output port sends to the input
/// port at the other end of its link, which it feeds. An input port of a router has `vcs()` virtual channels, each
/// with a buffer; a node's has one.
#pragma once

#include <cstdint>
#include <vector>

#include "sim_device/switched/switched_config.h"

namespace velo::switched {

/// Immutable; any thread.
class SwitchedPorts {
  public:
    explicit SwitchedPorts(const SwitchedConfig& config)
        : per_router_(config.topology.ports()),
          vcs_((config.topology.dragonfly() ? 4 : 1) * config.vcs_per_class),
          first_nic_(config.topology.routers() * per_router_),
          buffer_flits_(config.buffer_flits),
          ejection_flits_(config.ejection_flits),
          outputs_(first_nic_ + config.topology.nodes()),
          feeders_(outputs_.size()) {
        const SwitchedTopology& topology = config.topology;
        for (uint32_t router = 0; router < topology.routers(); ++router) {
            for (uint32_t port = 0; port < per_router_; ++port) {
                const Link& link = topology.link(router, port);
                const uint32_t here = port_of(router, port);
                if (link.kind == LinkKind::kNone) continue;
                const bool terminal = link.kind == LinkKind::kTerminal;
                join(here, terminal ? nic_of(link.peer) : port_of(link.peer, link.port), link.kind);
                if (terminal) join(nic_of(link.peer), here, link.kind);
            }
        }
    }

    [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(outputs_.size()); }
    [[nodiscard]] uint32_t per_router() const { return per_router_; }
    [[nodiscard]] uint32_t vcs() const { return vcs_; }
    /// Ports of routers, and the number of the first node's.
    [[nodiscard]] uint32_t first_nic() const { return first_nic_; }
    [[nodiscard]] bool is_nic(uint32_t port) const { return port >= first_nic_; }
    [[nodiscard]] uint32_t port_of(uint32_t router, uint32_t port) const { return router * per_router_ + port; }
    [[nodiscard]] uint32_t nic_of(uint32_t node) const { return first_nic_ + node; }

    /// The input at the other end of an output, and the kind of the link.
    [[nodiscard]] uint32_t input_of(uint32_t output) const { return outputs_[output].input; }
    [[nodiscard]] LinkKind kind_of(uint32_t output) const { return outputs_[output].kind; }
    /// The output that sends to an input.
    [[nodiscard]] uint32_t feeder_of(uint32_t input) const { return feeders_[input]; }
    /// Flits of the buffer of an input's channel.
    [[nodiscard]] uint32_t capacity_of(uint32_t input) const { return is_nic(input) ? ejection_flits_ : buffer_flits_; }

  private:
    struct Output {
        uint32_t input = 0;
        LinkKind kind = LinkKind::kNone;
    };

    void join(uint32_t output, uint32_t input, LinkKind kind) {
        outputs_[output] = {input, kind};
        feeders_[input] = output;
    }

    uint32_t per_router_;
    uint32_t vcs_;
    uint32_t first_nic_;
    uint32_t buffer_flits_;
    uint32_t ejection_flits_;
    std::vector<Output> outputs_;
    std::vector<uint32_t> feeders_;
};

}  // namespace velo::switched
