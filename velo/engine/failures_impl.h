/// Bodies of velo/engine/failures.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/engine/failures.h"

namespace velo {

/// Looks for peers that have ended, without a word from them.
template <class Core>
void Failures<Core>::poll_liveness(uint64_t now) {
    next_poll_ns_ = now + kPollNs;
    core_.on_node.beat(now);
    stalls_.check(now);
    std::vector<shm::PeerIndex> died;
    core_.on_node.poll_liveness(died);
    for (const shm::PeerIndex index : died) peer_ended(peers_.of(VELO_PATH_ON_NODE, index));
    for (const shm::Loss& loss : core_.on_node.take_losses()) report_loss(loss);
    // A host that hears of an end may ask about the peer (velo_claim_report).
    if (!closed_.empty()) finish_closed();
    if (!finished_.empty() && core_.events.all_told()) reclaim();
    unanswered_polls_ = core_.on_node.unanswered() == 0 ? 0 : unanswered_polls_ + 1;
    if (unanswered_polls_ == kPollsUntilReported) {
        const base::Failure failure = core_.on_node.unanswered_failure();
        core_.say(0, std::to_string(core_.on_node.unanswered()) +
                         " processes wait to be attached, and their messages with them: " + to_text(failure) +
                         ". " + remedy(failure) + " The job ends when that lasts " +
                         std::to_string(core_.options.params.timeout) + " s (btl_velo_timeout).");
    }
    if (now >= next_watch_ns_) watch_peers(now);
    for (size_t index = 0; index < peers_.device().size(); ++index) {
        velo_peer* peer = peers_.device()[index];
        if (peer != nullptr && !peer->ended() && !health::alive(*core_.device, peer->device_addr())) peer_ended(*peer);
    }
}

/// Notifies the device for which peers something waits. A process that is in MPI and hears nothing waits for any of
/// those that it has to do with: which of them, the host alone knows.
template <class Core>
void Failures<Core>::watch_peers(uint64_t now) {
    next_watch_ns_ = now + kWatchPeersNs;
    if (now - core_.device_event_ns > kQuietNs) health::watch(*core_.device, kNoAddr);
    for (const velo_peer* peer : peers_.device()) {
        if (peer != nullptr && !peer->ended() && !idle(*peer)) health::watch(*core_.device, peer->device_addr());
    }
}

template <class Core>
base::Ending Failures<Core>::ending_of(const velo_peer& peer) {
    return core_.on_channel(peer,
                            [&](const auto& channel) { return channel.announced_ending(channel.name_of(peer)); });
}

/// Messages to a peer that has ended fail when they are tried again. Messages of one that ended in good order are still
/// received.
template <class Core>
void Failures<Core>::peer_ended(velo_peer& peer) {
    VELO_CHECK(!peer.ended(), "rank %u ends twice", peer.rank);
    const bool closed = ending_of(peer) == base::Ending::kClosed;
    peer.state = after(peer.state, closed ? PeerEvent::kClosed : PeerEvent::kFailed);
    peer.ready_ring = nullptr;
    queue_.unpark(peer);
    if (closed) {
        const bool by_device = peer.path == VELO_PATH_DEVICE;
        return closed_.push_back({&peer, by_device ? core_.device->report(kNoAddr).mailbox_written : 0});
    }
    report_end(peer);
    finish(peer);
}

/// Nothing more comes from a peer: what waits for it ends with it.
template <class Core>
void Failures<Core>::finish(velo_peer& peer) {
    std::vector<Cookie> cookies;
    pending_.for_each([&](const Op& op) {
        // The device ends what was posted there by itself.
        if (op.state->peer == &peer && op.by_message()) cookies.push_back(op.cookie);
    });
    for (const Cookie cookie : cookies) transfers_.end(cookie, Status::kPeerDead, 0);
    reserving_.peer_failed(peer);
    coop_owner_.peer_failed(peer);
    coop_reader_.peer_failed(peer);
    matching_.finished(peer);
    if (peer.path == VELO_PATH_ON_NODE) finished_.push_back(&peer);
}

/// Peers that ended in good order, and of which nothing lies unread any more.
template <class Core>
void Failures<Core>::finish_closed() {
    std::erase_if(closed_, [this](const Closed& closed) {
        velo_peer& peer = *closed.peer;
        const bool on_node = peer.path == VELO_PATH_ON_NODE;
        const bool unread = on_node ? core_.on_node.unread(peer.node_index())
                                    : core_.device->report(kNoAddr).mailbox_read < closed.written;
        if (unread) return false;
        finish(peer);
        return true;
    });
}

template <class Core>
void Failures<Core>::announce_ending(base::Ending ending) {
    // In a child of fork() the segments are not mapped, and its parent lives on.
    if (core_.system.pid() != core_.on_node.address().segment.pid) return;
    core_.on_node.announce_ending(ending);
    if (core_.device) health::announce_ending(*core_.device, ending);
}

template <class Core>
bool Failures<Core>::claim_report(const velo_peer& peer) {
    if (peer.path != VELO_PATH_DEVICE) return core_.on_node.claim_report(peer.node_index());
    if (core_.device->traits().elects) return health::claim_report(*core_.device, peer.device_addr());
    // The first of a host that notices. Any may be the only one: a connection is between two processes.
    for (const velo_peer* other : peers_.on_node()) {
        if (other != nullptr && core_.on_node.announced_ending(other->node_index()) == base::Ending::kFollowed)
            return false;
    }
    core_.on_node.announce_ending(base::Ending::kFollowed);
    return true;
}

/// Once a peer; one that closed its engine, or that was never connected to, is not missed.
template <class Core>
void Failures<Core>::report_end(velo_peer& peer) {
    if (peer.reported.end || !peer.connected || peer.reclaimed) return;
    const base::Ending ending = ending_of(peer);
    if (ending == base::Ending::kClosed) return;
    peer.reported.end = true;
    core_.events.peer_ended({.peer = &peer,
                             .name = peer.name,
                             .job = peer.job,
                             .rank = peer.rank,
                             .pid = peer.pid,
                             .path = peer.path,
                             .followed = ending == base::Ending::kFollowed,
                             .unreached = peer.path == VELO_PATH_DEVICE &&
                                          core_.device->report(peer.device_addr()).unreached});
}

template <class Core>
void Failures<Core>::report_unreachable(velo_peer& peer, Owed owed, HostState host) {
    report_end(peer);
    // The next poll of peers deals with the end.
    const PeerState before = peer.state;
    if (ending_of(peer) == base::Ending::kClosed) peer.state = after(before, PeerEvent::kClosed);
    report_lost(&peer, owed, host);
    peer.state = before;
}

template <class Core>
void Failures<Core>::report_lost(velo_peer* peer, Owed owed, HostState host) {
    if (peer == nullptr || !peer->connected || peer->reported.loss) return;
    if (fate(owed, host, peer->state) != Fate::kLost) return;
    peer->reported.loss = true;
    const bool other_job = peer->job != core_.options.identity.job;
    const std::string who = "rank " + std::to_string(peer->rank) +
                            (other_job ? " of job " + std::to_string(peer->job & 0xffff) : "") + " (pid " +
                            std::to_string(peer->pid);
    const char* const ended =
        peer->state == PeerState::kLeft ? ") is in MPI_Finalize" : ") has called MPI_Finalize and ended";
    const char* const what = owed == Owed::kSource
                                 ? ", and the data of a message of its that is still to be received was there"
                                 : ", and a message to it was not received and cannot be any more";
    const std::string line =
        who + ended + what + ". Look for ranks that disagree on how many messages there are.";
    // A process of the same job has passed the barrier of MPI_Finalize, and so has this one's program.
    if (!other_job) return core_.say(1, line);
    core_.end_job(peer->path, peer->name, line);
}

template <class Core>
void Failures<Core>::peer_gone(velo_peer& peer, Origin origin) {
    switch (origin) {
        case Origin::kHost:
        case Origin::kCopy: return report_unreachable(peer, Owed::kArrival, core_.host_state);
        case Origin::kMatchSend: return report_unreachable(peer, Owed::kArrival, matching_.host());
        case Origin::kMatchReply:
        case Origin::kControl:
        case Origin::kPush: return report_end(peer);
    }
}

/// Messages to or from a process of this node are lost, so the job cannot go on.
template <class Core>
void Failures<Core>::report_loss(const shm::Loss& loss) {
    std::string peer = "process " + std::to_string(loss.pid);
    const velo_peer* known = loss.known ? peers_.on_node()[loss.peer] : nullptr;
    if (known != nullptr && known->connected) {
        peer = "rank " + std::to_string(known->rank) + " (pid " + std::to_string(loss.pid) + ")";
    }
    const std::string seconds = std::to_string(core_.options.params.timeout);
    const std::string cause =
        to_text(loss.failure) + ", tried for " + seconds + " s (btl_velo_timeout). " + remedy(loss.failure);
    std::string what;
    switch (loss.cause) {
        case shm::Loss::Cause::kNoRing:
            what = "no ring of " + std::to_string(shm::ring_bytes(core_.options.on_node.geometry)) +
                   " bytes can be made to " + peer + ", so messages to it cannot be sent: " + cause;
            break;
        case shm::Loss::Cause::kNotAttached:
            what =
                "the ring of " + peer + " cannot be attached, so its messages cannot be received: " + cause;
            break;
        case shm::Loss::Cause::kSenderGone:
            what = peer + " ended before its ring was attached; its messages are lost (" +
                   to_text(loss.failure) + ").";
            break;
        case shm::Loss::Cause::kGarbage:
            what = peer +
                   " wrote what cannot be to the memory of its ring; messages are lost. Look for a "
                   "program that writes past its own memory, or another version of velo.";
            break;
    }
    core_.end_job(VELO_PATH_ON_NODE, loss.name, what);
}

/// Gives back what processes of this node held that have ended, each as soon as nothing of it is pending.
/// Those of the job do not leave before its end; those that it spawned, or met, may come and go without end.
template <class Core>
void Failures<Core>::reclaim() {
    for (size_t i = 0; i < finished_.size(); ++i) {
        velo_peer& peer = *finished_[i];
        if (!idle(peer) || !core_.on_node.disconnect(peer.node_index())) continue;
        peers_.remove_on_node(peer);
        peer.reclaimed = true;
        // Pending requests go the way of messages, which fail.
        peer.direct = false;
        finished_[i] = finished_.back();
        finished_.pop_back();
        --i;
        ++core_.counters.peers_gone;
        if (!peer.connected) recycle(peer);
    }
}

template <class Core>
bool Failures<Core>::idle(const velo_peer& peer) const {
    if (peer.sending.listed) return false;
    if (coop_owner_.assists(peer)) return false;
    bool refers = false;
    const auto look_at = [&](const State& state) { refers |= state.peer == &peer; };
    transfers_.for_each_waiting(look_at);
    atomics_.for_each_waiting(look_at);
    // An operation under way, such as a direct copy that another thread makes, has a cookie.
    if (pending_.taken() != 0) {
        pending_.for_each([&](const Op& op) { look_at(*op.state); });
    }
    return !refers;
}

}  // namespace velo
