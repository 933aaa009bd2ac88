/// Bodies of velo/report/stall_reporter.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/report/stall_reporter.h"

namespace velo {

template <class Core>
void StallReporter<Core>::start() {
    if (const auto number = static_cast<int>(core_.options.stall.signal); number != 0) {
        const base::SignalOutcome outcome = base::catch_dump_signal(number);
        if (outcome != base::SignalOutcome::kInstalled) {
            core_.log(
                0, "velo: btl_velo_stall_report has signal=" + std::to_string(number) +
                       (outcome == base::SignalOutcome::kTaken
                            ? ": the program handles or ignores this signal itself, so velo does not; no "
                              "reports on request"
                            : ": there is no such signal, or it cannot be caught; no reports on request"));
        }
        period_ns_ = kPeriodNsMax;
    }
    if (const uint64_t seconds = core_.options.stall.seconds; seconds != 0) {
        period_ns_ = std::min(kPeriodNsMax, seconds * 1'000'000'000 / 10);
    }
}

/// Calls visit(peer, word) for whatever waits for a peer; the words change when it moves.
template <class Core>
template <class Visit>
void StallReporter<Core>::for_each_wait(Visit&& visit) {
    queue_.for_each_waiting([&](velo_peer& peer) {
        const velo_send_t* first = peer.sending.pending.front();
        if (first == nullptr) return;
        visit(peer, reinterpret_cast<uint64_t>(first));
        visit(peer, first->done);
    });
    pending_.for_each([&](const Op& op) {
        visit(*op.state->peer, static_cast<uint64_t>(op.cookie));
        visit(*op.state->peer, op.received);
        if (op.kind == Op::Kind::kCoopBlock) visit(*op.state->peer, coop_reader_.ended_bytes(op));
    });
    const auto transfer = [&](const State& waiting) { visit(*waiting.peer, waiting.issued_bytes); };
    transfers_.for_each_waiting(transfer);
    atomics_.for_each_waiting(transfer);
    coop_owner_.for_each_assist([&](const velo_peer& peer, uint32_t offset, uint32_t left) {
        visit(peer, uint64_t{offset} << 32 | left);
    });
}

template <class Core>
void StallReporter<Core>::check(uint64_t now) {
    if (period_ns_ == 0) return;
    if (now >= next_check_ns_) check_progress(now);
    if (base::take_dump_request()) report(true);
}

template <class Core>
void StallReporter<Core>::check_progress(uint64_t now) {
    next_check_ns_ = now + period_ns_;
    watch_.begin(now);
    std::vector<std::pair<const velo_peer*, uint64_t>> fingerprints;
    for_each_wait([&](const velo_peer& peer, uint64_t word) {
        auto at = std::find_if(fingerprints.begin(), fingerprints.end(),
                               [&](const auto& entry) { return entry.first == &peer; });
        if (at == fingerprints.end()) at = fingerprints.insert(at, {&peer, 0});
        at->second = (at->second ^ word) * 1099511628211u;
    });
    for (const auto& [peer, fingerprint] : fingerprints) watch_.saw(peer, fingerprint);
    // Packets in our own mailbox although we poll it.
    if (core_.device) {
        const DeviceReport own = core_.device->report(kNoAddr);
        if (own.mailbox_written != own.mailbox_read) watch_.saw(this, own.mailbox_read);
    }
    const StallWatch::Outcome outcome = watch_.end();
    if (outcome.resumed_ns != 0) {
        const uint64_t tenths = outcome.resumed_ns / 100'000'000;
        core_.log(0, "velo: rank " + std::to_string(core_.options.identity.rank) + " goes on after " +
                         std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s");
    }
    if (outcome.stalled) {
        report(false);
        watch_.reported();
    }
}

template <class Core>
void StallReporter<Core>::report(bool asked_for) {
    StallReport report;
    report.rank = core_.options.identity.rank;
    report.asked_for = asked_for;
    report.unanswered_contacts = core_.on_node.unanswered();
    if (core_.device) {
        report.device = core_.device->report(kNoAddr);
        report.stall_ns = watch_.age_ns(this);
    }
    for (const auto* table : {&peers_.on_node(), &peers_.device()}) {
        for (velo_peer* peer : *table) {
            if (peer == nullptr) continue;
            const PeerReport entry = report_of(*peer);
            if (!entry.waited_for() && !entry.unconsumed()) continue;
            report.stall_ns = std::max(report.stall_ns, entry.age_ns);
            report.peers.push_back(entry);
        }
    }
    core_.log(0, to_text(report));
}

template <class Core>
PeerReport StallReporter<Core>::report_of(velo_peer& peer) {
    PeerReport out;
    out.process = {.known = peer.connected,
                   .rank = peer.rank,
                   .pid = peer.pid,
                   .pid_known_here = peer.attachable,
                   .path = peer.path};
    out.age_ns = watch_.age_ns(&peer);
    if (const velo_send_t* first = peer.sending.pending.front()) {
        out.queue = {.first_bytes = first->total,
                     .first_done = first->done,
                     .first_class = first->message_class,
                     .first_tag = first->tag};
        out.credits.needed = first->total == 0 ? 1 : packets_for(first->total - first->done);
        for (const velo_send_t* at = first; at != nullptr; at = at->next) {
            ++out.queue.messages;
            out.queue.bytes += at->total - at->done;
        }
    }
    report_transfers(peer, out.operations);
    report_copies(peer, out.copies);
    report_rails(peer, out.rails);
    const uint64_t beat_ns =
        core_.on_channel(peer, [&](const auto& channel) { return channel.describe(channel.name_of(peer), out); });
    out.seen_ns = beat_ns == 0 ? UINT64_MAX : core_.clock.now() - std::min(core_.clock.now(), beat_ns);
    return out;
}

template <class Core>
void StallReporter<Core>::report_copies(const velo_peer& peer, std::vector<PeerReport::Copies>& out) {
    if (peer.coop.choices == nullptr) return;
    peer.coop.choices->for_each_measured([&](uint32_t bytes, bool both, bool far, const rma::CopyChoice& choice) {
        PeerReport::Copies copies = {
            .bytes = bytes, .both = both, .far = far, .method = choice.method(), .switches = choice.switches()};
        for (size_t way = 0; way < copies.ps_a_byte.size(); ++way) {
            copies.ps_a_byte[way] = static_cast<uint32_t>(choice.ps_a_byte(static_cast<CoopMethod>(way)));
        }
        out.push_back(copies);
    });
}

template <class Core>
void StallReporter<Core>::report_rails(const velo_peer& peer, std::vector<PeerReport::Rail>& out) {
    const rma::Rails& rails = rails_.rails();
    if (!rails.several() || peer.sources == nullptr) return;
    std::array<std::map<const velo_peer*, WaitingOperations>, rma::kRailsMax> held;
    pending_.for_each([&](const Op& waiting) {
        if (!waiting.with_device()) return;
        WaitingOperations& operations = held[waiting.rail][waiting.state->peer];
        ++operations.count;
        operations.bytes += waiting.bytes;
    });
    const rma::RailMask out_of_use = rails.out(peer.sources->rails);
    for (uint32_t number = 0; number < rails.count(); ++number) {
        PeerReport::Rail rail = {.rail = number, .out = (out_of_use & rma::rail_bit(number)) != 0};
        uint64_t most = 0;
        for (const auto& [holder, operations] : held[number]) {
            if (holder == &peer) {
                rail.own = operations;
                continue;
            }
            rail.others.count += operations.count;
            rail.others.bytes += operations.bytes;
            if (operations.bytes >= most) rail.holder = holder->rank;
            most = std::max(most, operations.bytes);
        }
        const bool waited_for = report_reservations(peer, rail);
        if (!rail.out && rail.own.count == 0 && !waited_for) continue;
        const uint64_t retry_ns = rails.retry_ns(number, peer.sources->rails);
        rail.retry_ns = retry_ns - std::min(retry_ns, core_.clock.now());
        out.push_back(rail);
    }
}

/// True: a request to this peer is out on the rail, or its transfers wait for one that another peer has.
template <class Core>
bool StallReporter<Core>::report_reservations(const velo_peer& peer, PeerReport::Rail& out) {
    using Reservation = PeerReport::Reservation;
    const rma::RailReservations* const machine = reserving_.machine();
    if (machine == nullptr) return false;
    bool waits = false;
    reserving_.for_each_waiting([&](const State& state) { waits |= state.peer == &peer; });
    bool asked = false;
    size_t at = 0;
    const auto add = [&](Reservation::State state, bool puts, uint32_t index) {
        const velo_peer& other = peers_.of(VELO_PATH_DEVICE, index);
        out.reservations[at++] = {.state = state, .puts = puts, .known = other.connected, .rank = other.rank};
    };
    for (const bool puts : {false, true}) {
        const auto& rail =
            machine->rail(puts ? rma::RailDirection::kSending : rma::RailDirection::kReceiving, out.rail);
        if (const auto request = rail.own_request()) {
            const bool held = rail.state() == rma::RailReservations::Rail::State::kSending;
            add(held ? Reservation::State::kHeld : Reservation::State::kAsked, puts, request->peer);
            asked |= waits || request->peer == peer.index;
        }
        if (const auto grant = rail.grant()) add(Reservation::State::kGranted, puts, grant->peer);
    }
    return asked;
}

template <class Core>
void StallReporter<Core>::report_transfers(const velo_peer& peer, PeerReport::Operations& out) {
    const auto count = [](WaitingOperations& operations, uint64_t bytes) {
        ++operations.count;
        operations.bytes += bytes;
    };
    pending_.for_each([&](const Op& waiting) {
        if (waiting.state->peer != &peer) return;
        switch (waiting.kind) {
            case Op::Kind::kDirectChunk:
                count(waiting.state->op->kind == VELO_RMA_GET ? out.gets : out.puts, waiting.bytes);
                break;
            case Op::Kind::kDeviceChunk: count(out.device_chunks, waiting.bytes); break;
            case Op::Kind::kPullChunk: count(out.pulls, waiting.bytes - waiting.received); break;
            case Op::Kind::kPutChunk: count(out.pushes, waiting.bytes); break;
            case Op::Kind::kDeviceAtomic:
            case Op::Kind::kAtomic: count(out.atomics, 0); break;
            case Op::Kind::kCoopBlock: count(out.coop_blocks, coop_reader_.left_bytes(waiting)); break;
        }
    });
    transfers_.for_each_waiting([&](const State& state) {
        if (state.peer != &peer) return;
        const bool get = state.op->kind == VELO_RMA_GET;
        count(get ? out.gets : out.puts, state.bytes - state.issued_bytes);
    });
    atomics_.for_each_waiting([&](const State& state) {
        if (state.peer == &peer) count(out.atomics, 0);
    });
    coop_owner_.for_each_assist([&](const velo_peer& other, uint32_t, uint32_t left) {
        if (&other == &peer) count(out.assists, left);
    });
}

}  // namespace velo
