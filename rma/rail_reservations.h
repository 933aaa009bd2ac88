/// Reservations of a process's rails by its transfers (RAILS 4): which transfer asks which peer for which
/// rail, and which ones hold a rail.
///
/// Each rail has two machines of rma/rail_reservation.h, with halves of their own: one for gets, whose
/// requester receives, and one for puts, whose requester sends. A direction here is always that of the
/// requester's data.
///
/// A transfer waits until a first rail is granted, and takes others as their grants come, so that none keeps
/// a rail while it waits for another. Its first chunk does not wait: it goes with the first request, on a rail
/// that is free at this end, so that the answer comes while data moves. Transfers that wait ask in order of
/// arrival, each on rails of which this process's half is free. One rail is held by one transfer, from its
/// grant until all of the transfer has been issued and its chunks on that rail have ended; the first one,
/// which nothing was granted for, does not count.
///
/// A reservation is a discipline and not a right: the device moves data on rails that are not reserved just
/// as well. So a transfer that waited for too long goes without one, as does one whose rails all fail. In
/// RAILS a thread of the NIC answers; here a process does, which may compute while it holds a rail. With that
/// limit no peer, whatever it does, holds up a transfer for longer.
///
/// A pure machine: no I/O, clock, lock or log, and no allocation after its constructor. Owner: the engine.
/// Thread: the engine's. Cost of an event: O(rails), and of drive() O(transfers that wait) at most.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "rma/chunk_scheduler.h"
#include "rma/rail_policy.h"
#include "rma/rail_reservation.h"
#include "velo/base/check.h"
#include "velo/base/intrusive_list.h"

namespace velo::rma {

/// Link of a transfer in a list of RailReservations.
struct ReservingLink {
    ReservingLink* next = nullptr;
    ReservingLink* previous = nullptr;
};

/// A transfer with its reservations.
struct ReservingTransfer : Transfer, ReservingLink {
    enum class Stage : uint8_t {
        kNone,      ///< it takes rails without asking
        kWaits,     ///< no request of it is out
        kAsks,      ///< requests are out, and none was granted
        kAdmitted,  ///< a rail was granted, or it goes without
    };
    RailMask rails = 0;       ///< that its chunks take; none before the first
    RailMask asked = 0;       ///< requests are out
    RailMask refused = 0;     ///< since it last paused
    uint64_t ask_ns = 0;      ///< not before
    uint64_t overdue_ns = 0;  ///< then it goes without
    uint32_t granter = 0;     ///< the peer
    Stage stage = Stage::kNone;
    RailDirection direction = RailDirection::kReceiving;
    uint8_t refusals = 0;  ///< pauses
    bool begun = false;    ///< its first chunk was let go

    [[nodiscard]] bool unadmitted() const { return stage == Stage::kWaits || stage == Stage::kAsks; }
};

/// `Host` carries out what comes of an event:
/// - RailMask usable(const ReservingTransfer&): rails to its peer that work; 0: it goes without a reservation
/// - RailMask share(RailMask free, uint64_t bytes): those of the free ones that a transfer takes, one at
/// least
/// - void send(RailDirection, uint32_t rail, const RailMessage&)
/// - void answer(the same): what a peer's message has called for; it may be dropped, and the peer then waits
/// - void late(const ReservingTransfer&): its peer has not answered in time
/// - void begin(ReservingTransfer&): its first chunk may be issued, on the rails that are `asked`; none: on any
/// - void admit(ReservingTransfer&): all its chunks may be issued, on its `rails`; none: on any
class RailReservations {
  public:
    using Rail = DuplexRail<>;
    struct Settings {
        uint32_t rails = 1;
        uint64_t wait_ns = 10'000'000;  ///< most that a transfer waits for its first rail
        uint64_t seed = 1;              ///< of the pauses
    };
    struct Counters {
        uint64_t requests = 0;
        uint64_t grants = 0;
        uint64_t refusals = 0;
        uint64_t lost = 0;        ///< grants that were taken back, by a rail or a peer that failed
        uint64_t unreserved = 0;  ///< transfers that were admitted without a rail
        uint64_t served = 0;      ///< grants to peers
    };

