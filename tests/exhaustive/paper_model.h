/// A second model of FC 6, apart from the one that ships, with the steps that the paper leaves open as
/// switches.
///
/// It has FlowControl's interface, so that the same worlds drive it: they show what each other interpretation
/// breaks. No contact slots, no runs; the paper's stealing; sender and receiver role as in FC 6.2 to 6.6. It
/// has accounts of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowctl/activity_lists.h"
#include "flowctl/link.h"
#include "flowctl/message_end.h"
#include "flowctl/outbox.h"
#include "flowctl/plan.h"
#include "velo/base/status.h"

namespace velo::exhaustive {

/// How a step of FC 6 is read. The defaults hold; docs/flow-control.md says where in the paper each question
/// arises.
struct Interpretation {
    /// The entry of the FIFO when fewer slots are available than the threshold asks for.
    enum class ShortOfSlots : uint8_t { kGranted, kComputed };
    /// When the threshold is reached in the regular way.
    enum class Reached : uint8_t { kAtLeast, kExactly };
    /// The effect of a blocked sender's reached threshold when one credit is returned. kConsume: the head
    /// leaves the FIFO and is subtracted from the retrieved packets, a 1 enters. kUncount: one retrieved packet
    /// fewer. kNothing.
    enum class BlockedOne : uint8_t { kConsume, kUncount, kNothing };
    /// The effect of a blocked sender's reached threshold when no credit is returned. kNothing; kReset: no
    /// packet is retrieved, the computed threshold or a 0 or 1 takes the head's place.
    enum class BlockedNone : uint8_t { kNothing, kResetComputed, kResetOne };
    /// The effect of a compulsory response on the FIFO.
    enum class Response : uint8_t { kTrim, kUntouched };
    /// Retrieved packets beyond the threshold, in the piggybacking way.
    enum class Overshoot : uint8_t { kCarry, kReset };
    /// More was piggybacked than the computed threshold.
    enum class Excess : uint8_t { kAddToHead, kIgnore };

    ShortOfSlots short_of_slots = ShortOfSlots::kGranted;
    Reached reached = Reached::kAtLeast;
    BlockedOne blocked_one = BlockedOne::kConsume;
    BlockedNone blocked_none = BlockedNone::kNothing;
    Response response = Response::kTrim;
    Overshoot overshoot = Overshoot::kCarry;
    Excess excess = Excess::kAddToHead;
    /// Whether the threshold is tested again when a sender is unblocked.
    bool test_after_unblocking = true;
    /// Whether the piggybacking way grants one credit where no slot is available.
    bool at_least_one = false;
    /// Whether more may be piggybacked than slots are available.
    bool piggyback_unavailable = false;
};

class PaperModel {
    using Read = Interpretation;
    using PeerIndex = flowctl::PeerIndex;
    using Activity = flowctl::Activity;

  public:
    /// How all of them read the paper. No part of a state, since it stays during an exploration; and no parameter of a
    /// template, since each would bring the explorer's code with it.
    static inline Interpretation read{};

    struct Control {
        flowctl::ControlKind kind = flowctl::ControlKind::kCredits;
        uint32_t value = 0;
    };

    explicit PaperModel(const flowctl::Plan& plan)
        : plan_(plan), peers_(plan.peers), available_(plan.data_region_slots - plan.peers * plan.quota) {
        outbox_.know(plan.peers - 1);
        for (PeerIndex index = 0; index < plan.peers; ++index) {
            Peer& peer = peers_[index];
            peer.credits = peer.current = plan.quota;
            peer.quota =
                plan.data_region_slots / plan.peers + (index < plan.data_region_slots % plan.peers ? 1 : 0);
            peer.fifo.assign(plan.credit_slots + 1, 1);
            lists_.add_front(peers_, index, Activity::kLow);
        }
    }

    void know(PeerIndex) {}
    [[nodiscard]] uint32_t sendable(PeerIndex to, uint32_t packets) const {
        return std::min(packets, peers_[to].credits);
    }
    void packets_sent(PeerIndex to, uint32_t packets) { peers_[to].credits -= packets; }

