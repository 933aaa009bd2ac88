/// The network between the processes of one host, as their clock has it: what a busy port or a slow receiver
/// costs others. Off by default; LinkOptions gives the rates.
///
/// Data is a fluid. It leaves by a port of its source, in the order asked for, is held by the network up to a
/// buffer's worth on the way to its target, and enters it by a port there and by the sink that all ports
/// share. A source's port is held up while what it sends finds the buffer full: a slow target with more under
/// way than the buffer holds therefore slows all that the source sends by that port, to others too. That is a
/// tree of saturation of one branch (RDRP 4.1).
///
/// A process may also bring its data slowly, to all its ports together. Such data takes of each port what its
/// length takes at the port's rate, and not the time in which it is brought: the port serves others meanwhile.
///
/// Each process's clocks are in its segment, because several peers send to it or fetch from it at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "velo/device/device.h"

namespace velo::shim {

/// Times of CLOCK_MONOTONIC, in ns, until which what was asked for keeps a process's ports, sink and source busy.
/// Peers may write anything: a time that cannot be counts as now.
struct LinkClocks {
    struct Port {
        std::atomic<uint64_t> out_ns;
        std::atomic<uint64_t> in_ns;
    };
    std::array<Port, 8> ports;
    std::atomic<uint64_t> sink_ns;
    std::atomic<uint64_t> source_ns;
    std::atomic<uint32_t> sink_bytes_per_us;    ///< the owner's; 0: no limit
    std::atomic<uint32_t> source_bytes_per_us;  ///< the owner's; 0: no limit
};

/// One direction of one operation.
struct LinkUse {
    LinkClocks* from = nullptr;
    LinkClocks* to = nullptr;
    uint32_t port_from = 0;
    uint32_t port_to = 0;
    uint32_t bytes = 0;
};

/// The data of a put or get. `peer_ports`: a target with fewer ports is reached by those it has.
[[nodiscard]] inline LinkUse link_use(const RmaOperation& what, LinkClocks& ours, LinkClocks& theirs,
                                      uint32_t peer_ports) {
    const uint32_t port = what.port % peer_ports;
    if (what.kind == RmaKind::kGet) return {&theirs, &ours, port, what.port, what.bytes};
    return {&ours, &theirs, what.port, port, what.bytes};
}

/// No operation is under way for longer.
inline constexpr uint64_t kLinkHorizonNs = 60'000'000'000;

namespace link_details {

[[nodiscard]] inline uint64_t ns_of(uint64_t bytes, uint32_t bytes_per_us) {
    return bytes * 1000 / bytes_per_us;
}
[[nodiscard]] inline uint64_t begin_ns(uint64_t free_ns, uint64_t now_ns) {
    return free_ns > now_ns + kLinkHorizonNs ? now_ns : std::max(free_ns, now_ns);
}
/// Keeps a clock busy for so long, from `now_ns` or later; returns its new time.
inline uint64_t extend(std::atomic<uint64_t>& clock, uint64_t now_ns, uint64_t ns) {
    uint64_t before = clock.load(std::memory_order_relaxed);
    uint64_t after = 0;
    do {
        after = begin_ns(before, now_ns) + ns;
    } while (!clock.compare_exchange_weak(before, after, std::memory_order_relaxed));
    return after;
}

}  // namespace link_details

/// Takes its place in all queues, and returns when its last byte arrives.
inline uint64_t link_arrival_ns(const LinkOptions& link, const LinkUse& use, uint64_t now_ns) {
    using namespace link_details;
    std::atomic<uint64_t>& out = use.from->ports[use.port_from].out_ns;
    const uint64_t begin = begin_ns(out.load(std::memory_order_relaxed), now_ns);
    const uint64_t through_ns = ns_of(use.bytes, link.bytes_per_us);
    const auto held = [&](uint64_t end_ns, uint32_t rate) {
        return end_ns - std::min(end_ns, ns_of(link.buffer_bytes, rate));
    };
    const uint64_t in_end = extend(use.to->ports[use.port_to].in_ns, begin, through_ns);
    uint64_t end = in_end;
    uint64_t out_end = std::max(begin + through_ns, held(in_end, link.bytes_per_us));
    if (const uint32_t sink = use.to->sink_bytes_per_us.load(std::memory_order_relaxed); sink != 0) {
        const uint64_t sink_end = extend(use.to->sink_ns, begin, ns_of(use.bytes, sink));
        end = std::max(end, sink_end);
        out_end = std::max(out_end, held(sink_end, sink));
    }
    if (const uint32_t source = use.from->source_bytes_per_us.load(std::memory_order_relaxed); source != 0) {
        end = std::max(end, extend(use.from->source_ns, now_ns, ns_of(use.bytes, source)));
    }
    const uint64_t sent = extend(out, now_ns, out_end - begin);
    return std::max(end, sent);
}

}  // namespace velo::shim
