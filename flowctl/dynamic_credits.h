/// Credits that follow the activity of the senders: the dynamic flow control of FC 6, both roles of one
/// process, and memory that follows the conversation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowctl/dynamic_accounts.h"
#include "flowctl/grant_burst.h"
#include "flowctl/grant_threshold.h"
#include "flowctl/message_end.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "flowctl/quota_activity.h"
#include "flowctl/quota_paper.h"
#include "velo/base/check.h"
#include "velo/base/status.h"

namespace velo::flowctl {

/// Accounts for events, and asks the policies: `Quota` whose slots are taken for whom, `Grant` when credits go back.
///
/// Owner: FlowControl. Thread: the engine's. Every event is O(credit_slots) at most for each return that it
/// leads to, whatever the number of peers; nothing but know() allocates after construction.
///
/// With contact slots a peer owns no slot before the first contact. Packets without credits fill the
/// mailbox's contact slots, which all peers share and whose number the device bounds. Each of the two
/// processes then opens its mailbox to the other, if it has the capacity: it sets a minimum quota and credit
/// slots aside, and says so (link.h). A peer that finds no slots, because the mailbox is shared out to others
/// that are active, goes on with contact slots: slower, and never stuck. kOpen, kClose and kClosed fill
/// contact slots as well, so none of this waits for a credit.
template <class Quota, template <class> class GrantOf>
class DynamicCredits {
    using Grant = GrantOf<Quota>;

  public:
    explicit DynamicCredits(const Plan& plan) : accounts_(plan) {}

    [[nodiscard]] const DynamicAccounts& accounts() const noexcept { return accounts_; }

    /// There is an account for the peer from here on. The only event that allocates.
    void know(PeerIndex index) { accounts_.ledger.know(index); }
    [[nodiscard]] uint32_t known() const noexcept { return accounts_.ledger.known(); }

    // Sender role.

    [[nodiscard]] uint32_t sendable(PeerIndex to, uint32_t packets) const noexcept {
        return accounts_.ledger.sendable(to, packets);
    }

    void packets_sent(PeerIndex to, uint32_t packets) {
        VELO_DCHECK(at(to).link == LinkState::kOpen, "%u packets to peer %u, which has not opened", packets,
                    to);
        accounts_.ledger.spend(to, packets);
        at(to).used = true;
    }

    [[nodiscard]] Status credits_arrived(PeerIndex from, uint32_t credits, Outbox& outbox) {
        if (at(from).link != LinkState::kOpen) [[unlikely]] {
            // Void with our kClose.
            return at(from).link == LinkState::kClosing ? Status::kOk : Status::kProtocol;
        }
        const Status status = accounts_.ledger.receive(from, credits);
        if (status == Status::kOk) outbox.credits_came(from);
        return status;
    }

    /// The peer wants what we hold beyond our minimum quota (FC 6.5.4).
    [[nodiscard]] Status return_requested(PeerIndex by, Outbox& outbox) {
        if (at(by).link == LinkState::kClosing) return Status::kOk;  // what it wants back is on its way
        if (at(by).link != LinkState::kOpen || outbox.has(by, ControlKind::kReturnResponse))
            return Status::kProtocol;
        outbox.add(by, ControlKind::kReturnResponse);
        return Status::kOk;
    }
    /// Credits that a response gives up if it leaves now. Its packet costs a credit of what is kept.
    [[nodiscard]] uint32_t excess_credits(PeerIndex to) const noexcept {
        const uint32_t credits = at(to).credits();
        return credits > accounts_.min_quota ? credits - accounts_.min_quota : 0;
    }

    // Receiver role.

    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, MessageEnd end, Outbox& outbox) {
        if (const Status status = accounts_.ledger.retrieve(from, packets); status != Status::kOk)
            [[unlikely]]
            return status;
        DynamicPeer& peer = at(from);
        peer.spends = true;
        if (!end.control) accounts_.pattern.packets_retrieved(peer, packets, end.ended);
        if (peer.link == LinkState::kClosing) [[unlikely]]
            return Status::kOk;
        if (end.waited) [[unlikely]]
            Grant::message_waited(accounts_, peer);
        if (accounts_.ledger.reached(from)) [[unlikely]]
            return_credits(from, outbox);
        if (Grant::any_queued(accounts_)) [[unlikely]]
            Grant::grant_queued(accounts_, outbox);
        return Status::kOk;
    }

    [[nodiscard]] bool is_return_due(PeerIndex from, uint32_t packets) const noexcept {
        return at(from).retrieved() + packets >= accounts_.ledger.threshold(from);
    }