    [[nodiscard]] Status credits_arrived(PeerIndex from, uint32_t credits) {
        if (credits == 0 || credits > plan_.data_region_slots - peers_[from].credits)
            return Status::kProtocol;
        peers_[from].credits += credits;
        outbox_.credits_came(from);
        return Status::kOk;
    }

    [[nodiscard]] Status packets_retrieved(PeerIndex from, uint32_t packets, flowctl::MessageEnd) {
        Peer& peer = peers_[from];
        outbox_.mark();
        if (packets > peer.current) return Status::kProtocol;
        peer.current -= packets;
        peer.retrieved += packets;
        available_ += packets;
        if (reached(peer)) return_credits(from);
        return Status::kOk;
    }

    [[nodiscard]] Status control_arrived(PeerIndex from, flowctl::ControlKind kind, uint32_t value) {
        outbox_.mark();
        if (kind == flowctl::ControlKind::kReturnRequest) {
            if (outbox_.has(from, flowctl::ControlKind::kReturnResponse)) return Status::kProtocol;
            outbox_.add(from, flowctl::ControlKind::kReturnResponse);
            return Status::kOk;
        }
        if (kind != flowctl::ControlKind::kReturnResponse) return Status::kProtocol;
        Peer& peer = peers_[from];
        if (!peer.blocked || value > peer.current ||
            value > peer.current + peer.retrieved - plan_.credit_slots) {
            return Status::kProtocol;
        }
        peer.current -= value;
        available_ += value;
        if (read.response == Read::Response::kTrim) {
            for (size_t place = peer.fifo.size(); place-- != 0;) {
                const uint32_t taken = std::min(value, peer.fifo[place] - 1);
                peer.fifo[place] -= taken;
                value -= taken;
            }
        }
        peer.blocked = false;
        if (read.test_after_unblocking && reached(peer)) return_credits(from);
        return Status::kOk;
    }

    /// FC 6.6.
    [[nodiscard]] uint32_t take_piggyback(PeerIndex to, uint32_t max) {
        outbox_.mark();
        Peer& peer = peers_[to];
        if (!plan_.piggyback || peer.blocked) return 0;
        uint32_t credits = 0;
        const bool due = peer.retrieved + peer.piggybacked >= peer.fifo.front();
        while (peer.retrieved + peer.piggybacked >= peer.fifo.front()) {
            const uint32_t before = peer.piggybacked;
            const uint32_t left = read.at_least_one ? std::max(available_, 1u) : available_;
            const uint32_t possible = before + std::min(left, max - credits);
            if (possible == 0) return credits;
            count_threshold(to);
            const uint32_t wanted = wanted_threshold(peer);
            const uint32_t beyond = peer.retrieved + before - peer.fifo.front();
            peer.retrieved = read.overshoot == Read::Overshoot::kCarry ? beyond : 0;
            peer.piggybacked = 0;
            if (wanted >= before) {
                const uint32_t inserted = std::min(wanted, possible);
                rotate(peer, inserted);
                grant(peer, inserted - before);
                credits += inserted - before;
            } else {
                rotate(peer, wanted);
                if (read.excess == Read::Excess::kAddToHead) peer.fifo.front() += before - wanted;
            }
        }
        if (due) return credits;
        const uint32_t free = read.piggyback_unavailable ? max : available_;
        const uint32_t rest = std::min({peer.retrieved, max - credits, free});
        peer.retrieved -= rest;
        peer.piggybacked += rest;
        grant(peer, rest);
        return credits + rest;
    }

    // Control packets, as FlowControl sends them.

    template <class Send>
    void send_control(Send&& send) {
        outbox_.visit_fresh([&](PeerIndex peer) { return send_to(peer, send); });
    }
    template <class Send>
    void resend_control(Send&& send) {
        outbox_.visit_refused([&](PeerIndex peer) { return send_to(peer, send); });
    }
    [[nodiscard]] bool next_control(PeerIndex to, Control& control) const {
        const flowctl::ControlSet ready = outbox_.ready(to, peers_[to].credits != 0);
        if (ready.empty()) return false;
        control.kind = ready.first();
        control.value = control.kind == flowctl::ControlKind::kCredits          ? outbox_.credits(to)
                        : control.kind == flowctl::ControlKind::kReturnResponse ? excess(peers_[to])
                                                                                : 0;
        return true;
    }

