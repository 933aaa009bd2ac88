/// Reservation of a rail at both ends of a transfer, before its data moves: RAILS 4, algorithms 4 to 6 and
/// tables 1 and 2.
///
/// The requester asks the granter with an RTS. A CTS sets the rail aside at both ends, a NACK refuses, an
/// ABORT gives back a rail that was set aside, and an ACK (of the granter) or a DONE (of the requester) ends
/// the transfer. In RAILS the requester sends, and the granter sees the data arrive. In velo the getter
/// requests and the owner of the memory grants, so that data moves the other way and the requester sees its
/// end. The machines do not depend on the direction; states have the paper's names.
///
/// Differences from RAILS, each shown necessary by tests/exhaustive/rail_reservation_test.cc:
/// - Table 1 stands, and not algorithm 5, which leaves a rail reserved without a request.
/// - Requests have numbers, and answers name them. An answer to another request than the one that is out is
///   stale; a stale CTS is answered by an ABORT.
/// - No timeout. A request ends by its answer, or by the death of the peer or of the rail.
/// - Priorities are compared as the two requests carry them. A counter that changes after its request left
///   counts for the next one.
/// - A granter's rail that dies takes its grant back by a NACK of the same number.
///
/// Control messages need an order neither among each other nor with data, but are delivered once. They may
/// not wait behind data: the answer to a request frees rails that data waits for.
///
/// Pure machines: no I/O, clock, lock, log or allocation. Owner: RailReservations, and the simulator. Thread: the
/// engine's. Cost of an event: O(1); of a DuplexRail with requests queued, O(queued). A refusal changes
/// nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "velo/base/check.h"

namespace velo::rma {

enum class RailMessageKind : uint8_t {
    kRts,    ///< requester: asks for the granter's rail
    kCts,    ///< granter: the rail is set aside
    kNack,   ///< granter: it is not, or no longer, since it has died
    kAbort,  ///< requester: the rail that was set aside is not used
    kAck,    ///< granter: the data is in (RAILS)
    kDone,   ///< requester: the data is in (velo)
};

/// A control message of one rail.
struct RailMessage {
    RailMessageKind kind{};
    uint32_t peer = 0;    ///< to which it goes, or from which it came
    uint32_t number = 0;  ///< of the request, given by the requester's rail; wraps
    int32_t counter = 0;  ///< kRts: the requester's priority (algorithm 6)
    uint64_t id = 0;      ///< kRts: the requester's, which decides between equal priorities
    bool operator==(const RailMessage&) const = default;
};

/// The fate of the rail's own request.
enum class RailAnswer : uint8_t {
    kNone,
    kGranted,  ///< the rail is set aside at both ends: move the data, or abort()
    kRefused,  ///< ask again later, see retry_wait()
    kLost,     ///< it was granted, and the peer or one of the rails has died
    kDone,     ///< the granter has all data
};

/// A change of the rail's grant to a peer.
enum class RailGrantChange : uint8_t { kNone, kBegun, kEnded };

/// The answer of a machine to an event: all of it is carried out by the caller.
struct RailActions {
    std::optional<RailMessage> message = std::nullopt;  ///< is sent to message->peer
    RailAnswer answer = RailAnswer::kNone;
    RailGrantChange grant = RailGrantChange::kNone;
};

/// A peer's request that holds the rail, or waits for it.
struct RailGrant {
    uint32_t peer = 0;
    uint32_t number = 0;
    bool operator==(const RailGrant&) const = default;
};

/// The own request of a rail, which is out or granted.
struct RailRequest {
    uint32_t peer = 0;
    uint32_t number = 0;
    int32_t counter = 0;   ///< the priority that it carries
    bool aborted = false;  ///< given up before its answer
};

/// Pause of the caller before it asks again after a refusal: 0 to half a round trip, in the unit of
/// `round_trip`, from a random number of 64 bits. Requests at once take twice the control messages, and
/// less is accepted (docs/results/rails.md).
[[nodiscard]] constexpr uint64_t retry_wait(uint64_t round_trip, uint64_t random) {
    return random % (round_trip / 2 + 1);
}

/// A rail whose ends move data in one direction at a time (RAILS 4.2): table 1, with algorithm 6.
class HalfDuplexRail {
  public:
    enum class State : uint8_t {
        kFree,
        kReserved,         ///< the own request is out
        kReceiving,        ///< granted to a peer
        kReceivingOutRts,  ///< granted to a peer of higher priority while the own request is out
        kSending,          ///< the own request is granted
        kDead,
    };

