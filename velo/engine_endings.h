/// Engine: the look around by the clock, peers that have ended, and what this process says of its own end.
/// Part of engine.h.
///
/// A process that leaves in good order says so in its segments before it goes. One that is gone without a
/// word has died, and the host is told before anything that waited for it ends: what the host does about an
/// operation that failed may be the end of this process, and then the reason would stay unknown.
#pragma once

#include <unistd.h>

#include <algorithm>

#include "velo/engine.h"

namespace velo {

/// Now and then only: it costs as much as all the rest of an idle call.
template <class D>
void Engine<D>::look_at_clock() {
    const uint64_t before = now_;
    now_ = now_ns();
    const uint32_t polls = polls_ - clock_poll_;
    clock_poll_ = polls_;
    next_clock_poll_ = polls_ + (now_ - before > polls * kSlowPollNs ? 1 : kClockPolls);
    device_pause_.measured(polls, now_ - before, now_ - device_event_ns_);
}

template <class D>
void Engine<D>::do_what_is_due(uint64_t now) {
    if (now >= next_sample_ns_) sample_credits(now);
    if (now >= next_look_ns_) look_around(now);
    next_due_ns_ = std::min(next_look_ns_, next_sample_ns_);
}

/// Looks for peers that have ended, without a word from them.
template <class D>
void Engine<D>::look_around(uint64_t now) {
    next_look_ns_ = now + kLookAroundNs;
    on_node_.beat(now);
    if (watch_period_ns_ != 0) look_at_waits(now);
    std::vector<shm::PeerIndex> died;
    on_node_.look_around(died);
    for (const shm::PeerIndex index : died) peer_died(peer_of(VELO_PATH_ON_NODE, index));
    for (const shm::Loss& loss : on_node_.take_losses()) report_loss(loss);
    if (!ended_.empty()) sweep_ended();
    looks_unanswered_ = on_node_.unanswered() == 0 ? 0 : looks_unanswered_ + 1;
    if (looks_unanswered_ == kLooksUntilTold) {
        const base::Failure failure = on_node_.unanswered_failure();
        log(0, "velo: rank " + std::to_string(options_.identity.rank) + ": " +
                   std::to_string(on_node_.unanswered()) +
                   " processes wait to be attached, and their messages with them: " + to_text(failure) +
                   ". " + remedy(failure) + " The job ends when that lasts " +
                   std::to_string(options_.params.timeout) + " s (btl_velo_timeout).");
    }
    if (now >= next_peers_watch_ns_) watch_peers(now);
    for (size_t index = 0; index < by_device_.size(); ++index) {
        velo_peer* peer = by_device_[index];
        if (peer != nullptr && !peer->dead && !device_->alive(peer->index)) peer_died(*peer);
    }
}

/// Tells the device for which peers something waits. A process that is in MPI and hears nothing waits for any of those
/// that it has to do with: which of them, the host alone knows.
template <class D>
void Engine<D>::watch_peers(uint64_t now) {
    next_peers_watch_ns_ = now + kWatchPeersNs;
    if (now - device_event_ns_ > kQuietNs) device_->watch(kNoAddr);
    for (const velo_peer* peer : by_device_) {
        if (peer != nullptr && !peer->dead && !quiet(*peer)) device_->watch(peer->index);
    }
}

/// Operations that wait for a peer that has ended end with it. Messages to it fail when they are tried again.
template <class D>
void Engine<D>::peer_died(velo_peer& peer) {
    peer.dead = true;
    unpark(peer);
    tell_of_end(peer);
    if (peer.path == VELO_PATH_ON_NODE) ended_.push_back(&peer);
    std::vector<uint32_t> cookies;
    slots_.for_each([&](uint32_t cookie, const Waiting& waiting) {
        const bool by_message = waiting.wait == Wait::kPullChunk || waiting.wait == Wait::kPutChunk ||
                                waiting.wait == Wait::kAtomic;
        // The device ends what was posted there by itself.
        if (waiting.state->peer == &peer && by_message) cookies.push_back(cookie);
    });
    for (const uint32_t cookie : cookies) wait_ended(cookie, Status::kPeerDead, 0);
    peer_of_joints_died(peer);
}

template <class D>
void Engine<D>::announce_ending(base::Ending ending) {
    // In a child of fork() the segments are not mapped, and its parent lives on.
    if (getpid() != on_node_.address().segment.pid) return;
    on_node_.announce_ending(ending);
    if (device_) device_->announce_ending(ending);
}

template <class D>
bool Engine<D>::first_to_tell(const velo_peer& peer) {
    const std::lock_guard guard(lock_);
    if (peer.path != VELO_PATH_DEVICE) return on_node_.first_to_tell(peer.index);
    if (device_->traits().elects) return device_->first_to_tell(peer.index);
    // The first of a host that notices. Any may be the only one: a connection is between two processes.
    for (const velo_peer* other : by_on_node_) {
        if (other != nullptr && on_node_.announced_ending(other->index) == base::Ending::kFollowed) return false;
    }
    on_node_.announce_ending(base::Ending::kFollowed);
    return true;
}

/// Once a peer; one that closed its engine, or that was never connected to, is not missed.
template <class D>
void Engine<D>::tell_of_end(velo_peer& peer) {
    if (peer.end_told || !peer.connected || peer.gone) return;
    peer.end_told = true;
    const base::Ending ending = peer.path == VELO_PATH_DEVICE ? device_->announced_ending(peer.index)
                                                              : on_node_.announced_ending(peer.index);
    if (ending == base::Ending::kClosed || options_.host.peer_ended == nullptr) return;
    const velo_end_t end = {.peer = &peer,
                            .name = peer.name,
                            .job = peer.job,
                            .rank = peer.rank,
                            .pid = peer.pid,
                            .path = peer.path,
                            .followed = ending == base::Ending::kFollowed};
    const Apart apart(*this);
    options_.host.peer_ended(options_.host.context, &end);
}

/// Messages to or from a process of this node are lost, so the job cannot go on.
template <class D>
void Engine<D>::report_loss(const shm::Loss& loss) {
    std::string peer = "process " + std::to_string(loss.pid);
    if (loss.known && by_on_node_[loss.peer] != nullptr && by_on_node_[loss.peer]->connected) {
        peer = "rank " + std::to_string(by_on_node_[loss.peer]->rank) + " (pid " + std::to_string(loss.pid) +
               ")";
    }
    const std::string seconds = std::to_string(options_.params.timeout);
    const std::string cause =
        to_text(loss.failure) + ", tried for " + seconds + " s (btl_velo_timeout). " + remedy(loss.failure);
    std::string what;
    switch (loss.cause) {
        case shm::Loss::Cause::kNoRing:
            what = "no ring of " + std::to_string(shm::ring_bytes(options_.on_node.geometry)) +
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
    end_job(VELO_PATH_ON_NODE, loss.name, what);
}

/// Has the host show "velo: rank R: WHAT" and end the job. `what` names the peer, the cause and a remedy. To
/// be called where an accepted message or operation can never be carried out; the caller goes on where it
/// returns.
template <class D>
void Engine<D>::end_job(velo_path_t path, uint64_t name, const std::string& what) {
    const std::string line = "velo: rank " + std::to_string(options_.identity.rank) + ": " + what;
    if (options_.host.job_failed == nullptr) return log(0, line);
    const velo_failure_t failure = {.line = line.c_str(), .name = name, .path = path};
    const Apart apart(*this);
    options_.host.job_failed(options_.host.context, &failure);
}

}  // namespace velo
