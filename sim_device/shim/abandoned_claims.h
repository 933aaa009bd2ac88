/// Holes that dead processes leave in rings and mailboxes of others.
///
/// A producer claims cells first and publishes them afterwards. If it is killed in between, the reader would
/// wait at the hole without end, and with it all that send there. A hole alone does not tell a dead
/// producer from a slow one, so every process keeps DeviceHeader::claims: odd from before its claim until
/// after its publication. A reader at a hole notes which live processes are odd. Each of them that has been
/// seen to move on since is innocent, for what it had claimed by then is published; when none is left
/// and the hole is still there, its owner is dead, and the reader goes on without it. No send waits, and
/// none pays more than two stores to a line of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim_device/shim/peer_table.h"

namespace velo::shim {

/// Marks its scope as one that claims and publishes. Thread: the owner's; not nested.
class OpenClaim {
  public:
    explicit OpenClaim(std::atomic<uint64_t>& claims)
        : claims_(claims), before_(claims.load(std::memory_order_relaxed)) {
        // The claim that follows is a release operation, so it is never seen without this.
        claims_.store(before_ + 1, std::memory_order_relaxed);
    }
    OpenClaim(const OpenClaim&) = delete;
    OpenClaim& operator=(const OpenClaim&) = delete;
    ~OpenClaim() { claims_.store(before_ + 2, std::memory_order_release); }

  private:
    std::atomic<uint64_t>& claims_;
    const uint64_t before_;
};

/// Live processes that may stand between claim and publication since a moment. Thread: the owner's.
class OpenClaims {
  public:
    /// A process that is not known here (its contact is the hole) or was refused is not among the suspects.
    /// It gets this much time, six orders of magnitude more than it takes to fill a cell.
    static constexpr uint64_t kGraceNs = 100'000'000;

    void watch(uint64_t now_ns) {
        since_ns_ = now_ns;
        suspects_.clear();
        known_ = 0;
    }
    /// Whether none is left of those that had a claim open at watch(): what they had claimed by then is published, or
    /// will never be. All contacts that wait have been taken.
    [[nodiscard]] bool settled(const PeerTable& peers, uint64_t now_ns) {
        // All peers at first; later those who have become known meanwhile.
        for (; known_ < peers.size(); ++known_) {
            const uint64_t claims = claims_of(peers[known_]);
            if (claims % 2 == 1) suspects_.push_back({known_, claims});
        }
        std::erase_if(suspects_, [&](const Suspect& suspect) {
            const Peer& peer = peers[suspect.addr];
            return peer.dead || claims_of(peer) != suspect.claims;
        });
        return suspects_.empty() && now_ns - since_ns_ >= kGraceNs;
    }

  private:
    struct Suspect {
        DeviceAddr addr;
        uint64_t claims;
    };
    static uint64_t claims_of(const Peer& peer) {
        return peer.view.header().claims.load(std::memory_order_acquire);
    }

    uint64_t since_ns_ = 0;
    DeviceAddr known_ = 0;  ///< peers before this one have been looked at
    std::vector<Suspect> suspects_;
};

/// Watches one ring or mailbox of this process. Thread: the owner's.
class AbandonedClaims {
  public:
    /// `position`: the reader's, whose cell was found unpublished; `claimed`: loaded with acquire after
    /// that. All contacts that wait have been taken. Returns the position before which every unpublished cell
    /// is abandoned, if there is one.
    std::optional<uint64_t> check(uint64_t position, uint64_t claimed, const PeerTable& peers,
                                  uint64_t now_ns) {
        if (position >= claimed) {
            watching_ = false;
            return std::nullopt;
        }
        if (!watching_ || position != position_) {
            watching_ = true;
            position_ = position;
            claimed_ = claimed;
            open_.watch(now_ns);
        }
        if (!open_.settled(peers, now_ns)) return std::nullopt;
        watching_ = false;
        return claimed_;
    }

  private:
    bool watching_ = false;
    uint64_t position_ = 0;
    uint64_t claimed_ = 0;
    OpenClaims open_;
};

/// Contact slots whose senders died before their packet was there. Thread: the owner's.
///
/// Of those that are taken at a moment, each has a packet once the claims that were open then are settled, or never
/// gets one. When all packets that are claimed by that time have been read, those without a packet are what was
/// taken, less what was freed meanwhile. Others may have been freed as well, so this is never too many.
class AbandonedContacts {
  public:
    /// How many to free now. All contacts that wait have been taken.
    template <class Reader>
    [[nodiscard]] uint32_t check(const Reader& mailbox, const PeerTable& peers, uint64_t now_ns) {
        const uint64_t freed = mailbox.contacts_freed();
        if (!watching_) {
            taken_ = mailbox.contacts_taken();
            freed_ = freed;
            claimed_.reset();
            open_.watch(now_ns);
            watching_ = taken_ != 0;
        }
        if (freed - freed_ >= taken_) watching_ = false;
        if (!watching_) return 0;
        if (!claimed_ && open_.settled(peers, now_ns)) claimed_ = mailbox.claimed();
        if (!claimed_ || mailbox.position() < *claimed_) return 0;
        watching_ = false;
        return taken_ - static_cast<uint32_t>(freed - freed_);
    }

  private:
    bool watching_ = false;
    uint32_t taken_ = 0;
    uint64_t freed_ = 0;
    std::optional<uint64_t> claimed_;  ///< once the claims are settled
    OpenClaims open_;
};

}  // namespace velo::shim
