/// Pending work of this process, for how long, and in words. The engine collects it (stall_reporter.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "velo/device.h"
#include "velo/shm/ring_layout.h"
#include "velo/velo.h"
#include "velo/wire.h"

namespace velo {

/// How long pending work has not moved, by whom it waits for. A pure machine: begin(), saw() for every peer
/// that something waits for, end(). Owner: the engine. Thread: the engine's.
class StallWatch {
  public:
    using Key = const void*;

    struct Outcome {
        bool stalled = false;     ///< something has not moved for the limit, and was not reported yet
        uint64_t resumed_ns = 0;  ///< not 0: something that was reported moves again, after so long
    };

    /// `limit_ns` 0: nothing ever counts as stalled, but ages are kept.
    explicit StallWatch(uint64_t limit_ns) : limit_ns_(limit_ns) {}

    void begin(uint64_t now_ns) { now_ns_ = now_ns; }

    /// Work waits for `key`; two looks with the same fingerprint have seen no movement in between.
    void saw(Key key, uint64_t fingerprint) {
        Entry& entry = entries_[key];
        if (entry.since_ns == 0 || entry.fingerprint != fingerprint) {
            if (entry.reported) resumed_ns_ = now_ns_ - entry.since_ns;
            entry = {.fingerprint = fingerprint, .since_ns = now_ns_};
        }
        entry.seen_ns = now_ns_;
    }

    /// A peer that was not seen since begin() has nothing pending any more.
    Outcome end() {
        Outcome outcome;
        for (auto at = entries_.begin(); at != entries_.end();) {
            const Entry& entry = at->second;
            if (entry.seen_ns != now_ns_) {
                if (entry.reported) resumed_ns_ = now_ns_ - entry.since_ns;
                at = entries_.erase(at);
                continue;
            }
            outcome.stalled |= limit_ns_ != 0 && !entry.reported && now_ns_ - entry.since_ns >= limit_ns_;
            ++at;
        }
        outcome.resumed_ns = resumed_ns_;
        resumed_ns_ = 0;
        return outcome;
    }

    /// All that is pending now has been reported: no more of it until it moves.
    void reported() {
        for (auto& [key, entry] : entries_) entry.reported = true;
    }

    /// For how long work has waited for `key` without moving.
    [[nodiscard]] uint64_t age_ns(Key key) const {
        const auto at = entries_.find(key);
        return at == entries_.end() ? 0 : now_ns_ - at->second.since_ns;
    }

  private:
    struct Entry {
        uint64_t fingerprint = 0;
        uint64_t since_ns = 0;
        uint64_t seen_ns = 0;
        bool reported = false;
    };
    uint64_t limit_ns_;
    uint64_t now_ns_ = 0;
    uint64_t resumed_ns_ = 0;
    std::unordered_map<Key, Entry> entries_;
};

/// Operations of one kind that wait.
struct WaitingOperations {
    uint32_t count = 0;
    uint64_t bytes = 0;
};

/// One peer that something waits for. All counts are as of one moment.
struct PeerReport {
    struct Identity {
        bool known = false;  ///< connected, so that its rank is known
        uint32_t rank = 0;
        int32_t pid = 0;
        bool pid_known_here = true;  ///< false: of another host, or another container
        velo_path_t path = VELO_PATH_NONE;
    };
    /// Messages that wait here, the first of them in particular.
    struct Queue {
        uint32_t messages = 0;
        uint64_t bytes = 0;
        uint32_t first_bytes = 0;
        uint32_t first_done = 0;
        uint8_t first_class = 0;
        uint8_t first_tag = 0;
    };
    /// On the node: the ring to the peer, and the one from it.
    struct Ring {
        bool made = false;
        shm::RingFill fill{};
        uint32_t lines = 0;
        uint32_t bytes = 0;
        bool unread = false;  ///< messages in the ring from it
    };
    /// Through the device: credits at the peer, and credits due to it.
    struct Credits {
        bool used = false;
        bool by_contact = false;  ///< it has given us no slots, so messages go in contact slots
        uint32_t available = 0;
        uint32_t quota = 0;
        uint32_t needed = 0;     ///< by the first message that waits
        uint32_t retrieved = 0;  ///< kept until the threshold is reached
        uint32_t threshold = 0;
        uint32_t deferred = 0;  ///< to be returned as soon as they can leave
    };
    /// Transfers and atomics, by the event that ends them.
    struct Operations {
        WaitingOperations gets{}, puts{};  ///< of which not every chunk has been started
        WaitingOperations device_chunks{}, pulls{}, pushes{}, coop_blocks{}, atomics{};
        WaitingOperations assists{};  ///< of blocks that it fetches from here, and that this process moves

        [[nodiscard]] bool any() const {
            return gets.count != 0 || puts.count != 0 || device_chunks.count != 0 || pulls.count != 0 ||
                   pushes.count != 0 || coop_blocks.count != 0 || atomics.count != 0 || assists.count != 0;
        }
    };

    /// The way that blocks take which this process fetches from it, and the time that a byte takes each way.
    struct Copies {
        uint32_t bytes = 0;  ///< of the smallest such block
        bool both = false;   ///< while it fetches from here, too
        bool far = false;    ///< while its core is far
        CoopMethod method{};
        uint32_t switches = 0;
        std::array<uint32_t, kCoopMethods> ps_a_byte{};  ///< 0: not tried
    };

    /// A rail that is set aside, or is asked for (btl_velo_rails=dynamic).
    struct Reservation {
        enum class State : uint8_t { kNone, kAsked, kHeld, kGranted };
        State state = State::kNone;
        bool puts = false;   ///< of the one that asks
        bool known = false;  ///< connected, so that its rank is known
        uint32_t rank = 0;   ///< the other end
    };

    /// One of several rails: of this process's device operations, those on this peer and those on others.
    struct Rail {
        uint32_t rail = 0;
        WaitingOperations own{};
        WaitingOperations others{};
        uint32_t holder = 0;  ///< of the others, the rank with the most bytes
        bool out = false;     ///< taken out of use, to this peer or whatever the peer
        uint64_t retry_ns = 0;  ///< from now, until it is tried again
        std::array<Reservation, 4> reservations{};
    };

    Identity process{};
    uint64_t age_ns = 0;   ///< without movement
    uint64_t seen_ns = 0;  ///< since it was in MPI; UINT64_MAX: not known
    Queue queue{};
    Ring ring{};
    Credits credits{};
    DeviceReport device{};  ///< its mailbox
    Operations operations{};
    std::vector<Copies> copies{};
    std::vector<Rail> rails{};   ///< those that carry something of this peer's, are out, or are waited for
    uint32_t partial_bytes = 0;  ///< of a message of the device whose rest has not come

    [[nodiscard]] bool waited_for() const {
        return queue.messages != 0 || operations.any() || credits.deferred != 0;
    }
    [[nodiscard]] bool unconsumed() const { return ring.unread || partial_bytes != 0; }
};

/// This process, and every peer that something waits for.
struct StallReport {
    uint32_t rank = 0;
    bool asked_for = false;
    uint64_t stall_ns = 0;   ///< the longest age
    DeviceReport device{};  ///< its own mailbox
    size_t unanswered_contacts = 0;
    std::vector<PeerReport> peers{};
};

/// Several lines for the user; the first one says for how long nothing moved.
[[gnu::cold]] std::string to_text(const StallReport& report);

}  // namespace velo
