/// The accounts where senders share one pool of slots, and each has a FIFO of thresholds: dynamic flow
/// control (FC 6.2).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "flowctl/ledger.h"
#include "flowctl/plan.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// The account of one peer, beside its credit_slots + 1 thresholds of two bytes each.
class FifoAccount : public Account {
  public:
    /// Slots that the peer should have in the near future (FC's intended_quota).
    [[nodiscard]] uint32_t quota() const noexcept { return quota_; }
    /// Credits held by the peer, under way to it, or in packets that are not retrieved (FC's
    /// current_credits).
    [[nodiscard]] uint32_t granted() const noexcept { return granted_; }
    /// Credits piggybacked since the threshold was last reached.
    [[nodiscard]] uint32_t piggybacked() const noexcept { return piggybacked_; }

  private:
    template <class Peer>
    friend class FifoLedger;

    uint32_t quota_ = 0;
    uint32_t granted_ = 0;
    /// Credits piggybacked since the threshold was reached; before an account begins, those that the peer has offered
    /// us, which cannot be used yet.
    uint32_t piggybacked_ = 0;
    /// The place of the FIFO's head in its ring.
    uint8_t head_ = 0;
};

/// Invariants:
/// - available slots + all granted credits + credit slots that are lent = data region. The quotas, what is
///   assigned to no peer, and the credit slots that are lent add up to the data region as well. (Credit slots
///   are lent out of the data region where peers own none from the start, with contact slots.)
/// - The thresholds of an account are at least 1 and add up to granted + 1 + retrieved (I1 and I2 of
///   docs/flow-control.md). So a peer without credits has retrieved >= the head, for the other thresholds add
///   up to at least credit_slots >= 1: what took its last credit has found the threshold reached. At that
///   time a slot was free, the packet's own, so at least one credit went back. Hence no sender waits without
///   end.
/// - The FIFO lists the last credit_slots + 1 returns. With m explicit credit packets unread, a sender can
///   use only what lies before them in the list, so no credit region overflows.
///
/// Delaying a return, or returning any available number of credits, preserves the invariants.
///
/// An account begins when its slots are lent, and ends when it is closed; without contact slots all begin at
/// once.
template <class Peer>
class FifoLedger : public Ledger<FifoLedger<Peer>, Peer> {
    using Base = Ledger<FifoLedger<Peer>, Peer>;
    using Base::credits_of;
    using Base::entries_;
    using Base::retrieved_of;
    using typename Base::Audit;

  public:
    explicit FifoLedger(const Plan& plan)
        : Base(plan.contact_slots != 0 ? 0 : plan.peers, plan.data_region_slots),
          thresholds_(size_t{this->known()} * (plan.credit_slots + 1), uint16_t{1}),
          data_slots_(plan.data_region_slots),
          available_slots_(plan.data_region_slots - this->known() * plan.quota),
          unassigned_slots_(plan.contact_slots != 0 ? plan.data_region_slots : 0),
          credit_slots_(plan.credit_slots) {
        VELO_CHECK(plan.credit_slots >= 1 && plan.credit_slots <= kCreditSlotsMax, "%u credit slots",
                   credit_slots_);
        VELO_CHECK(this->known() * plan.quota <= plan.data_region_slots, "%u slots for %u peers of %u each",
                   data_slots_, this->known(), plan.quota);
        for (PeerIndex index = 0; index < this->known(); ++index) {
            FifoAccount& account = (*this)[index];
            credits_of(account) = account.granted_ = plan.quota;
            const uint32_t equal_quota =
                plan.data_region_slots / plan.peers + (index < plan.data_region_slots % plan.peers ? 1 : 0);
            account.quota_ = std::min(equal_quota, plan.sender_slots_max);
        }
    }

    /// There is an account for the peer from here on. The only operation that allocates.
    void know(PeerIndex index) {
        if (index < this->known()) return;
        entries_.resize(size_t{index} + 1);
        thresholds_.resize(entries_.size() * ring_slots(), 0);
    }

