/// The accounts of credits and slots: the only code that changes how many there are, and of whom.
///
/// A ledger belongs to one process and has one account a peer. Each operation asserts, on entry and on exit,
/// that the account balances and that no slot was lost or made (VELO_DEBUG). Policies decide, ledgers
/// account.
/// Thread: the engine's. Every operation is O(credit_slots) at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowctl/plan.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// The part of an account that every mode has.
class Account {
  public:
    /// Sender role: packets that may still go to the peer (FC 5.1).
    [[nodiscard]] uint32_t credits() const noexcept { return credits_; }
    /// Receiver role: packets dequeued from the mailbox whose credits have not gone back (FC's
    /// retrieved_packets).
    [[nodiscard]] uint32_t retrieved() const noexcept { return retrieved_; }

  private:
    template <class Self, class Entry>
    friend class Ledger;

    uint32_t credits_ = 0;
    uint32_t retrieved_ = 0;
};

/// Both roles of a process, as far as they do not depend on how slots are shared out. `Self` derives from it
/// and has balanced(PeerIndex); `Entry` derives from Account.
template <class Self, class Entry>
class Ledger {
  public:
    /// Peers that there is an account for.
    [[nodiscard]] uint32_t known() const noexcept { return static_cast<uint32_t>(entries_.size()); }
    [[nodiscard]] const Entry& operator[](PeerIndex index) const noexcept {
        VELO_DCHECK(index < entries_.size(), "peer %u of %zu", index, entries_.size());
        return entries_[index];
    }
    /// The account of a peer can be read only; what a policy keeps beside it can be written.
    [[nodiscard]] Entry& operator[](PeerIndex index) noexcept {
        VELO_DCHECK(index < entries_.size(), "peer %u of %zu", index, entries_.size());
        return entries_[index];
    }
    [[nodiscard]] std::vector<Entry>& entries() noexcept { return entries_; }
    [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }

    [[nodiscard]] uint32_t sendable(PeerIndex to, uint32_t packets) const noexcept {
        return std::min(packets, (*this)[to].credits());
    }

    /// Packets go to the peer. Never more than sendable() says.
    void spend(PeerIndex to, uint32_t packets) {
        const Audit audit(*this, to);
        uint32_t& credits = credits_of((*this)[to]);
        VELO_CHECK(packets <= credits, "%u packets went to peer %u with %u credits", packets, to, credits);
        credits -= packets;
    }

    /// Credits came from the peer. kProtocol for 0, which would fill a slot of the credit region that no
    /// threshold paid for, and for more than the peer can owe.
    [[nodiscard]] Status receive(PeerIndex from, uint32_t credits) noexcept {
        const Audit audit(*this, from);
        uint32_t& held = credits_of((*this)[from]);
        if (credits == 0 || credits > credits_max_ - held) [[unlikely]]
            return Status::kProtocol;
        held += credits;
        return Status::kOk;
    }

  protected:
    Ledger(uint32_t peers, uint32_t credits_max) : entries_(peers), credits_max_(credits_max) {
        VELO_CHECK(credits_max >= 1, "a ledger for no credits, with %u peers", peers);
    }

    /// Asserts that the account of one peer balances when an operation begins and when it ends.
    class Audit {
      public:
        Audit([[maybe_unused]] const Ledger& ledger, [[maybe_unused]] PeerIndex peer) noexcept
#ifdef VELO_DEBUG
            : ledger_(ledger), peer_(peer) {
            VELO_CHECK(self().balanced(peer_), "the books of peer %u do not balance before an operation",
                       peer_);
        }
        ~Audit() {
            VELO_CHECK(self().balanced(peer_), "the books of peer %u do not balance after an operation",
                       peer_);
        }

      private:
        [[nodiscard]] const Self& self() const {
            return static_cast<const Self&>(ledger_);
        }
        const Ledger& ledger_;
        PeerIndex peer_;
#else
        {
        }
#endif
      public:
        Audit(const Audit&) = delete;
        Audit& operator=(const Audit&) = delete;
    };

    [[nodiscard]] static uint32_t& credits_of(Account& account) noexcept {
        return account.credits_;
    }
    [[nodiscard]] static uint32_t& retrieved_of(Account& account) noexcept {
        return account.retrieved_;
    }

    std::vector<Entry> entries_;
    /// Most credits that a peer can have given us.
    uint32_t credits_max_;
};

}  // namespace velo::flowctl
