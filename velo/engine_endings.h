/// Engine: peers that have ended, and what this process says of its own end. Part of engine.h.
///
/// A process that leaves in good order says so in its segments before it goes. One that is gone without a
/// word has died, and the host is told before anything that waited for it ends: what the host does about an
/// operation that failed may be the end of this process, and then nobody would hear why.
#pragma once

#include <unistd.h>

#include "velo/engine.h"

namespace velo {

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
    return peer.path == VELO_PATH_DEVICE ? device_->first_to_tell(peer.index)
                                         : on_node_.first_to_tell(peer.index);
}

/// Once a peer; one that closed its engine, or that was never connected to, has nobody to miss it.
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

}  // namespace velo
