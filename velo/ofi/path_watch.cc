#include "velo/ofi/path_watch.h"

#include <algorithm>

namespace velo::ofi {

PathWatch::PathWatch(const Endpoint& endpoint) {
    if (!Connections::possible(endpoint.provider()) || !HostProbe::possible(endpoint.info().addr_format)) return;
    connections_.emplace(endpoint.name());
    // Before anything is accepted.
    connections_->look_after();
}

void PathWatch::know(DeviceAddr peer, std::span<const std::byte> name) {
    if (peer >= paths_.size()) paths_.resize(size_t{peer} + 1);
    paths_[peer].name = name;
    if (connections_) connections_->know(name);
}

void PathWatch::posted(DeviceAddr peer) {
    if (paths_[peer].listed || !connections_) return;
    list(peer);
}

void PathWatch::list(DeviceAddr peer) {
    VELO_CHECK(peer < paths_.size() && !paths_[peer].listed, "the path to peer %u is listed twice",
               uint32_t{peer});
    Path& path = paths_[peer];
    path.listed = true;
    path.silent_ns = 0;
    path.asked_ns = 0;
    listed_.push_back(peer);
}

void PathWatch::failed(DeviceAddr peer) {
    if (!connections_) return;
    if (!paths_[peer].listed) list(peer);
    paths_[peer].broken = true;
    paths_[peer].probe.reset();
}

/// A question that is not answered is put anew, because the kernel repeats it at growing intervals.
bool PathWatch::answers(Path& path, uint64_t passed_ns) {
    path.asked_ns += passed_ns;
    if (!path.probe || path.asked_ns >= kAnswerNs) {
        path.probe = std::make_unique<HostProbe>();
        path.asked_ns = 0;
    }
    if (path.probe->ask(path.name) != HostProbe::Answer::kRuns) return false;
    path.asked_ns = 0;
    return true;
}

}  // namespace velo::ofi
