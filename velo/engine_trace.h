/// Engine: credits and stalls of each device peer, for the trace. Part of engine.h.
///
/// Looked at by the clock, from within progress, and at the end; off the hot path.
#pragma once

#include <algorithm>
#include <ctime>

#include "velo/engine.h"

namespace velo {

/// A trace that cannot be written costs the trace, not the job.
template <class D>
void Engine<D>::start_trace() {
    const std::string_view pattern = options_.params.trace == nullptr ? "" : options_.params.trace;
    const velo_identity_t& identity = options_.identity;
    // A fact about all ranks of a node is told by one of them.
    const auto tell = [&](bool common, const std::string& line) {
        log(common && identity.local_rank != 0 ? 1 : 0,
            "velo: rank " + std::to_string(identity.rank) + ": " + line);
    };
    if (pattern.empty()) return;
    if (!velo_) {
        tell(true,
             "btl_velo_trace: no rank is reached through the device, so there are no credits to trace; see "
             "btl_velo_ranks_per_node");
        return;
    }
    const CreditTrace::Header header = {.identity = identity,
                                        .plan = options_.plan,
                                        .period_ms = static_cast<uint64_t>(options_.params.trace_period),
                                        .start_ns = now_ns(),
                                        .start_unix = static_cast<uint64_t>(std::time(nullptr))};
    const std::string path = CreditTrace::path_of(pattern, identity.job, identity.rank);
    // Only a directory that all have in common fails for all.
    const bool shared = pattern.find('%') >= pattern.rfind('/') + 1;
    std::string error;
    bool common = false;
    trace_ = CreditTrace::open(path, header, error, common);
    if (!trace_) {
        tell(common && shared, error + "; this job goes on without a trace");
        return;
    }
    next_sample_ns_ = 0;
    check_trace();
}

/// A write that failed ends the trace.
template <class D>
void Engine<D>::check_trace() {
    if (!trace_->failed()) return;
    log(0, "velo: rank " + std::to_string(options_.identity.rank) + ": " + trace_->take_error());
    trace_.reset();
    next_sample_ns_ = UINT64_MAX;
}

template <class D>
PeerCredits Engine<D>::credits_of(const velo_peer& peer, uint64_t now) const {
    const flowctl::FlowControl& flow = velo_->flow();
    return {.credits = flow.credits(peer.index),
            .granted = flow.granted(peer.index),
            .quota = flow.quota(peer.index),
            .stalls = velo_->stalls().count(peer.index),
            .stall_ns = velo_->stalls().ns(peer.index, now)};
}

/// Calls visit(peer) for each peer behind the device whose rank is known, also after the host has left it.
template <class D>
template <class Visit>
void Engine<D>::for_each_credited(Visit&& visit) const {
    for (const velo_peer* peer : by_device_) {
        if (peer != nullptr && peer->pid != 0 && velo_->admits(peer->index)) visit(*peer);
    }
}

template <class D>
void Engine<D>::sample_credits(uint64_t now) {
    next_sample_ns_ = now + static_cast<uint64_t>(options_.params.trace_period) * 1'000'000;
    for_each_credited(
        [&](const velo_peer& peer) { trace_->sample(now, peer.index, peer.rank, credits_of(peer, now)); });
    trace_->sample_available(now, sum_credits().available);
    trace_->write_old(now);
    check_trace();
}

/// Over all peers that are known.
template <class D>
typename Engine<D>::CreditSums Engine<D>::sum_credits() const {
    const flowctl::FlowControl& flow = velo_->flow();
    CreditSums sums;
    for (uint32_t peer = 0; peer < flow.known(); ++peer) {
        sums.held += flow.credits(peer);
        sums.granted += flow.granted(peer);
    }
    if (options_.plan.quota == 0) return sums;  // no credits
    sums.available = options_.plan.data_region_slots -
                     std::min(options_.plan.data_region_slots, sums.granted + flow.lent_slots());
    return sums;
}

template <class D>
void Engine<D>::end_stalls() {
    const std::lock_guard guard(lock_);
    if (velo_ && velo_->stalls().any_waits()) velo_->all_stalls_ended();
}

template <class D>
void Engine<D>::finish_trace(const velo_counters_t& counters) {
    const std::lock_guard guard(lock_);
    if (!trace_) return;
    const uint64_t now = now_ns();
    sample_credits(now);
    if (!trace_) return;
    for_each_credited([&](const velo_peer& peer) { trace_->total(peer.rank, credits_of(peer, now)); });
    trace_->total(velo_->stalls().histogram());
    trace_->total(counters);
    trace_->finish(now);
    check_trace();
    trace_.reset();
}

}  // namespace velo
