/// The sender's queue of messages to one peer that are not accepted yet (MEM 4.2 to 4.4).
///
/// A message is accepted when it has matched or has a record at the receiver. Until then it is here, in order of
/// sending. From one place on, all wait for their first turn; before it, each is requested, or refused, or waits for
/// being requested again. Requests of one age leave in the order of the queue. A new age makes a request that has no
/// answer one to be made again, since the receiver refuses it: it came, or will come, with the old one. A refused
/// message is requested again when a receive that it fits is offered; in a full pass all are, so the place of first
/// turns goes back to the front. Each step takes time that depends on the window and the offers, and not on the queue.
///
/// Pure. Owner: the engine's state of a peer. Explored with Refusals: tests/exhaustive/unexpected_memory_test.cc.
#pragma once

#include <cstdint>

#include "match/envelope.h"
#include "velo/base/check.h"

namespace velo::match {

/// One message. Part of its request.
template <class Ref>
struct Pending {
    enum class State : uint8_t {
        kWaits,      ///< for its turn, the first one of this pass
        kAgain,      ///< waits for being requested again
        kRequested,  ///< with the present age, and no answer yet
        kRefused,
    };

    uint64_t number;  ///< in order of sending
    Envelope envelope;
    uint32_t chosen_age;  ///< of the last pass in which an offer chose it; 0: none
    Ref next;             ///< in the queue
    Ref previous;
    Ref beside;  ///< the next one that is requested, or again to be
    State state;
};

/// `Store` has the type Ref, its value kNone, at(ref) which is a Pending<Ref>, and first_fit(receive, age): of those in
/// the queue, the first that fits and whose chosen_age is another.
template <class Store>
class PendingSends {
  public:
    using Ref = typename Store::Ref;
    using State = typename Pending<Ref>::State;
    static constexpr Ref kNone = Store::kNone;

    struct Next {
        enum class Kind : uint8_t { kNothing, kRequest, kEnd };

        Kind kind = Kind::kNothing;
        Ref ref = kNone;  ///< of a request
        uint32_t age = 0;
        bool first = false;   ///< of a request: no other one waits before it
        bool wanted = false;  ///< of a request: it is made again, since a receive is there for it
        uint32_t waiting = 0;  ///< messages of the queue, with this one
    };

    /// The message, of which number and envelope are set, comes last.
    void add(Store& store, Ref ref) {
        Pending<Ref>& added = store.at(ref);
        VELO_DCHECK(last_ == kNone || store.at(last_).number < added.number, "out of order of sending");
        added.chosen_age = 0;
        added.next = added.beside = kNone;
        added.previous = last_;
        added.state = State::kWaits;
        (last_ == kNone ? first_ : store.at(last_).next) = ref;
        last_ = ref;
        if (turn_ == kNone) turn_ = ref;
        ++size_;
    }

    /// The next thing to be sent, for which the caller has capacity. A message was added, an answer or a pass has
    /// come, or this gave something: then it is called again.
    [[nodiscard]] Next next(Store& store, uint32_t window) {
        const Ref ref = again_ != kNone ? again_ : turn_;
        if (end_owed_ && (ref == kNone || store.at(ref).number >= pass_end_)) {
            end_owed_ = false;
            return {.kind = Next::Kind::kEnd, .age = age_};
        }
        if (ref == kNone || unanswered_ >= window) return {};
        const bool again = ref == again_;
        if (again) {
            again_ = store.at(ref).beside;
        } else {
            turn_ = store.at(ref).next;
        }
        insert(store, requested_, ref);
        store.at(ref).state = State::kRequested;
        ++unanswered_;
        return {.kind = Next::Kind::kRequest,
                .ref = ref,
                .age = age_,
                .first = ref == first_,
                .wanted = again,
                .waiting = size_};
    }

