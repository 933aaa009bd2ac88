/// RAILS 4 once more, in the form of algorithms 5 and 6 (a status and a flag), with readings of the paper
/// that turn out to be unsafe. With the first reading it does what rma/rail_reservation.h does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "rma/rail_reservation.h"

namespace velo::exhaustive {

struct Reading {
    /// A CTS or NACK in Receiving & Out_RTS leaves the flag as it is (algorithm 5), where table 1 ends at
    /// Receiving.
    bool algorithm_5 = false;
    /// Algorithm 6 as printed: a request of lower priority, or of equal priority and lower node, is refused.
    bool algorithm_6 = true;
    /// Equal priorities: the nodes decide.
    bool tie_break = true;
    /// The own priority is what the counter is now, and not what the own request carries.
    bool live_counter = false;
    /// Answers name the request.
    bool numbers = true;
    /// A CTS to a request that is over is answered by an ABORT.
    bool stale_aborts = true;
    /// A granter whose rail dies sends a NACK.
    bool takes_back = true;
    /// The death of a peer ends what is shared with it.
    bool follows_deaths = true;
    /// The first branch of algorithm 5's local_ACK as printed: the end of a grant frees the rail while its
    /// own request is out. A CTS in Free is taken.
    bool ack_frees = false;
};

class PaperRail {
  public:
    using State = rma::HalfDuplexRail::State;
    using Kind = rma::RailMessageKind;
    using Message = rma::RailMessage;
    using Actions = rma::RailActions;

    PaperRail(uint64_t id, int32_t counter_max, const Reading& reading)
        : reading_(reading), id_(id), counter_max_(counter_max) {}

    Actions request(uint32_t peer) {
        if (status_ != Status::kFree) return {.answer = rma::RailAnswer::kRefused};
        status_ = Status::kReserved;
        request_ = {.peer = peer, .number = ++number_, .counter = counter_};
        out_ = true;
        return {.message = Message{Kind::kRts, peer, number_, counter_, id_}};
    }
    Actions abort() {
        if (out_) request_.aborted = true;
        if (status_ != Status::kSending) return {};
        status_ = Status::kFree;
        return to_granter(Kind::kAbort);
    }
    Actions request_done() {
        if (status_ != Status::kSending) return {};
        status_ = Status::kFree;
        return to_granter(Kind::kDone);
    }
    template <typename Send>
    Actions grant_done(Send&& send) {
        if (status_ != Status::kReceiving) return {};
        send({.kind = Kind::kAck, .peer = grant_.peer, .number = grant_.number});
        return leave_receiving();
    }
    Actions received(const Message& message) {
        switch (message.kind) {
            case Kind::kRts:
                if (status_ == Status::kFree) return grant(message);
                if (status_ == Status::kReserved && reading_.algorithm_6) return livelock_avoidance(message);
                return answer(Kind::kNack, message);
            case Kind::kCts: return cts(message);
            case Kind::kNack: return nack(message);
            case Kind::kAck:
                if (status_ != Status::kSending || !is_answer(message)) return {};
                status_ = Status::kFree;
                return {.answer = rma::RailAnswer::kDone};
            case Kind::kAbort:
            case Kind::kDone:
                if (status_ != Status::kReceiving || message.peer != grant_.peer ||
                    (reading_.numbers && message.number != grant_.number)) {
                    return {};
                }
                return leave_receiving();
        }
        return {};
    }
    Actions peer_died(uint32_t peer) {
        Actions actions;
        if (!reading_.follows_deaths) return actions;
        if (status_ == Status::kReceiving && grant_.peer == peer) actions = leave_receiving();
        if (request_.peer != peer) return actions;
        if (out_) {
            actions.answer = end_out();
        } else if (status_ == Status::kSending) {
            status_ = Status::kFree;
            actions.answer = rma::RailAnswer::kLost;
        }
        return actions;
    }
    template <typename Send>
    Actions rail_died(Send&& send) {
        Actions actions;
        if (status_ == Status::kReceiving) {
            if (reading_.takes_back) {
                send({.kind = Kind::kNack, .peer = grant_.peer, .number = grant_.number});
            }
            actions.grant = rma::RailGrantChange::kEnded;
        }
        if (out_) {
            actions.answer = request_.aborted ? rma::RailAnswer::kNone : rma::RailAnswer::kRefused;
        } else if (status_ == Status::kSending) {
            actions.answer = rma::RailAnswer::kLost;
            send(*to_granter(Kind::kAbort).message);
        }
        out_ = flag_ = false;
        status_ = Status::kDead;
        return actions;
    }
    void rail_revived() { status_ = Status::kFree; }