    [[nodiscard]] uint32_t data_slots() const noexcept { return data_slots_; }
    [[nodiscard]] uint32_t available_slots() const noexcept { return available_slots_; }
    [[nodiscard]] uint32_t unassigned_slots() const noexcept { return unassigned_slots_; }
    /// Slots that peers own as credit slots, out of the data region.
    [[nodiscard]] uint32_t lent_slots() const noexcept { return lent_slots_; }
    /// A threshold of the peer's FIFO, `place` entries behind its head.
    [[nodiscard, gnu::always_inline]] uint32_t threshold(PeerIndex index, uint32_t place = 0) const noexcept {
        return thresholds_[at_place(index, (*this)[index].head_ + place)];
    }
    /// Whether an explicit return is due. >=, because the blocked flow can pass the head.
    [[nodiscard]] bool reached(PeerIndex index) const noexcept {
        return (*this)[index].retrieved() >= threshold(index);
    }
    /// Whether a return is due once piggybacked credits count as well (FC 6.6).
    [[nodiscard]] bool reached_with_piggybacked(PeerIndex index) const noexcept {
        const FifoAccount& account = (*this)[index];
        return account.retrieved() + account.piggybacked_ >= threshold(index);
    }
    /// Credits that the peer has offered, where its account here has not begun.
    [[nodiscard]] uint32_t offered(PeerIndex index) const noexcept {
        return begun(index) ? 0 : (*this)[index].piggybacked_;
    }

    // Packets and returns.

    /// Packets of the peer have left the mailbox: their slots are available. kProtocol for more than it can
    /// have sent.
    [[nodiscard]] Status retrieve(PeerIndex from, uint32_t packets) {
        const Audit audit(*this, from);
        FifoAccount& account = (*this)[from];
        if (packets > account.granted_) [[unlikely]]
            return Status::kProtocol;
        account.granted_ -= packets;
        retrieved_of(account) += packets;
        available_slots_ += packets;
        return Status::kOk;
    }

    /// With the threshold reached: the head leaves the FIFO, and what is granted enters it. Returns how many,
    /// which is less than wanted where slots are short.
    uint32_t return_credits(PeerIndex to, uint32_t wanted) {
        const Audit audit(*this, to);
        VELO_DCHECK(reached(to), "a return to peer %u before its threshold", to);
        VELO_DCHECK(available_slots_ != 0 && wanted != 0, "a return of nothing to peer %u", to);
        const uint32_t credits = std::min(wanted, available_slots_);
        retrieved_of((*this)[to]) -= threshold(to);
        (*this)[to].piggybacked_ = 0;
        rotate(to, credits);
        grant(to, credits);
        return credits;
    }

    /// With the threshold reached, returns one credit to a blocked sender (FC 6.5.4): 1 enters the FIFO for
    /// the head. Credits that were piggybacked before stay a part of the next return.
    void return_one(PeerIndex to) {
        const Audit audit(*this, to);
        VELO_DCHECK(reached(to) && available_slots_ != 0, "a credit for peer %u before its threshold", to);
        retrieved_of((*this)[to]) -= threshold(to);
        rotate(to, 1);
        grant(to, 1);
    }

    /// With the threshold reached, piggybacked credits included: the piggybacked ones are a part of the
    /// return. The rest goes now (adjustment by deficit), `more_max` at most, or what is too much raises the
    /// next threshold (adjustment by excess). Returns what goes now.
    uint32_t return_rest(PeerIndex to, uint32_t wanted, uint32_t more_max) {
        const Audit audit(*this, to);
        VELO_DCHECK(reached_with_piggybacked(to), "a piggybacked return to peer %u before its threshold", to);
        FifoAccount& account = (*this)[to];
        const uint32_t before = std::exchange(account.piggybacked_, 0);
        retrieved_of(account) += before - threshold(to);
        if (wanted < before) {
            rotate(to, wanted);
            uint16_t& head = thresholds_[at_place(to, account.head_)];
            head = static_cast<uint16_t>(head + before - wanted);
            return 0;
        }
        const uint32_t inserted = std::min(wanted, before + std::min(available_slots_, more_max));
        rotate(to, inserted);
        grant(to, inserted - before);
        return inserted - before;
    }

    /// Below the threshold: credits of retrieved packets ride in a message.
    void piggyback(PeerIndex to, uint32_t credits) {
        const Audit audit(*this, to);
        FifoAccount& account = (*this)[to];
        VELO_CHECK(credits <= account.retrieved(), "%u credits to peer %u for %u packets", credits, to,
                   account.retrieved());
        retrieved_of(account) -= credits;
        account.piggybacked_ += credits;
        grant(to, credits);
    }

    /// Credits that ride in a message before the threshold is reached, as a part of the last return: the peer
    /// reads that one before them.
    void extend_last(PeerIndex to, uint32_t credits) {
        const Audit audit(*this, to);
        uint16_t& last = thresholds_[at_place(to, (*this)[to].head_ + credit_slots_)];
        VELO_CHECK(credits <= kReturnMax - last, "a threshold of %u and %u more for peer %u", last, credits,
                   to);
        last = static_cast<uint16_t>(last + credits);
        grant(to, credits);
    }
    [[nodiscard]] uint32_t last_threshold(PeerIndex index) const noexcept {
        return threshold(index, credit_slots_);
    }