    explicit RailReservations(const Settings& settings)
        : settings_(settings), halves_(size_t{2} * settings.rails), random_(settings.seed | 1) {
        VELO_CHECK(settings.rails > 0 && settings.rails <= kRailsMax && settings.wait_ns > 0, "%u rails",
                   settings.rails);
    }

    /// A transfer to a peer waits from now on.
    void post(ReservingTransfer& transfer, uint32_t granter, RailDirection direction, uint64_t now_ns) {
        transfer.rails = transfer.asked = transfer.refused = 0;
        transfer.ask_ns = 0;
        transfer.overdue_ns = now_ns + settings_.wait_ns;
        transfer.granter = granter;
        transfer.direction = direction;
        transfer.refusals = 0;
        transfer.begun = false;
        ++unadmitted_;
        wait(transfer, false);
    }
    /// Counts a transfer that does not wait, because its peer sets nothing aside.
    void passed_by() { ++counters_.unreserved; }
    /// Some transfer waits for a first rail: drive() is due again.
    [[nodiscard]] bool waits() const { return unadmitted_ != 0; }

    /// Asks for what waits.
    template <class Host>
    void drive(uint64_t now_ns, Host&& host) {
        if (!waits()) return;
        admit_overdue(now_ns, host);
        for (const RailDirection direction : kDirections) {
            List& list = waiting_[index(direction)];
            if (list.empty()) continue;
            RailMask free = free_halves(direction);
            for (ReservingTransfer *at = front(list), *next = nullptr; at != nullptr && free != 0;
                 at = next) {
                next = behind(*at);
                if (now_ns >= at->ask_ns) free &= ~ask(*at, free, now_ns, host);
            }
        }
    }

    /// A message of a peer's about a rail that is one of ours.
    template <class Host>
    void received(RailDirection direction, uint32_t rail, const RailMessage& message, uint64_t now_ns,
                  Host&& host) {
        Half& half = half_of(direction, rail);
        if (message.kind == RailMessageKind::kRts) {
            // A rail has one request out, so the older of two of a peer's is over: its end was lost.
            const auto grant = half.rail.grant();
            if (grant && grant->peer == message.peer &&
                static_cast<int32_t>(message.number - grant->number) > 0) {
                perform(direction, rail,
                        half.rail.received(
                            {.kind = RailMessageKind::kDone, .peer = message.peer, .number = grant->number}),
                        now_ns, host);
            }
        }
        perform(direction, rail, half.rail.received(message), now_ns, host);
    }

    /// A chunk was posted. True: at a rail that its transfer holds.
    bool chunk_began(const ReservingTransfer& transfer, uint32_t rail) {
        Half& half = half_of(transfer.direction, rail);
        if (half.transfer != &transfer || half.rail.state() != Rail::State::kSending) return false;
        ++half.chunks;
        return true;
    }
    /// A chunk for which chunk_began() was true has ended. The rail may have been lost meanwhile.
    void chunk_ended(const ReservingTransfer& transfer, uint32_t rail) {
        Half& half = half_of(transfer.direction, rail);
        if (half.transfer != &transfer) return;
        VELO_CHECK(half.chunks > 0, "a chunk ends on rail %u, of none", rail);
        --half.chunks;
    }
    /// Gives back what an admitted transfer does not need any more. Due after each chunk that was issued or
    /// has ended, and at the transfer's end.
    template <class Host>
    void settle(ReservingTransfer& transfer, Host&& host) {
        if (!transfer.all_issued()) return;
        for_each_of(transfer, [&](uint32_t rail, Half& half) {
            if (half.chunks == 0) release(transfer, rail, half, host);
        });
    }
    /// The transfer ends. One that was not admitted has failed, or had one chunk.
    template <class Host>
    void ended(ReservingTransfer& transfer, Host&& host) {
        if (transfer.unadmitted()) {
            withdraw(transfer, host);
            transfer.stage = Stage::kAdmitted;
            --unadmitted_;
        } else {
            settle(transfer, host);
        }
        VELO_CHECK(settled(transfer), "rails of a transfer with peer %u that has ended", transfer.granter);
    }
    /// No rail refers to it.
    [[nodiscard]] bool settled(const ReservingTransfer& transfer) const {
        return std::ranges::none_of(halves_, [&](const Half& half) { return half.transfer == &transfer; });
    }

