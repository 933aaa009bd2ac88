/// Engine: who waits for what, for reports. Part of engine.h.
///
/// Looked at by the clock, from within progress, and only where a report was asked for by parameter: a
/// process that is not in MPI neither notices that it stalls nor answers a signal. All of it is off the hot
/// path; the report itself walks every queue.
#pragma once

#include <algorithm>
#include <vector>

#include "velo/base/dump_signal.h"
#include "velo/engine.h"
#include "velo/stall_report.h"

namespace velo {

template <class D>
void Engine<D>::start_watching() {
    if (const int number = options_.params.dump_signal; number != 0) {
        const base::SignalOutcome outcome = base::catch_dump_signal(number);
        if (outcome != base::SignalOutcome::kInstalled) {
            log(0, "velo: btl_velo_dump_signal=" + std::to_string(number) +
                       (outcome == base::SignalOutcome::kTaken
                            ? ": the program handles or ignores this signal itself, so velo does not; no "
                              "reports on request"
                            : ": there is no such signal, or it cannot be caught; no reports on request"));
        }
        watch_period_ns_ = kWatchPeriodNsMax;
    }
    if (const int seconds = options_.params.stall_report; seconds != 0) {
        watch_period_ns_ = std::min(kWatchPeriodNsMax, static_cast<uint64_t>(seconds) * 1'000'000'000 / 10);
    }
}

/// Calls visit(peer, word) for whatever waits for a peer; the words change when it moves.
template <class D>
template <class Visit>
void Engine<D>::for_each_wait(Visit&& visit) {
    for (velo_peer* peer : pending_peers_) {
        const velo_send_t* first = peer->pending.front();
        if (first == nullptr) continue;
        visit(*peer, reinterpret_cast<uint64_t>(first));
        visit(*peer, first->done);
    }
    slots_.for_each([&](uint32_t cookie, const Waiting& waiting) {
        visit(*waiting.state->peer, cookie);
        visit(*waiting.state->peer, waiting.received);
        if (waiting.wait == Wait::kJoint) visit(*waiting.state->peer, joints_[waiting.joint].ended_bytes);
    });
    const auto transfer = [&](const rma::Transfer& waiting) {
        visit(*static_cast<const RmaState&>(waiting).peer, waiting.issued_bytes);
    };
    scheduler_.for_each_waiting(transfer);
    for (velo_peer* peer : copying_peers_) peer->copies->for_each_waiting(transfer);
    for (const rma::Transfer* at = atomics_.front(); at != nullptr; at = at->next) transfer(*at);
    for (const Help& help : helps_) visit(*help.peer, uint64_t{help.offset} << 32 | help.left);
}

template <class D>
void Engine<D>::look_at_waits(uint64_t now) {
    if (now >= next_watch_ns_) watch_for_stalls(now);
    if (base::take_dump_request()) report(true);
}

template <class D>
void Engine<D>::watch_for_stalls(uint64_t now) {
    next_watch_ns_ = now + watch_period_ns_;
    stall_watch_.begin(now);
    std::vector<std::pair<const velo_peer*, uint64_t>> fingerprints;
    for_each_wait([&](const velo_peer& peer, uint64_t word) {
        auto at = std::find_if(fingerprints.begin(), fingerprints.end(),
                               [&](const auto& entry) { return entry.first == &peer; });
        if (at == fingerprints.end()) at = fingerprints.insert(at, {&peer, 0});
        at->second = (at->second ^ word) * 1099511628211u;
    });
    for (const auto& [peer, fingerprint] : fingerprints) stall_watch_.saw(peer, fingerprint);
    // Packets in our own mailbox although we poll it.
    if (device_) {
        const DeviceReport own = device_->report(kNoAddr);
        if (own.mailbox_written != own.mailbox_read) stall_watch_.saw(this, own.mailbox_read);
    }
    const StallWatch::Outcome outcome = stall_watch_.end();
    if (outcome.resumed_ns != 0) {
        const uint64_t tenths = outcome.resumed_ns / 100'000'000;
        log(0, "velo: rank " + std::to_string(options_.identity.rank) + " goes on after " +
                   std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s");
    }
    if (outcome.stalled) {
        report(false);
        stall_watch_.reported();
    }
}

template <class D>
void Engine<D>::report(bool asked_for) {
    StallReport report;
    report.rank = options_.identity.rank;
    report.asked_for = asked_for;
    report.unanswered_contacts = on_node_.unanswered();
    if (device_) {
        const DeviceReport own = device_->report(kNoAddr);
        report.mailbox_written = own.mailbox_written;
        report.mailbox_read = own.mailbox_read;
        report.mailbox_slots = own.mailbox_slots;
        report.stall_ns = stall_watch_.age_ns(this);
    }
    for (const auto* table : {&by_on_node_, &by_device_}) {
        for (velo_peer* peer : *table) {
            if (peer == nullptr) continue;
            const PeerReport entry = report_of(*peer);
            if (!entry.waited_for() && !entry.unconsumed()) continue;
            report.stall_ns = std::max(report.stall_ns, entry.age_ns);
            report.peers.push_back(entry);
        }
    }
    log(0, to_text(report));
}

template <class D>
PeerReport Engine<D>::report_of(velo_peer& peer) {
    PeerReport out;
    out.known = peer.connected;
    out.rank = peer.rank;
    out.pid = peer.pid;
    out.pid_known_here = peer.attachable;
    out.path = peer.path;
    out.age_ns = stall_watch_.age_ns(&peer);
    if (const velo_send_t* first = peer.pending.front()) {
        out.first_bytes = first->total;
        out.first_done = first->done;
        out.first_class = first->message_class;
        out.first_tag = first->tag;
        out.credits_needed = first->total == 0 ? 1 : packets_for(first->total - first->done);
        for (const velo_send_t* at = first; at != nullptr; at = at->next) {
            ++out.queued;
            out.queued_bytes += at->total - at->done;
        }
    }
    report_transfers(peer, out);
    uint64_t beat_ns = 0;
    if (peer.path == VELO_PATH_ON_NODE) {
        shm::RingFill fill;
        out.ring = on_node_.fill(peer.index, fill);
        out.lines_written = fill.lines_written;
        out.lines_read = fill.lines_read;
        out.body_written = fill.body_written;
        out.body_read = fill.body_read;
        out.ring_lines = on_node_.geometry().lines;
        out.ring_bytes = on_node_.geometry().body_bytes;
        out.unread = on_node_.unread(peer.index);
        beat_ns = on_node_.last_beat_ns(peer.index);
    } else if (velo_->admits(peer.index)) {
        const DeviceReport device = device_->report(peer.index);
        const flowctl::FlowControl& flow = velo_->flow();
        out.credited = velo_->credited();
        out.by_contact = flow.by_contact(peer.index);
        out.credits = flow.credits(peer.index);
        // If shares change, only the peer knows ours.
        out.quota = flow.mode() == flowctl::Mode::kStatic ? velo_->plan().quota : 0;
        out.credits_retrieved = flow.retrieved(peer.index);
        out.credits_threshold = flow.threshold(peer.index);
        out.credits_owed = velo_->deferred_credits(peer.index);
        out.partial_bytes = velo_->partial_bytes(peer.index);
        out.mailbox_written = device.mailbox_written;
        out.mailbox_read = device.mailbox_read;
        out.mailbox_slots = device.mailbox_slots;
        out.held_packets = device.held_packets;
        out.device_operations = device.operations;
        beat_ns = device.beat_ns;
    }
    out.seen_ns = beat_ns == 0 ? UINT64_MAX : now_ - std::min(now_, beat_ns);
    return out;
}

template <class D>
void Engine<D>::report_transfers(const velo_peer& peer, PeerReport& out) {
    const auto count = [](WaitingOperations& operations, uint64_t bytes) {
        ++operations.count;
        operations.bytes += bytes;
    };
    slots_.for_each([&](uint32_t, const Waiting& waiting) {
        if (waiting.state->peer != &peer) return;
        switch (waiting.wait) {
            case Wait::kDirectChunk:
                count(waiting.state->op->kind == VELO_RMA_GET ? out.gets : out.puts, waiting.bytes);
                break;
            case Wait::kDeviceChunk: count(out.device_chunks, waiting.bytes); break;
            case Wait::kPullChunk: count(out.pulls, waiting.bytes - waiting.received); break;
            case Wait::kPutChunk: count(out.pushes, waiting.bytes); break;
            case Wait::kDeviceAtomic:
            case Wait::kAtomic: count(out.atomics, 0); break;
            case Wait::kJoint: {
                const Joint& joint = joints_[waiting.joint];
                count(out.joints, joint.bytes - joint.ended_bytes);
                break;
            }
        }
    });
    const auto transfer = [&](const rma::Transfer& waiting) {
        const auto& state = static_cast<const RmaState&>(waiting);
        if (state.peer != &peer) return;
        const bool get = state.op->kind == VELO_RMA_GET;
        count(get ? out.gets : out.puts, waiting.bytes - waiting.issued_bytes);
    };
    scheduler_.for_each_waiting(transfer);
    if (peer.in_copying) peer.copies->for_each_waiting(transfer);
    for (const rma::Transfer* at = atomics_.front(); at != nullptr; at = at->next) {
        if (static_cast<const RmaState&>(*at).peer == &peer) count(out.atomics, 0);
    }
    for (const Help& help : helps_) {
        if (help.peer == &peer) count(out.parts, help.left);
    }
}

}  // namespace velo
