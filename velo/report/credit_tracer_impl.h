/// Bodies of velo/report/credit_tracer.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "flowctl/flow_control.h"
#include "velo/report/credit_tracer.h"

namespace velo {

/// A trace that cannot be written costs the trace, not the job.
template <class Core>
void CreditTracer<Core>::start() {
    const std::string_view pattern = core_.options.params.trace == nullptr ? "" : core_.options.params.trace;
    const velo_identity_t& identity = core_.options.identity;
    // A fact about all ranks of a node is reported by one of them.
    const auto tell = [&](bool common, const std::string& line) {
        core_.say(common && identity.local_rank != 0 ? 1 : 0, line);
    };
    if (pattern.empty()) return;
    if (!core_.packets) {
        tell(true,
             "btl_velo_trace: no rank is reached through the device, so there are no credits to trace; see "
             "btl_velo_ranks_per_node");
        return;
    }
    const CreditTrace::Header header = {.identity = identity,
                                        .plan = core_.options.plan,
                                        .period_ms = core_.options.tuning.trace_period_ms,
                                        .start_ns = core_.clock.read(),
                                        .start_unix = static_cast<uint64_t>(std::time(nullptr))};
    const std::string path = CreditTrace::path_of(pattern, identity.job, identity.rank);
    // Only a directory that all have in common fails for all.
    const bool shared = pattern.find('%') >= pattern.rfind('/') + 1;
    std::string error;
    bool common = false;
    if (CreditTrace::names_directory(pattern, identity.job, identity.rank)) {
        tell(shared, "btl_velo_trace: " + std::string(pattern) +
                         " is a directory; name a file in it; this job goes on without a trace");
        return;
    }
    trace_ = CreditTrace::open(path, header, error, common);
    if (!trace_) {
        tell(common && shared, error + "; this job goes on without a trace");
        return;
    }
    next_sample_ns_ = 0;
    check();
}

/// A write that failed ends the trace.
template <class Core>
void CreditTracer<Core>::check() {
    if (!trace_->failed()) return;
    core_.say(0, trace_->take_error());
    trace_.reset();
    next_sample_ns_ = UINT64_MAX;
}

template <class Core>
PeerCredits CreditTracer<Core>::credits_of(const velo_peer& peer, uint64_t now) const {
    const flowctl::FlowControl& flow = core_.packets->flow();
    const DeviceAddr at = peer.device_addr();
    return {.credits = flow.credits(at),
            .granted = flow.granted(at),
            .quota = flow.quota(at),
            .stalls = core_.packets->stalls().count(at),
            .stall_ns = core_.packets->stalls().ns(at, now)};
}

/// Calls visit(peer) for each peer behind the device whose rank is known, also after the host has left it.
template <class Core>
template <class Visit>
void CreditTracer<Core>::for_each_credited(Visit&& visit) const {
    for (const velo_peer* peer : peers_.device()) {
        if (peer != nullptr && peer->pid != 0 && core_.packets->admits(peer->device_addr())) visit(*peer);
    }
}

template <class Core>
void CreditTracer<Core>::sample(uint64_t now) {
    next_sample_ns_ = now + uint64_t{core_.options.tuning.trace_period_ms} * 1'000'000;
    for_each_credited(
        [&](const velo_peer& peer) { trace_->sample(now, peer.index, peer.rank, credits_of(peer, now)); });
    trace_->sample_available(now, sums().available);
    trace_->write_old(now);
    check();
}

/// Over all peers that are known.
template <class Core>
typename CreditTracer<Core>::Sums CreditTracer<Core>::sums() const {
    const flowctl::FlowControl& flow = core_.packets->flow();
    Sums sums;
    for (uint32_t peer = 0; peer < flow.known(); ++peer) {
        sums.held += flow.credits(peer);
        sums.granted += flow.granted(peer);
    }
    if (core_.options.plan.quota == 0) return sums;  // no credits
    sums.available = core_.options.plan.data_region_slots -
                     std::min(core_.options.plan.data_region_slots, sums.granted + flow.lent_slots());
    return sums;
}

template <class Core>
void CreditTracer<Core>::finish(const velo_counters_t& counters) {
    if (!trace_) return;
    const uint64_t now = core_.clock.read();
    sample(now);
    if (!trace_) return;
    for_each_credited([&](const velo_peer& peer) { trace_->total(peer.rank, credits_of(peer, now)); });
    trace_->total(core_.packets->stalls().histogram());
    trace_->total(counters);
    trace_->finish(now);
    check();
    trace_.reset();
}

}  // namespace velo