    /// `id` differs from that of every other rail that can be a peer. The counter stays within +-counter_max.
    explicit constexpr HalfDuplexRail(uint64_t id, int32_t counter_max = std::numeric_limits<int32_t>::max())
        : id_(id), counter_max_(counter_max) {}

    /// Asks the peer (table 1, local RTS). kRefused: the rail is not free, and nothing changed.
    [[nodiscard]] constexpr RailActions request(uint32_t peer) {
        if (state_ != State::kFree) return {.answer = RailAnswer::kRefused};
        state_ = State::kReserved;
        request_ = {.peer = peer, .number = ++number_, .counter = counter_};
        return {.message = RailMessage{RailMessageKind::kRts, peer, number_, counter_, id_}};
    }

    /// Gives up the own request, or the rail that it was granted (table 1, local ABORT). A request that is
    /// out keeps the rail until its answer comes, and the caller hears no more of it.
    [[nodiscard]] constexpr RailActions abort() {
        if (out()) request_.aborted = true;
        if (state_ != State::kSending) return {};
        state_ = State::kFree;
        return send(RailMessageKind::kAbort);
    }

    /// The requester has all data. In another state than kSending: nothing.
    [[nodiscard]] constexpr RailActions request_done() {
        if (state_ != State::kSending) return {};
        state_ = State::kFree;
        return send(RailMessageKind::kDone);
    }
    /// The granter has all data (table 1, local ACK). Without a grant: nothing. `send`: void(const
    /// RailMessage&).
    template <typename Send>
    constexpr RailActions grant_done(Send&& send_message) {
        if (!granted()) return {};
        send_message({.kind = RailMessageKind::kAck, .peer = grant_.peer, .number = grant_.number});
        return end_grant();
    }

    [[nodiscard]] constexpr RailActions received(const RailMessage& message) {
        switch (message.kind) {
            case RailMessageKind::kRts: return rts(message);
            case RailMessageKind::kCts: return cts(message);
            case RailMessageKind::kNack: return nack(message);
            case RailMessageKind::kAck:
                if (!uses(message)) return {};
                state_ = State::kFree;
                return {.answer = RailAnswer::kDone};
            case RailMessageKind::kAbort:
            case RailMessageKind::kDone:
                if (!granted() || grant_ != RailGrant{message.peer, message.number}) return {};
                return end_grant();
        }
        return {};
    }

    /// Ends the peer's grant and the request to it. The caller delivers no message of this peer afterwards.
    [[nodiscard]] constexpr RailActions peer_died(uint32_t peer) {
        RailActions actions;
        if (granted() && grant_.peer == peer) actions = end_grant();
        if (request_.peer != peer) return actions;
        if (out()) {
            actions.answer = refuse();
        } else if (state_ == State::kSending) {
            state_ = State::kFree;
            actions.answer = RailAnswer::kLost;
        }
        return actions;
    }

    /// The rail has failed at this end. `send`: void(const RailMessage&).
    template <typename Send>
    constexpr RailActions rail_died(Send&& send_message) {
        RailActions actions;
        if (granted()) {
            actions = end_grant();
            send_message({.kind = RailMessageKind::kNack, .peer = grant_.peer, .number = grant_.number});
        }
        if (out()) {
            actions.answer = refuse();  // a CTS that comes will be a stale one
        } else if (state_ == State::kSending) {
            actions.answer = RailAnswer::kLost;
            send_message(*send(RailMessageKind::kAbort).message);
        }
        state_ = State::kDead;
        return actions;
    }
    constexpr void rail_revived() {
        if (state_ == State::kDead) state_ = State::kFree;
    }

