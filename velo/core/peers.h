/// The peers of an engine, by their index on either path.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "velo/base/check.h"
#include "velo/core/peer.h"

namespace velo {

/// Owner: the engine. Thread: the engine's.
class Peers {
  public:
    /// The peer behind a path's index. One that only wrote to us so far gets its entry here.
    [[gnu::always_inline]] velo_peer& of(velo_path_t path, uint32_t index) {
        Recent& recent = recent_[path == VELO_PATH_ON_NODE];
        if (index != recent.index) [[unlikely]]
            recent = {&find(path, index), index};
        return *recent.peer;
    }
    /// Peers of each path by their index; entries may be nullptr.
    [[nodiscard]] const std::vector<velo_peer*>& on_node() const { return on_node_; }
    [[nodiscard]] const std::vector<velo_peer*>& device() const { return device_; }

    /// Forgets the peer's index, which may become another's.
    void remove_on_node(const velo_peer& peer) {
        VELO_CHECK(peer.index < on_node_.size() && on_node_[peer.index] == &peer, "peer %u is another one",
                   peer.index);
        on_node_[peer.index] = nullptr;
        recent_ = {};
    }
    /// Makes the entry fit for another process, in place: callers further up may still look at its queues, which are
    /// empty.
    void recycle(velo_peer& peer) {
        VELO_CHECK(peer.sending.pending.empty() && !peer.sending.listed, "messages to peer %u wait",
                   peer.index);
        peer.reclaimed = peer.direct = false;
        peer.reported = {};
        peer.state = PeerState::kPresent;
        peer.coop.assists = true;
        peer.name = 0;
        peer.rank = 0;
        peer.path = VELO_PATH_NONE;
        peer.match = nullptr;
        spare_.push_back(&peer);
        recent_ = {};
    }

  private:
    /// The last one that was asked for by a path: messages of a peer come after one another.
    struct Recent {
        velo_peer* peer = nullptr;
        uint32_t index = UINT32_MAX;
    };

    [[nodiscard, gnu::noinline]] velo_peer& find(velo_path_t path, uint32_t index) {
        const std::vector<velo_peer*>& table = path == VELO_PATH_ON_NODE ? on_node_ : device_;
        return index < table.size() && table[index] != nullptr ? *table[index] : add(path, index);
    }
    [[gnu::noinline, gnu::cold]] velo_peer& add(velo_path_t path, uint32_t index) {
        std::vector<velo_peer*>& table = path == VELO_PATH_ON_NODE ? on_node_ : device_;
        if (index >= table.size()) table.resize(index + 1, nullptr);
        if (spare_.empty()) {
            all_.push_back(std::make_unique<velo_peer>());
            spare_.push_back(all_.back().get());
        }
        table[index] = spare_.back();
        spare_.pop_back();
        table[index]->path = path;
        table[index]->index = index;
        return *table[index];
    }

    std::vector<std::unique_ptr<velo_peer>> all_;
    std::vector<velo_peer*> on_node_;
    std::vector<velo_peer*> device_;
    std::vector<velo_peer*> spare_;
    std::array<Recent, 2> recent_{};
};

}  // namespace velo