    /// Compulsory response (FC 6.5.4). Its packet has been reported like any other.
    [[nodiscard]] Status credits_given_up(PeerIndex from, uint32_t credits, Outbox& outbox) {
        DynamicPeer& peer = at(from);
        if (peer.link == LinkState::kClosing) return Status::kOk;  // all that it has comes back
        if (!peer.blocked) return Status::kProtocol;
        if (const Status status = accounts_.ledger.reclaim(from, credits); status != Status::kOk)
            return status;
        peer.blocked = false;
        if (accounts_.ledger.reached(from)) return_credits(from, outbox);
        if (Grant::any_queued(accounts_)) [[unlikely]]
            Grant::grant_queued(accounts_, outbox);
        return Status::kOk;
    }

    /// FC 6.6. Nothing is piggybacked to a blocked sender.
    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max, Outbox& outbox) {
        const DynamicPeer& peer = at(to);
        if (!accounts_.piggyback || peer.blocked || !lends(peer.link)) return 0;
        return Grant::piggyback_credits(accounts_, to, std::min(max, accounts_.return_max), outbox);
    }

    // First contact, and the end of it (contact slots).

    /// Packets to the peer fill contact slots there, without credits.
    [[nodiscard]] bool by_contact(PeerIndex to) const noexcept {
        return accounts_.by_contact && at(to).link != LinkState::kOpen;
    }
    /// A packet is about to go to a peer without credits; answers are to find slots here.
    void contact_sent(PeerIndex to, bool begins, Outbox& outbox) {
        if (can_open(to)) open(to, begins, outbox);
    }
    /// Packets of one message that filled contact slots have been retrieved; `ended`: its last one, too.
    [[nodiscard]] Status contact_retrieved(PeerIndex from, uint32_t packets, bool ended, Outbox& outbox) {
        if (!accounts_.by_contact) return Status::kProtocol;
        accounts_.pattern.packets_retrieved(at(from), packets, ended);
        if (!can_open(from) || !wants_slots(from)) return Status::kOk;
        open(from, ended, outbox);
        return Status::kOk;
    }
    /// The peer has opened its mailbox to us: we own `credits` slots there.
    [[nodiscard]] Status open_arrived(PeerIndex from, uint32_t credits, Outbox& outbox) {
        if (!accounts_.by_contact || credits == 0 || credits > accounts_.data_slots) return Status::kProtocol;
        if (!accounts_.apply_link(from, LinkEvent::kOpenArrived, outbox)) return Status::kProtocol;
        const LinkState state = at(from).link;
        if (state == LinkState::kClosing) return Status::kOk;
        accounts_.ledger.offer(from, credits);
        if (state == LinkState::kOffered) {
            if (wants_slots(from)) open(from, true, outbox);
        } else {
            outbox.credits_came(from);
        }
        return Status::kOk;
    }
    /// The peer neither uses slots here nor returns credits, from here on.
    [[nodiscard]] Status close_arrived(PeerIndex from, Outbox& outbox) {
        return forget_after(from, LinkEvent::kCloseArrived, outbox);
    }
    [[nodiscard]] Status closed_arrived(PeerIndex from, Outbox& outbox) {
        return forget_after(from, LinkEvent::kClosedArrived, outbox);
    }
    /// Closes the link with a peer that owns slots. Flow control does this by itself with peers that have
    /// been idle for long, where others need slots. Nothing happens where the peer owns none.
    void close(PeerIndex from, Outbox& outbox) {
        if (accounts_.by_contact && lends(at(from).link)) accounts_.close_link(from, outbox);
    }

    /// The peer's process has ended and none of its packets is left in the mailbox. Its index stays unused.
    void reset_peer(PeerIndex index) {
        if (accounts_.by_contact) return accounts_.forget(index);
        accounts_.ledger.retire(index);
        at(index).blocked = false;
        // A peer in the middle of a message without end is granted nothing for the next one.
        at(index).times.message_packets = 1;
    }

    // For tests, counters and reports.

    [[nodiscard]] uint32_t credits(PeerIndex index) const noexcept { return at(index).credits(); }
    [[nodiscard]] uint32_t retrieved(PeerIndex index) const noexcept { return at(index).retrieved(); }
    [[nodiscard]] uint32_t quota(PeerIndex index) const noexcept { return at(index).quota(); }
    [[nodiscard]] uint32_t granted(PeerIndex index) const noexcept { return at(index).granted(); }
    [[nodiscard]] uint32_t threshold(PeerIndex index) const noexcept {
        return accounts_.ledger.threshold(index);
    }
    [[nodiscard]] bool check_invariants(PeerIndex index) const noexcept {
        const DynamicPeer& peer = at(index);
        const bool closing = peer.link == LinkState::kClosing;
        const bool owns = lends(peer.link) || closing;
        return accounts_.ledger.balanced(index) && owns == accounts_.ledger.begun(index) &&
               (!closing || peer.credits() == 0) &&
               (!lends(peer.link) || peer.quota() >= accounts_.min_quota);
    }

    template <typename Visit>
    void visit_state(Visit&& visit) const {
        visit(accounts_.ledger.available_slots());
        visit(accounts_.ledger.unassigned_slots());
        if constexpr (Quota::kUsesPattern) {
            accounts_.pattern.visit_state(accounts_.ledger.entries(), visit);
            if (accounts_.by_contact) visit(accounts_.pattern.messages() - accounts_.last_opening);
        }
        for (PeerIndex index = 0; index < known(); ++index) {
            const DynamicPeer& peer = at(index);
            visit(peer.credits());
            visit(peer.quota());
            visit(peer.granted());
            visit(peer.retrieved());
            visit(peer.piggybacked());
            visit(peer.thresholds_reached * 2u + peer.blocked);
            visit(static_cast<uint32_t>(peer.link) * 4u + peer.spends * 2u + peer.used);
            for (uint32_t place = 0; place <= accounts_.credit_slots; ++place)
                visit(accounts_.ledger.threshold(index, place));
        }
        for (const Activity level : {Activity::kLow, Activity::kMedium, Activity::kHigh, Activity::kNull}) {
            for (PeerIndex i = accounts_.lists.last(level); i != DynamicAccounts::kNone; i = at(i).newer)
                visit(i);
            visit(uint32_t{DynamicAccounts::kNone});
        }
    }

  private:
    [[nodiscard]] DynamicPeer& at(PeerIndex index) noexcept { return accounts_.at(index); }
    [[nodiscard]] const DynamicPeer& at(PeerIndex index) const noexcept { return accounts_.at(index); }

    // Out of line is what few packets lead to.
    [[gnu::noinline]] void return_credits(PeerIndex index, Outbox& outbox) {
        Grant::return_credits(accounts_, index, outbox);
    }

    [[nodiscard]] bool can_open(PeerIndex index) const noexcept {
        return next_state(at(index).link, LinkEvent::kOpens).has_value();
    }

    /// A peer that has sent one message of one packet may send no other: our mailbox is opened to it by our
    /// own message to it, or by its next one.
    [[nodiscard]] bool wants_slots(PeerIndex index) const noexcept {
        const MessageTimes& times = at(index).times;
        return times.message_packets != 0 || times.message_packets_max > 1 ||
               accounts_.pattern.two_messages(at(index));
    }
    /// False where no slots are left for it.
    bool open(PeerIndex index, Outbox& outbox) {
        VELO_CHECK(can_open(index), "a second opening to peer %u", index);
        if (!accounts_.ledger.can_lend(accounts_.min_quota)) return false;
        DynamicPeer& peer = at(index);
        peer.spends = false;
        accounts_.pattern.begin(peer);
        accounts_.ledger.lend(index,
                              std::min({accounts_.initial_quota, accounts_.sender_slots_max,
                                        accounts_.ledger.unassigned_slots() - accounts_.credit_slots}));
        VELO_CHECK(peer.quota() >= accounts_.min_quota, "peer %u begins with %u slots", index, peer.quota());
        ++accounts_.owners;
        accounts_.last_opening = accounts_.pattern.messages();
        ++accounts_.counters.opened;
        const uint32_t credits = Grant::first_credits(accounts_, peer);
        accounts_.ledger.grant_first(index, credits);
        const bool only_minimum = peer.quota() == accounts_.min_quota && credits == accounts_.min_quota;
        accounts_.add_to_list(index, only_minimum ? Activity::kNull : Activity::kLow);
        const bool legal = accounts_.apply_link(index, LinkEvent::kOpens, outbox, credits);
        VELO_CHECK(legal, "the link with peer %u cannot open in state %u", index,
                   static_cast<unsigned>(peer.link));
        return true;
    }
    /// `makes_room`: where there are no slots, takes a step towards them. Not at each packet of a long
    /// message.
    void open(PeerIndex index, bool makes_room, Outbox& outbox) {
        if (open(index, outbox) || !makes_room) return;
        Quota::make_room(accounts_, outbox);
        open(index, outbox);
    }

    [[nodiscard]] Status forget_after(PeerIndex from, LinkEvent event, Outbox& outbox) {
        if (!accounts_.by_contact) return Status::kProtocol;
        const bool owned = lends(at(from).link);
        if (!accounts_.apply_link(from, event, outbox)) return Status::kProtocol;
        // The account is that of the link as it was.
        if (owned) accounts_.release_owner(from);
        accounts_.forget(from);
        return Status::kOk;
    }

    DynamicAccounts accounts_;
};

using PaperCredits = DynamicCredits<PaperQuota, PaperGrant>;
using BurstCredits = DynamicCredits<ActivityQuota, BurstGrant>;

}  // namespace velo::flowctl