    [[nodiscard]] constexpr State state() const { return state_; }
    [[nodiscard]] constexpr int32_t counter() const { return counter_; }
    /// The own request of the rail. None: no request is out, and none is granted.
    [[nodiscard]] constexpr std::optional<RailRequest> own_request() const {
        return out() || state_ == State::kSending ? std::optional(request_) : std::nullopt;
    }
    [[nodiscard]] constexpr std::optional<RailGrant> grant() const {
        return granted() ? std::optional(grant_) : std::nullopt;
    }

  private:
    [[nodiscard]] constexpr bool out() const {
        return state_ == State::kReserved || state_ == State::kReceivingOutRts;
    }
    [[nodiscard]] constexpr bool granted() const {
        return state_ == State::kReceiving || state_ == State::kReceivingOutRts;
    }
    [[nodiscard]] constexpr bool names_request(const RailMessage& message) const {
        return message.peer == request_.peer && message.number == request_.number;
    }
    /// The message is of the granter of the own request.
    [[nodiscard]] constexpr bool uses(const RailMessage& message) const {
        return state_ == State::kSending && names_request(message);
    }
    [[nodiscard]] constexpr RailActions send(RailMessageKind kind) const {
        return {.message = RailMessage{.kind = kind, .peer = request_.peer, .number = request_.number}};
    }
    [[nodiscard]] static constexpr RailMessage reply(RailMessageKind kind, const RailMessage& to) {
        return {.kind = kind, .peer = to.peer, .number = to.number};
    }

    /// The own request ends without a grant.
    constexpr RailAnswer refuse() {
        VELO_DCHECK(out(), "request %u is refused, and is not out", request_.number);
        state_ = state_ == State::kReserved ? State::kFree : State::kReceiving;
        return request_.aborted ? RailAnswer::kNone : RailAnswer::kRefused;
    }
    constexpr RailActions end_grant() {
        VELO_DCHECK(granted(), "the grant to peer %u ends twice", grant_.peer);
        state_ = state_ == State::kReceiving ? State::kFree : State::kReserved;
        return {.grant = RailGrantChange::kEnded};
    }
    constexpr RailActions begin_grant(const RailMessage& message, State state) {
        VELO_DCHECK(!granted(), "peer %u is granted the rail of peer %u", message.peer, grant_.peer);
        state_ = state;
        grant_ = {.peer = message.peer, .number = message.number};
        return {.message = reply(RailMessageKind::kCts, message), .grant = RailGrantChange::kBegun};
    }

    constexpr RailActions rts(const RailMessage& message) {
        if (state_ == State::kFree) return begin_grant(message, State::kReceiving);
        if (state_ == State::kReserved) {
            const bool own_wins = std::pair(request_.counter, id_) > std::pair(message.counter, message.id);
            counter_ = own_wins ? std::max(counter_ - 1, -counter_max_)
                                : counter_ + (counter_ < counter_max_ ? 1 : 0);
            if (!own_wins) return begin_grant(message, State::kReceivingOutRts);
        }
        return {.message = reply(RailMessageKind::kNack, message)};
    }
    constexpr RailActions cts(const RailMessage& message) {
        if (!out() || !names_request(message)) return {.message = reply(RailMessageKind::kAbort, message)};
        if (state_ == State::kReserved && !request_.aborted) {
            state_ = State::kSending;
            return {.answer = RailAnswer::kGranted};
        }
        return {.message = reply(RailMessageKind::kAbort, message), .answer = refuse()};
    }
    constexpr RailActions nack(const RailMessage& message) {
        if (uses(message)) {
            state_ = State::kFree;
            return {.answer = RailAnswer::kLost};
        }
        if (!out() || !names_request(message)) return {};
        return {.answer = refuse()};
    }