    [[nodiscard]] bool response_due(PeerIndex to) const {
        return outbox_.has(to, flowctl::ControlKind::kReturnResponse);
    }
    [[nodiscard]] bool control_due(PeerIndex to, flowctl::ControlKind kind) const {
        return outbox_.has(to, kind);
    }
    [[nodiscard]] bool any_control_due(PeerIndex to) const { return outbox_.due(to); }
    [[nodiscard]] uint32_t deferred_credits(PeerIndex to) const { return outbox_.credits(to); }

    [[nodiscard]] uint32_t credits(PeerIndex peer) const { return peers_[peer].credits; }
    [[nodiscard]] uint32_t retrieved(PeerIndex peer) const { return peers_[peer].retrieved; }
    [[nodiscard]] uint32_t quota(PeerIndex peer) const { return peers_[peer].quota; }
    [[nodiscard]] uint32_t granted(PeerIndex peer) const { return peers_[peer].current; }
    [[nodiscard]] uint32_t threshold(PeerIndex peer) const { return peers_[peer].fifo.front(); }
    [[nodiscard]] uint32_t available_slots() const { return available_; }
    [[nodiscard]] bool blocked(PeerIndex peer) const { return peers_[peer].blocked; }
    [[nodiscard]] bool check_invariants(PeerIndex) const { return true; }

    template <typename Visit>
    void visit_state(Visit&& visit) const {
        visit(available_);
        for (const Peer& peer : peers_) {
            visit(peer.credits);
            visit(peer.quota);
            visit(peer.current);
            visit(peer.retrieved);
            visit(peer.piggybacked);
            visit(peer.reached * 2u + peer.blocked);
            for (const uint32_t threshold : peer.fifo) visit(threshold);
        }
        for (const Activity level : {Activity::kLow, Activity::kMedium, Activity::kHigh, Activity::kNull}) {
            for (PeerIndex at = lists_.last(level); at != kNobody; at = peers_[at].newer) visit(at);
            visit(uint32_t{kNobody});
        }
        outbox_.visit_state(visit);
    }

    // Not modelled.

    [[nodiscard]] Status run_retrieved(PeerIndex, uint32_t) { return Status::kUnsupported; }
    void settle_run() {}
    [[nodiscard]] uint32_t run_packets(PeerIndex) const { return 0; }
    [[nodiscard]] bool by_contact(PeerIndex) const { return false; }
    void contact_sent(PeerIndex, bool) {}
    [[nodiscard]] uint32_t opening_due(PeerIndex, uint32_t) const { return 0; }
    void opening_left(PeerIndex) {}
    [[nodiscard]] Status contact_retrieved(PeerIndex, uint32_t, bool) { return Status::kProtocol; }
    void close(PeerIndex) {}
    void reset_peer(PeerIndex) {}
    [[nodiscard]] uint32_t deferred_first_credits(PeerIndex) const { return 0; }
    [[nodiscard]] uint32_t offered_credits(PeerIndex) const { return 0; }
    [[nodiscard]] uint32_t lent_slots() const { return 0; }
    [[nodiscard]] flowctl::LinkState link(PeerIndex) const { return flowctl::LinkState::kOpen; }

  private:
    static constexpr PeerIndex kNobody = ~PeerIndex{0};

    struct Peer {
        uint32_t credits = 0;
        uint32_t quota = 0;
        uint32_t current = 0;
        uint32_t retrieved = 0;
        uint32_t piggybacked = 0;
        uint32_t reached = 0;
        bool blocked = false;
        std::vector<uint32_t> fifo;
        PeerIndex newer = 0;
        PeerIndex older = 0;
        uint8_t list = 0;
    };

