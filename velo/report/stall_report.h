/// Pending work of this process, for how long, and in words. The engine collects it (stall_reporter.h).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "velo/base/check.h"
#include "velo/channels/peer_report.h"
#include "velo/device/device.h"

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

    void begin(uint64_t now_ns) {
        VELO_CHECK(now_ns >= now_ns_, "time has run backwards");
        now_ns_ = now_ns;
    }

    /// Work waits for `key`; two looks with the same fingerprint have seen no movement in between.
    void saw(Key key, uint64_t fingerprint) {
        Entry& entry = entries_[key];
        if (entry.since_ns == 0 || entry.fingerprint != fingerprint) {
            note_resumed(entry);
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
                note_resumed(entry);
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
    /// Work that was moving when other work was reported does not go on now.
    void note_resumed(const Entry& entry) {
        const uint64_t age_ns = now_ns_ - entry.since_ns;
        if (entry.reported && age_ns >= limit_ns_) resumed_ns_ = age_ns;
    }

    uint64_t limit_ns_;
    uint64_t now_ns_ = 0;
    uint64_t resumed_ns_ = 0;
    std::unordered_map<Key, Entry> entries_;
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