    uint64_t id_;
    RailRequest request_;
    RailGrant grant_;
    uint32_t number_ = 0;
    int32_t counter_ = 0;
    int32_t counter_max_;
    State state_ = State::kFree;
};

/// A rail that moves data in both directions at once. Its halves have states of their own: one for the own
/// request, one for a peer's. A requester's half waits for a half that is busy with data, never for one that
/// waits, so that requests cannot form a cycle; they need no priorities, and may queue at the granter.
///
/// A transfer over several rails uses each grant as it comes: one that keeps a rail set aside while it waits
/// for another can deadlock with its like.
template <uint32_t kQueueMax = 64>
class DuplexRail {
  public:
    enum class State : uint8_t { kFree, kReserved, kSending, kDead };

    /// `queue_max`: requests that wait for the granting half, at most one of a peer; others are refused.
    explicit constexpr DuplexRail(uint32_t queue_max = kQueueMax) : queue_max_(queue_max) {
        VELO_CHECK(queue_max <= kQueueMax, "a queue of %u requests", queue_max);
    }

    /// Asks the peer. kRefused: the half is not free, and nothing changed.
    [[nodiscard]] constexpr RailActions request(uint32_t peer) {
        if (state_ != State::kFree) return {.answer = RailAnswer::kRefused};
        state_ = State::kReserved;
        request_ = {.peer = peer, .number = ++number_};
        return {.message = RailMessage{.kind = RailMessageKind::kRts, .peer = peer, .number = number_}};
    }

    /// Gives up the own request, queued or granted. The half is free at once.
    [[nodiscard]] constexpr RailActions abort() {
        return end_request(RailMessageKind::kAbort, State::kReserved);
    }
    /// The requester has all data. In another state than kSending: nothing.
    [[nodiscard]] constexpr RailActions request_done() {
        return end_request(RailMessageKind::kDone, State::kSending);
    }
    /// The granter has all data. Without a grant: nothing. `send` gets the ACK; the message of the actions is
    /// the CTS of the next request, if one is queued. `send`: void(const RailMessage&).
    template <typename Send>
    constexpr RailActions grant_done(Send&& send_message) {
        if (!grant_) return {};
        send_message({.kind = RailMessageKind::kAck, .peer = grant_->peer, .number = grant_->number});
        return next_grant();
    }

    [[nodiscard]] constexpr RailActions received(const RailMessage& message) {
        switch (message.kind) {
            case RailMessageKind::kRts: return rts(message);
            case RailMessageKind::kCts:
                if (state_ != State::kReserved || !names_request(message)) {
                    return {.message = reply(RailMessageKind::kAbort, message)};
                }
                state_ = State::kSending;
                return {.answer = RailAnswer::kGranted};
            case RailMessageKind::kNack:
            case RailMessageKind::kAck: return answered(message);
            case RailMessageKind::kAbort:
            case RailMessageKind::kDone:
                if (grant_ == RailGrant{message.peer, message.number}) return next_grant();
                forget([&](const RailGrant& waiting) {
                    return waiting == RailGrant{message.peer, message.number};
                });
                return {};
        }
        return {};
    }

    /// Ends the peer's requests and the one to it. The caller delivers no message of this peer afterwards.
    [[nodiscard]] constexpr RailActions peer_died(uint32_t peer) {
        forget([&](const RailGrant& waiting) { return waiting.peer == peer; });
        RailActions actions;
        if (grant_ && grant_->peer == peer) actions = next_grant();
        if (own_request() && request_.peer == peer) {
            actions.answer = state_ == State::kSending ? RailAnswer::kLost : RailAnswer::kRefused;
            state_ = State::kFree;
        }
        return actions;
    }

    /// The rail has failed at this end. `send`: void(const RailMessage&).
    template <typename Send>
    constexpr RailActions rail_died(Send&& send_message) {
        RailActions actions;
        if (grant_) {
            send_message({.kind = RailMessageKind::kNack, .peer = grant_->peer, .number = grant_->number});
            actions.grant = RailGrantChange::kEnded;
        }
        for (uint32_t i = 0; i < queued_; ++i) {
            send_message(
                {.kind = RailMessageKind::kNack, .peer = queue_[i].peer, .number = queue_[i].number});
        }
        queued_ = 0;
        grant_.reset();
        if (own_request()) {
            actions.answer = state_ == State::kSending ? RailAnswer::kLost : RailAnswer::kRefused;
            send_message(*abort().message);
        }
        state_ = State::kDead;
        return actions;
    }
    constexpr void rail_revived() {
        if (state_ == State::kDead) state_ = State::kFree;
    }