    /// The peer has given credits up. They come off the thresholds, the last ones first; each stays at
    /// least 1. kProtocol for more than it can have.
    [[nodiscard]] Status reclaim(PeerIndex from, uint32_t credits) {
        const Audit audit(*this, from);
        FifoAccount& account = (*this)[from];
        if (credits > account.granted_ || credits > account.granted_ + account.retrieved() - credit_slots_) {
            return Status::kProtocol;
        }
        account.granted_ -= credits;
        available_slots_ += credits;
        for (uint32_t place = ring_slots(); place-- != 0 && credits != 0;) {
            uint16_t& threshold = thresholds_[at_place(from, account.head_ + place)];
            const uint32_t taken = std::min(credits, threshold - 1u);
            threshold = static_cast<uint16_t>(threshold - taken);
            credits -= taken;
        }
        VELO_DCHECK(credits == 0, "%u credits of peer %u are in no threshold", credits, from);
        return Status::kOk;
    }

    // Quotas.

    /// The peer's quota grows out of what is assigned to no peer.
    void assign(PeerIndex to, uint32_t slots) {
        const Audit audit(*this, to);
        VELO_CHECK(slots <= unassigned_slots_, "%u slots for peer %u of %u", slots, to, unassigned_slots_);
        (*this)[to].quota_ += slots;
        unassigned_slots_ -= slots;
    }
    void release(PeerIndex from, uint32_t slots) {
        const Audit audit(*this, from);
        VELO_CHECK(slots <= (*this)[from].quota_, "%u slots of peer %u, which has fewer", slots, from);
        (*this)[from].quota_ -= slots;
        unassigned_slots_ += slots;
    }
    void move_quota(PeerIndex from, PeerIndex to, uint32_t slots) {
        const Audit audit(*this, from);
        const Audit audit_to(*this, to);
        VELO_DCHECK(from != to, "peer %u takes slots from itself", to);
        VELO_CHECK(slots <= (*this)[from].quota_, "%u slots of peer %u, which has fewer", slots, from);
        (*this)[from].quota_ -= slots;
        (*this)[to].quota_ += slots;
    }

    // Accounts that begin and end (contact slots).

    /// Whether the peer owns slots here.
    [[nodiscard]] bool begun(PeerIndex index) const noexcept { return threshold(index) != 0; }

    /// Credits that the peer has opened its mailbox with. They can be used once the account here has begun.
    void offer(PeerIndex from, uint32_t credits) {
        const Audit audit(*this, from);
        VELO_DCHECK(credits <= data_slots_, "peer %u offers %u credits", from, credits);
        (begun(from) ? credits_of((*this)[from]) : (*this)[from].piggybacked_) = credits;
    }