    /// The receiver has taken it: it is in the queue no more. False: it was not asked, and nothing has changed.
    [[nodiscard]] bool on_accepted(Store& store, Ref ref) {
        if (unanswered_ == 0 || state_of(store, ref) != State::kRequested) return false;
        const Pending<Ref>& accepted = store.at(ref);
        VELO_DCHECK(size_ != 0 && (accepted.previous == kNone) == (ref == first_), "%u messages wait", size_);
        --unanswered_;
        --size_;
        remove(store, requested_, ref);
        (accepted.previous == kNone ? first_ : store.at(accepted.previous).next) = accepted.next;
        (accepted.next == kNone ? last_ : store.at(accepted.next).previous) = accepted.previous;
        return true;
    }
    /// False: nothing was asked, and nothing has changed.
    [[nodiscard]] bool on_refused(Store& store, Ref ref, uint32_t age) {
        if (unanswered_ == 0) return false;
        --unanswered_;
        // A refusal of an older age: the message is requested again, or already was.
        if (age != age_ || state_of(store, ref) != State::kRequested) return true;
        remove(store, requested_, ref);
        store.at(ref).state = State::kRefused;
        return true;
    }

    /// `count` receives are offered. Two of them are for two messages.
    void on_offers(Store& store, uint32_t age, const Envelope* receives, uint32_t count) {
        begin_pass(store, age);
        while (requested_ != kNone) {
            const Ref ref = requested_;
            requested_ = store.at(ref).beside;
            store.at(ref).state = State::kAgain;
            insert(store, again_, ref);
        }
        for (uint32_t i = 0; i < count; ++i) {
            const Ref ref = store.first_fit(receives[i], age);
            if (ref == kNone) continue;
            store.at(ref).chosen_age = age;
            if (state_of(store, ref) != State::kRefused) continue;
            store.at(ref).state = State::kAgain;
            insert(store, again_, ref);
        }
    }
    void on_resend_all(Store& store, uint32_t age) {
        begin_pass(store, age);
        // From the place of first turns on, a state says nothing until the message is requested.
        again_ = requested_ = kNone;
        turn_ = first_;
    }

    [[nodiscard]] Ref first() const { return first_; }
    [[nodiscard]] bool empty() const { return first_ == kNone; }
    [[nodiscard]] uint32_t unanswered() const { return unanswered_; }
    [[nodiscard]] uint32_t age() const { return age_; }
    [[nodiscard]] bool end_owed() const { return end_owed_; }
    [[nodiscard]] uint64_t pass_end() const { return pass_end_; }
    [[nodiscard]] State state_of(Store& store, Ref ref) const {
        const bool waits = turn_ != kNone && store.at(ref).number >= store.at(turn_).number;
        return waits ? State::kWaits : store.at(ref).state;
    }

  private:
    void begin_pass(Store& store, uint32_t age) {
        age_ = age;
        end_owed_ = true;
        pass_end_ = last_ == kNone ? 0 : store.at(last_).number + 1;
    }
    /// Both lists beside the queue are short, and in its order.
    void insert(Store& store, Ref& list, Ref ref) {
        Ref* place = &list;
        while (*place != kNone && store.at(*place).number < store.at(ref).number) place = &store.at(*place).beside;
        store.at(ref).beside = *place;
        *place = ref;
    }
    void remove(Store& store, Ref& list, Ref ref) {
        Ref* place = &list;
        while (*place != ref) {
            VELO_DCHECK(*place != kNone, "message %llu is not in its list", number(store, ref));
            place = &store.at(*place).beside;
        }
        *place = store.at(ref).beside;
    }

    [[nodiscard]] static unsigned long long number(Store& store, Ref ref) { return store.at(ref).number; }

    Ref first_ = kNone;
    Ref last_ = kNone;
    Ref turn_ = kNone;  ///< from here on, all wait
    Ref again_ = kNone;
    Ref requested_ = kNone;
    uint64_t pass_end_ = 0;  ///< messages from this number on are not of the pass
    uint32_t age_ = 0;
    uint32_t unanswered_ = 0;
    uint32_t size_ = 0;
    bool end_owed_ = false;
};

}  // namespace velo::match