    /// State of the half for own requests; kDead: of both.
    [[nodiscard]] constexpr State state() const { return state_; }
    [[nodiscard]] constexpr std::optional<RailRequest> own_request() const {
        return state_ == State::kReserved || state_ == State::kSending ? std::optional(request_)
                                                                       : std::nullopt;
    }
    [[nodiscard]] constexpr std::optional<RailGrant> grant() const { return grant_; }
    [[nodiscard]] constexpr uint32_t queued() const { return queued_; }
    [[nodiscard]] constexpr RailGrant queued_at(uint32_t index) const {
        VELO_CHECK(index < queued_, "request %u of %u", index, queued_);
        return queue_[index];
    }

  private:
    [[nodiscard]] constexpr bool names_request(const RailMessage& message) const {
        return message.peer == request_.peer && message.number == request_.number;
    }
    [[nodiscard]] static constexpr RailMessage reply(RailMessageKind kind, const RailMessage& to) {
        return {.kind = kind, .peer = to.peer, .number = to.number};
    }

    /// From kSending, or from `also`.
    constexpr RailActions end_request(RailMessageKind kind, State also) {
        if (state_ != State::kSending && state_ != also) return {};
        state_ = State::kFree;
        return {.message = RailMessage{.kind = kind, .peer = request_.peer, .number = request_.number}};
    }
    constexpr RailActions answered(const RailMessage& message) {
        if (!own_request() || !names_request(message)) return {};
        const bool was_granted = state_ == State::kSending;
        if (message.kind == RailMessageKind::kAck) {
            if (!was_granted) return {};
            state_ = State::kFree;
            return {.answer = RailAnswer::kDone};
        }
        state_ = State::kFree;
        return {.answer = was_granted ? RailAnswer::kLost : RailAnswer::kRefused};
    }

    constexpr RailActions rts(const RailMessage& message) {
        const RailGrant asked = {.peer = message.peer, .number = message.number};
        if (state_ == State::kDead) return {.message = reply(RailMessageKind::kNack, message)};
        if (!grant_) {
            grant_ = asked;
            return {.message = reply(RailMessageKind::kCts, message), .grant = RailGrantChange::kBegun};
        }
        for (uint32_t i = 0; i < queued_; ++i) {
            if (queue_[i].peer != asked.peer) continue;
            // A rail has one request out, so the older of two is over, and needs no answer.
            if (static_cast<int32_t>(asked.number - queue_[i].number) > 0) queue_[i] = asked;
            return {};
        }
        if (queued_ == queue_max_) return {.message = reply(RailMessageKind::kNack, message)};
        queue_[queued_++] = asked;
        return {};
    }
    /// The grant has ended.
    constexpr RailActions next_grant() {
        VELO_DCHECK(grant_ && queued_ <= queue_max_, "the next of %u requests, without a grant", queued_);
        grant_.reset();
        RailActions actions = {.grant = RailGrantChange::kEnded};
        if (queued_ == 0) return actions;
        grant_ = queue_[0];
        std::copy(queue_.begin() + 1, queue_.begin() + queued_, queue_.begin());
        --queued_;
        actions.message =
            RailMessage{.kind = RailMessageKind::kCts, .peer = grant_->peer, .number = grant_->number};
        actions.grant = RailGrantChange::kBegun;
        return actions;
    }
    template <typename Matches>
    constexpr void forget(Matches&& matches) {
        const auto end = std::remove_if(queue_.begin(), queue_.begin() + queued_, matches);
        queued_ = static_cast<uint32_t>(end - queue_.begin());
    }

    std::array<RailGrant, kQueueMax> queue_{};  ///< in order of arrival
    std::optional<RailGrant> grant_;
    RailRequest request_;
    uint32_t queued_ = 0;
    uint32_t number_ = 0;
    uint32_t queue_max_;
    State state_ = State::kFree;
};

}  // namespace velo::rma