    /// No message of the peer's comes afterwards. Its transfers are admitted, to fail where they are issued.
    template <class Host>
    void peer_died(uint32_t peer, uint64_t now_ns, Host&& host) {
        for_each_half([&](RailDirection direction, uint32_t rail, Half& half) {
            perform(direction, rail, half.rail.peer_died(peer), now_ns, host);
        });
        give_up_peer(peer, host);
    }
    /// All transfers to a peer that wait go without, since it does not reserve.
    template <class Host>
    void give_up_peer(uint32_t peer, Host&& host) {
        for_each_half([&](RailDirection, uint32_t, Half& half) {
            if (half.transfer != nullptr && half.transfer->granter == peer &&
                half.transfer->stage == ReservingTransfer::Stage::kAsks)
                go_without(*half.transfer, host);
        });
        for (List& list : waiting_) {
            for (ReservingTransfer *at = front(list), *next = nullptr; at != nullptr; at = next) {
                next = behind(*at);
                if (at->granter == peer) go_without(*at, host);
            }
        }
    }
    /// The rail has failed here, whatever the peer: neither asked for nor granted, until it is revived.
    template <class Host>
    void rail_died(uint32_t rail, uint64_t now_ns, Host&& host) {
        if ((dead_ & rail_bit(rail)) != 0) return;
        dead_ |= rail_bit(rail);
        for (const RailDirection direction : kDirections) {
            const RailActions actions =
                half_of(direction, rail).rail.rail_died([&](const RailMessage& message) {
                    host.send(direction, rail, message);
                });
            perform(direction, rail, actions, now_ns, host);
        }
    }
    void rail_revived(uint32_t rail) {
        dead_ &= ~rail_bit(rail);
        for (const RailDirection direction : kDirections) half_of(direction, rail).rail.rail_revived();
    }
    /// The rail has failed between here and the peer.
    template <class Host>
    void path_lost(uint32_t peer, uint32_t rail, Host&& host) {
        for (const RailDirection direction : kDirections) {
            Half& half = half_of(direction, rail);
            const auto request = half.rail.own_request();
            if (!request || request->peer != peer) continue;
            const bool held = half.rail.state() == Rail::State::kSending;
            host.send(direction, rail, *half.rail.abort().message);
            held ? lost(rail, half) : refused(rail, half);
        }
    }

    /// Rails that are dead here.
    [[nodiscard]] RailMask dead() const { return dead_; }
    [[nodiscard]] const Counters& counters() const { return counters_; }
    [[nodiscard]] const Rail& rail(RailDirection direction, uint32_t rail) const {
        return halves_[size_t{2} * rail + index(direction)].rail;
    }
    /// Calls visit(transfer) for each that waits for a first rail.
    template <class Visit>
    void for_each_waiting(Visit&& visit) const {
        for (const List& list : waiting_) {
            for (const ReservingLink* at = list.front; at != nullptr; at = at->next)
                visit(static_cast<const ReservingTransfer&>(*at));
        }
        for (size_t i = 0; i < halves_.size(); ++i) {
            const ReservingTransfer* const transfer = halves_[i].transfer;
            if (transfer == nullptr || transfer->stage != ReservingTransfer::Stage::kAsks) continue;
            // Once, at its first rail.
            if (static_cast<size_t>(std::countr_zero(transfer->asked)) == i / 2) visit(*transfer);
        }
    }

  private:
    using List = base::IntrusiveList<ReservingLink>;
    using Stage = ReservingTransfer::Stage;
    static constexpr std::array kDirections = {RailDirection::kSending, RailDirection::kReceiving};
    /// Bounds of what is taken for a round trip, and of its multiples that pauses come from: each refusal by
    /// all rails doubles them.
    static constexpr uint64_t kRoundTripNsMin = 1000;
    static constexpr uint64_t kRoundTripNsMax = 1'000'000;
    static constexpr uint32_t kDoublingsMax = 10;

    /// `transfer`: the one of the rail's own request, if there is one.
    struct Half {
        Rail rail;
        ReservingTransfer* transfer = nullptr;
        uint32_t chunks = 0;  ///< under way on it, of this transfer
        uint64_t asked_ns = 0;
    };

