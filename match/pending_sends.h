/// The sender's queue of messages to one peer that are not accepted yet (MEM 4.2 to 4.4).
///
/// A message is accepted when it has matched or has a record at the receiver. Until then it is here, in order of
/// sending: to be requested, requested, or refused. Requests of one age leave in the order of the queue. A new age
/// makes a request that has no answer one to be made again, since the receiver refuses it: it came, or will come, with
/// the old one. Refused messages are requested again when a receive that they fit is offered, or all of them in a full
/// pass.
///
/// Pure. Owner: the engine's state of a peer. Explored with Refusals: tests/exhaustive/unexpected_memory_test.cc.
#pragma once

#include <cstdint>

#include "match/envelope.h"
#include "velo/base/check.h"

namespace velo::match {

/// One message. Part of its request.
struct Pending {
    enum class State : uint8_t {
        kWaits,      ///< for its turn
        kRequested,  ///< with the present age, and no answer yet
        kRefused,
    };

    uint64_t number;  ///< in order of sending
    Envelope envelope;
    uint32_t chosen_age;  ///< of the last pass in which an offer chose it
    State state;
};

/// `Queue` holds the messages in their order: Ref, kNone, first(), after(ref), last(), at(ref) which is a Pending, and
/// first_fit(receive, test): the first that fits and of which test(pending) is true.
template <class Queue>
class PendingSends {
  public:
    using Ref = typename Queue::Ref;

    struct Next {
        enum class Kind : uint8_t { kNothing, kRequest, kEnd };

        Kind kind = Kind::kNothing;
        Ref ref = Queue::kNone;  ///< of a request
        uint32_t age = 0;
        bool first = false;  ///< of a request: no other one waits before it
    };

    /// The next thing to be sent, for which the caller has room. A message was added, an answer or a pass has come, or
    /// this gave something: then it is called again.
    [[nodiscard]] Next next(Queue& queue, uint32_t window) {
        Ref ref = queue.first();
        while (ref != Queue::kNone && queue.at(ref).state != Pending::State::kWaits) ref = queue.after(ref);
        if (end_owed_ && (ref == Queue::kNone || queue.at(ref).number >= pass_end_)) {
            end_owed_ = false;
            return {.kind = Next::Kind::kEnd, .age = age_};
        }
        if (ref == Queue::kNone || unanswered_ >= window) return {};
        queue.at(ref).state = Pending::State::kRequested;
        ++unanswered_;
        return {.kind = Next::Kind::kRequest, .ref = ref, .age = age_, .first = ref == queue.first()};
    }

    /// The receiver has taken it: it leaves the queue after this.
    void on_accepted(const Pending& pending) {
        VELO_CHECK(pending.state == Pending::State::kRequested && unanswered_ != 0, "an answer to no request");
        --unanswered_;
    }
    void on_refused(Pending& pending, uint32_t age) {
        VELO_CHECK(unanswered_ != 0, "an answer to no request");
        --unanswered_;
        // Of an older age: it is requested again, or already was.
        if (age == age_ && pending.state == Pending::State::kRequested) pending.state = Pending::State::kRefused;
    }

    /// `count` receives are offered, or all refused messages asked for.
    void on_offers(Queue& queue, uint32_t age, const Envelope* receives, uint32_t count) {
        begin_pass(queue, age);
        for (uint32_t i = 0; i < count; ++i) {
            // Two receives are for two messages.
            const Ref ref = queue.first_fit(receives[i], [age](const Pending& one) { return one.chosen_age != age; });
            if (ref == Queue::kNone) continue;
            Pending& chosen = queue.at(ref);
            chosen.chosen_age = age;
            chosen.state = Pending::State::kWaits;
        }
    }
    void on_resend_all(Queue& queue, uint32_t age) {
        begin_pass(queue, age);
        for (Ref ref = queue.first(); ref != Queue::kNone; ref = queue.after(ref)) {
            queue.at(ref).state = Pending::State::kWaits;
        }
    }

    [[nodiscard]] uint32_t unanswered() const { return unanswered_; }
    [[nodiscard]] uint32_t age() const { return age_; }
    [[nodiscard]] bool end_owed() const { return end_owed_; }
    [[nodiscard]] uint64_t pass_end() const { return pass_end_; }

  private:
    void begin_pass(Queue& queue, uint32_t age) {
        age_ = age;
        end_owed_ = true;
        pass_end_ = queue.last() == Queue::kNone ? 0 : queue.at(queue.last()).number + 1;
        for (Ref ref = queue.first(); ref != Queue::kNone; ref = queue.after(ref)) {
            if (queue.at(ref).state == Pending::State::kRequested) queue.at(ref).state = Pending::State::kWaits;
        }
    }

    uint64_t pass_end_ = 0;  ///< messages from this number on are not of the pass
    uint32_t age_ = 0;
    uint32_t unanswered_ = 0;
    bool end_owed_ = false;
};

}  // namespace velo::match