    [[nodiscard]] State state() const {
        switch (status_) {
            case Status::kFree: return State::kFree;
            case Status::kReserved: return State::kReserved;
            case Status::kReceiving: return flag_ ? State::kReceivingOutRts : State::kReceiving;
            case Status::kSending: return State::kSending;
            case Status::kDead: break;
        }
        return State::kDead;
    }
    [[nodiscard]] int32_t counter() const { return counter_; }
    [[nodiscard]] std::optional<rma::RailRequest> own_request() const {
        return out_ || status_ == Status::kSending ? std::optional(request_) : std::nullopt;
    }
    [[nodiscard]] std::optional<rma::RailGrant> grant() const {
        return status_ == Status::kReceiving ? std::optional(grant_) : std::nullopt;
    }

  private:
    enum class Status : uint8_t { kFree, kReserved, kReceiving, kSending, kDead };

    static Actions answer(Kind kind, const Message& to) {
        return {.message = Message{.kind = kind, .peer = to.peer, .number = to.number}};
    }
    [[nodiscard]] Actions to_granter(Kind kind) const {
        return {.message = Message{.kind = kind, .peer = request_.peer, .number = request_.number}};
    }
    [[nodiscard]] bool is_answer(const Message& message) const {
        return message.peer == request_.peer && (!reading_.numbers || message.number == request_.number);
    }
    Actions grant(const Message& message) {
        status_ = Status::kReceiving;
        grant_ = {message.peer, message.number};
        Actions actions = answer(Kind::kCts, message);
        actions.grant = rma::RailGrantChange::kBegun;
        return actions;
    }
    Actions leave_receiving() {
        status_ = flag_ && !reading_.ack_frees ? Status::kReserved : Status::kFree;
        flag_ = false;
        return {.grant = rma::RailGrantChange::kEnded};
    }
    Actions livelock_avoidance(const Message& message) {
        const int32_t own = reading_.live_counter ? counter_ : request_.counter;
        const bool wins =
            own > message.counter || (own == message.counter && reading_.tie_break && id_ > message.id);
        // Without the nodes, requests of equal priority refuse each other.
        const bool equal = own == message.counter && !reading_.tie_break;
        if (wins || equal) {
            counter_ = std::max(counter_ - 1, -counter_max_);
            return answer(Kind::kNack, message);
        }
        counter_ = std::min(counter_ + 1, counter_max_);
        flag_ = true;
        return grant(message);
    }
    /// The answer to the request that is out, and not a grant.
    rma::RailAnswer end_out() {
        out_ = false;
        if (status_ == Status::kReserved) status_ = Status::kFree;
        if (!reading_.algorithm_5) flag_ = false;
        return request_.aborted ? rma::RailAnswer::kNone : rma::RailAnswer::kRefused;
    }
    Actions cts(const Message& message) {
        if (!out_ || !is_answer(message)) {
            return reading_.stale_aborts ? answer(Kind::kAbort, message) : Actions{};
        }
        const bool taken = status_ == Status::kReserved || (reading_.ack_frees && status_ == Status::kFree);
        if (taken && !request_.aborted) {
            out_ = false;
            status_ = Status::kSending;
            return {.answer = rma::RailAnswer::kGranted};
        }
        Actions actions = answer(Kind::kAbort, message);
        actions.answer = end_out();
        return actions;
    }
    Actions nack(const Message& message) {
        if (!is_answer(message)) return {};
        if (out_) return {.answer = end_out()};
        // The grant ends, since the peer's rail has died.
        if (status_ != Status::kSending) return {};
        status_ = Status::kFree;
        return {.answer = rma::RailAnswer::kLost};
    }

    Reading reading_;
    uint64_t id_;
    rma::RailRequest request_;
    rma::RailGrant grant_;
    int32_t counter_max_;
    int32_t counter_ = 0;
    uint32_t number_ = 0;
    Status status_ = Status::kFree;
    bool flag_ = false;  ///< algorithm 5's Outstanding_RTS
    bool out_ = false;   ///< a request is out
};

}  // namespace velo::exhaustive