    [[nodiscard]] static constexpr size_t index(RailDirection direction) {
        return static_cast<size_t>(direction);
    }
    [[nodiscard]] static ReservingTransfer* front(const List& list) {
        return static_cast<ReservingTransfer*>(list.front);
    }
    [[nodiscard]] static ReservingTransfer* behind(const ReservingLink& transfer) {
        return static_cast<ReservingTransfer*>(transfer.next);
    }
    [[nodiscard]] Half& half_of(RailDirection direction, uint32_t rail) {
        VELO_CHECK(rail < settings_.rails, "rail %u of %u", rail, settings_.rails);
        return halves_[size_t{2} * rail + index(direction)];
    }
    template <class Action>
    void for_each_half(Action&& action) {
        for (uint32_t rail = 0; rail < settings_.rails; ++rail)
            for (const RailDirection direction : kDirections)
                action(direction, rail, half_of(direction, rail));
    }
    template <class Action>
    void for_each_of(const ReservingTransfer& transfer, Action&& action) {
        for (uint32_t rail = 0; rail < settings_.rails; ++rail) {
            Half& half = half_of(transfer.direction, rail);
            if (half.transfer == &transfer) action(rail, half);
        }
    }
    [[nodiscard]] RailMask free_halves(RailDirection direction) {
        RailMask free = 0;
        for (uint32_t rail = 0; rail < settings_.rails; ++rail)
            if (half_of(direction, rail).rail.state() == Rail::State::kFree) free |= rail_bit(rail);
        return free;
    }
    [[nodiscard]] uint64_t random() {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        return random_;
    }

    void wait(ReservingTransfer& transfer, bool first) {
        transfer.stage = Stage::kWaits;
        List& list = waiting_[index(transfer.direction)];
        first ? list.push_front(transfer) : list.push_back(transfer);
    }
    /// Rails on which it asks.
    template <class Host>
    RailMask ask(ReservingTransfer& transfer, RailMask free, uint64_t now_ns, Host&& host) {
        const RailMask usable = host.usable(transfer) & ~dead_;
        if (usable == 0) {
            go_without(transfer, host);
            return 0;
        }
        if ((usable & free) == 0) return 0;
        const RailMask others = usable & free & ~transfer.refused;
        if (others == 0) {
            pause(transfer, now_ns);
            return 0;
        }
        const RailMask chosen = host.share(others, transfer.bytes);
        VELO_CHECK(chosen != 0 && (chosen & ~others) == 0, "rails 0x%llx of 0x%llx",
                   static_cast<unsigned long long>(chosen), static_cast<unsigned long long>(others));
        waiting_[index(transfer.direction)].remove(transfer);
        transfer.stage = Stage::kAsks;
        transfer.asked = chosen;
        for (RailMask left = chosen; left != 0; left &= left - 1) {
            const auto rail = static_cast<uint32_t>(std::countr_zero(left));
            Half& half = half_of(transfer.direction, rail);
            half.transfer = &transfer;
            half.chunks = 0;
            half.asked_ns = now_ns;
            ++counters_.requests;
            host.send(transfer.direction, rail, *half.rail.request(transfer.granter).message);
        }
        if (!std::exchange(transfer.begun, true)) host.begin(transfer);
        return chosen;
    }
    /// All free rails have refused it.
    void pause(ReservingTransfer& transfer, uint64_t now_ns) {
        const uint64_t round_trips = round_trip_ns_ << std::min<uint32_t>(transfer.refusals, kDoublingsMax);
        transfer.ask_ns = now_ns + retry_wait(std::min(round_trips, kRoundTripNsMax), random());
        transfer.refused = 0;
        if (transfer.refusals < kDoublingsMax) ++transfer.refusals;
    }