    /// Whether there are slots for an account with this number of credits.
    [[nodiscard]] bool can_lend(uint32_t credits) const noexcept {
        return std::min(available_slots_, unassigned_slots_) >= credit_slots_ + credits;
    }
    /// Credit slots and a quota for the peer; grant_first() follows.
    void lend(PeerIndex to, uint32_t quota) {
        const Audit audit(*this, to);
        FifoAccount& account = (*this)[to];
        VELO_CHECK(
            !begun(to) && credit_slots_ + quota <= unassigned_slots_ && credit_slots_ <= available_slots_,
            "%u slots for peer %u of %u", quota, to, unassigned_slots_);
        available_slots_ -= credit_slots_;
        unassigned_slots_ -= credit_slots_ + quota;
        lent_slots_ += credit_slots_;
        account.quota_ = quota;
    }
    /// The credits that an account begins with. The credit slots bound what the peer's credit packets fill:
    /// FC 6.3 begins with thresholds of 1 and as many credits as credit slots; any g credits do whose
    /// thresholds add up to g + 1, because the last return before the peer has read one would take g + 1
    /// packets.
    void grant_first(PeerIndex to, uint32_t credits) {
        const Audit audit(*this, to);
        VELO_CHECK(!begun(to) && credits >= credit_slots_ && credits <= available_slots_,
                   "%u first credits to peer %u", credits, to);
        FifoAccount& account = (*this)[to];
        credits_of(account) = std::exchange(account.piggybacked_, 0);
        account.granted_ = credits;
        available_slots_ -= credits;
        for (uint32_t place = 0; place <= credit_slots_; ++place) {
            const uint32_t rest = place == credit_slots_ ? (credits + 1) % ring_slots() : 0;
            thresholds_[at_place(to, place)] = static_cast<uint16_t>((credits + 1) / ring_slots() + rest);
        }
    }
    /// Our credits at the peer are void.
    void drop_credits(PeerIndex at) {
        const Audit audit(*this, at);
        credits_of((*this)[at]) = 0;
    }
    /// All that the peer owned is back, and what it has offered is void.
    void close(PeerIndex index) {
        const Audit audit(*this, index);
        FifoAccount& account = (*this)[index];
        if (begun(index)) {
            VELO_CHECK(lent_slots_ >= credit_slots_, "peer %u has %u lent slots of %u", index, credit_slots_,
                       lent_slots_);
            available_slots_ += account.granted_ + credit_slots_;
            unassigned_slots_ += account.quota_ + credit_slots_;
            lent_slots_ -= credit_slots_;
            std::fill_n(thresholds_.begin() + static_cast<std::ptrdiff_t>(at_place(index, 0)), ring_slots(),
                        uint16_t{0});
        }
        static_cast<FifoAccount&>(account) = FifoAccount{};
    }
    /// The peer's process has ended. Its account stays, without credits, and its quota is what it was (no
    /// contact slots).
    void retire(PeerIndex index) {
        const Audit audit(*this, index);
        FifoAccount& account = (*this)[index];
        VELO_CHECK(begun(index), "peer %u ends without an account", index);
        available_slots_ += std::exchange(account.granted_, 0);
        credits_of(account) = account.piggybacked_ = 0;
        retrieved_of(account) = credit_slots_;
        std::fill_n(thresholds_.begin() + static_cast<std::ptrdiff_t>(at_place(index, 0)), ring_slots(),
                    uint16_t{1});
    }

    /// Whether what must always hold of a peer's account, and of all slots, holds. O(credit_slots).
    [[nodiscard]] bool balanced(PeerIndex index) const noexcept {
        const FifoAccount& account = (*this)[index];
        if (available_slots_ + lent_slots_ > data_slots_ || unassigned_slots_ + lent_slots_ > data_slots_)
            return false;
        if (!begun(index)) return account.credits() == 0 && account.granted_ == 0 && account.retrieved() == 0;
        uint32_t sum = 0;
        for (uint32_t place = 0; place <= credit_slots_; ++place) {
            if (threshold(index, place) == 0) return false;
            sum += threshold(index, place);
        }
        return sum == account.granted_ + 1 + account.retrieved() &&
               account.granted_ <= data_slots_ - available_slots_ && account.credits() <= this->credits_max_;
    }
    /// Whether no slot was lost or made, over all accounts. O(peers).
    [[nodiscard]] bool conserved() const noexcept {
        uint32_t granted = available_slots_ + lent_slots_;
        for (const FifoAccount& account : entries_) granted += account.granted_;
        return granted == data_slots_;
    }

  private:
    [[nodiscard]] uint32_t ring_slots() const noexcept { return credit_slots_ + 1; }
    /// `place` is less than two rounds of the ring.
    [[nodiscard]] size_t at_place(PeerIndex index, uint32_t place) const noexcept {
        VELO_DCHECK(place < 2 * ring_slots(), "place %u of %u, peer %u", place, ring_slots(), index);
        return size_t{index} * ring_slots() + (place >= ring_slots() ? place - ring_slots() : place);
    }
    /// Takes the head out of the FIFO and puts `threshold` in.
    void rotate(PeerIndex index, uint32_t threshold) {
        VELO_DCHECK(threshold >= 1 && threshold <= kReturnMax, "a threshold of %u for peer %u", threshold,
                    index);
        FifoAccount& account = (*this)[index];
        thresholds_[at_place(index, account.head_)] = static_cast<uint16_t>(threshold);
        account.head_ = static_cast<uint8_t>(account.head_ == credit_slots_ ? 0 : account.head_ + 1);
    }
    void grant(PeerIndex to, uint32_t credits) {
        VELO_CHECK(credits <= available_slots_, "%u credits to peer %u of %u slots", credits, to,
                   available_slots_);
        (*this)[to].granted_ += credits;
        available_slots_ -= credits;
    }

    /// credit_slots + 1 of each peer, a ring; 0 where the account has not begun.
    std::vector<uint16_t> thresholds_;
    uint32_t data_slots_;
    uint32_t available_slots_;
    /// Slots of the data region that are in no peer's quota.
    uint32_t unassigned_slots_;
    uint32_t lent_slots_ = 0;
    uint32_t credit_slots_;
};

}  // namespace velo::flowctl
