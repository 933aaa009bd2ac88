/// The rings that a process reads, by how often they are looked at: at each poll, or when their doorbell has rung.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "velo/base/check.h"
#include "velo/base/ids.h"
#include "velo/shm/ring_consumer.h"

namespace velo::shm {

inline constexpr uint32_t kDoorbells = 1024;  ///< bits; peers whose indices differ by a multiple share one

/// `Peer` has the end of its ring, `in`. Owner: BasicOnNode. Thread: the engine's. Invariant: a ring is active, dormant
/// or neither.
template <class Peer>
class PolledRings {
  public:
    using Peers = std::vector<std::unique_ptr<Peer>>;
    /// `peers` outlives this.
    explicit PolledRings(const Peers& peers) : peers_(peers) {}

    /// The rings to look at in each poll. Changed by all that follows.
    [[nodiscard]] const std::vector<PeerIndex>& active() const { return active_; }
    [[nodiscard]] bool any_dormant() const { return !dormant_.empty(); }
    /// Whether silent rings are put to sleep. A few rings are cheaper to poll than to wake.
    [[nodiscard]] bool may_sleep() const { return active_.size() > kAlwaysPolled; }

    void add(PeerIndex index) {
        VELO_CHECK(index < peers_.size() && std::ranges::find(active_, index) == active_.end(),
                   "the ring of peer %u of %zu is looked at already", uint32_t{index}, peers_.size());
        active_.push_back(index);
    }
    /// Takes a ring out of the active ones. False: it is not among them.
    bool stop(PeerIndex index) {
        const auto at = std::find(active_.begin(), active_.end(), index);
        if (at == active_.end()) return false;
        *at = active_.back();
        active_.pop_back();
        return true;
    }
    void remove(PeerIndex index) {
        stop(index);
        std::erase(dormant_, index);
    }
    /// An active ring is looked at from now on when its producer has rung the doorbell.
    void put_to_sleep(PeerIndex index) {
        if (!stop(index)) return;
        peers_[index]->in.set_dormant(true, index);
        dormant_.push_back(index);
    }
    /// Wakes the rings whose doorbells have rung, and now and then one that has something all the same.
    [[gnu::noinline]] void answer(std::atomic<uint64_t>* doorbells) {
        const auto peers = static_cast<uint32_t>(peers_.size());
        for (uint32_t first = 0; first < std::min(peers, kDoorbells); first += 64) {
            std::atomic<uint64_t>& word = doorbells[first / 64];
            if (word.load(std::memory_order_relaxed) == 0) continue;
            for (uint64_t rung = word.exchange(0, std::memory_order_acquire); rung != 0; rung &= rung - 1) {
                uint32_t index = first + static_cast<uint32_t>(std::countr_zero(rung));
                for (; index < peers; index += kDoorbells) wake(PeerIndex(index));  // all of this bell
            }
        }
        if (dormant_.empty()) return;
        // A producer may have looked at the flag just before it was set: look at one sleeper each time.
        sweep_ = (sweep_ + 1) % dormant_.size();
        const PeerIndex index = dormant_[sweep_];
        Message message;
        if (peers_[index]->in.peek(message) != RingConsumer::Peek::kNothing) wake(index);
    }

  private:
    static constexpr uint32_t kAlwaysPolled = 8;

    void wake(PeerIndex index) {
        for (size_t i = 0; i < dormant_.size(); ++i) {
            if (dormant_[i] != index) continue;
            dormant_[i] = dormant_.back();
            dormant_.pop_back();
            peers_[index]->in.set_dormant(false, index);
            active_.push_back(index);
            return;
        }
    }

    const Peers& peers_;
    std::vector<PeerIndex> active_;
    std::vector<PeerIndex> dormant_;
    size_t sweep_ = 0;
};

}  // namespace velo::shm