    template <class Host>
    void perform(RailDirection direction, uint32_t rail, const RailActions& actions, uint64_t now_ns,
                 Host&& host) {
        Half& half = half_of(direction, rail);
        if (actions.grant == RailGrantChange::kBegun) ++counters_.served;
        if (actions.message) host.answer(direction, rail, *actions.message);
        switch (actions.answer) {
            case RailAnswer::kNone: break;
            case RailAnswer::kGranted: granted(rail, half, now_ns, host); break;
            case RailAnswer::kRefused: refused(rail, half); break;
            // The granter of a get or put sees no data, so it has no end of it to tell.
            case RailAnswer::kDone:
            case RailAnswer::kLost: lost(rail, half); break;
        }
    }
    template <class Host>
    void granted(uint32_t rail, Half& half, uint64_t now_ns, Host&& host) {
        VELO_CHECK(half.transfer != nullptr && (half.transfer->asked & rail_bit(rail)) != 0,
                   "rail %u is granted, and was not asked for", rail);
        ReservingTransfer& transfer = *half.transfer;
        ++counters_.grants;
        // The shortest of late ones: the others have queued.
        round_trip_ns_ = std::clamp(std::min(now_ns - half.asked_ns, round_trip_ns_ + round_trip_ns_ / 8),
                                    kRoundTripNsMin, kRoundTripNsMax);
        transfer.asked &= ~rail_bit(rail);
        transfer.rails |= rail_bit(rail);
        if (transfer.stage == Stage::kAsks) admit(transfer, host);
    }
    void refused(uint32_t rail, Half& half) {
        VELO_CHECK(half.transfer != nullptr && (half.transfer->asked & rail_bit(rail)) != 0,
                   "rail %u is refused, and was not asked for", rail);
        ReservingTransfer& transfer = *half.transfer;
        half.transfer = nullptr;
        ++counters_.refusals;
        transfer.asked &= ~rail_bit(rail);
        transfer.refused |= rail_bit(rail);
        if (transfer.stage == Stage::kAsks && transfer.asked == 0) wait(transfer, true);
    }
    /// The transfer may have gone to other rails by then, when this one failed.
    void lost(uint32_t rail, Half& half) {
        VELO_CHECK(half.transfer != nullptr, "rail %u is lost, and was not held", rail);
        ++counters_.lost;
        half.transfer->rails &= ~rail_bit(rail);
        half.transfer = nullptr;
    }
    template <class Host>
    void release(ReservingTransfer& transfer, uint32_t rail, Half& half, Host&& host) {
        const RailActions actions =
            half.rail.state() == Rail::State::kSending ? half.rail.request_done() : half.rail.abort();
        half.transfer = nullptr;
        transfer.asked &= ~rail_bit(rail);
        host.send(transfer.direction, rail, *actions.message);
    }

    template <class Host>
    void admit(ReservingTransfer& transfer, Host&& host) {
        VELO_CHECK(unadmitted_ != 0 && transfer.unadmitted(), "a transfer with peer %u is admitted twice",
                   transfer.granter);
        transfer.stage = Stage::kAdmitted;
        --unadmitted_;
        host.admit(transfer);
    }
    /// Asks for nothing any more.
    template <class Host>
    void withdraw(ReservingTransfer& transfer, Host&& host) {
        if (transfer.stage == Stage::kWaits) waiting_[index(transfer.direction)].remove(transfer);
        for_each_of(transfer, [&](uint32_t rail, Half& half) { release(transfer, rail, half, host); });
    }
    template <class Host>
    void go_without(ReservingTransfer& transfer, Host&& host) {
        withdraw(transfer, host);
        ++counters_.unreserved;
        admit(transfer, host);
    }
    /// Admits transfers whose time has come. A list is in order of posts, but for the few that were refused.
    template <class Host>
    void admit_overdue(uint64_t now_ns, Host&& host) {
        for_each_half([&](RailDirection, uint32_t, Half& half) {
            if (half.transfer == nullptr || half.transfer->stage != Stage::kAsks ||
                now_ns < half.transfer->overdue_ns)
                return;
            host.late(*half.transfer);
            go_without(*half.transfer, host);
        });
        for (List& list : waiting_) {
            while (!list.empty() && now_ns >= front(list)->overdue_ns) go_without(*front(list), host);
        }
    }

    Settings settings_;
    std::vector<Half> halves_;     ///< two of each rail
    std::array<List, 2> waiting_;  ///< by direction: transfers of which no request is out
    RailMask dead_ = 0;
    uint32_t unadmitted_ = 0;
    uint64_t round_trip_ns_ = 10'000;
    uint64_t random_;
    Counters counters_;
};

}  // namespace velo::rma
