/// Whether the peers of a rail are reached by it.
///
/// A rail is not the judge of a peer's life, but a link may be down that leads to a peer which lives. A path by which
/// operations are under way, and none ends, is asked about at the other host's kernel (host_probe.h). Without an answer
/// for a while it is broken, as it is after an operation that failed: what the provider has is ended by resetting its
/// connections, and what is posted later ends as failed at once. The host is asked on, and its answer mends the path.
///
/// Silence is counted over calls of check(), and a gap between two of them only up to a bound: a process that was
/// stopped has not listened.
///
/// Owner: RmaRail. Thread: the device's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "velo/device/device.h"
#include "velo/ofi/connections.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/host_probe.h"

namespace velo::ofi {

class PathWatch {
  public:
    static constexpr uint64_t kCheckNs = 100'000'000;
    static constexpr uint64_t kGapNs = 2 * kCheckNs;
    /// Nothing has ended for so long: the host is asked.
    static constexpr uint64_t kSilenceNs = 1'000'000'000;
    /// A host that was asked has not answered after so long.
    static constexpr uint64_t kAnswerNs = 2'000'000'000;
    static constexpr uint64_t kConnectionsNs = 1'000'000'000;

    /// Watches nothing where the provider's connections are not those of TCP: such a provider reports its failures.
    explicit PathWatch(const Endpoint& endpoint);

    void know(DeviceAddr peer, std::span<const std::byte> name);
    [[nodiscard]] bool broken(DeviceAddr peer) const { return paths_[peer].broken; }
    /// An operation was posted.
    void posted(DeviceAddr peer);
    /// An operation has ended well.
    void heard(DeviceAddr peer) { paths_[peer].silent_ns = 0; }
    /// An operation has failed: the path is broken until the host answers.
    [[gnu::cold]] void failed(DeviceAddr peer);
    void peer_died(DeviceAddr peer) { paths_[peer].peer_died = true; }

    /// A check is due.
    [[nodiscard]] bool due(uint64_t now_ns) const { return connections_ && now_ns - checked_ns_ >= kCheckNs; }
    /// `operations(peer)`: how many are under way; `fail(peer)`: ends those that the provider has taken nothing of.
    template <class Operations, class Fail>
    void check(uint64_t now_ns, Operations&& operations, Fail&& fail);

    [[nodiscard]] static constexpr uint32_t peer_bytes() { return sizeof(Path); }

  private:
    struct Path {
        std::span<const std::byte> name;
        uint64_t silent_ns = 0;
        uint64_t asked_ns = 0;  ///< since the question was put anew
        std::unique_ptr<HostProbe> probe;
        bool broken = false;
        bool listed = false;
        bool peer_died = false;
    };

    void list(DeviceAddr peer);
    /// The host's answer, or none yet.
    bool answers(Path& path, uint64_t passed_ns);

    std::optional<Connections> connections_;
    std::vector<Path> paths_;  ///< by DeviceAddr
    std::vector<DeviceAddr> listed_;
    uint64_t checked_ns_ = 0;
    uint64_t looked_after_ns_ = 0;
};

template <class Operations, class Fail>
void PathWatch::check(uint64_t now_ns, Operations&& operations, Fail&& fail) {
    const uint64_t passed_ns = std::min(now_ns - checked_ns_, kGapNs);
    checked_ns_ = now_ns;
    if (now_ns - looked_after_ns_ >= kConnectionsNs) {
        looked_after_ns_ = now_ns;
        connections_->look_after();
    }
    for (size_t i = 0; i < listed_.size();) {
        Path& path = paths_[listed_[i]];
        const uint32_t under_way = path.peer_died ? 0 : operations(listed_[i]);
        if (path.peer_died || (under_way == 0 && !path.broken)) {
            path.listed = false;
            path.probe.reset();
            listed_[i] = listed_.back();
            listed_.pop_back();
            continue;
        }
        path.silent_ns += under_way != 0 ? passed_ns : 0;
        if ((path.broken || path.silent_ns >= kSilenceNs) && answers(path, passed_ns)) {
            path.silent_ns = 0;
            path.broken = false;
        }
        if (path.silent_ns >= kSilenceNs + kAnswerNs && under_way != 0) {
            path.broken = true;
            fail(listed_[i]);
            connections_->reset(path.name);
        }
        ++i;
    }
}

}  // namespace velo::ofi