    [[nodiscard]] static bool reached(const Peer& peer) {
        return read.reached == Read::Reached::kExactly ? peer.retrieved == peer.fifo.front()
                                                        : peer.retrieved >= peer.fifo.front();
    }
    [[nodiscard]] uint32_t wanted_threshold(const Peer& peer) const {
        return flowctl::threshold_for(peer.quota, plan_.credit_slots);
    }
    [[nodiscard]] uint32_t excess(const Peer& peer) const {
        return peer.credits > plan_.quota ? peer.credits - plan_.quota : 0;
    }
    static void rotate(Peer& peer, uint32_t threshold) {
        peer.fifo.erase(peer.fifo.begin());
        peer.fifo.push_back(threshold);
    }
    void grant(Peer& peer, uint32_t credits) {
        peer.current += credits;
        available_ -= credits;
    }
    template <class Send>
    bool send_to(PeerIndex to, Send&& send) {
        for (Control control; next_control(to, control);) {
            if (send(to, control.kind, control.value) == Status::kAgain) return false;
            outbox_.left(to, control.kind, control.value);
            if (flowctl::costs_a_credit(control.kind)) packets_sent(to, 1 + control.value);
        }
        return true;
    }

    /// FC 6.5.2.
    void return_credits(PeerIndex index) {
        Peer& peer = peers_[index];
        uint32_t credits = 0;
        while (reached(peer) && available_ != 0) {
            uint32_t more = 0;
            if (peer.blocked) {
                more = due_to_blocked(peer);
                if (more == 0) break;
            } else {
                count_threshold(index);
                const uint32_t wanted = wanted_threshold(peer);
                more = std::min(wanted, available_);
                peer.retrieved -= peer.fifo.front();
                peer.piggybacked = 0;
                rotate(peer, read.short_of_slots == Read::ShortOfSlots::kGranted ? more : wanted);
            }
            grant(peer, more);
            credits += more;
        }
        if (credits != 0) outbox_.add_credits(index, credits);
    }

    /// FC 6.5.4: one credit, and only to a sender that has less than its static slots.
    uint32_t due_to_blocked(Peer& peer) {
        if (peer.current >= plan_.quota) {
            if (read.blocked_none != Read::BlockedNone::kNothing) {
                peer.retrieved = 0;
                rotate(peer, read.blocked_none == Read::BlockedNone::kResetOne ? 1 : wanted_threshold(peer));
            }
            return 0;
        }
        if (read.blocked_one == Read::BlockedOne::kConsume) {
            peer.retrieved -= peer.fifo.front();
            rotate(peer, 1);
        } else if (read.blocked_one == Read::BlockedOne::kUncount) {
            --peer.retrieved;
        }
        return 1;
    }

    /// FC 6.5.2, figure 12.
    void count_threshold(PeerIndex index) {
        if (++peers_[index].reached <= plan_.credit_slots) return;
        peers_[index].reached = 0;
        const Activity level = lists_.level_of(peers_[index]);
        if (level == Activity::kLow || level == Activity::kMedium) {
            lists_.move_front(peers_, index, level == Activity::kLow ? Activity::kMedium : Activity::kHigh);
            return;
        }
        if (lists_.empty(Activity::kLow)) lists_.shift();
        lists_.move_front(peers_, index, Activity::kHigh);
        if (outbox_.added_since_mark() < 2) steal(index);
    }

    /// FC 6.4, figure 13.
    void steal(PeerIndex index) {
        const PeerIndex victim_index = lists_.last(Activity::kLow);
        if (victim_index == kNobody) return;
        Peer& peer = peers_[index];
        Peer& victim = peers_[victim_index];
        const uint32_t apart = std::max(peer.quota, victim.quota) - std::min(peer.quota, victim.quota);
        const uint32_t stolen =
            std::min({std::max(plan_.credit_slots + 1, apart / 2), victim.quota - plan_.quota,
                      plan_.sender_slots_max - std::min(peer.quota, plan_.sender_slots_max)});
        peer.quota += stolen;
        victim.quota -= stolen;
        const bool emptied = victim.quota <= plan_.quota;
        lists_.move_front(peers_, victim_index, emptied ? Activity::kNull : Activity::kMedium);
        if (!emptied || victim.blocked || victim.current <= victim.quota) return;
        victim.blocked = true;
        outbox_.add(victim_index, flowctl::ControlKind::kReturnRequest);
    }

    flowctl::Plan plan_;
    std::vector<Peer> peers_;
    flowctl::ActivityLists<Peer> lists_;
    flowctl::Outbox outbox_;
    uint32_t available_;
};

}  // namespace velo::exhaustive
